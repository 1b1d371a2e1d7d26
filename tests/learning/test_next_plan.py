"""The next session: wrong variants come first, then unmeasured ones, then speed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from loop.learning.next_plan import Idea, TargetState, propose_sessions
from loop.model.change import KeptChange
from loop.model.index import FailureSeen, Judgement, SessionRow, StepRun
from loop.session.next_session import _shell_command
from tests.makers import make_row

COMPILED = ("cpu", "fast", "a", "b")
DECLARED = {name: {"quick": ("w",)} for name in ("cpu", "fast", "gpu", "a", "b")}


def row(number: int = 0, **fields: object) -> SessionRow:
    """The row of a passed session without measurements."""
    return make_row(number, **{"plan": "baseline", "ground": "files", **fields})


def present(**fields: object) -> TargetState:
    """A target of which every variant has one workload."""
    base = {"files_hash": "files", "compiled": COMPILED, "tunable": ("b",), "declared_workloads": DECLARED}
    return TargetState(**{**base, **fields})  # type: ignore[arg-type]


def first(*rows: SessionRow, **now: object) -> Idea:
    """The most urgent idea."""
    return propose_sessions(rows, present(**now))[0]


def verdict(variant: str, build: str = "old", **fields: object) -> Judgement:
    """The judgement of a build in a session; wrong on its only workload by default."""
    words = {"variant": variant, "build": build, "threads": 1, "seed": 7}
    return Judgement.model_validate({**words, **(fields or {"wrong": ("w",)})})


JUDGED = tuple(verdict(name, right=("w",)) for name in DECLARED)  # Every variant right on everything.


def test_a_regression_is_looked_for_until_it_is_gone() -> None:
    """Sessions without results of the variant do not end it; a paused session comes first."""
    idea = first(row(0, ratios={"cpu": 0.3}), row(1, status="paused", reason="waits", plan="optimize"))
    assert ("optimize", "s1", ("s1 is paused: waits",)) == (idea.plan, idea.resume, idea.why)
    slower = row(0, status="failed", regressed=("cpu",), ratios={"cpu": 1.0})
    assert ("bisect", "cpu") == (first(slower, row(1)).plan, first(slower, row(1)).variant)
    assert "bisect" == first(slower, row(2, right=("cpu",))).plan
    assert "bisect" != first(slower, row(2, ratios={"cpu": 2.0})).plan
    put_back = slower.model_copy(update={"ground": "an edit that is gone"})
    assert "bisect" == first(put_back).plan
    assert "bisect" != first(row(0, ratios={"cpu": 2.0}), put_back).plan, "these files are as fast as they were"


def test_a_wrong_variant_comes_before_a_slow_one() -> None:
    """The failed check is run again, with its plan, until it passes on other sources."""
    wrong = row(1, status="failed", plan="edges", judged=(verdict("fast"),), ratios={"cpu": 0.2}, threads=1)
    advice = first(wrong)
    assert ("edges", "fast", 7) == (
        advice.plan,
        advice.variant,
        advice.failed_check and advice.failed_check.judgement.seed,
    )
    mended = row(2, ratios={"fast": 2.0, "cpu": 1.9}, judged=(verdict("fast", "new", right=("w",)),), ground="new")
    ideas = propose_sessions([wrong, mended], present(files_hash="new"))
    assert all(idea.failed_check is None for idea in ideas)


def test_a_compile_error_is_mended_before_the_wrong_result_is_run_again() -> None:
    """On the files that do not compile; a failure of another action, or of an older row, does not go first."""
    wrong = row(0, status="failed", judged=(verdict("fast"),), ratios={"cpu": 0.2}, ground="before an edit")
    objectives = {}
    for action, ground in (
        ("kernel.build", "files"),
        ("kernel.load", "files"),
        ("kernel.build", "x"),
        ("", "files"),
    ):
        failure = FailureSeen(text="expected ;", pattern="unit", step="build", action=action)
        broken = row(1, status="failed", failures=(failure,), ground=ground)
        objectives[action, ground] = first(wrong, broken).objective
    assert "Mend what failed in unit/build, then run it again" == objectives.pop(("kernel.build", "files"))
    assert all("run again what failed" in objective for objective in objectives.values())


GOOD = row(0, right=("cpu",), commit="a" * 40, ratios={"cpu": 2.0})
SEARCH = StepRun(pattern="git-bisect", step="search", status="passed", seconds=1.0)


WRONG = row(1, status="failed", judged=(verdict("cpu", "bad"),), commit="b" * 40)


def test_a_wrong_variant_with_a_known_good_is_bisected() -> None:
    """Only if both sessions ran on commits, the files are the wrong ones, and no search was made yet."""
    idea = first(GOOD, WRONG)
    assert ("bisect", "cpu", "Find the commit that made cpu wrong") == (idea.plan, idea.variant, idea.objective)
    assert "s0 found it right at commit aaaaaaaaaaaa" in idea.why
    changes = ({"commit": "a" * 40}, {"commit": None}, {"steps": (SEARCH,)}, {"ground": "before an edit"})
    assert ["baseline"] * 4 == [first(GOOD, WRONG.model_copy(update=change)).plan for change in changes]


def test_a_commit_that_was_named_is_not_looked_for_again() -> None:
    """The advice is to revert or mend it, and to run the variant again."""
    blamed = {"cpu": ("bbbbbbbbbbbb (wider tiles)",)}
    wrong = WRONG.model_copy(update={"blamed": blamed})
    slower = row(1, status="failed", regressed=("cpu",), ratios={"cpu": 1.0}, blamed=blamed)
    objective = "Take back or mend bbbbbbbbbbbb (wider tiles), then run it again"
    assert [("quick", objective)] * 2 == [
        (first(GOOD, failed).plan, first(GOOD, failed).objective) for failed in (wrong, slower)
    ]


def test_commits_that_a_search_could_not_tell_apart_are_to_be_read() -> None:
    """The advice is to read them, for a slower and a wrong variant; outside git, to mend the edit."""
    searched = {
        "commit": "b" * 40,
        "base": "b" * 40,
        "blamed": {"cpu": ("aaa (one)", "bbb (two)")},
        "steps": (SEARCH,),
    }
    slower = row(1, status="failed", regressed=("cpu",), ratios={"cpu": 1.0}, **searched)
    for failed in (WRONG.model_copy(update=searched), slower):
        assert ("quick", ("aaa", "bbb")) == (first(GOOD, failed).plan, first(GOOD, failed).blamed_commits)
    bare = slower.model_copy(update={"commit": None, "base": None, "blamed": {}})
    assert ("quick", True) == (first(GOOD, bare).plan, "git init" in first(GOOD, bare).why[0])
    assert "baseline" == first(GOOD, bare.model_copy(update={"base": "b" * 40})).plan


def test_a_missed_objective_is_answered_as_its_plan_says() -> None:
    """Only while it is the last session."""
    missed = row(1, plan="mine", ratios={"cpu": 1.9}, missed="cpu.ratio is 1.9", otherwise="tune")
    assert ("tune", ("s1 missed its objective: cpu.ratio is 1.9",)) == (first(missed).plan, first(missed).why)
    assert "tune" != first(missed, row(2, ratios={"cpu": 1.9})).plan
    reached = missed.model_copy(update={"missed": ""})
    assert "tune" != first(reached).plan


def test_while_the_objective_is_missed_something_is_left_to_do() -> None:
    """The variant is optimised though a workload is inconclusive; then an edit by the user is proposed."""
    words = {"ratios": {"a": 0.8}, "inconclusive": ("a",), "missed": "best.ratio is 0.8", "judged": JUDGED}
    rows = [row(number, speeds={"a": {"w": 0.7}}, **words) for number in range(2)]
    assert ("optimize", "a") == (first(*rows).plan, first(*rows).variant)
    rows += [row(2, plan="optimize", variants=("a",)), row(3, plan="quick", ratios={"a": 0.8})]
    idea = first(*rows)
    assert ("quick", ("s1 missed its objective",)) == (idea.plan, idea.why)
    assert idea.objective.startswith("The objective is missed (best.ratio is 0.8). Edit")


def test_speed_is_not_proposed_where_variants_are_only_emulated() -> None:
    """Unjudged variants come first; then the proposal says why nothing is measured."""
    unmeasured = row(0, plan="quick", emulated=("gpu",), missed="best.ratio is not known")
    idea = first(unmeasured, only_emulated=True)
    assert ("baseline", "Verify the other workloads, too") == (idea.plan, idea.objective)
    judged_rows = [unmeasured, row(1, plan="kernels", judged=JUDGED)]
    for rows in (judged_rows, [*judged_rows, row(2, ratios={"gpu": 0.5}, inconclusive=("gpu",))]):
        idea = first(*rows, only_emulated=True)
        words = "Nothing can be timed here: all variants are emulated"
        assert ("quick", True) == (idea.plan, idea.objective.startswith(words))
    idea = first(unmeasured, row(1, judged=JUDGED), only_emulated=True)
    assert "Widen the gate, for what is emulated is not timed" == idea.objective
    assert "no session has measured speed" in first(*judged_rows).why


def test_nothing_is_proposed_twice_on_the_same_files() -> None:
    """Each proposal is made once: optimise, tune, other checks; then nothing is left."""
    rows, plans = [row(0, ratios={"b": 0.5}, judged=JUDGED)], []
    for number in range(1, 6):
        idea = first(*rows)
        plans.append(idea.plan)
        rows.append(row(number, plan=idea.plan, variants=("b",)))
    assert ["optimize", "tune", "kernels", "quick", "quick"] == plans
    assert "Nothing is left to do here" in first(*rows).objective
    assert "every output was right" in first(*rows).why[0]
    assert "baseline" == first(*rows, files_hash="edited").plan


def test_what_no_session_judged_is_judged_before_nothing_is_left() -> None:
    """`baseline` is proposed once; variants and sets without a judgement are named."""
    rows = [row(0, plan="quick", ratios={"cpu": 2.0}, judged=JUDGED[:1], variants=("cpu",))]
    idea = first(*rows)
    assert ("baseline", None) == (idea.plan, idea.variant)
    assert ("not judged on these files: fast on quick; gpu on quick; a on quick; b on quick",) == idea.why
    rows += [row(1, plan=plan, variants=tuple(DECLARED)) for plan in ("baseline", "kernels")]
    assert "quick" == first(*rows).plan
    assert idea.why[0] == first(*rows).why[0]
    assert ("fast", "gpu", "a", "b") == first(*rows).unjudged, "its command verifies these"
    part = first(*rows, declared_workloads={"cpu": {"long": ("w", "x", "y")}})
    assert "not judged on these files: cpu on long (2 of 3 workloads not judged)" == part.why[0]
    assert "Nothing is left" not in part.objective
    setting: Any = SimpleNamespace(project=SimpleNamespace(target=Path("t")))
    assert "loop kernels verify cpu --device cpu" == _shell_command(part, setting, ("--device", "cpu"), ())


def test_the_slowest_variant_that_can_be_edited_is_made_faster() -> None:
    """Its last clear ratio counts; variants that loop does not compile are left out."""
    sure, unsure = row(0, ratios={"a": 0.9, "b": 0.5}), row(1, ratios={"b": 0.1}, inconclusive=("b",))
    idea = first(sure, unsure)
    assert ("optimize", "b") == (idea.plan, idea.variant)
    idea = first(row(0, ratios={"eager": 0.3, "cpu": 1.9}, judged=JUDGED))
    assert ("kernels", None) == (idea.plan, idea.variant)


KEPT = KeptChange(variant="cpu", changes=1, ratio=5.0, workloads={"w": (4.9, 5.0, 5.1)}, branch="loop/s0")


def test_a_kept_change_is_taken_over_first() -> None:
    """It is proposed until the files contain it; then they are measured, and may be optimised again."""
    kept = row(0, plan="optimize", variants=("cpu",), ratios={"cpu": 0.9}, kept=(KEPT,), left="changed")
    assert ("quick", KEPT) == (first(kept).plan, first(kept).kept_change)
    assert ("cpu is 5.00x as fast as what it replaced, faster on 1 of 1 workload, by s0",) == first(kept).why
    changed = first(kept, files_hash="changed")
    assert ("optimize", None) == (changed.plan, changed.kept_change)
    assert "Verify and measure what has changed" == first(kept, files_hash="edited").objective
