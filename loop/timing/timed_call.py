"""A timed call: in the judge's memory, by the judge's clock, on values that no process has seen.

The worker holds the variant only. The judge writes inputs to shared memory, sends an order, and
stops its clock when the worker writes "done". A variant may change clocks, random numbers or pipes
of its process without effect. Deferred work is missing from the output, or is charged to the call.
"""

import math
import random
import time
from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from loop.base.processes import Tick
from loop.calls.arena import CAPTURED, COUNT, GIVE, OFFSETS, READY, ROTATIONS, RUN, SETTLE, WORKER_NS, InputValues
from loop.calls.call import Call, LibraryTerms, window_step
from loop.calls.invocation import DelayReader
from loop.model.dtypes import ITEM_SIZES, Device, is_floating
from loop.timing.samples import MemoryProbe, is_disturbed
from loop.workers.bench import Side
from loop.workers.judge_process import Orders
from loop.workers.messages import StageCall, Unstage
from loop.workers.program import Worker

GPU_SEGMENT_S = 1.5e-3
"""Longest segment on a GPU: its clock is even, so more rounds tell more than long segments."""
GPU_SAMPLE_S, GPU_PROBED_S = 0.5e-3, 0.1e-3
"""Length of a GPU sample (events count in half microseconds); of one that tests for caching."""
CALLS, MOST_REPLAYS = (200, 100, 50, 20, 10, 5, 2), 10
"""Calls in a CUDA graph (the most that fit a sample), and most replays of it in a sample."""
LAUNCH_S = 5e-6
"""Seconds to launch a graph. All replays are launched before the device's clock starts."""
WARM_UP_S, WARM_UP_CALLS, WARM_UP_MOST_S = 1e-3, 5, 0.1
"""A warm-up lasts this long, and until this many calls were undisturbed, at most the third."""
MIN_SAMPLES, MAX_SAMPLES = 3, 1000
SLOW_CALL_S = 0.25
"""A slower call is timed once a segment, and not tested for cached results: no values repeat."""
WARM_UP_READY_S = 0.2
"""A warm-up on a CPU ends after this much time for preparing calls."""
MOST_READY = 100
"""A segment ends when preparing calls took this many times its length."""
MOST_DISTURBED = 10
"""On a busy machine, a segment may take this many times its length to get enough clean samples."""
SECRET = random.SystemRandom()
"""Draws which samples and segments are judged: a variant could predict a known seed."""
SAMPLE_S, SLEPT_SAMPLE_S = 250e-6, 2e-3
"""A sample has as many calls as fill this: an order costs 1 us, or some 50 if the judge sleeps."""
PROBES, PROBE_CALLS = 3, 3
"""Draws of values that test for cached results, and samples on each: fresh values, the same again,
and once more, so that an effect on every other call shows in both."""
PLACES, COMPARED_BYTES = 16, 4096
"""Bytes of an output that are read when its call reports "done", and to tell two outputs apart."""
GIVEN = 4
"""One in this many results of a GPU's calls is copied to the host, besides the verified one."""
SETTLING_S = 20e-6
"""Jitter of a GPU's copy of results between samples: not counted as work of a call."""


def replays_of(once: float, sample_s: float, most: int) -> tuple[int, int]:
    """Calls in a graph (`most` at most) and its replays in a sample, if a call takes `once` s."""
    calls = next((n for n in CALLS if n * once <= sample_s and n <= most), 1)
    return calls, max(1, min(math.ceil(sample_s / (calls * once)), MOST_REPLAYS))


@dataclass
class SegmentSamples:
    """The samples of one segment, and what was observed of the variant."""

    calls: int = 1
    """Calls in a sample."""
    seconds: list[float] = field(default_factory=list)
    """Seconds of one call, sample by sample."""
    waited: list[float] = field(default_factory=list)
    """Seconds a call that worker or judge waited for a core; empty if the system reports none."""
    handed: list[float] = field(default_factory=list)
    """Seconds a call for returning the results, if they were requested."""
    clocks: list[tuple[float, float]] = field(default_factory=list)
    """On a GPU: seconds of a sample by the judge's clock, without launches, and by the device's."""
    own: bool = False
    """Whether the variant reported its own times."""
    output: bytes | None = None
    """The output of the call whose answer the judge knows."""
    known: int = 0
    """Index of the sample with that call."""
    changed: list[str] = field(default_factory=list)
    """Names of inputs that the variant overwrote."""
    broken: list[str] = field(default_factory=list)
    """Names of what the variant replaced in its process."""
    unwritten: bool = False
    """Whether a call of the same sample did not write its output."""
    writes: list[str] = field(default_factory=list)
    """Writes outside of tensors, or after "done"; a sentence each."""


Windows = list[tuple[int, ...]]
"""For each call, where its inputs start in shared memory: one offset an input, in elements."""


class Grid:
    """Where a call's inputs may start in memory. A generator's inputs for a call share one draw."""

    def __init__(self, call: Call, device: Device, draw: random.Random) -> None:
        self.call, self.draw = call, draw
        steps = [
            max(1, (tensor.elements + tensor.extra_elements) // call.draws)
            if call.draws > 1
            else window_step(tensor.dtype, device)
            for tensor in call.inputs
        ]
        self.places = [
            range(0, tensor.extra_elements + 1, step) for tensor, step in zip(call.inputs, steps, strict=True)
        ]
        """Possible offsets of each input, in elements."""
        self.is_few = bool(call.structure) and device == "cpu"
        """Whether a generator gives few draws, on a CPU. A GPU's graph caches none."""
        self._first = draw.randrange(call.draws)
        self._only: int | None = None
        """The one draw, at one address, that all calls get for now; None: any."""

    def windows(self, calls: int) -> Windows:
        """Randomly drawn offsets for this many calls."""
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
        """In this context, every call gets one draw: the first, or the one `number` after it."""
        self._only = (self._first + number) % self.call.draws if self.is_few else None
        try:
            yield
        finally:
            self._only = None

    def turns(self, window: Sequence[int] | None) -> list[int]:
        """Elements to rotate each input by, so that `window` holds the values of known answer.

        None: random, from the same distribution, so a variant sees no difference. Rotations go by
        elements, windows by steps, so values seldom repeat. A generator's draws move as a whole.
        """
        if self.call.structure:
            turn = self._draws_between(window) if self._only is None else self._only
            return list(self._of_draw(turn))
        turns = []
        for n, tensor in enumerate(self.call.inputs):
            size = tensor.elements + tensor.extra_elements
            known = tensor.offset if window else self.draw.randrange(tensor.extra_elements + 1)
            place = window[n] if window else self.draw.choice(self.places[n])
            turns.append((known - place) % size if size else 0)
        return turns

    def _draws_between(self, window: Sequence[int] | None) -> int:
        """Draws from a window to the one with the known answer; random if `window` is None."""
        for tensor, places, offset in zip(self.call.inputs, self.places, window or (), strict=False):
            if len(places) > 1:
                return (places.index(tensor.offset) - places.index(offset)) % self.call.draws
        return self.draw.randrange(self.call.draws)


class TimedCall:
    """One side's call of one workload, in a worker process that has loaded the side."""

    def __init__(
        self,
        worker: Worker,
        call: Call,
        values: Sequence[InputValues],
        side: Side,
        device: Device,
        *,
        floor_s: float,
        most_calls: int,
    ) -> None:
        """`floor_s`: seconds of an empty order; `most_calls`: of a sample, each needs memory."""
        self.worker, self.call, self.floor_s = worker, call, floor_s
        self.arena, self.draw = worker.arena, random.Random()
        """`draw` picks input values fast; what is judged must not depend on it (see `SECRET`)."""
        self.arena.lay_out(call, values, most_calls)
        self.grid = Grid(call, device, self.draw)
        self.peak_bytes: int | None = None
        self.is_program = side.kind == "command"
        self.returns = side.kind == "python" or bool(call.updates)
        """Whether the worker has to copy results to their slots."""
        own_device = side.terms.device if isinstance(side.terms, LibraryTerms) else device
        self.replays = own_device == "cuda" and not self.is_program
        """Whether a GPU replays the calls; then the device's clock times samples, too."""
        self.returns_same_buffer: bool | None = None
        """Whether calls of a sample return one buffer; then one call is a sample. None: unknown."""
        self._places: list[int] = []
        self._glimpse = b""
        """Some bytes of the last output, read when the worker reported "done"."""
        self.orders = Orders(worker, 0.0, "")
        self._replayed: dict[int, Windows] = {}
        self._replays, self._once = 1, 0.0
        """Replays of a graph; seconds of one call, by warm-up or slow staging, else 0."""
        self._standing, self._begun = 0, 0.0
        """Number of calls that are prepared; when staging began."""

    def begin_stage(self) -> None:
        """Have the worker map the call's memory, and make the call once, on values not judged."""
        with self.grid.only(0):
            turns, (window,) = self.grid.turns(None), self._windows(1)
        self._write(turns)
        request = StageCall(
            call=self.call if self.is_program else self.call.at_first_windows().replace(key=""),
            shared_bytes=self.arena.size,
            input_offsets=tuple(pool.offset for pool in self.arena.pools),
            output_offsets=tuple(self.arena.output_offsets),
            window_starts=window,
            rotations=tuple(self.arena.control_words[ROTATIONS : ROTATIONS + len(turns)]),
        )
        self._begun = time.monotonic()
        self.worker.send(request)

    def staged(self, limit_s: float, note: str, *, alone: bool) -> Generator[Tick, None, None]:
        """Wait until the worker has done what `begin_stage` asked.

        `alone`: nothing else was staged meanwhile. Then a slow first call counts as the call's own
        time, and the warm-up is left out.
        """
        reply = yield from self.worker.receive(limit_s, note)
        if alone and (took_s := time.monotonic() - self._begun) > 2 * SLOW_CALL_S and not self.returns:
            self._once = took_s
        self.peak_bytes = reply
        self.orders = Orders(self.worker, limit_s, note)

    def segment(self, seconds: float, *, judged: bool) -> Generator[Tick, None, SegmentSamples]:
        """Samples that fill this many seconds, three at least.

        If `judged`, one random sample holds the call whose answer is known. So a variant cannot
        rely on early or late calls, and a process never meets the same values twice.
        """
        sampled, waits = SegmentSamples(), DelayReader(self.worker.child.process.pid)
        seconds = min(seconds, GPU_SEGMENT_S) if self.replays else seconds
        self.orders.enter()
        try:
            with self.orders.keep_off_worker_cores():
                if self.is_program:
                    yield from self._run_program(sampled, waits)
                else:
                    once = yield from self._warm_up(waits, min(WARM_UP_S, seconds))
                    yield from self._see_memory(waits, self._calls_at_once(once))
                    sampled.calls = self._calls_at_once(once)
                    yield from self._fill(sampled, waits, seconds, once, judged=judged)
        finally:
            waits.close()
        sampled.broken = list((yield from self.orders.leave()))
        return sampled

    def _fill(
        self, sampled: SegmentSamples, waits: DelayReader, seconds: float, once: float, *, judged: bool
    ) -> Generator[Tick, None, None]:
        """Take samples until clean ones fill this many seconds; `once`: seconds of one call.

        A segment that takes far longer than planned ends early; the judged sample then comes soon.
        """
        calls, least = sampled.calls, 1 if once > SLOW_CALL_S else MIN_SAMPLES
        expected = max(least, min(int(seconds / (calls * self._replays * once)), MAX_SAMPLES))
        place = SECRET.randrange(expected)  # Index of the sample with the verified call.
        sound = spent = early = 0.0  # Seconds: clean samples, all samples, preparing.
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
                spent += yield from self._return_results(sampled, calls, chosen, bring=known or self._soon())
            spent += whole
            sound += 0.0 if is_disturbed(whole, waited) else whole
            late = spent >= MOST_DISTURBED * seconds or early >= MOST_READY * seconds

    def _timed(self, waits: DelayReader, calls: int) -> Generator[Tick, None, tuple[float, float | None]]:
        """Order this many calls; seconds by the judge's clock, and seconds of waiting for a core.

        The cost of the order itself is subtracted.
        """
        self.arena.control_words[COUNT] = self._passes() if self.replays else calls
        before = waits.read()
        self.arena.restore_elements()
        whole = yield from self.orders.give_order(RUN)
        if self._places:
            self._glimpse = self.arena.read_output_bytes(calls - 1, self._places)
        after = waits.read()
        waited = (
            after.added_wait_s(before, is_core_shared=self.worker.bell is not None) if before and after else None
        )
        return max(whole - self.floor_s, whole / 10), waited

    def _see_memory(self, waits: DelayReader, calls: int) -> Generator[Tick, None, None]:
        """Check once whether the variant returns the same buffer for every call of a sample.

        If so, a sample becomes one call, since later calls overwrite earlier results. The test:
        calls on other inputs return the first call's bytes; another sample returns others.
        """
        if self.returns_same_buffer is not None or not self.returns or calls == 1:
            return
        samples = []
        for _ in range(2):
            windows = self._windows(calls)
            yield from self._ready(windows, self.grid.turns(None))
            yield from self._timed(waits, calls)
            yield from self.orders.give_order(GIVE)
            begins = [self.arena.read_output(number)[:COMPARED_BYTES] for number in range(calls)]
            samples.append((windows, begins))
        (windows, begins), (_, others) = samples
        later = {text for window, text in zip(windows, begins, strict=True) if window != windows[0]}
        self.returns_same_buffer = begins[0] in later and begins[0] != others[0]

    def _soon(self) -> bool:
        """True once in `GIVEN` times, at random."""
        return SECRET.random() < 1 / GIVEN

    def _passes(self) -> int:
        """How often one order makes the calls. On a CPU once: a repeat would see known values."""
        return self._replays if self.arena.control_words[CAPTURED] else 1

    def _note(self, sampled: SegmentSamples, whole: float, waited: float | None, calls: int) -> None:
        if self.replays:
            own_s = self.arena.control_words[WORKER_NS] / 1e9
            if not is_disturbed(whole, waited):
                sampled.clocks.append((max(whole - LAUNCH_S * self._passes(), own_s), own_s))
            whole = min(own_s, whole) or whole
        sampled.seconds.append(whole / calls)
        if waited is not None:
            sampled.waited.append(waited / calls)

    def _return_results(
        self, sampled: SegmentSamples, calls: int, chosen: int | None, *, bring: bool
    ) -> Generator[Tick, None, float]:
        """Have the worker finish and return its results; the seconds that this took.

        `chosen`: the call of the sample to verify, or None. Its output is copied while the worker
        is stopped; changed inputs and late writes are recorded then. `bring`: copy a GPU's results
        to the host, too.
        """
        handed_s = 0.0
        if self.replays and bring:
            self.arena.poison_outputs(calls)
        if self.returns:  # Other kernels wrote into a given output.
            handed_s = yield from self.orders.give_order(SETTLE if self.replays else GIVE)
            usual_s = self.floor_s + (SETTLING_S if self.replays else 0.0)
            sampled.handed.append(max(0.0, handed_s - usual_s) / calls)
        if self.replays and bring:  # Our own copy to the host: not charged.
            handed_s += yield from self.orders.give_order(GIVE)
        if chosen is None:
            return handed_s
        with self.worker.while_stopped():
            sampled.output, sampled.known = self.arena.read_output(chosen), len(sampled.seconds) - 1
            sampled.changed = self.arena.changed_inputs()
            sampled.unwritten = is_floating(self.call.output.dtype) and self.arena.has_unwritten_output(calls)
            if self._places and self.arena.read_output_bytes(calls - 1, self._places) != self._glimpse:
                sampled.writes.append("writes its output after it said that it was done")
        return handed_s

    def _warm_up(self, waits: DelayReader, seconds: float) -> Generator[Tick, None, float]:
        """Make calls for this many seconds; returns seconds of one, the shortest undisturbed.

        Samples grow meanwhile, because the order outweighs a single short call. Values are always
        fresh, so that caching does not help. On a GPU single calls suffice, by its clock.
        """
        if self._once > SLOW_CALL_S:
            return self._once
        seconds = 0.0 if self.replays and not self._once else seconds
        enough, self._replays = 1 if self._once else WARM_UP_CALLS, 1
        stands = self._standing if self.replays and self._once and not self.call.updates else 0
        calls = stands or (self._calls_at_once(self._once) if self._once and seconds else 1)
        spent, early, sounds = 0.0, 0.0, 0
        rough = sound = math.inf  # Seconds of the fastest call, and of the fastest clean one.
        while True:
            if not stands:  # Else repeat the prepared calls.
                ready_s = yield from self._ready(self._windows(calls), self.grid.turns(None))
                early += 0.0 if self.replays else ready_s
            whole, waited = yield from self._timed(waits, calls)
            once = self._own(whole) / (calls * self._passes())  # On a GPU by its own clock.
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
        """Calls in a sample, if one takes `once` seconds: as many as the clock needs."""
        most, target = len(self.arena.output_offsets), SLEPT_SAMPLE_S if self.worker.bell else SAMPLE_S
        if single or self.returns_same_buffer or self.call.updates:  # Updated inputs need a rewrite.
            self._replays = 1
            return 1
        if not self.replays:
            return max(1, min(math.ceil(target / once), most))
        calls, self._replays = replays_of(once, replayed_s, most)
        return calls

    def _run_program(self, sampled: SegmentSamples, waits: DelayReader) -> Generator[Tick, None, None]:
        """A program's samples: by its own clock if it has one, else by its whole run."""
        self.arena.poison_outputs(1)
        for number in range(MIN_SAMPLES):
            whole, _ = yield from self._timed(waits, 1)
            sampled.seconds.append(self.arena.control_words[WORKER_NS] / 1e9 or whole)
            sampled.own = sampled.own or self.arena.control_words[WORKER_NS] > 0
            if number == MIN_SAMPLES - 1:
                yield from self.orders.give_order(GIVE)
                sampled.output = self.arena.read_output(0)

    def probe(self) -> Generator[Tick, None, MemoryProbe | None]:
        """Fastest call on new values, and on repeated ones; None for a program or a slow call.

        Only the values differ: both find inputs just written, an output just poisoned and the same
        addresses. So a cold cache does not look like cached results. The first draw is a warm-up.
        Draws in which a call waited for a core are left out, if there are others.
        """
        if self.is_program:
            return None
        waits, drawn = DelayReader(self.worker.child.process.pid), list[MemoryProbe]()
        self.orders.enter()
        try:
            with self.orders.keep_off_worker_cores():
                with self.grid.only(0):
                    once = yield from self._warm_up(waits, WARM_UP_S / 5)
                calls = self._calls_at_once(once, single=self.grid.is_few, replayed_s=GPU_PROBED_S)
                self._replays = 1  # A second pass would see known values.
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
        yield from self.orders.leave()
        some = [probe for probe in drawn[1:] if probe.is_undisturbed] or drawn[1:]
        return MemoryProbe(*map(min, zip(*some, strict=True))) if some else None

    def _own(self, whole: float) -> float:
        """Seconds of a sample by the device's clock, if there is one, else `whole`."""
        return (self.arena.control_words[WORKER_NS] / 1e9 if self.replays else 0.0) or whole

    def forget(self, limit_s: float, note: str) -> Generator[Tick, None, None]:
        """Have the worker release the memory."""
        yield from self.worker.ask(Unstage(), limit_s=limit_s, note=note)
        self.arena.free_tensors()

    def _windows(self, calls: int) -> Windows:
        """Offsets for this many calls; redrawn on a CPU, fixed for a graph."""
        if self.replays and calls in self._replayed:
            return self._replayed[calls]
        windows = self.grid.windows(calls)
        if self.replays:
            self._replayed[calls] = windows
        return windows

    def _write(self, turns: Sequence[int]) -> None:
        """Write the inputs, each rotated by this many elements."""
        for n, (pool, count) in enumerate(zip(self.arena.pools, turns, strict=True)):
            turned = count * ITEM_SIZES[pool.tensor.dtype]
            self.arena.control_words[ROTATIONS + n] = turned
            pool.write_rotated(self.arena.base_address, turned)

    def _ready(self, windows: Windows, turns: Sequence[int]) -> Generator[Tick, None, float]:
        """Write inputs, poison outputs, have the worker prepare its calls; seconds of preparing."""
        words = self.arena.control_words
        self._write(turns)
        if not self.replays:  # The worker poisons a GPU's outputs.
            self.arena.poison_outputs(len(windows))
        flat = array("Q", [offset for window in windows for offset in window])
        words[OFFSETS : OFFSETS + len(flat)] = memoryview(flat)
        words[COUNT] = len(windows)
        self._standing = len(windows)
        if not self.replays:
            self._spoil(windows)
        return (yield from self.orders.give_order(READY))

    def _spoil(self, windows: Windows) -> None:
        """Withhold one element of each call's inputs until the order, so none is computed earlier.

        Until then it is NaN, which no result hides, or has the other sign, which looks innocent.
        """
        chance = self.draw.random
        some = [
            (n, tensor.elements, 1 << 8 * ITEM_SIZES[tensor.dtype] - 1)
            for n, tensor in enumerate(self.call.inputs)
            if tensor.elements and is_floating(tensor.dtype)  # A wrong integer index could crash the worker.
        ]
        for window in windows if some else ():
            n, elements, sign = some[int(chance() * len(some))]
            self.arena.change_element(n, window[n] + int(chance() * elements), sign if chance() < 0.5 else 0)
        there = 0 if self.returns else self.arena.output_bytes  # Returned results arrive later.
        self._places = [self.draw.randrange(there) for _ in range(PLACES)] if there else []
