"""A wrong kernel, as a user meets it: the session looks for the cause by itself, and repeats no try."""

import json
import shlex
from pathlib import Path

import pytest

from tests.projects import loop
from tests.two_stage import write_two_stage

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
    """On the screen, in the report and as JSON: the component, the boundary, and a command that shows it again."""
    done = loop("run", "session", "mine", "--target", str(folder), "--seed", "3")
    assert 1 == done.returncode
    assert "check-first failed: defensive-debugging answers" in done.stderr
    told = done.stdout
    assert "Component: sum_twice_reduce (the ranges together) is wrong: " in told
    assert "Component: right by itself: sum_twice_partial" in told
    assert "Rule: wrong where Sk >= 2, right where Sk < 2" in told
    assert "Smallest workload: B1 Sq1 D1 Sk2 float32" in told
    again = "loop kernels verify sum_twice --workloads 'B=1 Sq=1 D=1 Sk=2 dtype=float32' --target "
    assert f"Again: {again}" in told
    report = loop("report", "last", "--target", str(folder)).stdout
    rule, then = report.index("wrong where Sk >= 2"), report.index("Next: ")
    assert rule < then < report.index("Smallest workload") < report.index("<summary>Evidence")


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
