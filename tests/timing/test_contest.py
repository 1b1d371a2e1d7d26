"""A contest: which pairs are decided and which are still open, from blocks that were made up."""

import random
from collections.abc import Mapping

import pytest

from loop.calls.call import LibraryTerms
from loop.model.measurement import Segment
from loop.model.target import Workload
from loop.timing.against_known_good import Contest, Rival, null_rival, slowed_rival
from loop.timing.samples import Timings
from loop.timing.verdicts import MAX_BLOCKS, MIN_BLOCKS, MORE_BLOCKS
from loop.workers.bench import Side
from tests.makers import make_workload

ONE, TWO = make_workload("one"), make_workload("two")
CANDIDATE = Side("new", LibraryTerms("cpu", "f", "", ""), ("float32",), deterministic=True, build_id="abc")
OLD = CANDIDATE.copy_as("new known good", build_id="def")


def make_contest() -> Contest:
    """Against itself and its known good on two workloads, and slowed by a twentieth on one of them."""
    both = [ONE, TWO]
    return Contest(
        CANDIDATE, [null_rival(CANDIDATE, both), slowed_rival(CANDIDATE, 0.05, [TWO]), Rival(OLD, both)]
    )


def make_timings(
    blocks: int, slower: Mapping[str, float], noise: float = 0.002, *, only: Workload | None = None
) -> Timings:
    """Blocks in which each side takes so many times as long as the candidate; a little noise on everything."""
    draw = random.Random(7)
    sides = {"new": 1.0, "new again": 1.0, "new slowed by 5%": 1.05, "new known good": 1.0, **slower}
    timings = Timings(rounds=blocks)
    for number in range(blocks):
        for workload in [only] if only else [ONE, TWO]:
            for side, factor in sides.items():
                seconds = tuple(1e-5 * factor * (1 + draw.gauss(0, noise)) for _ in range(3))
                segment = Segment(side=side, workload=workload.name, round=number, calls=1, seconds=seconds)
                timings.segments.append(segment)
    return timings


def test_what_is_decided_is_not_timed_any_more() -> None:
    """Beside whom it was decided: the rest goes on, and without a rival the candidate rests too."""
    contest = make_contest()
    assert {} == contest.pending_sides(make_timings(30, {}))
    contest = make_contest()
    found = contest.pending_sides(make_timings(MIN_BLOCKS + 4, {"new known good": 1.015}, noise=0.006))
    assert found
    assert all({"new", "new known good"} == set(names) for names in found.values())


def test_a_pair_that_is_never_clear_ends_at_the_limit() -> None:
    """Noise that hides one per cent is not timed for ever."""
    contest = make_contest()
    noisy = make_timings(MAX_BLOCKS, {}, noise=0.2)
    assert {} == contest.pending_sides(noisy)
    assert "inconclusive" == contest.decide_now(noisy, ONE, contest.rivals[0]).verdict


def of_a_campaign() -> Contest:
    """One whose candidate is timed further where that may keep it."""
    return Contest(
        CANDIDATE,
        [Rival(OLD, [ONE, TWO])],
        3,
        controls=[null_rival(CANDIDATE, [ONE, TWO])],
        most_blocks=MORE_BLOCKS,
    )


def test_the_null_control_goes_on_only_where_another_pair_does() -> None:
    """An open null control beside a known good that is decided costs two processes a block, and tells nothing."""
    contest = of_a_campaign()
    clear = make_timings(MIN_BLOCKS, {"new known good": 3.0}, noise=0.05, only=TWO)
    unclear = make_timings(MIN_BLOCKS, {}, noise=0.05, only=ONE)
    clear.segments += unclear.segments
    names_by_workload = contest.pending_sides(clear)
    assert {"new", "new known good", "new again"} == set(names_by_workload["one"])
    assert "new again" not in names_by_workload.get("two", ())


@pytest.mark.parametrize(
    ("known_good", "noise", "again"),
    [(1.02, 0.04, True), (1.0, 0.04, False), (0.98, 0.04, False), (1.3, 0.01, False)],
)
def test_a_candidate_that_is_not_clear_is_timed_further(known_good: float, noise: float, again: bool) -> None:
    """Where it seems to gain."""
    timings = make_timings(20, {"new known good": known_good}, noise)
    assert again == of_a_campaign().is_promising(timings)


def test_processes_that_were_kept_move_the_margin() -> None:
    """Two per cent in one pair of processes may be these; a tenth is not."""
    for factor, fresh, kept in ((1.025, "faster", "inconclusive"), (1.1, "faster", "faster")):
        for expected, first in ((fresh, None), (kept, 0)):
            contest, timings = make_contest(), make_timings(20, {"new known good": factor})
            timings.segments = [s.model_copy(update={"processes": first}) for s in timings.segments]
            assert expected == contest.decide_now(timings, ONE, contest.rivals[2]).verdict
