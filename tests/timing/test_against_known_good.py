"""`kernel.compare` and contests on made-up timings: what each pair comes to, and what is open."""

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import Tick, run_to_end
from loop.calls.call import LibraryTerms
from loop.model.measurement import Build, Segment, SpeedVerdict, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.record import KnownGood
from loop.model.target import Workload
from loop.steps.context import Result
from loop.timing import schedule, verdicts
from loop.timing.against_known_good import (
    CompareOutput,
    CompareTerms,
    Contest,
    Rival,
    compare,
    null_rival,
    slowed_rival,
)
from loop.timing.samples import MemoryProbe, Terms, Timings
from loop.timing.verdicts import MAX_BLOCKS, MIN_BLOCKS, MORE_BLOCKS
from loop.workers.bench import Bench, Side
from tests.makers import make_check, make_finished, make_workload
from tests.targets import compiled, importable, make_builds, make_context, open_bench, write_target

SMALL, LARGE = "N2 M3 float32", "N5 M3 float32"
ROUNDS = 40


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for the tiny target: nothing is ever started, only built."""
    folder = tmp_path_factory.mktemp("comparing")
    variants = {
        "right": compiled(),
        "double": importable("double"),
        "strides": compiled("strides"),
        "slower": compiled("strides"),
    }
    variants["other"] = compiled("typed", dtypes=["float64"])
    with open_bench(folder, write_target(folder, variants), build_cache) as made:
        yield made


@pytest.fixture
def earlier(bench: Bench) -> Build:
    """A build of `right` from other sources, still in the cache."""
    header = bench.folder / "scale.h"
    text = header.read_text()
    header.write_text(text + "int earlier() { return 1; }\n")
    build = make_builds(bench, "right")["right"]
    header.write_text(text)
    return build


def made_up(factors: dict[str, float], change: Callable[[Timings], None] = lambda timings: None) -> Any:
    """Stands in for measuring: each side takes so many times as long as the others; then something is changed."""

    def measure(
        bench: Bench, sides: Sequence[Side], workloads: Sequence[Workload], terms: Terms, pending: Any
    ) -> Generator[Tick, None, Timings]:
        draw, timings = random.Random(3), Timings(rounds=ROUNDS, checked_outputs=99)
        for number in range(ROUNDS):
            for workload in workloads:
                for side in sides:
                    factor = factors.get(side.name, 1 + side.slowdown_share)
                    seconds = tuple(1e-5 * factor * (1 + draw.gauss(0, 0.002)) for _ in range(3))
                    segment = Segment(
                        side=side.name, workload=workload.name, round=number, calls=1, seconds=seconds
                    )
                    timings.segments.append(segment)
        yield Tick("measuring")
        change(timings)
        pending(timings)
        return timings

    return measure


@pytest.fixture
def compared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CompareOutput]:
    """Compare these variants, of which all were found right."""

    def run(*variants: str, known: Build | None = None, timings: Any = None) -> CompareOutput:
        monkeypatch.setattr(schedule, "measure", timings or made_up({}))
        builds = make_builds(bench, *variants)
        ids = {name: builds[name].build_id if name in builds else None for name in variants}
        checks = tuple(
            VariantChecks(variant=name, build_id=ids[name], checks=(make_check(),)) for name in variants
        )
        output = VerifyOutput(ok=True, message="verified", variants=checks, right=variants)
        good = {"right": KnownGood(session="before", build_id=known.build_id, commit=None)} if known else {}
        context = make_context(bench, *variants, finished=[make_finished(output=output)], known_good=good)
        found: Result = run_to_end(compare(context, CompareTerms()))
        assert isinstance(found.output, CompareOutput)
        return found.output

    return run


Compared = Callable[..., CompareOutput]


def test_all_variants_share_every_round(compared: Compared) -> None:
    """No variant has to wait until the one before it is decided; each is timed beside its own rivals."""
    held: list[list[str]] = []
    measure = made_up({})

    def watched(bench: Bench, sides: Sequence[Side], workloads: Any, terms: Terms, pending: Any) -> Any:
        held.append([side.name for side in sides])
        assert verdicts.MIN_BLOCKS == terms.least_rounds
        return (yield from measure(bench, sides, workloads, terms, pending))

    compared("strides", "right", timings=watched)
    each = ["strides", "strides again", "strides slowed by 5%", "right", "right again", "right slowed by 5%"]
    assert [each] == held


def test_without_a_known_good_the_controls_are_run(compared: Compared) -> None:
    """Against itself it is the same, slowed down it is slower; why there is nothing else is said."""
    found = compared("right")
    assert found.ok
    assert "right against itself: same on 3 of 3; would a slowdown of 5% be seen: yes" == found.message
    assert ((), ROUNDS, 99) == (found.verdicts, found.rounds, found.outputs)
    assert ("right against its known good: no earlier session on this device passed",) == (found.not_exercised)
    assert {"self"} == {one.against for one in found.measurements}


def test_the_known_good_itself_is_not_timed(compared: Compared, bench: Bench) -> None:
    """It is listed as unchanged, so that the objective can say that it was not left out."""
    found = compared("right", known=make_builds(bench, "right")["right"])
    assert (("right",), 0, ()) == (found.unchanged, found.rounds, found.verdicts)


@pytest.mark.parametrize(("factor", "expected"), [(1.2, "faster"), (1.0, "same")])
@pytest.mark.slow
def test_a_known_good_leads_to_verdicts(factor: float, expected: str, compared: Compared, earlier: Build) -> None:
    """One a workload, with ratio, interval and evidence."""
    found = compared("right", known=earlier, timings=made_up({"right known good": factor}))
    assert found.ok == (expected != "slower")
    assert [(expected, "known_good")] * 3 == [(one.verdict, one.against) for one in found.verdicts]
    (first, *_) = found.verdicts
    assert isinstance(first, SpeedVerdict)
    assert pytest.approx(factor, rel=0.01) == first.ratio
    assert first.interval[0] < first.ratio < first.interval[1]
    assert first.e_value is not None
    assert first.e_value > 100
    assert f"against the known good {expected} on 3, mean {factor:.3f}x" in found.message


def test_a_null_control_that_fires_makes_everything_worthless(compared: Compared, earlier: Build) -> None:
    """A machine on which a binary beats itself has no verdicts: the step fails, the variant's speed is invalid."""
    found = compared("right", known=earlier, timings=made_up({"right again": 1.1, "right known good": 1.5}))
    assert not found.ok
    assert [("right", name, "self", "invalid") for name in (SMALL, LARGE, "N3 M4 float32")] == [
        (one.variant, one.workload, one.against, one.verdict) for one in found.verdicts
    ]
    expected = f"against itself right came out faster on {SMALL}: timing cannot be trusted on this machine now"
    assert expected == found.verdicts[0].reason
    assert f"right is invalid: {expected}" == found.message
    assert 3 == len(found.null_controls[0].false)


@pytest.mark.slow
def test_what_a_positive_control_does_not_see_is_not_the_same(compared: Compared, earlier: Build) -> None:
    """Who cannot see five per cent cannot say that there is no difference; a difference that is seen stands."""
    found = compared("right", known=earlier, timings=made_up({"right slowed by 5%": 1.0}))
    assert found.ok
    assert {"inconclusive"} == {one.verdict for one in found.verdicts}
    assert found.verdicts[0].reason.startswith("a slowdown of 5% put in on purpose was not seen: ")
    assert "would a slowdown of 5% be seen: no" in found.message
    blind = made_up({"right slowed by 5%": 1.0, "right known good": 1.3})
    assert {"faster"} == {one.verdict for one in compared("right", known=earlier, timings=blind).verdicts}


@pytest.mark.parametrize(
    ("field", "seen", "verdict", "said"),
    [
        (
            "wrong_outputs",
            [("right", make_check(LARGE, right=False))],
            "incorrect",
            "timed: 3 of 4096 elements wrong",
        ),
        ("clock_pairs", {"right": [(0.1, 0.01)]}, "invalid", "its clock was changed"),
        ("memory_probes", {("right", SMALL): [MemoryProbe(1e-3, 1e-5)]}, "invalid", "it remembers results"),
    ],
)
def test_what_was_noticed_while_timing_takes_every_speed(
    field: str, seen: object, verdict: str, said: str, compared: Compared, earlier: Build
) -> None:
    """Also where the samples look fine."""
    timings = made_up({"right known good": 1.5}, lambda timings: setattr(timings, field, seen))
    found = compared("right", known=earlier, timings=timings)
    assert not found.ok
    assert [("right", verdict)] == [(one.variant, one.verdict) for one in found.verdicts]
    assert said in found.verdicts[0].reason
    assert f"right is {verdict}: " in found.message


def test_a_wrong_output_of_one_variant_takes_no_verdict_of_another(compared: Compared, earlier: Build) -> None:
    """One verdict says it, and the step fails; the other variant keeps what was measured."""
    wrong = [("strides again", make_check(LARGE, right=False))]
    timings = made_up({"right known good": 1.5}, lambda timings: setattr(timings, "wrong_outputs", wrong))
    found = compared("right", "strides", known=earlier, timings=timings)
    assert not found.ok
    expected = [("right", "faster")] * 3 + [("strides again", "incorrect")]
    assert expected == [(one.variant, one.verdict) for one in found.verdicts]


def test_what_was_edited_since_is_not_compared(bench: Bench) -> None:
    """The build that would be timed is not the one that was checked."""
    checks = VariantChecks(variant="right", build_id="0" * 32, checks=(make_check(),))
    output = VerifyOutput(ok=True, message="verified", variants=(checks,), right=("right",))
    found = run_to_end(
        compare(make_context(bench, "right", finished=[make_finished(output=output)]), CompareTerms())
    )
    assert "nothing to compare: right was edited after it was verified" == found.output.message
    assert "run the session again" == found.output.hint


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


def test_a_contest_rests_where_it_is_decided_and_ends_at_its_limit() -> None:
    """What is decided is not timed on; noise that hides one per cent is not timed for ever."""
    contest = make_contest()
    assert {} == contest.pending_sides(make_timings(30, {}))
    contest = make_contest()
    found = contest.pending_sides(make_timings(MIN_BLOCKS + 4, {"new known good": 1.015}, noise=0.006))
    assert found
    assert all({"new", "new known good"} == set(names) for names in found.values())
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


@pytest.mark.parametrize(
    ("known_good", "blocks", "again"), [(0.98, 40, False), (0.98, 10, True), (1.02, 40, True)]
)
def test_a_candidate_that_is_evidently_not_faster_is_timed_no_further(
    known_good: float, blocks: int, again: bool
) -> None:
    """Most candidates change nothing: more blocks cannot lead to keeping them. Too few blocks are no evidence."""
    timings = make_timings(blocks, {"new known good": known_good}, noise=0.05)
    contest = of_a_campaign()
    assert again == bool(contest.pending_sides(timings))
    decision = contest.decide_now(timings, ONE, contest.rivals[0])
    assert again == ("not more than 1% faster" not in decision.reason)


def test_processes_that_were_kept_move_the_margin() -> None:
    """Two per cent in one pair of processes may be these; a tenth is not."""
    for factor, fresh, kept in ((1.025, "faster", "inconclusive"), (1.1, "faster", "faster")):
        for expected, first in ((fresh, None), (kept, 0)):
            contest, timings = make_contest(), make_timings(20, {"new known good": factor})
            timings.segments = [s.model_copy(update={"processes": first}) for s in timings.segments]
            assert expected == contest.decide_now(timings, ONE, contest.rivals[2]).verdict
