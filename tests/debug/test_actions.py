"""Debugging by itself: variants that are wrong in known ways, a real compiler and real processes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.actions import ACTIONS
from loop.base.errors import LoopError
from loop.base.processes import run_to_end
from loop.debug.rules import MIN_PREDICTIONS
from loop.model.debugging import DebugOutput, Explanation
from loop.model.output import Output
from loop.model.record import Finished
from loop.steps.context import Context
from loop.workers.bench import Bench
from tests.makers import make_finished
from tests.targets import make_context
from tests.two_stage import open_two_stage

CHECKS = ("wide", "masked")
STEPS = ("kernel.verify", "debug.explain", "debug.components", "debug.smallest")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for the target in two stages."""
    with open_two_stage(tmp_path_factory.mktemp("two-stage"), build_cache) as made:
        yield made


def run(context: Context, action: str, **terms: Any) -> Output:
    """What an action finds."""
    done = ACTIONS[action]
    return run_to_end(done.run(context, done.arguments.model_validate(terms))).output


def debugged(bench: Bench, *names: str, steps: Sequence[str] = STEPS, budget_s: float = 20.0) -> dict[str, Any]:
    """What each step finds, each with those before it."""
    context = make_context(bench, *names, checks=CHECKS, budget_s=budget_s)
    done: list[Finished] = []
    found: dict[str, Any] = {}
    for step in steps:
        found[step] = run(replace(context, finished=tuple(done)), step)
        done.append(make_finished(step, action=step, output=found[step]))
    return found


def explained(found: dict[str, Any]) -> Explanation:
    """Why the only variant is wrong."""
    output: DebugOutput = found["debug.explain"]
    (explanation,) = output.explanations
    return explanation


def smallest(found: dict[str, Any]) -> str:
    """The smallest failing workload, as a command line gives it."""
    output: DebugOutput = found["debug.smallest"]
    (one,) = output.smallest
    assert not one.check.passed, "what is found fails"
    return one.words.removesuffix(" dtype=float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected", "rule"),
    [
        ("long_keys", "B=1 Sq=1 D=1 Sk=65", "Sk > 64"),
        ("no_tail", "B=1 S=1 D=1", "Sk % 16 != 0"),
        ("nan_row", "B=1 Sq=2 D=1 Sk=1 causal=true", "causal is true and Sq > Sk"),
    ],
)
def test_the_smallest_workload_and_the_rule(name: str, expected: str, rule: str, bench: Bench) -> None:
    """The rule foresaw at least six fresh workloads; the smallest fails in a process of its own."""
    found = debugged(bench, name)
    explanation = explained(found)
    assert expected == smallest(found)
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
