"""What wrong outputs are as if: a real compiler and real processes, faults that are known and one that is not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.actions import ACTIONS
from loop.base.errors import WorkFailed
from loop.base.processes import finish
from loop.debug.section import diagnoses
from loop.library.definitions import read_file
from loop.model.debugging import CausesOutput, Explanation
from loop.model.output import outputs_of
from loop.model.record import Finished
from loop.model.target import Target
from loop.steps.context import Context
from loop.workers.bench import Bench
from tests.makers import make_finished, make_session_head
from tests.own_targets import write_own
from tests.targets import make_context, open_bench

pytestmark = pytest.mark.slow
MISTAKES = {
    "last_lost": ("k < K;", "k + 1 < K;"),
    "squared": ("= sum;", "= sum * sum;"),
    "late_rows": ("= sum;", "= i < 16 ? sum : 0;"),
    "halved": ("= sum;", "= sum / 2;"),
    "unknown": ("+= a", "+= (k % 3) * a"),
    "two_at_once": ("= sum;", "= i < 4 ? 0 : i < 8 ? 2 * sum : sum;"),
    "one_element": ("= sum;", "= i + j ? sum : 9;"),
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
WORKLOADS = {"some": [{"M": 24, "K": [5, 9], "N": 10}, {"M": [1, 2], "K": 4, "N": 3}]}


def open_matmul(folder: Path, cache: Path, faults: dict[str, Any]) -> Bench:
    """A bench for a matrix product with a variant for each mistake."""
    base = {"kind": "c_abi", "device": "cpu", "sources": ["all.cpp"]}
    recipe = {"compiler": "g++", "flags": ["-std=c++17", "-O1"]}
    variants = {name: {**base, "entry": name, "build": recipe} for name in MISTAKES}
    write_own(folder, "matmul", variants=variants, workloads=WORKLOADS, faults=faults)
    (folder / "faults.py").write_text(WRONG)
    head, start, body = (folder / "matmul.cpp").read_text().partition("LOOP_EXPORT int ")
    bodies = [start + body.replace("matmul", name).replace(*change) for name, change in MISTAKES.items()]
    (folder / "all.cpp").write_text("\n".join([head, *bodies]))
    return open_bench(folder, read_file(folder / "target.yaml", Target).value, cache)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[tuple[Finished, ...]]:
    """The steps of a session in which all of them are wrong."""
    with open_matmul(tmp_path_factory.mktemp("matmul"), build_cache, FAULTS) as bench:
        context = make_context(bench, *MISTAKES, budget_s=60.0)
        verified = step(context, "kernel.verify")
        yield verified, step(replace(context, finished=(verified,)), "debug.causes")


def step(context: Context, action: str) -> Finished:
    """A step that has come to its end."""
    does = ACTIONS[action]
    output = finish(does.run(context, does.arguments.model_validate({}))).output
    return make_finished(action, action=action, pattern="defensive-debugging", output=output)


def causes(done: tuple[Finished, ...]) -> dict[str, Explanation]:
    """What was found of each variant."""
    (output,) = outputs_of(done, CausesOutput)
    return {one.variant: one for one in output.causes}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("last_lost", "as if the last index of K were left out"),
        ("squared", "as if the sums were squared"),
        (
            "late_rows",
            "as if a were zero, or b were zero, or nothing were computed (zeros), in M 16 to 23 of 24, all of N",
        ),
        ("halved", "as if it were multiplied by 0.5"),
        ("unknown", "it fits none of the known faults"),
        ("two_at_once", "it fits none of the known faults"),
        ("one_element", "not identified: too few elements are wrong to compare them with known faults"),
    ],
)
def test_each_mistake_is_named_or_said_to_be_none(name: str, expected: str, done: tuple[Finished, ...]) -> None:
    """Of any kernel, of the target, of a part; a fault that cannot be asked says nothing."""
    assert expected == causes(done)[name].text


def test_workloads_that_say_nothing_take_nothing_back(done: tuple[Finished, ...]) -> None:
    """With three wrong elements nothing fits: what larger ones say stands."""
    assert {"M24 K5 N10 float32", "M24 K9 N10 float32"} == set(causes(done)["squared"].workloads)
    assert () == causes(done)["one_element"].workloads


def test_the_message_has_every_variant(done: tuple[Finished, ...]) -> None:
    """A sentence each."""
    (output,) = outputs_of(done, CausesOutput)
    assert output.message.startswith("last_lost: as if the last index of K were left out; squared: as if the sums")


def test_the_report_has_it_for_each_variant(done: tuple[Finished, ...]) -> None:
    """Under its own label, also where no other step found anything."""
    found = {one.variant: one.lines for one in diagnoses(make_session_head(), done)}
    assert set(MISTAKES) == set(found)
    assert (("Cause", "as if the sums were squared"),) == found["squared"]
    assert (("Cause", "it fits none of the known faults"),) == found["unknown"]


def test_a_fault_that_is_not_there_ends_the_diagnosis_alone(tmp_path: Path, build_cache: Path) -> None:
    """The error names the entry; what was verified stays so."""
    faults = {**FAULTS, "the rows were lost": {"python": "faults:lost"}}
    with open_matmul(tmp_path / "matmul", build_cache, faults) as bench:
        context = make_context(bench, "squared", budget_s=60.0)
        done = step(context, "kernel.verify")
        expected = "faults: the rows were lost: cannot import faults:lost: AttributeError"
        with pytest.raises(WorkFailed, match=expected):
            step(replace(context, finished=(done,)), "debug.causes")
