"""How a side is called is said in words, by its kind, its device, and whether a graph replays it."""

from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.base.processes import finish
from loop.calls.call import CommandTerms, FunctionTerms, LibraryTerms, Terms
from loop.model.dtypes import Device
from loop.timing.samples import Timings
from loop.timing.schedule import measure
from loop.timing.terms import Terms as Limits
from loop.timing.ways import OFFERED, as_operator, called
from loop.workers.bench import Side
from tests.makers import make_build, make_workload
from tests.targets import compiled, make_builds, open_bench, write_target

TERMS: dict[str, Terms] = {
    "c_abi": LibraryTerms("cpu", "f", "", ""),
    "python": FunctionTerms("m:f"),
    "command": CommandTerms(("./run",), {}),
}


def side(kind: str, **environment: str) -> Side:
    """A side of a kind."""
    return Side("v", TERMS[kind], ("float32",), deterministic=True, build_id=None, environment=environment)


@pytest.mark.parametrize(
    ("one", "device", "captured", "expected"),
    [
        (side("c_abi"), "cpu", False, "C, writes into a given output"),
        (side("python"), "cpu", False, "Python, allocates its result"),
        (side("python", **{OFFERED: "offered.json"}), "cpu", False, "PyTorch operator, allocates its result"),
        (side("command"), "cpu", False, "a program, once a call"),
        (side("c_abi"), "cuda", True, "CUDA graph of calls from C, writes into a given output"),
        (side("python"), "cuda", True, "CUDA graph of calls from Python, allocates its result"),
        (side("python"), "cuda", False, "launch by launch from Python, allocates its result"),
    ],
)
def test_a_way_of_being_called_has_words(one: Side, device: Device, captured: bool, expected: str) -> None:
    """What two sides have in common is said in the same words."""
    assert expected == called(one, device, captured=captured)


def test_a_signature_that_no_operator_has_is_said(tmp_path: Path, build_cache: Path) -> None:
    """An operator makes its output: each size has to be an input's."""
    with open_bench(tmp_path, write_target(tmp_path, {"right": compiled("right")}), build_cache) as bench:
        signature = bench.target.signature.model_copy(update={"outputs": {"output": "N M K"}})
        build = make_build(variant="right")
        with (
            bench.at(bench.folder, bench.target.model_copy(update={"signature": signature})) as other,
            pytest.raises(LoopError, match="K is a dimension of the output"),
        ):
            as_operator(other, other.side("right", build), build)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "wrong"), [("right", []), ("tires", ["tires"])])
def test_an_operator_is_timed_and_judged_like_any_other_side(
    tmp_path: Path, build_cache: Path, name: str, wrong: list[str]
) -> None:
    """By the way that a library is called; what is wrong while it is timed is seen."""
    workload = make_workload("N8 M8 float32", sizes={"N": 8, "M": 8})
    with open_bench(tmp_path, write_target(tmp_path, {name: compiled(name)}), build_cache) as bench:
        build = make_builds(bench, name)[name]
        side = as_operator(bench, bench.side(name, build), build)
        found: Timings = finish(measure(bench, [side], [workload], Limits(2, 30.0, 1)))
    assert {name: "PyTorch operator, allocates its result"} == found.ways
    assert set(wrong) == {side for side, _ in found.wrong}
