"""Timing inside one process: every sample on values of its own, one of them with an answer that is known."""

import ctypes
import random
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loop.bench.call import Call, TensorFile, widen
from loop.bench.child import host_clock
from loop.bench.child.clock import WINDOWS, TimedCall, calls_at_once, first_call_bytes, probe, time_segment
from loop.bench.child.refusal import Refused
from loop.bench.child.variants import CompiledCall
from loop.model.target import Fill

LONG = 1 << 14
"""Elements of a vector that has hundreds of windows."""
Seen = tuple[int, bytes]
"""Where an input lay, and what stood there."""


class Doubling:
    """Stands in for a loaded library: doubles its input in Python, and remembers what it was given."""

    def __init__(self, before: Callable[[bytes], None] = lambda values: None) -> None:
        self.seen: list[Seen] = []
        self.before = before

    def invoke(self, inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """Compute one output."""
        count = inputs[0].sizes[0]
        values = ctypes.string_at(inputs[0].data, 4 * count)
        self.before(values)
        self.seen.append((inputs[0].data, values))
        ctypes.memmove(output[0].data, struct.pack(f"{count}f", *(2 * x for x in unpack(values))), 4 * count)


def unpack(values: bytes) -> Sequence[float]:
    """float32 numbers."""
    return struct.unpack(f"{len(values) // 4}f", values)


def make_timed(folder: Path, variant: Doubling, count: int = 1024, seed: int = 3) -> tuple[TimedCall, bytes]:
    """A call on a vector with room, ready to be timed, and the output that is right for its known window."""
    file, output = (TensorFile(name, str(folder / name), (count,), "float32") for name in ("x", "y"))
    call = widen(Call("k", "float32", (file,), output, {}, ()), (Fill(),), seed)
    (wide,) = call.inputs
    draw = random.Random(seed)
    values = [draw.gauss(0, 1) for _ in range(count + wide.room)]
    Path(wide.path).write_bytes(struct.pack(f"{len(values)}f", *values))
    prepared = CompiledCall(variant, call.to_json())  # type: ignore[arg-type]
    known = unpack(Path(wide.path).read_bytes())[wide.offset : wide.offset + count]
    return TimedCall(prepared, call.to_json(), seed), struct.pack(f"{count}f", *(2 * x for x in known))


def test_no_sample_sees_the_values_of_another(tmp_path: Path) -> None:
    """Inputs are rotated and read through other windows: neither values nor what an address holds come back."""
    variant = Doubling()
    timed, _ = make_timed(tmp_path, variant, count=LONG)
    for _ in range(60):
        timed.sample(1)
    assert 55 < len({values for _, values in variant.seen}) <= 60, "one in a few hundred comes back by chance"
    held = [{values for place, values in variant.seen if place == one} for one, _ in variant.seen]
    assert 1 < max(map(len, held)), "an address is used again, and holds something else by then"


def test_calls_of_one_sample_go_through_windows_of_their_own(tmp_path: Path) -> None:
    """Also where a sample holds as many calls as it may."""
    variant = Doubling()
    timed, _ = make_timed(tmp_path, variant, count=LONG)
    timed.sample(WINDOWS)
    assert WINDOWS == len(variant.seen)
    assert WINDOWS * 0.8 < len({place for place, _ in variant.seen})


def test_a_seed_draws_the_same_windows_again(tmp_path: Path) -> None:
    """What was timed can be timed again."""
    seen = []
    for _ in range(2):
        variant = Doubling()
        timed, _ = make_timed(tmp_path, variant, seed=5)
        for _ in range(5):
            timed.sample(2)
        seen.append([values for _, values in variant.seen])
    assert seen[0] == seen[1]


def test_the_known_values_come_last_in_their_sample(tmp_path: Path) -> None:
    """Its output is what is left when the clock stops; before it the output was poisoned."""
    variant = Doubling()
    timed, right = make_timed(tmp_path, variant)
    timed.sample(4)
    assert right != timed.prepared.output()
    timed.sample(4, known=True)
    assert right == timed.prepared.output()
    assert [] == timed.prepared.changed()


def test_nothing_tells_the_known_call_from_the_others(tmp_path: Path) -> None:
    """It comes at many addresses, and after any number of calls of its sample."""
    variant = Doubling()
    timed, right = make_timed(tmp_path, variant, count=LONG)
    places, lengths = set(), set()
    for _ in range(24):
        before = len(variant.seen)
        timed.sample(4, known=True)
        assert right == timed.prepared.output()
        places.add(variant.seen[-1][0])
        lengths.add(len(variant.seen) - before)
    assert len(places) > 8
    assert {1, 2, 3, 4} == lengths


def test_a_segment_that_is_not_judged_has_no_call_on_the_known_values(tmp_path: Path) -> None:
    """A process meets them once: what came before says nothing of them."""
    variant = Doubling()
    timed, right = make_timed(tmp_path, variant, count=LONG)
    found = time_segment(timed, 1e-3, judged=False)
    assert (None, []) == (found["output"], found["changed"])
    assert right not in {struct.pack(f"{LONG}f", *(2 * x for x in unpack(values))) for _, values in variant.seen}


@pytest.mark.parametrize("cold", [False, True])
def test_a_segment_hands_over_the_output_that_is_known(cold: bool, tmp_path: Path) -> None:
    """At a random place among its samples, in every segment."""
    timed, right = make_timed(tmp_path, Doubling())
    for _ in range(4):
        found = time_segment(timed, 1e-4, cold=cold)
        assert (right, [], False) == (found["output"], found["changed"], found["own"])
        assert len(found["samples"]) >= 3
        assert min(found["samples"]) > 0


def test_a_segment_fills_its_time(tmp_path: Path) -> None:
    """Calls that take half a millisecond are sampled until the time is full."""
    timed, _ = make_timed(tmp_path, Doubling(lambda values: time.sleep(5e-4)))
    found = time_segment(timed, 8e-3)
    assert 3 <= len(found["samples"]) <= 16
    assert 1 == found["calls"]
    assert sum(found["samples"]) >= 8e-3


def test_cold_calls_are_made_one_by_one_after_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caches are emptied before each of them, and not while the clock runs."""
    done: list[str] = []
    timed, _ = make_timed(tmp_path, Doubling(lambda values: done.append("call")))
    monkeypatch.setattr(timed.prepared, "flush", lambda: done.append("flush"))
    found = time_segment(timed, 0.0, cold=True)
    assert 1 == found["calls"]
    samples = done[-2 * len(found["samples"]) :]
    assert ["flush", "call"] * len(found["samples"]) == samples


def test_a_variant_that_remembers_values_is_quicker_on_the_same_again(tmp_path: Path) -> None:
    """The probe tells the two apart; without a memory there is nothing to tell."""
    known: set[bytes] = set()

    def work(values: bytes) -> None:
        if values not in known:
            time.sleep(2e-3)
        known.add(values)

    timed, _ = make_timed(tmp_path, Doubling(work))
    fresh, again = probe(timed)
    assert fresh > 2e-3 > 2 * again
    timed, _ = make_timed(tmp_path, Doubling(lambda values: time.sleep(2e-3)))
    fresh, again = probe(timed)
    assert fresh < 2 * again


def test_a_call_that_finds_its_caches_cold_remembers_nothing(tmp_path: Path) -> None:
    """Fresh or seen, values have just been written and the output poisoned."""
    cold = [False]

    def work(values: bytes) -> None:
        if cold[0]:
            time.sleep(2e-3)
        cold[0] = False

    timed, _ = make_timed(tmp_path, Doubling(work))
    poison = timed.prepared.poison
    timed.prepared.poison = lambda: (cold.__setitem__(0, True), poison())[1]  # type: ignore[method-assign]
    fresh, again = probe(timed)
    assert fresh > 2e-3
    assert fresh < 2 * again


@pytest.mark.parametrize(
    ("once", "replays", "expected"),
    [
        (1e-6, False, 21),
        (19e-6, False, 2),
        (20e-6, False, 1),
        (1e-3, False, 1),
        (1e-6, True, 200),
        (3e-5, True, 100),
        (1e-3, True, 2),
        (1.0, True, 1),
    ],
)
def test_a_sample_holds_as_many_calls_as_the_clock_needs(once: float, replays: bool, expected: int) -> None:
    """Twenty microseconds by the host's clock; a CUDA graph is filled up to four milliseconds."""
    assert expected == calls_at_once(once, replays=replays)


def test_a_program_that_falls_silent_about_its_time_is_refused() -> None:
    """Once it has timed itself it has to go on: no other clock stands in, and no zero."""
    said = iter([0.5, 0.5, None])
    prepared = SimpleNamespace(timed_apart=True, own_seconds=lambda: next(said))
    forgetful: Any = SimpleNamespace(known=lambda: None, prepared=prepared)
    with pytest.raises(Refused, match="said how long one run took, and not of the next"):
        time_segment(forgetful, 0.001)


def test_no_call_replaces_the_clock_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up before the first of them; the seal notices the change afterwards."""

    def patch() -> None:
        monkeypatch.setattr(host_clock, "perf_counter_ns", lambda: 0)
        time.sleep(2e-3)

    assert 2e-3 <= host_clock.seconds_of([patch]) < 1
    assert 0 == host_clock.seconds_of([patch])


def test_memory_of_the_first_call_is_its_peak() -> None:
    """What it took and gave back again counts, where the system tells."""
    size = 48 << 20

    def take() -> None:
        assert size == len(bytes([1]) * size)

    found = first_call_bytes(take)
    if found is None:
        pytest.skip("this system does not tell")
    assert size * 0.9 < found < size * 1.5
