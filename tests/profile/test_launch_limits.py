"""Launches that host code reports in a dry run, joined with the compiler's report."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import run_to_end
from loop.model.profile import DeviceFacts
from loop.model.workloads import expand_sets
from loop.profile.launch_limits import KernelLaunch, Placement, count_resident_blocks, launch_residency
from loop.profile.resource_actions import KernelFindings, ask_for_launches
from loop.workers.bench import Bench
from tests.makers import make_kernel, make_launch, make_library
from tests.targets import build_one, open_bench
from tests.tiny_cuda import cuda, write_cuda_target

KERNEL = make_kernel("k(float*)", symbol="_Zk", registers=160, shared_bytes=1024)


def placed(*launches: KernelLaunch) -> tuple[Placement, ...]:
    """These launches of one variant in one call on an L4."""
    findings = KernelFindings("sm_89", L4, libraries=[make_library(KERNEL)], launches={"v": {"w": launches}})
    return tuple(findings.list_placements(L4))


def test_registers_come_from_the_compiler_and_the_rest_from_the_launch() -> None:
    """160 registers let three blocks of 128 threads in; declared and dynamic shared memory are added."""
    (placement,) = placed(make_launch(shared=4096))
    assert (3, "registers") == (placement.resident, placement.limited_by)
    assert (128, 160, 5120) == (placement.threads, placement.registers, placement.shared_bytes)


@pytest.mark.parametrize(
    ("fields", "limited_by"),
    [
        ({"grid": (1, 65536, 1)}, "grid.y is 65,536, not 1 to 65,535"),
        ({"grid": (1, 1, 65536)}, "grid.z is 65,536, not 1 to 65,535"),
        ({"grid": (2**31, 1, 1)}, "grid.x is 2,147,483,648, not 1 to 2,147,483,647"),
        ({"grid": (0, 1, 1)}, "grid.x is 0, not 1 to 2,147,483,647"),
        ({"block": (1, 1, 65)}, "block.z is 65, not 1 to 64"),
        ({"block": (1025, 1, 1)}, "block.x is 1,025, not 1 to 1,024"),
        ({"block": (512, 3, 1)}, "threads"),
        ({"shared": 101376}, "shared memory"),
        ({"block": (1024, 1, 1)}, "registers"),
    ],
)
def test_a_launch_that_no_gpu_takes_has_no_place(fields: dict[str, Any], limited_by: str) -> None:
    """Grid and block have limits of their own; 160 registers a thread are too many for 1024 threads."""
    shared = 1024 + fields.get("shared", 0)
    assert (0, limited_by) == launch_residency(make_launch(**fields), 160, shared, L4)


L4 = DeviceFacts(
    name="NVIDIA L4",
    sms=58,
    shared_per_sm=102400,
    shared_per_block=101376,
    shared_static=49152,
    registers_per_sm=65536,
    threads_per_sm=1536,
    blocks_per_sm=24,
    l2_bytes=50331648,
    bytes_per_s=300e9,
    flops_per_s={"float16": 121e12},
)


@pytest.mark.parametrize(
    ("block", "blocks", "limited_by"),
    [
        ((32,), 24, "blocks a multiprocessor"),
        ((128,), 12, "threads"),
        ((1024,), 1, "threads"),
        ((1,), 24, "blocks a multiprocessor"),
        ((128, 160, 16384), 3, "registers"),
        ((128, 168), 3, "registers"),
        ((128, 169), 2, "registers"),
        ((128, 254, 24576), 2, "registers"),
        ((256, 64), 4, "registers"),
        ((96, 168), 4, "registers"),
        ((128, 32, 49152), 2, "shared memory"),
        ((128, 32, 101376), 1, "shared memory"),
        ((128, 32, 101377), 0, "shared memory"),
        ((128, 32, 0), 12, "threads"),
        ((1024, 128), 0, "registers"),
        ((1280,), 0, "threads"),
        ((2048,), 0, "threads"),
    ],
)
def test_resident_blocks_follow_the_limits(block: tuple[int, ...], blocks: int, limited_by: str) -> None:
    """Registers by warps of 256 and fours of warps; shared memory with the KB that the system takes."""
    assert (blocks, limited_by) == count_resident_blocks(L4, *block)


def test_a_launched_kernel_that_the_compiler_did_not_report_is_named() -> None:
    """Nobody checks its registers and spills; without any report, another message says so."""
    launches = [make_launch(), make_launch(kernel="_Zother")]
    findings = KernelFindings("sm_89", L4, libraries=[make_library(KERNEL)], launches={"v": {"w": launches}})
    findings.list_placements(L4)
    assert ["registers of _Zother: launched, and not in the compiler's report"] == findings.missing
    bare = KernelFindings("sm_89", L4, launches={"v": {"w": launches}})
    bare.list_placements(L4)
    assert [] == bare.missing


ROWS, TAIL = "_ZN4tiny4rowsIfLi128EEEvPKT_PS1_j", "_Z4tailPf"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for variants that keep the protocol, and some that do not."""
    folder = tmp_path_factory.mktemp("telling")
    variants = {name: cuda(name) for name in ("plain", "floats", "reads", "silent", "garbles", "nowhere")}
    with open_bench(folder, write_cuda_target(folder, variants), build_cache) as opened:
        yield opened


def launches_of(bench: Bench, name: str) -> tuple[dict[str, tuple[KernelLaunch, ...]], dict[str, str], str]:
    """Launches of a variant on the workloads of a set, errors of calls, and what was lost."""
    output = build_one(bench.folder, bench.emulated_variants([name])[name], bench.cache, name)
    return run_to_end(ask_for_launches(bench, output, expand_sets(bench.target, ("some",), "float32")))  # type: ignore[no-any-return]


def test_each_call_tells_its_own_launches(bench: Bench) -> None:
    """Kernel, grid, block and dynamic shared memory are in order; other facts of the emulator are left out."""
    launches_by_workload, declined, lost = launches_of(bench, "plain")
    (launch,), larger, empty = launches_by_workload.values()
    assert (ROWS, (5, 1, 1), (128, 1, 1), 2048) == (launch.kernel, launch.grid, launch.block, launch.shared)
    assert [(ROWS, 12), (TAIL, 1)] == [(launch.kernel, launch.grid[0]) for launch in larger]
    assert ((), {}, "") == (empty, declined, lost)
    assert "N5 M300 float32" == [*launches_by_workload][1]


def test_host_code_that_touches_a_tensor_is_found_out(bench: Bench) -> None:
    """On a GPU it would read device memory; here it crashes, and is not asked again."""
    launches_by_workload, _, lost = launches_of(bench, "reads")
    assert ({}, "crashed with SIGSEGV") == (launches_by_workload, lost.rpartition(": ")[2])
