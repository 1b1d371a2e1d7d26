"""Which machine code a GPU runs, what may spill, and budgets."""

from typing import Any

import pytest

from loop.model.resources import CompiledLibrary
from loop.model.target import ResourceBudget
from loop.profile.inspection import broken, runs_on, spilling
from tests.makers import make_kernel, make_library, make_placement

ROWS = make_kernel(registers=168, stack_bytes=40, shared_bytes=2048)
SPILLS = make_kernel("void tiny::crowded<(ns::Mask)1>(float*)", spill_stores=144, spill_loads=288)


def budget(kernel: str = "rows", **fields: Any) -> ResourceBudget:
    """A budget for the kernels of a name."""
    return ResourceBudget.model_validate({"kernel": kernel, **fields})


def said(*budgets: ResourceBudget, library: CompiledLibrary | None = None, **placed: Any) -> list[str]:
    """What is said of a library with one launch of its first kernel."""
    return list(broken(library or make_library(ROWS), budgets, [make_placement(ROWS, **placed)] if placed else []))


@pytest.mark.parametrize(
    ("code", "device", "expected"),
    [
        ("sm_89", "sm_89", True),
        ("sm_80", "sm_89", True),
        ("sm_86", "sm_89", True),
        ("sm_90", "sm_89", False),
        ("sm_75", "sm_89", False),
        ("sm_90a", "sm_90", True),
        ("sm_120a", "sm_121", False),
        ("sm_120f", "sm_121", True),
        ("sm_100", "sm_103", True),
        ("sm_10", "sm_100", False),
        ("compute_89", "sm_89", False),
    ],
)
def test_machine_code_runs_on_its_own_major_number(code: str, device: str, expected: bool) -> None:
    """And on no lower minor one; what ends in `a` on one alone. What a driver would compile first is no code."""
    assert expected == runs_on(code, device)


def test_a_spill_needs_no_budget_to_be_wrong() -> None:
    """Every byte counts, unless a budget allows it."""
    library = make_library(ROWS, SPILLS)
    assert [(SPILLS, 0)] == list(spilling(library, []))
    assert [(SPILLS, 143)] == list(spilling(library, [budget("crowded", spill_bytes=143)]))
    assert [] == list(spilling(library, [budget("crowded", spill_bytes=144)]))


def test_budgets_that_are_not_kept_are_named_with_both_figures() -> None:
    """What it takes and what it may."""
    tight = budget(registers=128, stack_bytes=0, shared_bytes=1024, blocks_per_sm=4)
    expected = ["168 registers, budget 128", "40 bytes of stack, budget 0"]
    expected += ["9000 bytes of shared memory, budget 1024", "3 blocks a multiprocessor, budget 4 at least"]
    found = said(tight, resident=3, shared_bytes=9000)
    assert [f"tiny::rows<float, 128>: {text}" for text in expected] == found
    kept = budget(registers=168, stack_bytes=40, shared_bytes=9000, blocks_per_sm=3)
    assert [] == said(kept, resident=3, shared_bytes=9000)


def test_a_budget_for_no_kernel_is_broken() -> None:
    """A kernel that was renamed must not lose its budget without a word."""
    assert ["the budget for 'colums' fits no kernel of v"] == said(budget("colums"))
