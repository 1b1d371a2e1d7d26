"""`kernel.must_not_compile` and `kernel.instances` as steps: real compilers, sources that err on purpose."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import run_to_end
from loop.model.target import ResourceBudget
from loop.profile.launch_limits import CompiledLibrary
from loop.profile.promises import PromisesOutput, instances, must_not_compile
from loop.profile.resource_actions import check_budgets, runs_on
from loop.steps.context import NoArguments
from loop.workers.bench import Bench
from tests.makers import make_kernel, make_library, make_placement
from tests.targets import make_context, open_bench
from tests.tiny_cuda import cuda, nvcc, write_cuda_target

WARPS = "rows are cut into whole warps"
LACKS = "/nowhere/nvcc: no such compiler on the PATH"
ODD = {"title": "half a warp", "source": "bad.cu", "flags": ["-DROWS=48"], "says": WARPS}
EVEN = {"title": "whole warps", "source": "bad.cu", "flags": ["-DROWS=64"], "says": WARPS}
OTHER = {"title": "no rows", "source": "bad.cu", "flags": [], "says": WARPS}
NO_NVCC = nvcc(compiler="/nowhere/nvcc")
PROMISED = {
    "symbol": "tiny::rows<{T}, {N}>",
    "over": {"T": ["float"], "N": [96, 128]},
    "file": "rows.h",
    "line": "template __global__ void tiny::rows<{T}, {N}>(const {T} *, {T} *, unsigned);",
}
LINE = "template __global__ void tiny::rows<float, 96>(const float *, float *, unsigned);"


def bad(*sources: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A CUDA variant that promises that these do not compile."""
    return cuda(must_not_compile=list(sources), **fields)


VARIANTS: dict[str, Any] = {
    "strict": bad(ODD),
    "lax": bad(ODD, EVEN, OTHER),
    "nothing_at_hand": {**bad(ODD, build=NO_NVCC), "emulation": None},
    "lacks": cuda("plain", instances=[PROMISED]),  # It promises two instances and launches one.
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for all of them."""
    folder = tmp_path_factory.mktemp("promises")
    target = write_cuda_target(folder, VARIANTS)
    with open_bench(folder, target, build_cache) as opened:
        yield opened


def compile_bad(bench: Bench, *names: str) -> PromisesOutput:
    """The output of compiling the bad sources of these variants."""
    output = run_to_end(must_not_compile(make_context(bench, emulated=names), NoArguments())).output
    assert isinstance(output, PromisesOutput)
    return output


def look_up(bench: Bench, *names: str) -> PromisesOutput:
    """The output of looking up the instances of these variants."""
    output = run_to_end(instances(make_context(bench, emulated=names), NoArguments())).output
    assert isinstance(output, PromisesOutput)
    return output


@pytest.mark.nvcc
def test_a_bad_configuration_is_refused_in_its_own_words(bench: Bench) -> None:
    """The check quotes the static assertion as nvcc prints it."""
    output = compile_bad(bench, "strict")
    assert (True, "1 of 1 bad configurations are refused, each in its own words") == (output.ok, output.message)
    (check,) = output.checks
    assert ("strict", "half a warp", "refused") == (check.variant, check.title, check.status)
    assert f'error: static assertion failed with "{WARPS}"' in check.message


@pytest.mark.slow
@pytest.mark.nvcc
def test_what_compiles_and_what_fails_for_another_reason_fail_the_step(bench: Bench) -> None:
    """The two failures have different statuses."""
    output = compile_bad(bench, "lax")
    assert ["refused", "compiled", "other"] == [check.status for check in output.checks]
    assert (False, "lax, whole warps: it compiles; and 1 more") == (output.ok, output.message)
    assert "assert it at compile time: static_assert(condition, message)" == output.hint
    assert "ROWS" in output.checks[2].message, "the compiler's own first error"


def test_without_any_compiler_nothing_is_claimed(bench: Bench) -> None:
    """The step passes; what was not compiled is listed with the remedy."""
    output = compile_bad(bench, "nothing_at_hand")
    assert (True, "nothing was compiled", ()) == (output.ok, output.message, output.checks)
    (entry,) = output.not_exercised
    assert entry.startswith(f"what must not compile of nothing_at_hand: {LACKS}; install ")


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_missing_instance_is_named_with_the_line_that_makes_it(bench: Bench) -> None:
    """The message has the demangled name, the hint the line and its file."""
    output = look_up(bench, "lacks")
    assert (False, 2, "lacks has no tiny::rows<float, 96>") == (output.ok, output.promised, output.message)
    assert f"add to rows.h: {LINE}" == output.hint
    (gap,) = output.missing
    assert ("lacks", "tiny::rows<float, 96>", "rows.h", LINE) == (gap.variant, gap.symbol, gap.file, gap.line)


ROWS = make_kernel(registers=168, stack_bytes=40, shared_bytes=2048)
SPILLS = make_kernel("void tiny::crowded<(ns::Mask)1>(float*)", spill_stores=144, spill_loads=288)


def budget(kernel: str = "rows", **fields: Any) -> ResourceBudget:
    """A budget for the kernels of a name."""
    return ResourceBudget.model_validate({"kernel": kernel, **fields})


def complaints(*budgets: ResourceBudget, library: CompiledLibrary | None = None, **placed: Any) -> list[str]:
    """Complaints about a library with one launch of its first kernel."""
    placements = [make_placement(ROWS, **placed)] if placed else []
    return check_budgets(library or make_library(ROWS), budgets, placements)[1]


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
    """It runs on the same or a higher minor number; code with `a` on exactly one; PTX is no machine code."""
    assert expected == runs_on(code, device)


def test_a_spill_needs_no_budget_to_be_wrong() -> None:
    """Every byte counts, unless a budget allows it."""
    library = make_library(ROWS, SPILLS)
    says = f"{SPILLS.short_name} spills 144 bytes"
    assert [says] == check_budgets(library, [], [])[0]
    assert [f"{says}, budget 143"] == check_budgets(library, [budget("crowded", spill_bytes=143)], [])[0]
    assert [] == check_budgets(library, [budget("crowded", spill_bytes=144)], [])[0]


def test_budgets_that_are_not_kept_are_named_with_both_figures() -> None:
    """Both figures are named; a budget that matches no kernel is broken."""
    tight = budget(registers=128, stack_bytes=0, shared_bytes=1024, blocks_per_sm=4)
    expected = ["168 registers, budget 128", "40 bytes of stack, budget 0"]
    expected += ["9000 bytes of shared memory, budget 1024", "3 blocks a multiprocessor, budget 4 at least"]
    broken = complaints(tight, resident=3, shared_bytes=9000)
    assert [f"tiny::rows<float, 128>: {text}" for text in expected] == broken
    met = budget(registers=168, stack_bytes=40, shared_bytes=9000, blocks_per_sm=3)
    assert [] == complaints(met, resident=3, shared_bytes=9000)
    assert ["the budget for 'colums' fits no kernel of v"] == complaints(budget("colums"))
