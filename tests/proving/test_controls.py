"""Proving the gate: it rejects every control for its reason, for functions of any structure."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from loop.base.processes import run_to_end
from loop.gate.kernel import build_sides
from loop.mistakes import functions
from loop.mistakes.functions import erring_function
from loop.model.target import Signature, Target, Workload
from loop.proving import prove as table
from loop.proving.prove import ControlResult, GateOutput, Proof, ProofTerms, controls_by_shape, prove_gate
from loop.report.screen import Screen
from loop.session import shown
from loop.workers.bench import Bench
from tests.session.mix import SIGNATURE, make_context, write_mix
from tests.targets import compiled, open_bench, write_target
from tests.tasks import write_task

WRONG, NAN = "elements|NaN", "NaN"
FOUND_BY = {
    WRONG: (
        *(
            "ignores a",
            "swaps a and b",
            "low precision",
            "drops relu",
            "wrong scale",
            "cuts K",
            "zeros",
            "constant",
        ),
        *("transposed", "one element off", "zeros in tail of B", "error grows along B"),
        *("stale output", "cached by address"),
    ),
    NAN: (*("nothing written", "one element NaN", "skips every other call"), "skips tail of B"),
    "outside": ("writes beyond the end", "writes before the beginning"),
    "changed input": ("writes to a",),
    "two outputs": ("not deterministic",),
}
"""Control to the causes, one of which has to reject it."""
EXPECTED = {name: expected for expected, names in FOUND_BY.items() for name in names}
PYTHON_ONLY = {
    **dict.fromkeys(("gives a promise", "gives another type"), "wrong result"),
    **dict.fromkeys(("keeps its result", "leaves every other result unwritten"), WRONG),
    "gives a back": WRONG,
}
OUTSIDE = ("writes beyond the end", "writes before the beginning")
"""Controls that write beside loop's memory, which Python variants do not get."""


def score(bench: Bench, *variants: str) -> GateOutput:
    """The output of proving the gate on these variants."""
    output = run_to_end(prove_gate(make_context(bench, *variants), ProofTerms(python=True))).output
    assert isinstance(output, GateOutput)
    return output


def erring_controls(output: GateOutput) -> dict[str, ControlResult]:
    """Results of controls that err, by name."""
    return {control.name: control for control in output.controls if control.kind != "honest"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for a target with everything a signature can have; its kernel is slow, so that caching pays."""
    folder = tmp_path_factory.mktemp("mix")
    with open_bench(folder, write_mix(folder, ("mix", "mix_slow"), ("lazy", "mix")), build_cache) as opened:
        yield opened


@pytest.fixture(scope="module")
def compiled_score(bench: Bench) -> GateOutput:
    """The controls of a compiled variant."""
    return score(bench, "mix_slow")


def test_the_tables_name_a_control_of_every_kind() -> None:
    """Each kind has an expected cause in this file; there are about twenty-five kinds."""
    signature = Signature.model_validate(SIGNATURE)
    workload = Workload(name="ones", sizes=dict.fromkeys(signature.dimensions, 1), dtype="float32")
    kinds = {control.make: control for control in reversed([*table.controls(signature, workload)])}
    assert {*EXPECTED, *PYTHON_ONLY} == {control.name for control in kinds.values()}
    assert set(PYTHON_ONLY) == {control.name for control in kinds.values() if "c_abi" not in control.kinds}
    assert 18 <= len([control for control in kinds.values() if "c_abi" in control.kinds]) <= 42


def held_against(expected: str, by_name: dict[str, ControlResult], name: str) -> None:
    """Assert that a control was killed for an expected cause."""
    control = by_name[name]
    assert (True, True) == (control.killed, control.right_reason), control.reason
    assert control.cause in expected.split("|"), control.reason


@pytest.mark.slow
def test_each_control_is_killed_for_its_reason(compiled_score: GateOutput, bench: Bench) -> None:
    """The checks are those of a real candidate; Python variants may return any type."""
    python_score = score(bench, "py_mix")
    for name, expected in EXPECTED.items():
        held_against(expected, erring_controls(compiled_score), name)
    for name, expected in {**EXPECTED, **PYTHON_ONLY}.items():
        if name not in OUTSIDE:
            held_against(expected, erring_controls(python_score), name)


@pytest.mark.slow
def test_honest_candidates_pass_and_the_score_counts_what_errs(compiled_score: GateOutput) -> None:
    """An honest copy through the controls' arrays passes. Each control that errs is killed for its own reason."""
    honest = [(control.name, control.killed) for control in compiled_score.controls if control.kind == "honest"]
    way = table.HONEST_COPY.name
    assert [("honest", False), (way, False)] == honest
    assert compiled_score.ok, compiled_score.message
    assert compiled_score.killed == compiled_score.total == len(erring_controls(compiled_score))
    assert ((), (), ()) == (compiled_score.survivors, compiled_score.rejected, compiled_score.wrong_reasons)
    counts = f"{compiled_score.total} of {compiled_score.total}"
    assert f"the gate rejected {counts} injected bugs and cheats" == compiled_score.message


@pytest.mark.slow
def test_a_gate_that_is_too_wide_is_told_so(tmp_path: Path, build_cache: Path) -> None:
    """With a tolerance of a thousand, a wrong number passes: the step fails and names the survivors."""
    wide = {"float32": {"atol": 1e3, "rtol": 0.0}}
    target = write_target(tmp_path, {"right": compiled()}, tolerance=wide, plain=None)
    with open_bench(tmp_path, target, build_cache) as bench:
        output = score(bench, "right")
    assert not output.ok
    assert "right: zeros" in output.survivors
    assert "right: nothing written" not in output.survivors
    counts = f"{output.killed} of {output.total}"
    assert output.message.startswith(f"the gate rejected {counts} injected bugs and cheats; it accepted ")


@pytest.mark.soak
def test_what_no_input_of_the_target_tells_is_reported_and_fails_nothing(
    tmp_path: Path, build_cache: Path
) -> None:
    """An attribute that moves the result by less than is allowed; a function with one answer for all values."""
    signature = {
        "inputs": {"x": "N M"},
        "outputs": {"output": "N M"},
        "attributes": {"nudge": {"kind": "number", "default": 1.0}},
    }
    function = {"python": "nudged:nudged"}
    fields = {"signature": signature, **dict.fromkeys(("reference", "plain", "baseline"), function)}
    target = write_target(tmp_path, {"right": compiled()}, **fields)
    (tmp_path / "nudged.py").write_text("def nudged(x, *, nudge):\n    return x * 2 + x * (nudge * 1e-12)\n")
    with open_bench(tmp_path, target, build_cache) as opened:
        output = score(opened, "right")
    assert output.ok, output.message
    assert () == output.survivors
    assert any("wrong nudge" in text for text in (*output.indistinguishable, *output.not_applicable))
    assert "wrong nudge" not in {control.name for control in output.controls if control.killed}


@pytest.mark.slow
def test_controls_for_which_no_time_is_left_are_named(tmp_path: Path, build_cache: Path) -> None:
    """Tried controls count, the others are not exercised, and the step passes."""
    target = write_target(tmp_path, {"right": compiled()})
    with open_bench(tmp_path, target, build_cache) as bench:
        run_to_end(build_sides(make_context(bench, "right"), ["right"]))  # Compiling takes no time of controls.
        context = replace(make_context(bench, "right"), kill_after_s=0.8)
        output = run_to_end(prove_gate(context, ProofTerms())).output
    assert isinstance(output, GateOutput)
    assert output.ok, output.message
    assert output.killed == output.total
    assert ((), ()) == (output.survivors, output.rejected)
    assert any("for want of time" in text for text in output.not_exercised)


def test_a_python_variant_may_take_one_shape_in_several_types() -> None:
    """The form of its output is that of the call at hand, not of an earlier one of another type."""
    way = erring_function(lambda x: 2 * x, {"make": "none"})
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float16):
        x = torch.arange(6, dtype=dtype).reshape(2, 3)
        assert torch.equal(2 * x, way(x))
        assert dtype == way(x).dtype


@pytest.mark.parametrize(("untried", "part"), [([], "can be made"), (["mean"], "was tried, for want of time")])
def test_controls_that_were_not_tried_are_not_said_to_be_impossible(untried: list[str], part: str) -> None:
    """The message tells "none applies" from "none was tried"."""
    assert part in table._score(Proof(untried=untried)).message


TERMS = {"tolerance": {"atol": 0.0, "rtol": 0.0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all examples."""
    return tmp_path_factory.mktemp("structures")


@pytest.fixture(scope="module")
def shared(folder: Path, build_cache: Path) -> Iterator[Bench]:
    """A bench whose judge and nursery serve all examples."""
    with open_bench(folder, write_task(folder, "model"), build_cache) as bench:
        yield bench


def score_of(shared: Bench, folder: Path, name: str, variant: str = "right") -> GateOutput:
    """The output of proving the gate on a variant of an example."""
    bench = replace(shared, target=write_task(folder, name), _nursery=shared.nursery)
    output = run_to_end(prove_gate(make_context(bench, variant), ProofTerms(python=True))).output
    assert isinstance(output, GateOutput)
    return output


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("model", 18), ("partly", 12)])
def test_every_control_is_found_for_its_reason(name: str, least: int, shared: Bench, folder: Path) -> None:
    """The honest control passes; fewer controls differ if the only floating-point input is a scalar."""
    output = score_of(shared, folder, name)
    assert output.ok, output.message
    assert all(control.killed != (control.kind == "honest") for control in output.controls)
    erring = [control for control in output.controls if control.kind != "honest"]
    assert [] == [(control.name, control.reason) for control in erring if not control.right_reason]
    assert least <= len(erring)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant", "reason"),
    [
        ("quantised", "right", "no floating-point numbers among both inputs and outputs"),
        ("passed", "written", "its outputs are passed to it"),
    ],
)
def test_what_no_control_is_made_of_is_said(
    name: str, variant: str, reason: str, shared: Bench, folder: Path
) -> None:
    """The output has the reason, and counts no control."""
    output = score_of(shared, folder, name, variant)
    assert 0 == output.total
    assert any(reason in text for text in output.not_applicable)


def test_no_control_is_made_of_whole_numbers(tmp_path: Path, build_cache: Path) -> None:
    """A copy with whole-number outputs would crash, and its crash would count as a rejected bug."""
    signature = {"inputs": {"x": "N M"}, "outputs": {"output": "N M"}, "types": {"output": "int32"}}
    eager = {"kind": "python", "device": "cpu", "module": "tiny_functions", "function": "double"}
    target = write_target(tmp_path, {"right": compiled(), "eager": eager}, signature=signature)
    with open_bench(tmp_path, target, build_cache) as bench:
        for side in (bench.make_side(name) for name in target.variants):
            assert "and output holds others" in table._explain_no_controls(target, side, ())
        for fields in ({}, {"generator": {"python": "tiny_functions:make"}}):
            bench.target = Target.model_validate({**target.model_dump(exclude_none=True), **fields})
            result = run_to_end(prove_gate(make_context(bench, "right"), ProofTerms()))
            (text,) = result.output.not_exercised
            assert (True, True) == (result.output.ok, result.idle)
            assert ("`generator`" in text) == bool(fields)
            (*_, printed) = shown._mutation_lines(result.output, Screen(io.StringIO(), io.StringIO()))
            assert f"not exercised: {text}" == printed


def test_shapes_decide_which_controls_can_show() -> None:
    """A tail of one element is the whole output; an input is returned only if it has the output's shape."""
    shown = {control.name: control.shows for control in controls_by_shape([[4, 1], [3]], [4, 1])}
    assert (True, False) == (shown["gives input0 back"], shown["zeros in tail of axis1"])
    assert "gives input1 back" not in shown
    assert {"zeros", "stale output", "writes to input1"} <= set(shown)


class Scaled(torch.nn.Module):
    """A module with a weight."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), factor), requires_grad=False)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        """Its output is a dict with a second value that is no floating-point tensor."""
        return {"y": x * self.weight, "n": torch.tensor(3)}


def test_erring_modules_share_their_memory_and_widen_a_copy_of_their_weights() -> None:
    """A stale output may be another instance's; an honest float64 answer is rounded back."""
    kind = functions.erring_class(Scaled, {"make": "stale", **TERMS})
    first, second = kind(2.0)(torch.ones(3)), kind(5.0)(torch.ones(3))
    assert [2.0, 2.0, 2.0] == first["y"].tolist() == second["y"].tolist()
    assert 3 == int(second["n"])
    assert isinstance(kind(1.0), Scaled)
    module = functions.erring_class(Scaled, {"make": "exact", **TERMS})(1 / 3)
    output = module(torch.full((3,), 3.0))["y"]
    assert (torch.float32, [1.0, 1.0, 1.0]) == (output.dtype, output.tolist())
    assert torch.float32 == module.weight.dtype
    assert ["weight"] == list(module.state_dict())
