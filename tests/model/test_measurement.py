"""Checks of a variant: what failed is told a line a check, or once where all failed alike."""

from collections.abc import Sequence

from loop.model.measurement import Check, Fault, Layout, VariantChecks
from tests.makers import make_check

NO_LOAD = "does not load: no such file"
NOT_LOADED = Fault(text=NO_LOAD)


def failures(*checks: Check) -> Sequence[str]:
    """What is told of these checks."""
    return VariantChecks(variant="cpu", build_id=None, checks=checks).failures


def unloaded(workload: str, inputs: Layout = "contiguous") -> Check:
    """A check of a variant that did not load."""
    place = workload if inputs == "contiguous" else f"{workload} with {inputs} inputs"
    return make_check(workload, status="refused", message=f"{NO_LOAD} on {place}", inputs=inputs, fault=NOT_LOADED)


def refused(workload: str, status: str = "refused") -> Check:
    """A check of a call that returned an error."""
    fault = Fault(text="error 3: no such shape")
    return make_check(workload, status=status, message=f"{fault.text} on {workload}", fault=fault)


def test_a_variant_that_does_not_load_is_told_once() -> None:
    """Whatever the workload and the layout, with how many checks that cost."""
    assert (f"refused: {NO_LOAD} (3 checks)",) == failures(unloaded("a"), unloaded("a", "strided"), unloaded("b"))
    assert (f"refused: {NO_LOAD} on a",) == failures(unloaded("a")), "a single one names its workload"


def test_what_failed_on_some_workloads_names_them() -> None:
    """Which ones they are says something of the mistake."""
    expected = ("refused: error 3: no such shape on a", "refused: error 3: no such shape on b")
    assert expected == failures(refused("a"), make_check("c"), refused("b"))
