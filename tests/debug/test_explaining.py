"""Explanations of wrong kernels: a real compiler, real processes, and mistakes of many kinds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.actions import ACTIONS
from loop.base.processes import run_to_end
from loop.library.definitions import read_file
from loop.machine.machine import cores
from loop.model.output import DebugOutput, Explanation, outputs_of
from loop.model.record import Finished
from loop.model.target import Target
from loop.steps.context import Context
from loop.workers.bench import Bench
from tests.makers import make_finished
from tests.own_targets import write_own
from tests.targets import make_context, open_bench

pytestmark = pytest.mark.slow
STORE = "y[i * N + j] = sum;"
MISTAKES = {
    "last_lost": ("k < K;", "k + 1 < K;"),
    "squared": ("= sum;", "= sum * sum;"),
    "positive": ("= sum;", "= sum > 0 ? sum : 0;"),
    "first_row": ("b[k * N + j]", "b[j]"),
    "unknown": ("+= a", "+= (k % 3) * a"),
    "tail": ("= sum;", "= j < N / 4 * 4 ? sum : sum + 1;"),
    "accumulates": (STORE, "static int64_t n = 0; y[i * N + j] = n++ < M * N ? sum : sum + 1;"),
    "order": ("= sum;", "= omp_get_max_threads() > 1 && clock() % 2 ? sum * 1.0000002f : sum;"),
    "beyond": (STORE, "y[i * N + j] = sum; if (N == 3) y[M * N] = sum;"),
    "writes": (STORE, STORE + " const_cast<float *>(a)[0] = 0;"),
    "threads": ("= sum;", "= omp_get_max_threads() > 1 ? sum + 1 : sum;"),
    "late": (
        STORE,
        "static int64_t n = 0; y[i * N + j] = omp_get_max_threads() > 1 && n++ >= M * N ? sum + 1 : sum;",
    ),
}
FAULTS = {
    "the sums were squared": {"python": "faults:squared"},
    "the sums were rooted": {"python": "faults:rooted"},
}
WRONG = """
def squared(a, b):
    return (a @ b) ** 2

def rooted(a, b):
    raise ValueError("of negative sums there is no root")
"""
WORKLOADS = {"some": [{"M": 24, "K": [5, 9], "N": [10, 16]}, {"M": [1, 2], "K": 4, "N": 3}]}


def open_matmul(folder: Path, cache: Path, faults: dict[str, Any]) -> Bench:
    """A bench for a matrix product with a variant for each mistake."""
    base = {"kind": "c_abi", "device": "cpu", "sources": ["all.cpp"], "dtypes": ["float32"]}
    recipe = {"compiler": "g++", "flags": ["-std=c++17", "-O1", "-fopenmp"]}
    variants = {name: {**base, "entry": name, "build": recipe} for name in MISTAKES}
    write_own(folder, "matmul", variants=variants, workloads=WORKLOADS, faults=faults)
    (folder / "faults.py").write_text(WRONG)
    head, start, body = (folder / "matmul.cpp").read_text().partition("LOOP_EXPORT int ")
    for name, (old, _) in MISTAKES.items():
        assert old in body, name
    bodies = [start + body.replace("matmul", name).replace(*change) for name, change in MISTAKES.items()]
    (folder / "all.cpp").write_text("\n".join(["#include <ctime>", "#include <omp.h>", head, *bodies]))
    return open_bench(folder, read_file(folder / "target.yaml", Target).value, cache)


def step(context: Context, action: str) -> Finished:
    """A finished step."""
    does = ACTIONS[action]
    output = run_to_end(does.run(context, does.arguments.model_validate({}))).output
    return make_finished(action, action=action, pattern="defensive-debugging", output=output)


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[dict[str, Explanation]]:
    """Variant to its explanation, from one session in which all variants are wrong."""
    with open_matmul(tmp_path_factory.mktemp("matmul"), build_cache, FAULTS) as bench:
        context = make_context(bench, *MISTAKES, budget_s=60.0)
        done = step(context, "kernel.verify")
        ended = step(replace(context, finished=(done,)), "debug.explain")
        yield {text.variant: text for output in outputs_of([ended], DebugOutput) for text in output.explanations}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("last_lost", "the last index of K were left out"),
        ("squared", "the sums were squared"),
        ("positive", "negative results were zero"),
        ("first_row", "only the first K of b were read"),
    ],
)
def test_a_known_fault_is_named(name: str, expected: str, explained: dict[str, Explanation]) -> None:
    """Faults of any kernel, of the target and of an input are named; a fault whose function fails is skipped."""
    assert expected in explained[name].cause


def test_a_mistake_is_told_by_its_cause_rule_and_place(explained: dict[str, Explanation]) -> None:
    """Only near is not enough; rules hold on unknown sizes and separate; no size is blamed for earlier calls."""
    assert "as if" not in explained["unknown"].cause
    assert "" == explained["unknown"].rule, "it is wrong at every size: no rule separates anything"
    assert explained["tail"].rule.startswith("wrong where N % 4 != 0, right where N % 4 == 0")
    assert explained["tail"].where.startswith("N ")
    assert "it reads or writes outside of its tensors" == explained["beyond"].cause
    assert explained["accumulates"].cause.startswith("it keeps values between calls: right in the first call")
    assert ("", "") == (explained["accumulates"].rule, explained["accumulates"].where)
    assert "it writes to its input" == explained["writes"].cause


@pytest.mark.skipif(cores() == 1, reason="one core runs one thread")
def test_what_is_right_with_one_thread_is_told(explained: dict[str, Explanation]) -> None:
    """Several threads make a racing kernel wrong. A race that spares the first call is no kept value."""
    assert f"wrong with {cores()} threads, right with 1" in explained["threads"].cause
    assert f"wrong with {cores()} threads, right with 1" in explained["late"].cause
    assert f"outputs differ with {cores()} threads only" in explained["order"].cause
