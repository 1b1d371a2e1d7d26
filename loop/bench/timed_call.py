"""A call that the judge times: in the judge's memory, by the judge's clock, on values that nobody has seen.

The worker holds the variant and nothing else. The judge writes inputs into shared memory, gives an order and stops
its clock at the word that says "done". What a variant does to clocks, random numbers or pipes of its own process
changes nothing, and what it leaves for later is not in the output, or is paid for when the result is handed over.
"""

import math
import random
from array import array
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loop.bench.arena import Values
from loop.bench.call import Call, step_of
from loop.bench.child.control import CAPTURED, COLD, COUNT, GIVE, OFFSETS, OWN_NS, READY, ROTATIONS, RUN
from loop.bench.orders import Orders
from loop.bench.waits import Waits
from loop.bench.worker import Worker
from loop.model.device import Device
from loop.model.measurement import CLEAN
from loop.model.target import ITEM_SIZES
from loop.processes import Tick

SAMPLE_S, SLEPT_SAMPLE_S = 100e-6, 2e-3
"""A sample holds as many calls as fill this. An order costs a microsecond where the judge has a core of its own,
and some fifty where it has to sleep."""
MIN_SAMPLES, MAX_SAMPLES = 3, 1000
COLD_SAMPLES = 5
"""Samples of a segment for each of which the caches are emptied first: that takes milliseconds."""
WARM_UP_S, WARM_UP_CALLS, WARM_UP_MOST_S = 1e-3, 5, 0.1
"""Calls are made for so long before a segment, until so many of them were not disturbed, or the time is over."""
MOST_DISTURBED = 10
"""Where others keep the cores busy a segment takes up to so many times its time to get enough sound samples."""
PROBES, PROBE_CALLS = 3, 3
"""Draws of values to tell whether a variant remembers them, and samples on each: on values that are fresh, on the
same again, and once more, so that what happens at every other call comes to both."""
GIVEN = 4
"""One sample in so many is handed over, besides the one that is judged."""
REPLAYED, MOST_REPLAYS = (200, 100, 50, 20, 10, 5, 2), 50
"""Calls in a CUDA graph, the most that take no longer than a sample, and replays of it in one sample at most."""
Windows = list[list[int]]


@dataclass
class Sampled:
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
    """Of a GPU: seconds of a sample by the judge's clock, and by the device's."""
    own: bool = False
    """Whether the variant timed itself."""
    output: bytes | None = None
    """The output of the call whose answer is known."""
    changed: list[str] = field(default_factory=list)
    """Inputs that do not hold what the judge wrote."""
    broken: list[str] = field(default_factory=list)
    """What the variant replaced in its process, by name."""
    writes: list[str] = field(default_factory=list)
    """Writes outside of tensors, a sentence each."""


def disturbed(whole: float, waited: float | None) -> bool:
    """Whether a sample says more of the machine than of the call; both in seconds."""
    return waited is not None and waited > CLEAN * whole


def calls_known(sounds: int, spent: float, seconds: float) -> bool:
    """Whether a warm-up has gone on for long enough to know how long a call takes, with so many sound samples."""
    if spent < seconds:
        return False
    return sounds >= WARM_UP_CALLS or spent >= (WARM_UP_MOST_S if sounds else 5 * WARM_UP_MOST_S)


@dataclass(frozen=True)
class Setup:
    """What all timed calls of a session share."""

    device: Device
    floor_s: float
    """Seconds that an order takes which does nothing."""


class TimedCall:
    """One side's call of one workload, in a worker that has loaded the side."""

    def __init__(self, worker: Worker, call: Call, values: Sequence[Values], seed: str, terms: "Setup") -> None:
        self.worker, self.call, self.floor_s = worker, call, terms.floor_s
        self.arena, self.draw = worker.arena, random.Random(seed)
        self.arena.lay_out(call, values)
        self.steps = [step_of(tensor.dtype, terms.device) for tensor in call.inputs]
        self.peak_bytes: int | None = None
        self.replays = self.returns = self.is_program = False
        """Whether calls are replayed on a GPU, a call returns a result of its own, it is a program."""
        self.orders = Orders(worker, 0.0, "")
        self._replayed: dict[int, Windows] = {}
        self._replays = 1

    def stage(
        self, limit_s: float, note: str, mistake: Mapping[str, Any] | None = None
    ) -> Generator[Tick, None, None]:
        """Have the worker take the call's memory, and make the call once, on values that are not looked at.

        `mistake`: what a control does wrong, in a worker that has loaded the variant without it.
        """
        turns, window = self._turns(None), self._window()
        self._write(turns)
        fields = {"call": self.call.to_json(), "places": self.arena.places(), "size": self.arena.size}
        fields["mistake"] = dict(mistake) if mistake else None
        fields |= {"window": window, "turns": list(self.arena.words[ROTATIONS : ROTATIONS + len(turns)])}
        reply = yield from self.worker.ask("stage", limit_s=limit_s, note=note, **fields)
        peak = reply.get("peak_bytes")
        self.peak_bytes = int(peak) if isinstance(peak, int | float) else None
        self.replays, self.returns = bool(reply.get("replays")), bool(reply.get("returns"))
        self.is_program = bool(reply.get("program"))
        self.orders = Orders(self.worker, limit_s, note)

    def segment(self, seconds: float, *, cold: bool, judged: bool) -> Generator[Tick, None, Sampled]:
        """Samples until they fill so many seconds, three at least.

        One of them, drawn beforehand from those that are expected, holds the call whose answer is known where it
        is `judged`: no early or late call is safe, and a process that met the values twice could know them.
        """
        found, waits = Sampled(), Waits(self.worker.child.process.pid)
        self.orders.begin()
        try:
            with self.orders.aside():
                yield from self._fill(found, waits, seconds, cold=cold, judged=judged)
        finally:
            waits.close()
        reply = yield from self.orders.end()
        found.broken = [str(name) for name in reply.get("broken", ())]
        found.writes = [*self.arena.strays(), *(str(text) for text in reply.get("writes", ()))]
        return found

    def _fill(
        self, found: Sampled, waits: Waits, seconds: float, *, cold: bool, judged: bool
    ) -> Generator[Tick, None, None]:
        if self.is_program:
            yield from self._run_program(found, waits)
            return
        once = yield from self._warm_up(waits, 0.0 if cold else min(WARM_UP_S, seconds))
        calls = found.calls = self._calls_at_once(once, cold=cold)
        most = COLD_SAMPLES if cold else MAX_SAMPLES
        place = self.draw.randrange(max(MIN_SAMPLES, min(int(seconds / (calls * self._replays * once)), most)))
        sound = spent = 0.0
        while len(found.seconds) <= max(place, MIN_SAMPLES - 1) or (
            sound < seconds and spent < MOST_DISTURBED * seconds and len(found.seconds) < most
        ):
            known = judged and len(found.seconds) == place
            windows = self._windows(calls)
            chosen = self.draw.randrange(calls) if known else None
            turns = self._turns(None if chosen is None else windows[chosen])
            if (
                chosen is not None and self.returns
            ):  # A result may stand where the next one will: it has to be last.
                windows = windows[: chosen + 1]
            yield from self._ready(windows, turns, cold=cold)
            whole, waited = yield from self._timed(waits, len(windows))
            self._note(found, whole, waited, len(windows) * self._passes())
            spent += whole
            sound += 0.0 if disturbed(whole, waited) else whole
            if len(found.seconds) - 1 == place or self.draw.random() < 1 / GIVEN:
                yield from self._hand_over(found, len(windows), chosen)

    def _timed(self, waits: Waits, calls: int) -> Generator[Tick, None, tuple[float, float | None]]:
        """Have so many calls made; seconds by the judge's clock, and seconds of waiting for a core meanwhile.

        What the order itself takes is not counted.
        """
        self.arena.words[COUNT] = self._passes() if self.replays else calls
        before = waits.read()
        whole = yield from self.orders.give(RUN)
        after = waits.read()
        waited = None if before is None or after is None else after - before
        return max(whole - self.floor_s, whole / 10), waited

    def _passes(self) -> int:
        """Times that ready calls are made: a host that is asked each time would know the values."""
        return self._replays if self.arena.words[CAPTURED] else 1

    def _note(self, found: Sampled, whole: float, waited: float | None, made: int) -> None:
        """Add a sample of so many calls."""
        if self.replays:
            own_s = self.arena.words[OWN_NS] / 1e9
            if not disturbed(whole, waited):
                found.clocks.append((whole, own_s))
            whole = min(own_s, whole) or whole
        found.seconds.append(whole / made)
        if waited is not None:
            found.waited.append(waited / made)

    def _hand_over(self, found: Sampled, calls: int, chosen: int | None) -> Generator[Tick, None, None]:
        """Look at the call whose answer is known, and at the inputs, while the worker stands still."""
        if self.replays or self.returns:
            taken = yield from self.orders.give(GIVE)
            if self.returns:  # What a kernel wrote to memory that it was given is there: bringing it is our work.
                found.handed.append(max(0.0, taken - self.floor_s) / calls)
        if chosen is None:
            return
        with self.worker.stopped():
            found.output = self.arena.output(chosen)
            found.changed = self.arena.changed()

    def _warm_up(self, waits: Waits, seconds: float) -> Generator[Tick, None, float]:
        """Make calls until so many seconds are over; seconds of one, the shortest that nothing disturbed.

        Samples grow meanwhile: of a single short call the order itself is the longer part.
        """
        calls, sounds, spent, self._replays = 1, 0, 0.0, 1
        sound, rough = math.inf, math.inf
        while not calls_known(sounds, spent, seconds) or rough == math.inf:
            yield from self._ready(self._windows(calls), self._turns(None), cold=False)
            whole, waited = yield from self._timed(waits, calls)
            taken = (
                self.arena.words[OWN_NS] / 1e9 or whole
            ) / calls  # A GPU's calls are sized by the GPU's clock.
            rough, spent = min(rough, taken), spent + whole
            if not disturbed(whole, waited):
                sound, sounds = min(sound, taken), sounds + 1
                calls = 1 if self.replays or not seconds else self._calls_at_once(sound, cold=False)
        return max(rough if sound == math.inf else sound, 1e-8)

    def _calls_at_once(self, once: float, *, cold: bool) -> int:
        """Calls in a sample, from the seconds of one: as many as the clock needs, and no more."""
        most, target = len(self.arena.slots), SLEPT_SAMPLE_S if self.worker.bell else SAMPLE_S
        if cold:
            return 1
        if not self.replays:
            return max(1, min(math.ceil(target / once), most))
        calls = next((n for n in REPLAYED if n * once <= SLEPT_SAMPLE_S and n <= most), 1)
        self._replays = max(1, min(math.ceil(SLEPT_SAMPLE_S / (calls * once)), MOST_REPLAYS))
        return calls

    def _run_program(self, found: Sampled, waits: Waits) -> Generator[Tick, None, None]:
        """A program's samples: by its own clock where it has one, else of its whole runs."""
        self.arena.poison(1)
        for number in range(MIN_SAMPLES):
            whole, _ = yield from self._timed(waits, 1)
            own_s = self.arena.words[OWN_NS] / 1e9
            found.own = found.own or own_s > 0
            found.seconds.append(own_s or whole)
            if number == MIN_SAMPLES - 1:
                yield from self.orders.give(GIVE)
                found.output = self.arena.output(0)

    def probe(self) -> Generator[Tick, None, tuple[float, float]]:
        """Shortest seconds of a call on values it has not seen, and of one on the values it has just seen.

        Nothing but the values tells the two apart: both find inputs just written, an output just poisoned and the
        same addresses, so that a cold cache is no memory. Each comes three times in all, for what happens at every
        other call comes to both. The first draw warms up.
        """
        if self.is_program:
            return 0.0, 0.0
        waits = Waits(self.worker.child.process.pid)
        self.orders.begin()
        try:
            with self.orders.aside():
                once = yield from self._warm_up(waits, WARM_UP_S / 5)
                calls, pairs = self._calls_at_once(once, cold=False), []
                self._replays = 1  # A second pass would be on values that were seen.
                for _ in range(1 + PROBES):
                    pairs.append((yield from self._probe(waits, calls)))
        finally:
            waits.close()
        yield from self.orders.end()
        fresh, again = zip(*pairs[1:], strict=True)
        return min(fresh), min(again)

    def _probe(self, waits: Waits, calls: int) -> Generator[Tick, None, tuple[float, float]]:
        windows, turns, taken = self._windows(calls), self._turns(None), []
        for _ in range(PROBE_CALLS):
            yield from self._ready(windows, turns, cold=False)
            whole, _ = yield from self._timed(waits, calls)
            taken.append((self.arena.words[OWN_NS] / 1e9 or whole) / calls)
        return taken[0], taken[1]

    def forget(self, limit_s: float, note: str) -> Generator[Tick, None, None]:
        """Give the memory back."""
        yield from self.worker.ask("unstage", limit_s=limit_s, note=note)
        self.arena.clear()

    def _windows(self, calls: int) -> Windows:
        """Windows for so many calls, drawn anew; for a graph always the same ones."""
        if self.replays:
            return self._replayed.setdefault(calls, [self._window() for _ in range(calls)])
        return [self._window() for _ in range(calls)]

    def _window(self) -> list[int]:
        return [self._offset(n) for n in range(len(self.steps))]

    def _offset(self, n: int) -> int:
        return self.draw.randrange(self.call.inputs[n].room // self.steps[n] + 1) * self.steps[n]

    def _turns(self, window: Sequence[int] | None) -> list[int]:
        """Elements by which inputs are rotated, so that `window` holds the values whose answer is known.

        None: any, from the same distribution, so that nothing tells one from the other. Rotations go by
        elements, windows by steps, so that values seldom come back: fewer than a cache could hold would be no new ones.
        """
        turns = []
        for n, tensor in enumerate(self.call.inputs):
            size = tensor.elements + tensor.room
            known = tensor.offset if window else self.draw.randrange(tensor.room + 1)
            place = window[n] if window else self._offset(n)
            turns.append((known - place) % size if size else 0)
        return turns

    def _write(self, turns: Sequence[int]) -> None:
        """Write the inputs, each rotated by so many elements."""
        for n, (pool, count) in enumerate(zip(self.arena.pools, turns, strict=True)):
            turned = count * ITEM_SIZES[pool.tensor.dtype]
            self.arena.words[ROTATIONS + n] = turned
            pool.write(self.arena.base, turned)

    def _ready(self, windows: Windows, turns: Sequence[int], *, cold: bool) -> Generator[Tick, None, None]:
        """Write inputs and poison outputs; the worker points its calls to them."""
        words = self.arena.words
        self._write(turns)
        self.arena.poison(len(windows))
        flat = array("Q", [offset for window in windows for offset in window])
        words[OFFSETS : OFFSETS + len(flat)] = memoryview(flat)
        words[COUNT], words[COLD] = len(windows), int(cold)
        yield from self.orders.give(READY)
