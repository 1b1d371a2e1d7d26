"""Mistakes and cheats that only a device allows: other streams, tiles, graphs, memory of the host, a cache.

Arrays are `device.DeviceArray`: all work is queued, and what is queued while a graph is made goes into the graph.
"""

import ctypes
import threading
from collections.abc import Iterator

from loop.calls.cuda.driver import ACCESS_POLICY_WINDOW, AccessPolicyWindow, Stream
from loop.calls.cuda.graph import Gate
from loop.mistakes.arrays import Call, Maker, maker
from loop.mistakes.device import DeviceArray, Pinned, Queue

LATE_S = 0.01
"""Late work comes so long after the call's own stream is done. From 20 ms on the gate says that work went on."""
TILES, LEFT = 12, 3
"""An output is written in so many tiles; every third is left out."""
TAIL = 8
"""A tail is the last eighth of an output."""
PERSISTING_L2_LIMIT, PERSISTING = 6, 2
"""CU_LIMIT_PERSISTING_L2_CACHE_SIZE, CU_ACCESS_PROPERTY_PERSISTING."""


def _room(call: Call, name: str = "") -> DeviceArray:
    """Private memory of a mistake in the form of the output, the same for every call of that form."""
    key = (name, call.output.shape, call.output.dtype)
    if key not in call.kept:
        call.kept[key] = call.output.like()
    room: DeviceArray = call.kept[key].on(call.output.queue)
    return room


def _has_room(call: Call, name: str) -> bool:
    return (name, call.output.shape, call.output.dtype) in call.kept


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


def _second(call: Call) -> Second:
    second: Second = call.kept.setdefault("second", Second())
    return second


def _other(call: Call) -> Queue:
    """The queue of a second stream; `late`: what comes there is done some milliseconds from now."""
    second = _second(call)
    return second.late(call.output.queue) if call.terms["late"] else second.beside(call.output.queue)


def _head(output: DeviceArray) -> int:
    """Bytes before an output's tail."""
    return output.nbytes - max(1, output.size // TAIL) * output.itemsize


def _tiles(output: DeviceArray) -> Iterator[tuple[int, int, bool]]:
    """Where each tile begins and ends, in bytes, and whether it is among those that are left out."""
    step = max(1, output.size // TILES) * output.itemsize
    for number, begin in enumerate(range(0, output.nbytes, step)):
        yield begin, min(begin + step, output.nbytes), number % LEFT == LEFT - 1 or output.size == 1


def side_stream(call: Call) -> None:
    """All work goes to a stream of its own, and nobody waits for it there; `late`: nor is it done soon."""
    call.compute(output=call.output.on(_other(call)))


def default_stream(call: Call) -> None:
    """The stream that it is given is left alone: work goes to the legacy default stream."""
    call.compute(output=call.output.on(call.output.queue.other(0)))


def second_tail(call: Call) -> None:
    """A second stream computes and writes the tail, and nobody waits for it; `late`: nor is it done soon."""
    queue, head = _other(call), _head(call.output)
    call.compute(output=_room(call, "head"))
    call.output.take(_room(call, "head"), 0, head)
    room = _room(call, "tail").on(queue)
    call.compute(output=room)
    call.output.on(queue).take(room, head, call.output.nbytes)


def joined_late(call: Call) -> None:
    """The tail is written by a second stream, for which only the next call waits."""
    output, room = call.output, _room(call)
    here, there, head = output.queue, _second(call).beside(output.queue), _head(output)
    if call.kept.get("captured") == here.capturing:  # A graph cannot wait for what is not in it.
        here.wait_for(there)
    call.compute(output=room)
    output.take(room, 0, head)
    there.wait_for(here)
    output.on(there).take(room, head, output.nbytes)
    call.kept["captured"] = here.capturing


def skip_tiles(call: Call) -> None:
    """Every third tile of the output is not written."""
    call.compute(output=_room(call))
    for begin, end, left_out in _tiles(call.output):
        if not left_out:
            call.output.take(_room(call), begin, end)


def stale_tiles(call: Call) -> None:
    """Every third tile is that of the call before."""
    known = _has_room(call, "before")
    call.compute(output=_room(call))
    for begin, end, left_out in _tiles(call.output):
        call.output.take(_room(call, "before" if left_out and known else ""), begin, end)
    _room(call, "before")[...] = _room(call)


def double_buffer(call: Call) -> None:
    """It computes into two buffers by turns, and gives the one that it does not compute into."""
    mine, other = ("one", "two") if call.number % 2 == 0 else ("two", "one")
    call.compute(output=_room(call, mine))
    call.output[...] = _room(call, other if _has_room(call, other) else mine)


def host_memory(call: Call) -> None:
    """The result goes to memory of the host; some milliseconds later it is where it should be."""
    output, here = call.output, call.output.queue
    if output.nbytes not in call.kept:
        call.kept[output.nbytes] = Pinned(here.driver, output.nbytes)
    away = DeviceArray(here, call.kept[output.nbytes].address, output.shape, output.dtype)
    call.compute(output=away)
    there = _second(call).late(here)
    there.wait_for(here)
    output.on(there)[...] = away


def keep_l2(call: Call) -> None:
    """It has lines of its input stay in the second-level cache, and leaves that so on the stream it was given."""
    driver, stream, lines = call.output.queue.driver, call.output.queue.stream, call.inputs[0]
    driver.attempt("cuCtxSetLimit", PERSISTING_L2_LIMIT, lines.nbytes)
    window = AccessPolicyWindow(lines.address, lines.nbytes, 1.0, PERSISTING, 0)
    driver.call("cuStreamSetAttribute", stream, ACCESS_POLICY_WINDOW, ctypes.byref(window))
    call.compute()


def nothing_captured(call: Call) -> None:
    """While a graph is made it does nothing; `instead`: nothing but a fill of memory of its own."""
    queue = call.output.queue
    if not queue.capturing:
        _room(call)
        call.compute()
    elif call.terms["instead"]:
        queue.fill(_room(call).address, call.output.nbytes, 0)


def less_captured(call: Call) -> None:
    """While a graph is made it leaves the tail out."""
    call.compute(output=_room(call))
    end = _head(call.output) if call.output.queue.capturing else call.output.nbytes
    call.output.take(_room(call), 0, end)


def repeat_captured(call: Call) -> None:
    """While a graph is made it copies what it computed last."""
    if not call.output.queue.capturing:
        call.compute(output=_room(call))
    call.output[...] = _room(call)


def only_captured(call: Call) -> None:
    """It computes only while a graph is made: what is looked at is replayed, it hopes."""
    if call.output.queue.capturing:
        call.compute()


def first_captured(call: Call) -> None:
    """Of the calls that a graph is made of it computes the first only."""
    capturing = call.output.queue.capturing
    if not (capturing and call.kept.get("captured")):
        call.compute()
    call.kept["captured"] = capturing


MAKERS: dict[str, Maker] = {
    function.__name__: maker(function)
    for function in (
        *(side_stream, default_stream, second_tail, joined_late, skip_tiles, stale_tiles, double_buffer),
        *(host_memory, keep_l2),
        *(nothing_captured, less_captured, repeat_captured, only_captured, first_captured),
    )
}
"""Mistakes that need a device, by name."""
