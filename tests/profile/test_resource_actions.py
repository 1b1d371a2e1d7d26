"""`kernel.resources` as a step: real nvcc and g++, spills, budgets, launches, and machines that lack the tools."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from loop.base.processes import run_to_end
from loop.profile.model import ResourcesOutput
from loop.profile.resource_actions import ResourceTerms, resources
from loop.workers.bench import Bench
from tests.targets import make_context, open_bench
from tests.tiny_cuda import cuda, nvcc, write_cuda_target

ROWS, DOUBLES = "tiny::rows<float, 128>", "tiny::rows<double, 64>"
VARIANTS: dict[str, Any] = {
    "plain": cuda(budgets=[{"kernel": "rows", "registers": 64, "shared_bytes": 4096, "blocks_per_sm": 12}]),
    "floats": cuda("floats"),
    "crowded": cuda("plain", "-DSPILL=90"),
    "allowed": cuda("plain", "-DSPILL=90", budgets=[{"kernel": "crowded", "spill_bytes": 100_000}]),
    "tight": cuda("plain", "-DTIGHT", budgets=[{"kernel": "rows", "registers": 4}, {"kernel": "gone"}]),
    "wide": cuda("plain", "-DSHARED=101000"),
    "mute": {**cuda(), "emulation": None},
    "no_nvcc": cuda(build=nvcc(compiler="/nowhere/nvcc")),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for all of them."""
    folder = tmp_path_factory.mktemp("cuda")
    target = write_cuda_target(folder, VARIANTS)
    with open_bench(folder, target, build_cache) as made:
        yield made


def looked(
    bench: Bench, *names: str, device: str = "sm_89", spills: Literal["fail", "tell"] = "fail"
) -> ResourcesOutput:
    """What the step finds of these variants."""
    found = run_to_end(resources(make_context(bench, emulated=names), ResourceTerms(device=device, spills=spills)))
    assert isinstance(found.output, ResourcesOutput)
    return found.output


def missing(found: ResourcesOutput) -> list[str]:
    """What was not exercised, but for what a disassembler would tell."""
    return [text for text in found.not_exercised if not text.startswith("share of matrix instructions")]


@pytest.mark.slow
@pytest.mark.nvcc
def test_kernels_are_compiled_for_a_gpu_that_is_not_here(bench: Bench) -> None:
    """Variants that share sources and flags share a library, and its report."""
    found = looked(bench, "plain", "floats")
    assert (True, "sm_89", "NVIDIA L4") == (found.ok, found.device, found.device_name)
    (library,) = found.libraries
    assert (("plain", "floats"), "sm_89") == (library.variants, library.architecture)
    assert {ROWS, DOUBLES, "tail"} == {one.short_name for one in library.kernels}
    assert found.message.startswith("compiled for sm_89: 3 kernels, at most ")
    assert found.message.endswith("; 12 to 24 blocks a multiprocessor of NVIDIA L4")
    assert ["launches of floats on N2 M300 float64, and 2 more: error 3: no such type"] == missing(found)


@pytest.mark.nvcc
@pytest.mark.slow
def test_launches_meet_the_compilers_report(bench: Bench) -> None:
    """Declared shared memory by the compiler, dynamic by the launch; every type of the variant is asked for."""
    found = looked(bench, "plain")
    rows = next(one for one in found.placements if one.kernel == ROWS)
    assert (128, 512 + 2048, 12, "threads") == (rows.threads, rows.shared_bytes, rows.resident, rows.limited_by)
    assert ("N2 M300 float32", True) == (rows.workload, rows.timed)
    assert rows.registers is not None
    assert DOUBLES in {one.kernel for one in found.placements}
    assert ["N2 M300 float32", "N5 M300 float32"] == [one.workload for one in found.fillings], "the plan's alone"
    assert [5, 12] == [one.items for one in found.fillings]


@pytest.mark.slow
@pytest.mark.nvcc
def test_a_spill_fails_the_step(bench: Bench) -> None:
    """Though no budget speaks of it; with one that allows it, it is said and passes."""
    found = looked(bench, "crowded")
    assert not found.ok
    assert found.message.startswith("crowded spills ")
    assert (found.message,) == found.spilled
    assert f"On sm_89, {found.message}." in found.learned
    assert "allow it under `budgets`" in str(found.hint)
    allowed = looked(bench, "allowed")
    assert allowed.ok
    assert allowed.message.startswith("compiled for sm_89: 4 kernels, ")
    told = looked(bench, "crowded", spills="tell")
    assert told.ok
    assert "1 of them spills" in told.message
    assert told.spilled == found.spilled


@pytest.mark.slow
@pytest.mark.nvcc
def test_broken_budgets_fail_the_step(bench: Bench) -> None:
    """With what is taken and what may be; one that fits no kernel is broken too."""
    found = looked(bench, "tight")
    assert not found.ok
    assert "the budget for 'gone' fits no kernel of tight" in found.broken
    assert any(text.startswith(f"{ROWS}: ") and text.endswith(" registers, budget 4") for text in found.broken)
    assert found.message.endswith("; and 2 more"), "two kernels of that name, and the name of none"


@pytest.mark.slow
@pytest.mark.nvcc
def test_a_kernel_that_cannot_be_launched_fails_the_step(bench: Bench) -> None:
    """With what its block asks for."""
    found = looked(bench, "wide")
    assert not found.ok
    (said,) = found.impossible
    assert said.startswith(f"{ROWS} cannot be launched on NVIDIA L4 for N2 M300 float32: shared memory (128 thr")
    assert said.endswith(" registers each, 101512 bytes of shared memory)")
    assert "take a smaller tile, more warps or fewer registers" == found.hint


@pytest.mark.nvcc
@pytest.mark.slow
def test_without_an_emulated_build_nothing_tells_the_launches(bench: Bench) -> None:
    """The report says what would."""
    found = looked(bench, "mute")
    assert found.ok
    assert () == found.fillings
    assert any(
        text.startswith("launches of mute: nothing tells them; say in target.yaml") for text in missing(found)
    )


def test_without_nvcc_the_step_passes_and_says_what_it_did_not_do(bench: Bench) -> None:
    """Launches are asked all the same; nothing is claimed of registers and spills."""
    found = looked(bench, "no_nvcc")
    assert (True, (), ()) == (found.ok, found.libraries, found.spilled)
    expected = (
        "nothing was compiled for sm_89: registers and spills are not known; 12 to 24 blocks a multiprocessor"
    )
    assert f"{expected} of NVIDIA L4" == found.message
    assert [None] * 3 == [one.registers for one in found.placements]
    (said,) = missing(found)
    assert said.startswith("compiler's report for sm_89: no_nvcc: /nowhere/nvcc: no such compiler on the PATH; ")
    assert "apt-get install nvidia-cuda-toolkit" in said
