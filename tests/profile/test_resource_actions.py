"""`kernel.resources` as a step: real nvcc and g++, spills, budgets, launches, and machines that lack the tools."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from loop.base.processes import run_to_end
from loop.model.target import Signature
from loop.profile.launch_limits import ResourcesOutput
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
    "two_gpus": cuda(build=nvcc("-gencode=arch=compute_80,code=sm_80")),
    "no_nvcc": cuda(build=nvcc(compiler="/nowhere/nvcc")),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for all of them."""
    folder = tmp_path_factory.mktemp("cuda")
    target = write_cuda_target(folder, VARIANTS)
    with open_bench(folder, target, build_cache) as opened:
        yield opened


def report(
    bench: Bench, *names: str, device: str = "sm_89", spills: Literal["fail", "tell"] = "fail"
) -> ResourcesOutput:
    """The output of the step on these variants."""
    done = run_to_end(resources(make_context(bench, emulated=names), ResourceTerms(device=device, spills=spills)))
    assert isinstance(done.output, ResourcesOutput)
    return done.output


def missing(output: ResourcesOutput) -> list[str]:
    """Entries that were not exercised, without those that need a disassembler."""
    return [text for text in output.not_exercised if not text.startswith("share of matrix instructions")]


@pytest.mark.slow
@pytest.mark.nvcc
def test_kernels_are_compiled_for_a_gpu_that_is_not_here(bench: Bench) -> None:
    """Variants that share sources and flags share a library, and its report."""
    output = report(bench, "plain", "floats")
    assert (True, "sm_89", "NVIDIA L4") == (output.ok, output.device, output.device_name)
    (library,) = output.libraries
    assert ("plain", "floats") == library.variants
    assert {ROWS, DOUBLES, "tail"} == {kernel.short_name for kernel in library.kernels}
    assert output.message.startswith("compiled for sm_89: 3 kernels, at most ")
    assert output.message.endswith("; 12 to 24 blocks a multiprocessor of NVIDIA L4")
    assert ["launches of floats on N2 M300 float64, and 2 more: error 3: no such type"] == missing(output)


@pytest.mark.slow
@pytest.mark.nvcc
def test_code_for_several_gpus_has_a_report(bench: Bench) -> None:
    """nvcc makes no file of machine code alone for two GPUs: such a variant gets a whole library."""
    (library,) = report(bench, "two_gpus").libraries
    assert {"sm_89"} == {kernel.architecture for kernel in library.kernels}


@pytest.mark.nvcc
@pytest.mark.slow
def test_launches_meet_the_compilers_report(bench: Bench) -> None:
    """Static shared memory comes from the compiler, dynamic from the launch; all element types are asked for."""
    output = report(bench, "plain")
    rows = next(placement for placement in output.placements if placement.kernel == ROWS)
    assert (128, 512 + 2048, 12, "threads") == (rows.threads, rows.shared_bytes, rows.resident, rows.limited_by)
    assert ("N2 M300 float32", True) == (rows.workload, rows.timed)
    assert rows.registers is not None
    assert DOUBLES in {placement.kernel for placement in output.placements}
    assert ["N2 M300 float32", "N5 M300 float32"] == [row.workload for row in output.fillings], "the plan's alone"
    assert [5, 12] == [filling.items for filling in output.fillings]


@pytest.mark.slow
@pytest.mark.nvcc
def test_a_spill_fails_the_step(bench: Bench) -> None:
    """A spill fails without any budget for it; a budget may allow it."""
    output = report(bench, "crowded")
    assert not output.ok
    assert output.message.startswith("crowded spills ")
    assert (output.message,) == output.spilled
    assert f"On sm_89, {output.message}." in output.learned
    assert "allow it under `budgets`" in str(output.hint)
    allowed = report(bench, "allowed")
    assert allowed.ok
    assert allowed.message.startswith("compiled for sm_89: 4 kernels, ")
    reported = report(bench, "crowded", spills="tell")
    assert reported.ok
    assert "spills in 1 function" in reported.message
    assert reported.spilled == output.spilled


@pytest.mark.slow
@pytest.mark.nvcc
def test_broken_budgets_fail_the_step(bench: Bench) -> None:
    """The message has both figures; a budget for no kernel is broken, too."""
    output = report(bench, "tight")
    assert not output.ok
    assert "the budget for 'gone' fits no kernel of tight" in output.broken
    assert any(text.startswith(f"{ROWS}: ") and text.endswith(" registers, budget 4") for text in output.broken)
    assert output.message.endswith("; and 2 more"), "two kernels of that name, and the name of none"


@pytest.mark.slow
@pytest.mark.nvcc
def test_a_kernel_that_cannot_be_launched_fails_the_step(bench: Bench) -> None:
    """The message has the resources that its block needs."""
    output = report(bench, "wide")
    assert not output.ok
    (entry,) = output.impossible
    assert entry.startswith(f"{ROWS} cannot be launched on NVIDIA L4 for N2 M300 float32: shared memory (128 thr")
    assert entry.endswith(" registers each, 101512 bytes of shared memory)")
    assert "take a smaller tile, more warps or fewer registers" == output.hint


@pytest.mark.nvcc
@pytest.mark.slow
def test_without_an_emulated_build_nothing_tells_the_launches(bench: Bench) -> None:
    """The output says which key would report them."""
    output = report(bench, "mute")
    assert output.ok
    assert () == output.fillings
    assert any(
        text.startswith("launches of mute: nothing tells them; say in target.yaml") for text in missing(output)
    )


def test_without_nvcc_the_step_passes_and_says_the_rest(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches are reported all the same, but not of tensors that a dry run lacks. Registers are unknown."""
    output = report(bench, "no_nvcc")
    assert (True, (), ()) == (output.ok, output.libraries, output.spilled)
    expected = (
        "nothing was compiled for sm_89: registers and spills are not known; 12 to 24 blocks a multiprocessor"
    )
    assert f"{expected} of NVIDIA L4" == output.message
    assert [None] * 3 == [row.registers for row in output.placements]
    (entry,) = missing(output)
    assert entry.startswith("compiler's report for sm_89: no_nvcc: /nowhere/nvcc: no such compiler on the PATH; ")
    assert "apt-get install nvidia-cuda-toolkit" in entry
    monkeypatch.setattr(Signature, "has_unknown_outputs", True)
    entry = "launches of no_nvcc: its shapes are known only when tensors are made"
    assert entry in missing(report(bench, "no_nvcc"))
