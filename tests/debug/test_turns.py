"""Debugging in sessions and by itself: no change without a hypothesis, nothing tried twice."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.actions import ACTIONS
from loop.base.errors import LoopError
from loop.base.processes import run_to_end
from loop.debug.rules import MIN_PREDICTIONS
from loop.model.output import DebugOutput, EarlierTry, Explanation, Output, TurnOutput
from loop.model.record import Finished, KnownGood
from loop.steps.context import Context
from loop.workers.bench import Bench
from tests.makers import make_finished
from tests.projects import loop
from tests.targets import make_builds, make_context
from tests.two_stage import open_two_stage, write_two_stage


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for the target in two stages."""
    with open_two_stage(tmp_path_factory.mktemp("two-stage"), build_cache) as opened:
        yield opened


def build_of(bench: Bench, name: str) -> str:
    """The current build of a variant."""
    return make_builds(bench, name)[name].build_id


def earlier_try(build_id: str, **fields: Any) -> EarlierTry:
    """An earlier reverted try."""
    base = {"session": "before", "variant": "odd", "ground": "", "hypothesis": "an index is off", "right": False}
    return EarlierTry.model_validate({**base, "build_id": build_id, "message": "3 elements wrong", **fields})


def turn(bench: Bench, *tries: EarlierTry, hypothesis: str = "") -> TurnOutput:
    """The message before a turn."""
    context = make_context(bench, "odd", verified_builds=tries, hypothesis=hypothesis)
    output = run_to_end(ACTIONS["debug.hypotheses"].run(context, ACTIONS["debug.hypotheses"].arguments())).output
    assert isinstance(output, TurnOutput)
    return output


def test_a_build_that_was_wrong_is_not_tried_again(bench: Bench) -> None:
    """The message has its session, outcome and hypothesis; a new hypothesis does not help."""
    output = turn(bench, earlier_try(build_of(bench, "odd")), hypothesis="another idea")
    expected = "odd as it is was already tried in before: 3 elements wrong, when it was thought: an index is off"
    assert (False, expected, ("odd",)) == (output.ok, output.message, output.repeated)
    assert output.hint is not None
    assert "loop report before" in output.hint


def test_a_change_needs_a_hypothesis(bench: Bench) -> None:
    """A hypothesis is required once a variant was wrong, until it is right again."""
    without = turn(bench, earlier_try("another build"))
    assert not without.ok
    assert without.message.startswith("odd was wrong in before, and no hypothesis stands behind this change")
    assert "--hypothesis" in (without.hint or "")
    assert turn(bench, earlier_try("another build", right=True, message="")).ok


def test_a_turn_with_a_hypothesis_goes_ahead(bench: Bench) -> None:
    """The message has its number and the results of earlier turns."""
    output = turn(bench, earlier_try("one"), earlier_try("two", session="after"), hypothesis="the sign")
    assert (True, "turn 3: the sign", "the sign") == (output.ok, output.message, output.hypothesis)
    assert "Tried in before: an index is off; it did not cure odd: 3 elements wrong." in output.learned


def scope(bench: Bench, *names: str, **builds: str) -> TurnOutput:
    """The message on these variants, if these builds were good."""
    good = {name: KnownGood(session="s", build_id=build, commit=None) for name, build in builds.items()}
    context = make_context(bench, *names, known_good=good)
    output = run_to_end(ACTIONS["debug.scope"].run(context, ACTIONS["debug.scope"].arguments())).output
    assert isinstance(output, TurnOutput)
    return output


@pytest.mark.slow
def test_several_changed_variants_need_a_simple_one_that_is_right(bench: Bench) -> None:
    """The first of the manifest's order has to be right first, by the whole gate."""
    output = scope(bench, "right", "odd", right="old", odd="old")
    assert (True, "right", True, 2) == (output.ok, output.simple, output.simple_right, output.count)
    assert "right, odd were changed; the simplest, right, is right" == output.message


PLAN = """
format: 1
name: mine
title: Verify, and look into what is wrong
patterns: [check-first]
workloads: [some]
checks: [wide, masked]
budget: {minutes: 1}
"""
PATTERN = """
format: 1
name: check-first
number: 100
title: Correctness alone
problem: A wrong kernel is timed.
use_when: [testing]
estimate: {minutes: 0.1}
steps:
  - {id: verify, title: Against float64, action: kernel.verify, budget_s: 20, on_fail: continue}
next:
  - {when: "failed and verify.wrong != []", pattern: defensive-debugging}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trusted project in two stages whose reduction counts the row sum twice."""
    folder = tmp_path / "project"
    write_two_stage(folder, "sum_twice")
    for kind, text, name in (("plans", PLAN, "mine"), ("patterns", PATTERN, "check-first")):
        (folder / kind).mkdir()
        (folder / kind / f"{name}.yaml").write_text(text)
    assert 0 == loop("trust", str(folder)).returncode
    return folder


@pytest.mark.slow
def test_a_failing_gate_is_answered_by_its_cause(folder: Path) -> None:
    """Screen and report have the component, rule and smallest workload, and a command that repeats the failure."""
    done = loop("run", "session", "mine", "--target", str(folder), "--seed", "3")
    assert 1 == done.returncode
    assert "check-first failed: defensive-debugging answers" in done.stderr
    output = done.stdout
    assert "Component: sum_twice_reduce (the ranges together) is wrong: " in output
    assert "Component: right by itself: sum_twice_partial" in output
    assert "Rule: wrong where Sk >= 2, right where Sk < 2" in output
    assert "Smallest workload: B1 Sq1 D1 Sk2 float32" in output
    command = "loop kernels verify sum_twice --workloads 'B=1 Sq=1 D=1 Sk=2 dtype=float32' --target "
    assert f"Again: {command}" in output
    report = loop("report", "last", "--target", str(folder)).stdout
    rule, proposal = report.index("wrong where Sk >= 2"), report.index("Next: ")
    assert rule < proposal < report.index("Smallest workload") < report.index("<summary>Evidence")


@pytest.mark.soak
def test_the_command_that_is_printed_shows_the_failure(folder: Path) -> None:
    """A workload by its sizes, verified alone; the same seed gives the same values."""
    words = ["--workloads", "B=1 Sq=1 D=1 Sk=2 dtype=float32", "--seed", "3", "--json"]
    runs = [loop("kernels", "verify", "sum_twice", *words, "--target", str(folder)) for _ in range(2)]
    assert [1, 1] == [done.returncode for done in runs]
    first, second = (json.loads(done.stdout)["steps"][1]["output"]["variants"][0]["checks"] for done in runs)
    assert first == second
    shown = loop("kernels", "verify", "sum_twice", *words[:-1], "--target", str(folder)).stdout
    command = shlex.join([*words[:2], "--target", str(folder), *words[2:4]])
    assert f"the same values again: loop kernels verify sum_twice {command}\n" in shown
    assert {"B1 Sq1 D1 Sk2 float32"} == {check["workload"]["name"] for check in first}


CHECKS = ("wide", "masked")
STEPS = ("kernel.verify", "debug.explain", "debug.components", "debug.smallest")


def run(context: Context, action: str, **terms: Any) -> Output:
    """The output of an action."""
    done = ACTIONS[action]
    return run_to_end(done.run(context, done.arguments.model_validate(terms))).output


def debugged(bench: Bench, *names: str, steps: Sequence[str] = STEPS, budget_s: float = 20.0) -> dict[str, Any]:
    """Step to its output; each step sees the steps before it."""
    context = make_context(bench, *names, checks=CHECKS, budget_s=budget_s)
    finished: list[Finished] = []
    outputs: dict[str, Any] = {}
    for step in steps:
        outputs[step] = run(replace(context, finished=tuple(finished)), step)
        finished.append(make_finished(step, action=step, output=outputs[step]))
    return outputs


def explanation_of(outputs: dict[str, Any]) -> Explanation:
    """Why the only variant is wrong."""
    output: DebugOutput = outputs["debug.explain"]
    (explanation,) = output.explanations
    return explanation


def smallest(outputs: dict[str, Any]) -> str:
    """The smallest failing workload, as a command line gives it."""
    output: DebugOutput = outputs["debug.smallest"]
    (result,) = output.smallest
    assert not result.check.passed, "what is found fails"
    return result.words.removesuffix(" dtype=float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected", "rule"),
    [
        ("long_keys", "B=1 Sq=1 D=1 Sk=65", "Sk > 64"),
        ("no_tail", "B=1 S=1 D=1", "Sk % 16 != 0"),
        ("nan_row", "B=1 Sq=2 D=1 Sk=1 causal=true", "causal is true and Sq > Sk"),
    ],
)
def test_smallest_workload_and_rule_are_found(name: str, expected: str, rule: str, bench: Bench) -> None:
    """The rule foresaw at least six fresh workloads; the smallest fails in a process of its own."""
    outputs = debugged(bench, name)
    explanation = explanation_of(outputs)
    assert expected == smallest(outputs)
    assert explanation.rule.startswith(f"wrong where {rule}, right where ")
    assert explanation.held >= MIN_PREDICTIONS


@pytest.mark.slow
def test_a_source_that_was_edited_meanwhile_is_not_looked_into(bench: Bench) -> None:
    """The build that failed is another than the one at hand."""
    context = make_context(bench, "odd", checks=CHECKS)
    output = run(context, "kernel.verify")
    stale = output.model_dump(mode="json")
    stale["variants"][0]["build_id"] = "another"
    done = make_finished("verify", action="kernel.verify", output=stale)
    with pytest.raises(LoopError, match="odd was edited after it was checked"):
        run(replace(context, finished=(done,)), "debug.smallest")
