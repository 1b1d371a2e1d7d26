"""Properties: relations between outputs, walked by the judge while the variant computes in its own process."""

import pytest

from loop.base.errors import LoopError
from loop.base.processes import run_to_end
from loop.gate import properties as relating
from loop.gate.properties import try_properties
from loop.model.dtypes import Dtype
from loop.model.measurement import PropertyCheck
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.workers.bench import Bench
from tests.targets import make_sides

SMALL, LARGE, MIDDLE = "N2 M3 float32", "N5 M3 float32", "N3 M4 float32"
"""The workloads of the tiny target, in order."""


def workloads(bench: Bench, dtype: Dtype = "float32") -> tuple[Workload, ...]:
    """All workloads of the tiny target."""
    return expand_sets(bench.target, ["some"], dtype)


def tried(bench: Bench, variant: str, *properties: str, dtype: Dtype = "float32") -> list[PropertyCheck]:
    """What trying properties of the tiny target on one variant finds."""
    (side,) = make_sides(bench, variant)
    names = [f"tiny_functions:{name}" for name in properties]
    return list(run_to_end(try_properties(bench, side, names, workloads(bench, dtype))))


def statuses(found: list[PropertyCheck]) -> dict[str, str]:
    """Status by workload."""
    return {one.workload: one.status for one in found}


def test_a_wrong_kernel_breaks_a_property_without_any_reference(bench: Bench) -> None:
    """A constant in one element is not half as large on half the input."""
    found = tried(bench, "epsilon", "half_twice")
    assert dict.fromkeys((SMALL, LARGE, MIDDLE), "failed") == statuses(found)
    assert f"tiny_functions:half_twice does not hold on {MIDDLE}: 1 of 12 elements" in found[2].message


def test_a_mistake_in_a_property_is_the_targets_fault(bench: Bench) -> None:
    """No verdict on the variant: the error names the line; so does a property that is not there."""
    with pytest.raises(LoopError, match=r"ValueError: lost the thread \(tiny_functions.py:\d+\)"):
        tried(bench, "right", "stumbles")
    with pytest.raises(LoopError, match="no_such_property"):
        tried(bench, "right", "no_such_property")
    assert "holds" == tried(bench, "right", "half_twice")[0].status, "the judge goes on"


def test_a_hang_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs its limit."""
    monkeypatch.setattr(relating, "CALL_LIMIT_S", 0.3)
    found = tried(bench, "hangs", "half_twice")
    assert {SMALL: "holds", LARGE: "failed", MIDDLE: "holds"} == statuses(found)
    assert f"no answer for 0.3 s: killed on {LARGE}" == found[1].message
