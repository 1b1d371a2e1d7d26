"""`kernel.compare` and contests on invented timings: the verdict of each pair, and pending sides."""

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import Tick, run_to_end
from loop.calls.call import LibraryTerms
from loop.model.measurement import Build, Segment, SpeedVerdict, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.record import KnownGood
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.steps.context import Result
from loop.timing import schedule, verdicts
from loop.timing.against_baseline import MeasureTerms, measure
from loop.timing.against_known_good import (
    CompareOutput,
    CompareTerms,
    Contest,
    Rival,
    compare,
    null_rival,
    slowed_rival,
)
from loop.timing.samples import Limits, MemoryProbe, Timings
from loop.timing.verdicts import MAX_BLOCKS, MIN_BLOCKS, MORE_BLOCKS
from loop.workers.bench import UNJUDGED_HINT, Bench, Side
from tests.makers import make_check, make_finished, make_workload
from tests.targets import compiled, importable, make_builds, make_context, open_bench, write_target

SMALL, LARGE = "N2 M3 float32", "N5 M3 float32"
ROUNDS = 40


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for the tiny target that builds but starts no worker."""
    folder = tmp_path_factory.mktemp("comparing")
    variants = {
        "right": compiled(),
        "double": importable("double"),
        "strides": compiled("strides"),
        "slower": compiled("strides"),
    }
    variants["other"] = compiled("typed", dtypes=["float64"])
    with open_bench(folder, write_target(folder, variants), build_cache) as opened:
        yield opened


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
    """A stand-in for `measure`: times of each side are scaled by its factor; `change` may edit the timings."""

    def measure(
        bench: Bench, sides: Sequence[Side], workloads: Sequence[Workload], limits: Limits, pending: Any
    ) -> Generator[Tick, None, Timings]:
        draw, timings = random.Random(3), Timings(rounds=ROUNDS, checked_outputs=99)
        for number in range(ROUNDS):
            for workload in workloads:
                for side in sides:
                    factor = factors.get(side.name, 1 + side.slowdown_share)
                    seconds = tuple(1e-5 * factor * (1 + draw.gauss(0, 0.002)) for _ in range(3))
                    place: dict[str, Any] = {"side": side.name, "workload": workload.name, "round": number}
                    timings.segments.append(Segment(**place, calls=1, seconds=seconds))
        yield Tick("measuring")
        change(timings)
        pending(timings)
        return timings

    return measure


@pytest.fixture
def compared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CompareOutput]:
    """A function that compares variants that were verified as right."""

    def run(*variants: str, known: Build | None = None, timings: Any = None, candidate: int = 0) -> CompareOutput:
        monkeypatch.setattr(schedule, "measure", timings or made_up({}))
        builds = make_builds(bench, *variants)
        ids = {name: builds[name].build_id if name in builds else None for name in variants}
        fields = [{"variant": name, "build_id": ids[name], "checks": (make_check(),)} for name in variants]
        checks = tuple(map(VariantChecks.model_validate, fields))
        output = VerifyOutput(ok=True, message="verified", variants=checks, right=variants)
        good = {"right": KnownGood(session="before", build_id=known.build_id, commit=None)} if known else {}
        context = make_context(bench, *variants, finished=[make_finished(output=output)], known_good=good)
        result: Result = run_to_end(compare(context, CompareTerms(candidate=candidate)))
        assert isinstance(result.output, CompareOutput)
        return result.output

    return run


Compared = Callable[..., CompareOutput]


def test_all_variants_share_every_round(compared: Compared) -> None:
    """No variant has to wait until the one before it is decided; each is timed beside its own rivals."""
    held: list[list[str]] = []
    measure = made_up({})

    def watched(bench: Bench, sides: Sequence[Side], workloads: Any, limits: Limits, pending: Any) -> Any:
        held.append([side.name for side in sides])
        assert verdicts.MIN_BLOCKS == limits.least_rounds
        return (yield from measure(bench, sides, workloads, limits, pending))

    compared("strides", "right", timings=watched)
    each = ["strides", "strides again", "strides slowed by 5%", "right", "right again", "right slowed by 5%"]
    assert [each] == held


def test_without_a_known_good_the_controls_are_run(compared: Compared) -> None:
    """It is the same as itself, and slower when slowed; the missing known good is not exercised."""
    output = compared("right")
    assert output.ok
    assert "right against itself: same on 3 of 3; would a slowdown of 5% be seen: yes" == output.message
    assert ((), ROUNDS, 99) == (output.verdicts, output.rounds, output.outputs)
    assert ("right against its known good: no earlier session on this device passed",) == (output.not_exercised)
    assert ("right",) == output.no_known_good
    assert {"self"} == {measurement.against for measurement in output.measurements}


def test_the_known_good_itself_is_not_timed(compared: Compared, bench: Bench) -> None:
    """A variant whose build is its known good is listed as unchanged."""
    output = compared("right", known=make_builds(bench, "right")["right"])
    assert (("right",), 0, ()) == (output.unchanged, output.rounds, output.verdicts)


@pytest.mark.parametrize(("factor", "expected"), [(1.2, "faster"), (1.0, "same")])
@pytest.mark.slow
def test_a_known_good_leads_to_verdicts(factor: float, expected: str, compared: Compared, earlier: Build) -> None:
    """Each workload has a verdict with ratio, interval and evidence."""
    output = compared("right", known=earlier, timings=made_up({"right known good": factor}))
    assert output.ok == (expected != "slower")
    assert [(expected, "known_good")] * 3 == [(verdict.verdict, verdict.against) for verdict in output.verdicts]
    (first, *_) = output.verdicts
    assert isinstance(first, SpeedVerdict)
    assert pytest.approx(factor, rel=0.01) == first.ratio
    assert first.interval[0] < first.ratio < first.interval[1]
    assert first.e_value is not None
    assert first.e_value > 100
    word = expected.replace("same", "same (within 2%)")
    assert f"against the known good {word} on 3, mean {factor:.3f}x" in output.message


def test_a_null_control_that_fires_makes_everything_worthless(compared: Compared, earlier: Build) -> None:
    """If a binary is faster than itself, the step fails and the variant's speed is invalid."""
    output = compared("right", known=earlier, timings=made_up({"right again": 1.1, "right known good": 1.5}))
    assert not output.ok
    assert [("right", name, "self", "invalid") for name in (SMALL, LARGE, "N3 M4 float32")] == [
        (verdict.variant, verdict.workload, verdict.against, verdict.verdict) for verdict in output.verdicts
    ]
    expected = f"against itself right came out faster on {SMALL}: timing cannot be trusted on this machine now"
    assert expected == output.verdicts[0].reason
    assert f"right is invalid: {expected}" == output.message
    assert 3 == len(output.null_controls[0].false)


@pytest.mark.slow
def test_what_a_positive_control_does_not_see_is_not_the_same(compared: Compared, earlier: Build) -> None:
    """If a slowdown of 5 % is not seen, `same` becomes inconclusive; a seen difference stays."""
    output = compared("right", known=earlier, timings=made_up({"right slowed by 5%": 1.0}))
    assert output.ok
    assert {"inconclusive"} == {verdict.verdict for verdict in output.verdicts}
    assert output.verdicts[0].reason.startswith("a slowdown of 5% put in on purpose was not seen: ")
    assert "would a slowdown of 5% be seen: no" in output.message
    blind = made_up({"right slowed by 5%": 1.0, "right known good": 1.3})
    assert {"faster"} == {verdict.verdict for verdict in compared("right", known=earlier, timings=blind).verdicts}


@pytest.mark.parametrize(
    ("field", "value", "verdict", "message"),
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
    field: str, value: object, verdict: str, message: str, compared: Compared, earlier: Build
) -> None:
    """No speed is claimed even if the samples look fine."""
    timings = made_up({"right known good": 1.5}, lambda timings: setattr(timings, field, value))
    output = compared("right", known=earlier, timings=timings)
    assert not output.ok
    assert [("right", verdict)] == [(row.variant, row.verdict) for row in output.verdicts]
    assert message in output.verdicts[0].reason
    assert f"right is {verdict}: " in output.message


@pytest.mark.parametrize(("blocks", "expected"), [(MIN_BLOCKS - 1, "inconclusive"), (MIN_BLOCKS, "faster")])
def test_a_candidate_is_not_believed_before_it_was_timed_against_itself(
    blocks: int, expected: str, compared: Compared, earlier: Build
) -> None:
    """Time may end before that. No copy is slowed on purpose."""

    def end_early(timings: Timings) -> None:
        timings.segments = [s for s in timings.segments if s.side != "right again" or s.round < blocks]

    timings = made_up({"right known good": 1.5}, end_early)
    output = compared("right", known=earlier, timings=timings, candidate=1)
    assert {expected} == {verdict.verdict for verdict in output.verdicts}
    assert () == output.positive_controls


def test_a_wrong_output_of_one_variant_takes_no_verdict_of_another(compared: Compared, earlier: Build) -> None:
    """The wrong variant is incorrect, and the step fails. The other variant keeps its verdicts."""
    wrong = [("strides again", make_check(LARGE, right=False))]
    timings = made_up({"right known good": 1.5}, lambda timings: setattr(timings, "wrong_outputs", wrong))
    output = compared("right", "strides", known=earlier, timings=timings)
    assert not output.ok
    expected = [("right", "faster")] * 3 + [("strides again", "incorrect")]
    assert expected == [(row.variant, row.verdict) for row in output.verdicts]


def test_what_was_edited_since_is_not_compared(bench: Bench) -> None:
    """The build that would be timed is not the one that was checked."""
    checks = VariantChecks(variant="right", build_id="0" * 32, checks=(make_check(),))
    output = VerifyOutput(ok=True, message="verified", variants=(checks,), right=("right",))
    context = make_context(bench, "right", finished=[make_finished(output=output)])
    result = run_to_end(compare(context, CompareTerms()))
    assert "nothing to compare: right was edited after it was verified" == result.output.message
    assert "run the session again" == result.output.hint


def test_the_first_reason_why_nothing_could_be_judged_is_named_with_its_cure(bench: Bench) -> None:
    """Measuring and comparing end with what `verify` said of the workload."""
    reasons = {"status": "not judged", "message": f"float32 ends at 3.4e+38 on {SMALL}"}
    names = [workload.name for workload in expand_sets(bench.target, ["some"], "float32")]
    checks = tuple(make_check(name, **reasons) for name in names)
    verified = VariantChecks(variant="double", build_id=None, checks=(*checks, make_check()))
    output = VerifyOutput(ok=True, message="verified", variants=(verified,), right=("double",))
    context = make_context(bench, "double", finished=[make_finished(output=output)])
    for result in (run_to_end(measure(context, MeasureTerms())), run_to_end(compare(context, CompareTerms()))):
        assert result.output.message.endswith(f"could be judged: {reasons['message']}")
        assert UNJUDGED_HINT == result.output.hint


ONE, TWO = make_workload("one"), make_workload("two")
CANDIDATE = Side("new", LibraryTerms("cpu", "f", "", ""), ("float32",), deterministic=True, build_id="abc")
OLD = replace(CANDIDATE, name="new known good", build_id="def")


def make_contest() -> Contest:
    """Against itself and its known good on two workloads, and slowed by a twentieth on one of them."""
    both = [ONE, TWO]
    rivals = [null_rival(CANDIDATE, both), slowed_rival(CANDIDATE, 0.05, [TWO]), Rival(OLD, both)]
    return Contest(CANDIDATE, rivals)


def make_timings(
    blocks: int, slower: Mapping[str, float], noise: float = 0.002, *, only: Workload | None = None
) -> Timings:
    """Blocks in which each side takes its factor times the candidate's time, with a little noise."""
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
    """A decided pair is timed no further; a noisy one ends at the limit of blocks."""
    contest = make_contest()
    assert {} == contest.pending_sides(make_timings(30, {}))
    pending = contest.pending_sides(make_timings(MIN_BLOCKS + 4, {"new known good": 1.015}, noise=0.006))
    assert pending
    assert all({"new", "new known good"} == set(names) for names in pending.values())
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
    """If the known good is decided, an open null control alone is not timed further."""
    contest = replace(of_a_campaign(), candidate_number=0)
    clear = make_timings(MIN_BLOCKS, {"new known good": 3.0}, noise=0.05, only=TWO)
    unclear = make_timings(MIN_BLOCKS, {}, noise=0.05, only=ONE)
    clear.segments += unclear.segments
    names_by_workload = contest.pending_sides(clear)
    assert {"new", "new known good", "new again"} == set(names_by_workload["one"])
    assert "new again" not in names_by_workload.get("two", ())


@pytest.mark.parametrize(
    ("known_good", "blocks_against_itself", "pending"),
    [
        (1.015, 0, {"new", "new known good"}),
        (1.3, 0, {"new", "new again"}),
        (1.3, MIN_BLOCKS - 1, {"new", "new again"}),
        (1.3, MIN_BLOCKS, set()),
        (0.7, 0, set()),
    ],
    ids=["undecided", "faster", "too few blocks", "enough blocks", "slower"],
)
def test_a_candidate_is_timed_against_itself_once_it_is_faster(
    known_good: float, blocks_against_itself: int, pending: set[str]
) -> None:
    """While it is undecided, or slower, no process is spent on the control. Until it has a verdict's blocks
    against itself, `faster` is not believed."""
    contest, timings = of_a_campaign(), make_timings(MIN_BLOCKS, {"new known good": known_good}, noise=0.006)
    timings.segments = [
        segment
        for segment in timings.segments
        if segment.side != "new again" or segment.round < blocks_against_itself
    ]
    names_by_workload = contest.pending_sides(timings)
    assert pending == {name for names in names_by_workload.values() for name in names}
    is_faster = known_good > 1.1
    assert (is_faster and blocks_against_itself < MIN_BLOCKS) == contest.lacks_null_control(timings)
    assert contest.lacks_null_control(timings) <= contest.is_promising(timings)


@pytest.mark.parametrize(
    ("known_good", "noise", "again"),
    [(1.02, 0.04, True), (1.0, 0.04, False), (0.98, 0.04, False), (1.3, 0.01, False)],
)
def test_a_candidate_that_is_not_clear_is_timed_further(known_good: float, noise: float, again: bool) -> None:
    """A candidate that seems to gain is timed further."""
    timings = make_timings(20, {"new known good": known_good}, noise)
    assert again == of_a_campaign().is_promising(timings)


@pytest.mark.parametrize(
    ("known_good", "blocks", "again"), [(0.98, 40, False), (0.98, 10, True), (1.02, 40, True)]
)
def test_a_candidate_that_is_evidently_not_faster_is_timed_no_further(
    known_good: float, blocks: int, again: bool
) -> None:
    """More blocks cannot lead to keeping it, so it ends; too few blocks are no evidence."""
    timings = make_timings(blocks, {"new known good": known_good}, noise=0.05)
    contest = of_a_campaign()
    assert again == bool(contest.pending_sides(timings))
    decision = contest.decide_now(timings, ONE, contest.rivals[0])
    assert again == ("not more than 1% faster" not in decision.reason)


def test_processes_that_were_kept_move_the_margin() -> None:
    """Kept processes may explain 2 % but not 10 %."""
    for factor, fresh, with_kept in ((1.025, "faster", "inconclusive"), (1.1, "faster", "faster")):
        for expected, first in ((fresh, None), (with_kept, 0)):
            contest, timings = make_contest(), make_timings(20, {"new known good": factor})
            timings.segments = [s.model_copy(update={"processes": first}) for s in timings.segments]
            assert expected == contest.decide_now(timings, ONE, contest.rivals[2]).verdict
