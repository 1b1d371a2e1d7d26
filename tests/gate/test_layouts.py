"""Inputs as a framework may hand them over: with gaps between the rows, or at an odd address."""

from dataclasses import replace

import pytest

from loop.base.processes import run_to_end
from loop.gate.verify import LAYOUTS, Job, verify
from loop.model.dtypes import Dtype
from loop.model.measurement import Check, VariantChecks
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.workers.bench import Bench
from tests.targets import make_sides


def workloads(bench: Bench, *dtypes: Dtype) -> list[Workload]:
    """All workloads of the tiny target in these types."""
    return [workload for dtype in dtypes for workload in expand_sets(bench.target, ["some"], dtype)]


def checks_of(bench: Bench, name: str, chosen: list[Workload]) -> VariantChecks:
    """What verifying one variant finds."""
    (found,) = run_to_end(verify(bench, [Job(bench_side, chosen) for bench_side in make_sides(bench, name)]))
    assert isinstance(found, VariantChecks)
    return found


def laid_out(bench: Bench, name: str) -> dict[str, Check]:
    """The checks of the smallest workload by layout."""
    found = checks_of(bench, name, workloads(bench, "float32")[:1])
    return {one.inputs: one for one in found.checks}


@pytest.mark.parametrize(
    ("name", "strided", "misaligned", "others"),
    [
        ("strides", "right", "right", "right"),
        ("right", "unsupported", "right", "unsupported"),
        ("ignores_strides", "wrong", "right", "wrong"),
        ("wants_aligned", "right", "unsupported", "right"),
        ("rounds_down", "right", "wrong", "right"),
        ("aborts_on_strides", "crashed", "right", "crashed"),
    ],
)
@pytest.mark.slow
def test_other_layouts_are_handled_or_declined(
    name: str, strided: str, misaligned: str, others: str, bench: Bench
) -> None:
    """An error is a right answer; reading on as if nothing were the matter, or crashing, is not."""
    found = laid_out(bench, name)
    expected = {"contiguous": "right", "strided": strided, "misaligned": misaligned}
    assert {**expected, "transposed": others, "broadcast": others} == {
        layout: one.status for layout, one in found.items()
    }


@pytest.mark.slow
def test_outputs_that_the_reference_alone_tells_leave_out_no_layout(bench: Bench) -> None:
    """Their types are known once it was asked."""
    signature = bench.target.signature.model_copy(update={"outputs": {}})
    target = bench.target.model_copy(update={"signature": signature})
    found = laid_out(replace(bench, target=target, notes={}, _nursery=bench.nursery), "right")
    assert set(LAYOUTS) == found.keys()


def test_an_error_on_contiguous_inputs_is_no_declining(bench: Bench) -> None:
    """That is what they were promised."""
    found = checks_of(bench, "refuses", workloads(bench, "float32")[1:2])
    assert {"contiguous": "refused", **dict.fromkeys(LAYOUTS[1:], "unsupported")} == {
        one.inputs: one.status for one in found.checks
    }
    assert not found.is_right
