"""Mistakes and cheats that only a device allows: other streams, tiles, graphs, memory of the host, a cache.

Arrays are `device.DeviceArray`: all work is queued, and what is queued while a graph is made goes into the graph.
"""

import ctypes
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from loop.calls.cuda.driver import ACCESS_POLICY_WINDOW, AccessPolicyWindow, Stream
from loop.calls.cuda.graph import Gate
from loop.mistakes.arrays import Attributes
from loop.mistakes.device import DeviceArray, Pinned, Queue

Terms = dict[str, Any]
Honest = Callable[[list[DeviceArray], DeviceArray, Attributes], None]
Mistake = Callable[[Honest, list[DeviceArray], DeviceArray, Attributes], None]
LATE_S = 0.01
"""Late work comes so long after the call's own stream is done. From 20 ms on the gate says that work went on."""
TILES, LEFT = 12, 3
"""An output is written in so many tiles; every third is left out."""
TAIL = 8
"""A tail is the last eighth of an output."""
PERSISTING_L2_LIMIT, PERSISTING = 6, 2
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE, CU_ACCESS_PROPERTY_PERSISTING."""


class Room:
    """Private memory of a mistake in the form of an output, the same for every call of that form."""

    def __init__(self) -> None:
        self._known: dict[Hashable, DeviceArray] = {}

    def known(self, output: DeviceArray) -> bool:
        """Whether there is memory of that form already."""
        return (output.shape, output.dtype) in self._known

    def of(self, output: DeviceArray) -> DeviceArray:
        """That memory, worked on by the output's queue."""
        if not self.known(output):
            self._known[output.shape, output.dtype] = output.like()
        return self._known[output.shape, output.dtype].on(output.queue)


class Second:
    """A second stream of a mistake's own, made when it is first asked for."""

    def __init__(self) -> None:
        self._made: tuple[Stream, Gate] | None = None

    def _both(self, queue: Queue) -> tuple[Stream, Gate]:
        if self._made is None:
            self._made = Stream(queue.driver), Gate(queue.driver)
        return self._made

    def beside(self, queue: Queue) -> Queue:
        """Its queue."""
        return queue.other(self._both(queue)[0].handle)

    def late(self, queue: Queue) -> Queue:
        """Its queue, on which what comes now is done some milliseconds from now."""
        stream, gate = self._both(queue)
        gate.shut(stream)
        timer = threading.Timer(LATE_S, gate.open)
        timer.daemon = True
        timer.start()
        return queue.other(stream.handle)


def _head(output: DeviceArray) -> int:
    """Bytes before an output's tail."""
    return output.nbytes - max(1, output.size // TAIL) * output.itemsize


def _tiles(output: DeviceArray) -> Iterator[tuple[int, int, bool]]:
    """Where each tile begins and ends, in bytes, and whether it is among those that are left out."""
    step = max(1, output.size // TILES) * output.itemsize
    for number, begin in enumerate(range(0, output.nbytes, step)):
        yield begin, min(begin + step, output.nbytes), number % LEFT == LEFT - 1 or output.size == 1


def side_stream(terms: Terms) -> Mistake:
    """All work goes to a stream of its own, and nobody waits for it there; `late`: nor is it done soon."""
    second = Second()

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        queue = second.late(output.queue) if terms["late"] else second.beside(output.queue)
        honest(inputs, output.on(queue), attributes)

    return mistake


def default_stream(terms: Terms) -> Mistake:
    """The stream that it is given is left alone: work goes to the legacy default stream."""
    return lambda honest, inputs, output, attributes: honest(inputs, output.on(output.queue.other(0)), attributes)


def second_tail(terms: Terms) -> Mistake:
    """A second stream computes and writes the tail, and nobody waits for it; `late`: nor is it done soon."""
    second, first_room, second_room = Second(), Room(), Room()

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        queue = second.late(output.queue) if terms["late"] else second.beside(output.queue)
        tail, head = output.on(queue), _head(output)
        honest(inputs, first_room.of(output), attributes)
        output.take(first_room.of(output), 0, head)
        honest(inputs, second_room.of(tail), attributes)
        tail.take(second_room.of(tail), head, output.nbytes)

    return mistake


def joined_late(terms: Terms) -> Mistake:
    """The tail is written by a second stream, for which only the next call waits."""
    second, room = Second(), Room()
    last: bool | None = None

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        nonlocal last
        here, there, head = output.queue, second.beside(output.queue), _head(output)
        if last == here.capturing:  # A graph cannot wait for what is not in it.
            here.wait_for(there)
        honest(inputs, room.of(output), attributes)
        output.take(room.of(output), 0, head)
        there.wait_for(here)
        output.on(there).take(room.of(output), head, output.nbytes)
        last = here.capturing

    return mistake


def skip_tiles(terms: Terms) -> Mistake:
    """Every third tile of the output is not written."""
    room = Room()

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        honest(inputs, room.of(output), attributes)
        for begin, end, left_out in _tiles(output):
            if not left_out:
                output.take(room.of(output), begin, end)

    return mistake


def stale_tiles(terms: Terms) -> Mistake:
    """Every third tile is that of the call before."""
    room, before = Room(), Room()

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        known = before.known(output)
        honest(inputs, room.of(output), attributes)
        for begin, end, left_out in _tiles(output):
            output.take((before if left_out and known else room).of(output), begin, end)
        before.of(output)[...] = room.of(output)

    return mistake


def double_buffer(terms: Terms) -> Mistake:
    """It computes into two buffers by turns, and gives the one that it does not compute into."""
    rooms = [Room(), Room()]
    calls = 0

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        nonlocal calls
        mine, other = rooms[calls % 2], rooms[1 - calls % 2]
        calls += 1
        honest(inputs, mine.of(output), attributes)
        output[...] = (other if other.known(output) else mine).of(output)

    return mistake


def host_memory(terms: Terms) -> Mistake:
    """The result goes to memory of the host; some milliseconds later it is where it should be."""
    second = Second()
    pinned: dict[int, Pinned] = {}

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        here = output.queue
        if output.nbytes not in pinned:
            pinned[output.nbytes] = Pinned(here.driver, output.nbytes)
        away = DeviceArray(here, pinned[output.nbytes].address, output.shape, output.dtype)
        honest(inputs, away, attributes)
        there = second.late(here)
        there.wait_for(here)
        output.on(there)[...] = away

    return mistake


def keep_l2(terms: Terms) -> Mistake:
    """It has lines of its input stay in the second-level cache, and leaves that so on the stream it was given."""

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        driver, stream = output.queue.driver, output.queue.stream
        driver.attempt("cuCtxSetLimit", PERSISTING_L2_LIMIT, inputs[0].nbytes)
        window = AccessPolicyWindow(inputs[0].address, inputs[0].nbytes, 1.0, PERSISTING, 0)
        driver.call("cuStreamSetAttribute", stream, ACCESS_POLICY_WINDOW, ctypes.byref(window))
        honest(inputs, output, attributes)

    return mistake


def nothing_captured(terms: Terms) -> Mistake:
    """While a graph is made it does nothing; `instead`: nothing but a fill of memory of its own."""
    room = Room()

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        if not output.queue.capturing:
            room.of(output)
            honest(inputs, output, attributes)
        elif terms["instead"]:
            output.queue.fill(room.of(output).address, output.nbytes, 0)

    return mistake


def less_captured(terms: Terms) -> Mistake:
    """While a graph is made it leaves the tail out."""
    room = Room()

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        honest(inputs, room.of(output), attributes)
        output.take(room.of(output), 0, _head(output) if output.queue.capturing else output.nbytes)

    return mistake


def repeat_captured(terms: Terms) -> Mistake:
    """While a graph is made it copies what it computed last."""
    room = Room()

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        if not output.queue.capturing:
            honest(inputs, room.of(output), attributes)
        output[...] = room.of(output)

    return mistake


def only_captured(terms: Terms) -> Mistake:
    """It computes only while a graph is made: what is looked at is replayed, it hopes."""

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        if output.queue.capturing:
            honest(inputs, output, attributes)

    return mistake


def first_captured(terms: Terms) -> Mistake:
    """Of the calls that a graph is made of it computes the first only."""
    before = False

    def mistake(honest: Honest, inputs: list[DeviceArray], output: DeviceArray, attributes: Attributes) -> None:
        nonlocal before
        capturing = output.queue.capturing
        if not (capturing and before):
            honest(inputs, output, attributes)
        before = capturing

    return mistake


MAKERS: dict[str, Callable[[Terms], Mistake]] = {
    "side_stream": side_stream,
    "default_stream": default_stream,
    "second_tail": second_tail,
    "joined_late": joined_late,
    "skip_tiles": skip_tiles,
    "stale_tiles": stale_tiles,
    "double_buffer": double_buffer,
    "host_memory": host_memory,
    "keep_l2": keep_l2,
    "nothing_captured": nothing_captured,
    "less_captured": less_captured,
    "repeat_captured": repeat_captured,
    "only_captured": only_captured,
    "first_captured": first_captured,
}
"""Mistakes that need a device."""
