"""Counters of the GPU by ncu: what is read from its log, and what is said where it tells nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.model.workloads import expand_sets
from loop.profile.profile import KernelRuns, read_counters, read_log
from loop.workers.bench import Bench
from tests.fake_tools import FakeTool
from tests.recorded import COUNTERS, STALLS, log_of
from tests.targets import compiled as compiled_variant
from tests.targets import external, importable, make_sides, open_bench, write_target


@pytest.fixture
def bench(tmp_path: Path, build_cache: Path) -> Iterator[Bench]:
    """A bench with variants of each kind; what they run on makes no difference to a profiler in a test."""
    folder = tmp_path / "tiny"
    variants = {
        "right": compiled_variant("right"),
        "crashes": compiled_variant("crashes"),
        "python": importable("double"),
        "program": external("2"),
    }
    with open_bench(folder, write_target(folder, variants), build_cache) as made:
        yield made


def counted(bench: Bench, name: str = "right", place: int = 1) -> KernelRuns:
    """What ncu counts of a variant on five rows, or on two."""
    (side,) = make_sides(bench, name)
    found: KernelRuns = run_to_end(
        read_counters(bench, side, expand_sets(bench.target, ["some"], "float32")[place], 30.0)
    )
    return found


def test_a_log_tells_of_each_launch_and_of_its_stalls() -> None:
    """Shares from 0 to 1, times in us, bare names; a warp that issues waits for nothing."""
    (run,) = read_log(log_of({**COUNTERS, **STALLS}))
    assert ("small_kernel<__half, SmallShape<64, 16, 4>, 0>", 3.52, 105) == (run.kernel, run.us, run.registers)
    assert pytest.approx((0.0027, 0.0023, 0.0621)) == (run.dram, run.sm, run.warps_active)
    assert pytest.approx(1024 / 3340) == run.bank_conflicts
    (run,) = read_log(log_of(STALLS))
    assert pytest.approx(1.69 / 7.01) == run.stalls["loads from device memory"]
    assert {"selected"} & {*run.stalls} == set()
    assert pytest.approx(1 - 1 / 7.01) == sum(run.stalls.values())


@pytest.mark.slow
def test_a_lack_of_permission_comes_with_its_remedy(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else goes wrong because of it."""
    tool = FakeTool("ncu", tmp_path / "tools", monkeypatch)
    words = (
        "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    )
    tool.says(f"==ERROR== {words}target device 0.\n==WARNING== No kernels were profiled.\n", 1)
    found = counted(bench)
    assert found[0] == ()
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found[1]
    assert "--cap-add=SYS_ADMIN" in found[1]
