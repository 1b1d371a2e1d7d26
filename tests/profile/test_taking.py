"""What counts as a rise of a kernel's resources: spills always, others where fewer warps are held for them."""

from typing import Any

import pytest

from loop.model.promises import ResourceBudget
from loop.model.resources import BlocksHeld, CompiledLibrary, KernelTakes, ResourcesTaken
from loop.profile.launch_limits import Reports
from loop.profile.taking import rises, taken
from tests.makers import make_kernel
from tests.profile.test_occupancy import L4


def held(warps: int, shared: int = 1024, by: str = "registers") -> BlocksHeld:
    """A launch in blocks of four warps."""
    return BlocksHeld(blocks=warps // 4, warps=warps, shared_bytes=shared, limited_by=by)


def takes(*, compiler: str = "13.0", **fields: Any) -> ResourcesTaken:
    """A variant of one kernel."""
    base: dict[str, Any] = {"registers": 40, "spill_stores": 0, "spill_loads": 0, "held": {"some": held(48)}}
    kernel = KernelTakes(kernel="void rows<float>(float*)", **{**base, **fields})
    return ResourcesTaken(variant="ours", device="sm_89", compiler=compiler, kernels=(kernel,))


def risen(before: ResourcesTaken, now: ResourcesTaken, **budget: Any) -> list[str]:
    """What rose, in words."""
    budgets = [ResourceBudget(kernel="rows", **budget)] if budget else []
    return [one.text for one in rises(before, now, budgets)]


def test_every_byte_that_is_spilled_counts() -> None:
    """Stores and loads, each by itself."""
    text = "of rows<float> rose from 0 to"
    assert [f"spill stores {text} 8 bytes", f"spill loads {text} 12 bytes"] == risen(
        takes(), takes(spill_stores=8, spill_loads=12)
    )
    assert [] == risen(takes(spill_stores=8, spill_loads=12), takes(spill_stores=8, spill_loads=4))


def test_registers_count_where_fewer_warps_are_held() -> None:
    """Up to there they are free."""
    assert [] == risen(takes(), takes(registers=42))
    text = "registers of rows<float> rose from 40 to 72: 28 warps a multiprocessor instead of 48"
    assert [text] == risen(takes(), takes(registers=72, held={"some": held(28)}))


def test_shared_memory_counts_likewise_at_the_call_that_loses_most() -> None:
    """A call that is launched anew has nothing to stand beside."""
    before = {"a": held(48), "b": held(40)}
    now = {"a": held(24, 2048, "shared memory"), "b": held(8, 9000, "shared memory"), "c": held(4)}
    text = "shared memory of rows<float> rose from 1024 to 9000 bytes: 8 warps a multiprocessor instead of 40"
    assert [text] == risen(takes(held=before), takes(held=now))


def test_a_budget_accepts_what_keeps_it() -> None:
    """For spills, or for blocks a multiprocessor."""
    now = takes(registers=72, spill_stores=8, held={"some": held(28)})
    assert 2 == len(risen(takes(), now, registers=80))
    assert ["registers"] == [text.split()[0] for text in risen(takes(), now, spill_bytes=8)]
    assert ["spill"] == [text.split()[0] for text in risen(takes(), now, blocks_per_sm=7)]


def test_another_compiler_is_not_compared() -> None:
    """What it makes of the same source is no work of a commit."""
    assert [] == risen(takes(compiler="12.8"), takes(spill_stores=8))


@pytest.mark.parametrize(("registers", "warps"), [(40, 48), (72, 28)])
def test_without_host_code_a_block_of_128_threads_is_reckoned_with(registers: int, warps: int) -> None:
    """So registers are judged for kernels that nothing launches."""
    kernel = make_kernel(registers=registers)
    library = CompiledLibrary(variants=("ours",), build_id="b", architecture="sm_89", kernels=(kernel,))
    found = taken("ours", Reports(libraries=[library]), "13.0", L4)
    assert found is not None
    assert {"": warps} == {call: one.warps for call, one in found.kernels[0].held.items()}
    assert taken("theirs", Reports(libraries=[library]), "13.0", L4) is None
