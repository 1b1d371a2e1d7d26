"""Timing with real processes: turn about, in fresh processes, and never silent about a loss."""

import dataclasses
import random
from collections.abc import Sequence
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from loop.bench.child.clock import time_segment
from loop.bench.child.refusal import Refused
from loop.bench.child.variants import own_seconds
from loop.bench.room import Bench, Side
from loop.bench.timing import Terms, Timings, batches, measure, turns
from loop.errors import LoopError
from loop.model.target import Workload
from loop.model.workloads import expand
from loop.processes import finish
from loop.rules.compare import log_ratios
from tests.targets import make_sides

BIG = {"N": 64, "M": 512}


def workloads(bench: Bench) -> tuple[Workload, ...]:
    """All workloads of the tiny target."""
    return expand(bench.target, ["some"], "float32")


def big(bench: Bench, dtype: str = "float32") -> Workload:
    """A workload that takes long enough to be timed well."""
    return Workload.model_validate({"name": f"big {dtype}", "sizes": BIG, "dtype": dtype})


def timed(
    bench: Bench, sides: Sequence[Side], chosen: Sequence[Workload], rounds: int = 2, limit_s: float = 60.0
) -> Timings:
    """Timings of these sides."""
    found: Timings = finish(measure(bench, sides, chosen, Terms(rounds=rounds, limit_s=limit_s, seed=1)))
    return found


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_turns_read_the_same_backwards(names: list[str]) -> None:
    """Each side twice, so that a drift that grows steadily costs all sides alike."""
    shuffle = random.Random(5)
    for _ in range(20):
        order = turns(names, shuffle)
        assert order == order[::-1]
        assert sorted(names) == sorted(order[: len(names)])


def test_turns_are_shuffled_anew() -> None:
    """No side is always first, and a seed gives the same orders again."""
    orders = [[turns(["a", "b"], shuffle) for _ in range(20)] for shuffle in (random.Random(1), random.Random(1))]
    assert orders[0] == orders[1]
    assert {"a", "b"} == {order[0] for order in orders[0]}


def test_batches_cover_every_round_once() -> None:
    """In order, none larger than asked."""
    assert [range(3), range(3, 7), range(7, 8)] == batches(8, 4)
    assert [range(2)] == batches(2, 8)
    assert [range(1), range(1, 2)] == batches(2, 1)
    assert [range(3), range(3, 5)] == batches(5, 3)


def test_a_slower_variant_measures_slower(bench: Bench) -> None:
    """Twenty times the work takes several times as long; every segment has its samples."""
    found = timed(bench, make_sides(bench, "right", "slow"), [big(bench)])
    logs = log_ratios(found.segments, "slow", "right")
    assert 2 == len(logs) == found.rounds
    assert 1.0 < median(logs), "e times as fast at least"
    assert 8 == len(found.segments), "two rounds of two sides, two turns each"
    assert all(len(segment.seconds) >= 3 and min(segment.seconds) > 0 for segment in found.segments)
    assert {0, 1} == {segment.round for segment in found.segments}


def test_every_workload_is_timed_in_every_round(bench: Bench) -> None:
    """Short calls are timed many to a sample; memory of the first call is noted once a round."""
    found = timed(bench, make_sides(bench, "right"), workloads(bench))
    counts = {w.name: sum(s.workload == w.name for s in found.segments) for w in workloads(bench)}
    assert dict.fromkeys((w.name for w in workloads(bench)), 4) == counts
    assert all(segment.calls > 1 for segment in found.segments)
    assert all(len(peaks) == 2 for peaks in found.peaks.values())
    assert set() == found.own_clock


def test_a_side_is_timed_on_types_it_takes_only(bench: Bench) -> None:
    """A float64 workload leaves out the kernel that takes float32."""
    found = timed(bench, make_sides(bench, "right", "both_types"), [big(bench), big(bench, "float64")])
    sides = {(segment.side, segment.workload) for segment in found.segments}
    assert {("right", "big float32"), ("both_types", "big float32"), ("both_types", "big float64")} == sides


def test_a_program_times_itself_and_is_marked(bench: Bench) -> None:
    """Its own figure is taken, and whose clock it was is noted."""
    found = timed(bench, make_sides(bench, "program", "right"), workloads(bench)[:1])
    assert {"program"} == found.own_clock
    assert {0.25} == {second for s in found.segments if s.side == "program" for second in s.seconds}


def test_no_round_is_begun_that_would_end_too_late(bench: Bench) -> None:
    """Two rounds are always done: an interval needs them; the rest only as time allows."""
    sides = make_sides(bench, *["right"] * 4)
    sides = [dataclasses.replace(side, name=f"right{number}") for number, side in enumerate(sides)]
    assert 2 == timed(bench, sides, workloads(bench)[:1], rounds=9, limit_s=0.001).rounds


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("crashes", "crashes could not be timed on N5 M3 float32: crashed with SIGSEGV"),
        ("refuses", "refuses could not be timed on N5 M3 float32: error 3: no such shape"),
        ("no_entry", "no_entry could not be timed on loading: the library exports no `nowhere`"),
    ],
)
def test_a_loss_names_side_and_workload(name: str, said: str, bench: Bench) -> None:
    """A crash, a refusal, a library that does not load: an error with the command that looks closer."""
    with pytest.raises(LoopError) as caught:
        timed(bench, make_sides(bench, "right", name), workloads(bench))
    assert caught.value.message.startswith(said)
    assert f"`loop kernels verify {name}` runs it alone" == caught.value.hint


def test_a_program_that_falls_silent_about_its_time_is_refused() -> None:
    """Once it has timed itself it has to go on: no other clock stands in, and no zero."""
    said = iter([0.5, 0.5, None])
    forgetful: Any = SimpleNamespace(run=lambda: None, own_seconds=lambda: next(said))
    with pytest.raises(Refused, match="said how long one run took, and not of the next"):
        time_segment(forgetful, 0.001)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('talk\n{"seconds": 0.5}\n', 0.5),
        ('{"seconds": 2}', 2.0),
        ("", None),
        ("0.5", None),
        ('{"seconds": 0}', None),
        ('{"seconds": -1}', None),
        ('{"seconds": true}', None),
        ('{"seconds": "0.5"}', None),
        ('{"seconds": Infinity}', None),
        ('{"seconds": NaN}', None),
        ('{"seconds": 0.5}\nmore talk', None),
    ],
)
def test_only_a_sensible_time_counts_as_the_programs_own(output: str, expected: float | None) -> None:
    """A positive, finite number of seconds on the last line."""
    assert expected == own_seconds(output)
