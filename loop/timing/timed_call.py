"""A call that the judge times: in the judge's memory, by the judge's clock, on values that nobody has seen.

The worker holds the variant and nothing else. The judge writes inputs into shared memory, gives an order and stops
its clock at the word that says "done". What a variant does to clocks, random numbers or pipes of its own process
changes nothing. What it leaves for later is not in the output, or is paid for when the result is handed over.
"""

import math
import random
import time
from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from loop.base.processes import Tick
from loop.calls.arena import CAPTURED, COUNT, GIVE, OFFSETS, OWN_NS, READY, ROTATIONS, RUN, SETTLE, Values
from loop.calls.call import Call, LibraryTerms, step_of
from loop.calls.invocation import Waits
from loop.model.dtypes import ITEM_SIZES, Device, is_floating
from loop.timing.samples import MemoryProbe, is_disturbed
from loop.workers.bench import Side
from loop.workers.judge_process import Orders
from loop.workers.messages import StageCall, Unstage
from loop.workers.program import Worker

GPU_SEGMENT_S = 1.5e-3
"""Seconds of a segment on a GPU at most: its clock is so even that more rounds tell more than longer segments."""
GPU_SAMPLE_S, GPU_PROBED_S = 0.5e-3, 0.1e-3
"""Seconds of a sample on a GPU, whose events count in half microseconds; and of one that only shows whether values
are remembered."""
CALLS, MOST_REPLAYS = (200, 100, 50, 20, 10, 5, 2), 10
"""Calls in a CUDA graph, the most that take no longer than a sample, and replays of it in one sample at most."""
LAUNCH_S = 5e-6
"""Seconds that launching a graph takes. All replays are launched before the first begins by the device's clock."""
WARM_UP_S, WARM_UP_CALLS, WARM_UP_MOST_S = 1e-3, 5, 0.1
"""Calls are made for so long before a segment, until so many of them were not disturbed, or the time is over."""
MIN_SAMPLES, MAX_SAMPLES = 3, 1000
SLOW_CALL_S = 0.25
"""A call that takes longer is timed once a segment, and not probed for values it knows: it meets none twice."""
WARM_UP_READY_S = 0.2
"""A warm-up on a host ends when calls were made ready for so long."""
MOST_READY = 100
"""A segment comes to its end when calls were made ready for so many times its time."""
MOST_DISTURBED = 10
"""Where others keep the cores busy a segment takes up to so many times its time to get enough sound samples."""
SECRET = random.SystemRandom()
"""Draws which samples and segments are looked at: a seed that is known would tell."""
SAMPLE_S, SLEPT_SAMPLE_S = 250e-6, 2e-3
"""A sample holds as many calls as fill this: an order costs a microsecond, some fifty where the judge sleeps."""
PROBES, PROBE_CALLS = 3, 3
"""Draws of values to tell whether a variant remembers them, and samples on each: on values that are fresh, on the
same again, and once more, so that what happens at every other call comes to both."""
PLACES, COMPARED_BYTES = 16, 4096
"""Bytes of an output that are looked at when its call is said to be done, and that tell whether two are one."""
GIVEN = 4
"""Of so many results that a GPU's calls returned one is brought to the host, besides the one that is judged."""
SETTLING_S = 20e-6
"""What it takes to have a GPU copy results varies by so much from one sample to the next: no work of a call."""


def replays_of(once: float, sample_s: float, most: int) -> tuple[int, int]:
    """Calls in a graph, `most` at most, and replays of it in a sample, when one call takes `once` seconds."""
    calls = next((n for n in CALLS if n * once <= sample_s and n <= most), 1)
    return calls, max(1, min(math.ceil(sample_s / (calls * once)), MOST_REPLAYS))


@dataclass
class SegmentSamples:
    """What a segment came to."""

    calls: int = 1
    """Calls in a sample."""
    seconds: list[float] = field(default_factory=list)
    """Seconds of one call, sample by sample."""
    waited: list[float] = field(default_factory=list)
    """Seconds a call in which worker or judge waited for a core; empty where the system does not tell."""
    handed: list[float] = field(default_factory=list)
    """Seconds a call that handing the results over took, where that was asked for."""
    clocks: list[tuple[float, float]] = field(default_factory=list)
    """Of a GPU: seconds of a sample by the judge's clock, less the launches, and by the device's."""
    own: bool = False
    """Whether the variant timed itself."""
    output: bytes | None = None
    """The output of the call whose answer is known."""
    known: int = 0
    """Number of the sample that holds it."""
    changed: list[str] = field(default_factory=list)
    """Inputs that do not hold what the judge wrote."""
    broken: list[str] = field(default_factory=list)
    """What the variant replaced in its process, by name."""
    unwritten: bool = False
    """Whether one of the calls beside it left what stood in its output before."""
    writes: list[str] = field(default_factory=list)
    """Writes outside of tensors, or too late, a sentence each."""


Windows = list[tuple[int, ...]]
"""Where the windows of each call begin: for each call one offset an input, in elements."""


class Grid:
    """Where windows into each input may begin. All inputs that a generator makes for a call are of one draw."""

    def __init__(self, call: Call, device: Device, draw: random.Random) -> None:
        self.call, self.draw = call, draw
        steps = [
            max(1, (tensor.elements + tensor.room) // call.draws)
            if call.draws > 1
            else step_of(tensor.dtype, device)
            for tensor in call.inputs
        ]
        self.places = [range(0, tensor.room + 1, step) for tensor, step in zip(call.inputs, steps, strict=True)]
        """Of each input, in elements."""
        self.is_few = bool(call.structure) and device == "cpu"
        """Whether values come in few draws, of a generator's. On a GPU a graph has no memory of them."""
        self._first = draw.randrange(call.draws)
        self._only: int | None = None
        """The draw that is met first, and the only one that all calls get now, at one address; None: any."""

    def windows(self, calls: int) -> Windows:
        """Windows for so many calls, drawn anew."""
        if self._only is not None:
            return [self._of_draw(0)] * calls
        if self.call.structure:
            return [self._of_draw(place) for place in self.draw.choices(range(self.call.draws), k=calls)]
        drawn = [self.draw.choices(places, k=calls) for places in self.places]
        return list(zip(*drawn, strict=True)) if drawn else [()] * calls

    def _of_draw(self, number: int) -> tuple[int, ...]:
        return tuple(places[number] if len(places) > number else 0 for places in self.places)

    @contextmanager
    def only(self, number: int) -> Iterator[None]:
        """While it lasts, every call gets the same draw: the first, or the one so many after it."""
        self._only = (self._first + number) % self.call.draws if self.is_few else None
        try:
            yield
        finally:
            self._only = None

    def turns(self, window: Sequence[int] | None) -> list[int]:
        """Elements by which inputs are rotated, so that `window` holds the values whose answer is known.

        None: any, from the same distribution, so that nothing tells one from the other. Rotations go by
        elements, windows by steps, so that values seldom come back. Draws go by whole ones, all inputs alike.
        """
        if self.call.structure:
            turn = self._draws_between(window) if self._only is None else self._only
            return list(self._of_draw(turn))
        turns = []
        for n, tensor in enumerate(self.call.inputs):
            size = tensor.elements + tensor.room
            known = tensor.offset if window else self.draw.randrange(tensor.room + 1)
            place = window[n] if window else self.draw.choice(self.places[n])
            turns.append((known - place) % size if size else 0)
        return turns

    def _draws_between(self, window: Sequence[int] | None) -> int:
        """Draws from a window to the one whose answer is known; any number where there is no window."""
        for tensor, places, offset in zip(self.call.inputs, self.places, window or (), strict=False):
            if len(places) > 1:
                return (places.index(tensor.offset) - places.index(offset)) % self.call.draws
        return self.draw.randrange(self.call.draws)


class TimedCall:
    """One side's call of one workload, in a worker that has loaded the side."""

    def __init__(
        self,
        worker: Worker,
        call: Call,
        values: Sequence[Values],
        side: Side,
        device: Device,
        *,
        floor_s: float,
        most_calls: int,
    ) -> None:
        """`floor_s`: seconds of an order that does nothing; `most_calls`: of a sample, each needs memory."""
        self.worker, self.call, self.floor_s = worker, call, floor_s
        self.arena, self.draw = worker.arena, random.Random()
        """Draws the values that windows show, quickly; what is judged must not follow from them (`SECRET`)."""
        self.arena.lay_out(call, values, most_calls)
        self.grid = Grid(call, device, self.draw)
        self.peak_bytes: int | None = None
        self.is_program = side.kind == "command"
        self.returns = side.kind == "python" or bool(call.updates)
        """Whether it is a program, and whether results are brought to their slots: no worker is asked."""
        own_device = side.terms.device if isinstance(side.terms, LibraryTerms) else device
        self.replays = own_device == "cuda" and not self.is_program
        """Whether calls are replayed on a GPU, by whose clock samples are taken too."""
        self.one_memory: bool | None = None
        """Whether all calls of a sample return the same buffer: then a sample is one call."""
        self._places: list[int] = []
        self._glimpse = b""
        """Bytes at some places of the last output at the moment the worker answered."""
        self.orders = Orders(worker, 0.0, "")
        self._replayed: dict[int, Windows] = {}
        self._replays, self._once = 1, 0.0
        """Replays of a graph; seconds of one call, by the warm-up or by a slow staging; 0 before that."""
        self._standing, self._begun = 0, 0.0
        """Calls that were made ready last; when staging began."""

    def begin_stage(self) -> None:
        """Have the worker take the call's memory, and make the call once, on values that are not looked at."""
        with self.grid.only(0):
            turns, (window,) = self.grid.turns(None), self._windows(1)
        self._write(turns)
        request = StageCall(
            call=self.call if self.is_program else self.call.at_start().but(key=""),
            size=self.arena.size,
            inputs=tuple(pool.offset for pool in self.arena.pools),
            slots=tuple(self.arena.slots),
            window=window,
            turns=tuple(self.arena.words[ROTATIONS : ROTATIONS + len(turns)]),
        )
        self._begun = time.monotonic()
        self.worker.send(request)

    def staged(self, limit_s: float, note: str, *, alone: bool) -> Generator[Tick, None, None]:
        """Wait until the worker has taken the memory and made the call once, as `begin_stage` asked.

        `alone`: nothing else was staged meanwhile. Then a slow staging is taken for the call's own time, and the
        warm-up is left out.
        """
        reply = yield from self.worker.receive(limit_s, note)
        if alone and (took_s := time.monotonic() - self._begun) > 2 * SLOW_CALL_S and not self.returns:
            self._once = took_s
        self.peak_bytes = reply
        self.orders = Orders(self.worker, limit_s, note)

    def segment(self, seconds: float, *, judged: bool) -> Generator[Tick, None, SegmentSamples]:
        """Samples until they fill so many seconds, three at least.

        One of them, drawn beforehand from those that are expected, holds the call whose answer is known where it
        is `judged`: no early or late call is safe, and a process that met the values twice could know them.
        """
        sampled, waits = SegmentSamples(), Waits(self.worker.child.process.pid)
        seconds = min(seconds, GPU_SEGMENT_S) if self.replays else seconds
        self.orders.begin()
        try:
            with self.orders.aside():
                if self.is_program:
                    yield from self._run_program(sampled, waits)
                else:
                    once = yield from self._warm_up(waits, min(WARM_UP_S, seconds))
                    yield from self._see_memory(waits, self._calls_at_once(once))
                    sampled.calls = self._calls_at_once(once)
                    yield from self._fill(sampled, waits, seconds, once, judged=judged)
        finally:
            waits.close()
        sampled.broken = list((yield from self.orders.end()))
        return sampled

    def _fill(
        self, sampled: SegmentSamples, waits: Waits, seconds: float, once: float, *, judged: bool
    ) -> Generator[Tick, None, None]:
        """Take samples until sound ones fill so many seconds, when a call takes `once` seconds.

        A segment that takes far longer than it should ends; what is judged comes soon then, whenever that is.
        """
        calls, least = sampled.calls, 1 if once > SLOW_CALL_S else MIN_SAMPLES
        expected = max(least, min(int(seconds / (calls * self._replays * once)), MAX_SAMPLES))
        place = SECRET.randrange(expected)  # Of the sample that holds the call whose answer is known.
        sound = spent = early = 0.0  # Seconds of undisturbed samples, of all, and of making calls ready.
        late = False
        while True:
            number, to_judge = len(sampled.seconds), judged and sampled.output is None
            unfilled = sound < seconds and not late and number < MAX_SAMPLES
            if number >= least and not to_judge and not unfilled:
                return
            known = to_judge and (number == place or (late and self._soon()))
            windows = self._windows(calls)
            chosen = SECRET.randrange(calls) if known else None
            turns = self.grid.turns(None if chosen is None else windows[chosen])
            early += yield from self._ready(windows, turns)
            whole, waited = yield from self._timed(waits, calls)
            self._note(sampled, whole, waited, calls * self._passes())
            if known or (not late and (not self.replays or self.returns)):
                spent += yield from self._hand_over(sampled, calls, chosen, bring=known or self._soon())
            spent += whole
            sound += 0.0 if is_disturbed(whole, waited) else whole
            late = spent >= MOST_DISTURBED * seconds or early >= MOST_READY * seconds

    def _timed(self, waits: Waits, calls: int) -> Generator[Tick, None, tuple[float, float | None]]:
        """Have so many calls made; seconds by the judge's clock, and seconds of waiting for a core meanwhile.

        What the order itself takes is not counted.
        """
        self.arena.words[COUNT] = self._passes() if self.replays else calls
        before = waits.read()
        self.arena.mend()
        whole = yield from self.orders.give(RUN)
        if self._places:
            self._glimpse = self.arena.glimpse(calls - 1, self._places)
        after = waits.read()
        waited = after.since(before, shared=self.worker.bell is not None) if before and after else None
        return max(whole - self.floor_s, whole / 10), waited

    def _see_memory(self, waits: Waits, calls: int) -> Generator[Tick, None, None]:
        """Check once whether the variant returns the same buffer for every call of a sample.

        If it does, a sample is one call from then on, because later calls overwrite earlier results. Then results
        of calls on other inputs begin like the first one, and those of another sample begin otherwise.
        """
        if self.one_memory is not None or not self.returns or calls == 1:
            return
        samples = []
        for _ in range(2):
            windows = self._windows(calls)
            yield from self._ready(windows, self.grid.turns(None))
            yield from self._timed(waits, calls)
            yield from self.orders.give(GIVE)
            begins = [self.arena.output(number)[:COMPARED_BYTES] for number in range(calls)]
            samples.append((windows, begins))
        (windows, begins), (_, others) = samples
        later = {text for window, text in zip(windows, begins, strict=True) if window != windows[0]}
        self.one_memory = begins[0] in later and begins[0] != others[0]

    def _soon(self) -> bool:
        """True once in `GIVEN` times, at random."""
        return SECRET.random() < 1 / GIVEN

    def _passes(self) -> int:
        """How often one order makes the ready calls. On a host once: a second pass would meet known values."""
        return self._replays if self.arena.words[CAPTURED] else 1

    def _note(self, sampled: SegmentSamples, whole: float, waited: float | None, calls: int) -> None:
        if self.replays:
            own_s = self.arena.words[OWN_NS] / 1e9
            if not is_disturbed(whole, waited):
                sampled.clocks.append((max(whole - LAUNCH_S * self._passes(), own_s), own_s))
            whole = min(own_s, whole) or whole
        sampled.seconds.append(whole / calls)
        if waited is not None:
            sampled.waited.append(waited / calls)

    def _hand_over(
        self, sampled: SegmentSamples, calls: int, chosen: int | None, *, bring: bool
    ) -> Generator[Tick, None, float]:
        """Have the worker finish and return its results; the seconds that this took.

        `chosen`: which of the sample's calls is verified; None: none. Its output is copied while the worker is
        stopped, and inputs that changed and late writes are noted then. `bring`: a GPU's results are copied to
        the host, too.
        """
        handed_s = 0.0
        if self.replays and bring:
            self.arena.poison(calls)
        if self.returns:  # A kernel that writes into a given output has nothing to return.
            handed_s = yield from self.orders.give(SETTLE if self.replays else GIVE)
            usual_s = self.floor_s + (SETTLING_S if self.replays else 0.0)
            sampled.handed.append(max(0.0, handed_s - usual_s) / calls)
        if self.replays and bring:  # The copy to the host is our cost: it is no part of a sample.
            handed_s += yield from self.orders.give(GIVE)
        if chosen is None:
            return handed_s
        with self.worker.stopped():
            sampled.output, sampled.known = self.arena.output(chosen), len(sampled.seconds) - 1
            sampled.changed = self.arena.changed()
            sampled.unwritten = is_floating(self.call.output.dtype) and self.arena.poisoned(calls)
            if self._places and self.arena.glimpse(calls - 1, self._places) != self._glimpse:
                sampled.writes.append("writes its output after it said that it was done")
        return handed_s

    def _warm_up(self, waits: Waits, seconds: float) -> Generator[Tick, None, float]:
        """Make calls until so many seconds are over; seconds of one, the shortest that nothing disturbed.

        Samples grow meanwhile: of a single short call the order itself is the longer part. Values are fresh each
        time: who remembers them would seem quicker than it is. On a GPU, by its clock, single calls are enough.
        """
        if self._once > SLOW_CALL_S:
            return self._once
        seconds = 0.0 if self.replays and not self._once else seconds
        enough, self._replays = 1 if self._once else WARM_UP_CALLS, 1
        stands = self._standing if self.replays and self._once and not self.call.updates else 0
        calls = stands or (self._calls_at_once(self._once) if self._once and seconds else 1)
        spent, early, sounds = 0.0, 0.0, 0
        rough = sound = math.inf  # Seconds of the shortest call, and of the shortest that nothing disturbed.
        while True:
            if not stands:  # Else what was made ready last is called: how long it takes is known.
                ready_s = yield from self._ready(self._windows(calls), self.grid.turns(None))
                early += 0.0 if self.replays else ready_s
            whole, waited = yield from self._timed(waits, calls)
            once = self._own(whole) / (calls * self._passes())  # A GPU's calls are sized by the GPU's clock.
            rough, spent = min(rough, once), spent + whole
            if not is_disturbed(whole, waited):
                sound, sounds = min(sound, once), sounds + 1
                if seconds and not self.replays:
                    calls = self._calls_at_once(sound)
            most_s = WARM_UP_MOST_S if sounds else 5 * WARM_UP_MOST_S
            unclear = spent < seconds or (sounds < enough and spent < most_s)
            if early > WARM_UP_READY_S or not unclear:
                break
        self._once = max(rough if sound == math.inf else sound, 1e-8)
        return self._once

    def _calls_at_once(self, once: float, *, single: bool = False, replayed_s: float = GPU_SAMPLE_S) -> int:
        """Calls in a sample, from the seconds of one: as many as the clock needs, and no more."""
        most, target = len(self.arena.slots), SLEPT_SAMPLE_S if self.worker.bell else SAMPLE_S
        if single or self.one_memory or self.call.updates:  # What a call changes is written anew before the next.
            self._replays = 1
            return 1
        if not self.replays:
            return max(1, min(math.ceil(target / once), most))
        calls, self._replays = replays_of(once, replayed_s, most)
        return calls

    def _run_program(self, sampled: SegmentSamples, waits: Waits) -> Generator[Tick, None, None]:
        """A program's samples: by its own clock where it has one, else of its whole runs."""
        self.arena.poison(1)
        for number in range(MIN_SAMPLES):
            whole, _ = yield from self._timed(waits, 1)
            sampled.seconds.append(self.arena.words[OWN_NS] / 1e9 or whole)
            sampled.own = sampled.own or self.arena.words[OWN_NS] > 0
            if number == MIN_SAMPLES - 1:
                yield from self.orders.give(GIVE)
                sampled.output = self.arena.output(0)

    def probe(self) -> Generator[Tick, None, MemoryProbe | None]:
        """Shortest seconds of a call on unseen values, and on seen ones; None for a program and for a slow call.

        Nothing but the values tells the two apart: both find inputs just written, an output just poisoned and the
        same addresses, so that a cold cache is no memory. The first draw warms up; of a generator's few, calls
        before have had no other. Draws in which a call waited for a core are left out, if there are others.
        """
        if self.is_program:
            return None
        waits, drawn = Waits(self.worker.child.process.pid), list[MemoryProbe]()
        self.orders.begin()
        try:
            with self.orders.aside():
                with self.grid.only(0):
                    once = yield from self._warm_up(waits, WARM_UP_S / 5)
                calls = self._calls_at_once(once, single=self.grid.is_few, replayed_s=GPU_PROBED_S)
                self._replays = 1  # A second pass would be on values that were seen.
                for number in range(0 if once > SLOW_CALL_S else 1 + PROBES):
                    with self.grid.only(number):
                        windows, turns = self._windows(calls), self.grid.turns(None)
                        samples: list[tuple[float, bool]] = []
                        for _ in range(PROBE_CALLS):
                            yield from self._ready(windows, turns)
                            whole, waited = yield from self._timed(waits, calls)
                            clean = bool(self.replays) or not is_disturbed(whole, waited)
                            samples.append((self._own(whole - min(waited or 0.0, 0.99 * whole)) / calls, clean))
                        (fresh_s, first), (again_s, second) = samples[:2]
                        drawn.append(MemoryProbe(fresh_s, again_s, first and second))
        finally:
            waits.close()
        yield from self.orders.end()
        some = [probe for probe in drawn[1:] if probe.clean] or drawn[1:]
        return MemoryProbe(*map(min, zip(*some, strict=True))) if some else None

    def _own(self, whole: float) -> float:
        """Seconds of a sample by the device's clock, where there is one; else by ours."""
        return (self.arena.words[OWN_NS] / 1e9 if self.replays else 0.0) or whole

    def forget(self, limit_s: float, note: str) -> Generator[Tick, None, None]:
        """Give the memory back."""
        yield from self.worker.ask(Unstage(), limit_s=limit_s, note=note)
        self.arena.clear()

    def _windows(self, calls: int) -> Windows:
        """Windows for so many calls, drawn anew; for a graph always the same ones."""
        if self.replays and calls in self._replayed:
            return self._replayed[calls]
        windows = self.grid.windows(calls)
        if self.replays:
            self._replayed[calls] = windows
        return windows

    def _write(self, turns: Sequence[int]) -> None:
        """Write the inputs, each rotated by so many elements."""
        for n, (pool, count) in enumerate(zip(self.arena.pools, turns, strict=True)):
            turned = count * ITEM_SIZES[pool.tensor.dtype]
            self.arena.words[ROTATIONS + n] = turned
            pool.write(self.arena.base, turned)

    def _ready(self, windows: Windows, turns: Sequence[int]) -> Generator[Tick, None, float]:
        """Write inputs and poison outputs; the worker points its calls to them. Seconds that it took for that."""
        words = self.arena.words
        self._write(turns)
        if not self.replays:  # What is computed on a GPU is poisoned there.
            self.arena.poison(len(windows))
        flat = array("Q", [offset for window in windows for offset in window])
        words[OFFSETS : OFFSETS + len(flat)] = memoryview(flat)
        words[COUNT] = len(windows)
        self._standing = len(windows)
        if not self.replays:
            self._spoil(windows)
        return (yield from self.orders.give(READY))

    def _spoil(self, windows: Windows) -> None:
        """Keep one element of each call's inputs back until the very order: no result can be computed before.

        It is a NaN meanwhile, which nothing hides, or of the other sign, which nothing shows.
        """
        chance = self.draw.random
        some = [
            (n, tensor.elements, 1 << 8 * ITEM_SIZES[tensor.dtype] - 1)
            for n, tensor in enumerate(self.call.inputs)
            if tensor.elements and is_floating(tensor.dtype)  # A wild index could end the worker.
        ]
        for window in windows if some else ():
            n, elements, sign = some[int(chance() * len(some))]
            self.arena.spoil(n, window[n] + int(chance() * elements), sign if chance() < 0.5 else 0)
        there = 0 if self.returns else self.arena.slot_bytes  # Results that are handed over are there later.
        self._places = [self.draw.randrange(there) for _ in range(PLACES)] if there else []
