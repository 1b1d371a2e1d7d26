"""`kernel.must_not_compile` and `kernel.instances` as steps: real compilers, sources that err on purpose."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import finish
from loop.profile.inspection import instances, must_not_compile
from loop.profile.model import InstancesOutput, MustNotCompileOutput
from loop.steps.context import NoArguments
from loop.workers.bench import Bench
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


def promising(*flags: str, **fields: Any) -> dict[str, Any]:
    """A CUDA variant that promises two instances, of which it launches one."""
    return cuda("plain", *flags, instances=[PROMISED], **fields)


VARIANTS: dict[str, Any] = {
    "strict": bad(ODD),
    "lax": bad(ODD, EVEN, OTHER),
    "nothing_at_hand": {**bad(ODD, build=NO_NVCC), "emulation": None},
    "lacks": promising(),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for all of them."""
    folder = tmp_path_factory.mktemp("promises")
    target = write_cuda_target(folder, VARIANTS)
    with open_bench(folder, target, build_cache) as made:
        yield made


def refused(bench: Bench, *names: str) -> MustNotCompileOutput:
    """What compiling the bad sources of these variants finds."""
    found = finish(must_not_compile(make_context(bench, emulated=names), NoArguments())).output
    assert isinstance(found, MustNotCompileOutput)
    return found


def looked_up(bench: Bench, *names: str) -> InstancesOutput:
    """What looking up the instances of these variants finds."""
    found = finish(instances(make_context(bench, emulated=names), NoArguments())).output
    assert isinstance(found, InstancesOutput)
    return found


@pytest.mark.nvcc
def test_a_bad_configuration_is_refused_in_its_own_words(bench: Bench) -> None:
    """The static assertion's, as nvcc prints it."""
    found = refused(bench, "strict")
    assert (True, "1 of 1 bad configurations are refused, each in its own words") == (found.ok, found.message)
    (check,) = found.checks
    assert ("strict", "half a warp", "refused") == (check.variant, check.title, check.status)
    assert f'error: static assertion failed with "{WARPS}"' in check.message


@pytest.mark.slow
@pytest.mark.nvcc
def test_what_compiles_and_what_fails_for_another_reason_fail_the_step(bench: Bench) -> None:
    """Each is told from the other."""
    found = refused(bench, "lax")
    assert ["refused", "compiled", "other"] == [one.status for one in found.checks]
    assert (False, "lax, whole warps: it compiles; and 1 more") == (found.ok, found.message)
    assert "assert it at compile time: static_assert(condition, message)" == found.hint
    assert "ROWS" in found.checks[2].message, "the compiler's own first error"


def test_without_any_compiler_nothing_is_claimed(bench: Bench) -> None:
    """It passes, and says what was not done and what mends it."""
    found = refused(bench, "nothing_at_hand")
    assert (True, "nothing was compiled", ()) == (found.ok, found.message, found.checks)
    (said,) = found.not_exercised
    assert said.startswith(f"what must not compile of nothing_at_hand: {LACKS}; install it")


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_missing_instance_is_named_with_the_line_that_makes_it(bench: Bench) -> None:
    """Demangled, and the file to add it to."""
    found = looked_up(bench, "lacks")
    assert (False, 2, "lacks has no tiny::rows<float, 96>") == (found.ok, found.promised, found.message)
    assert f"add to rows.h: {LINE}" == found.hint
    (one,) = found.missing
    assert ("lacks", "tiny::rows<float, 96>", "rows.h", LINE) == (one.variant, one.symbol, one.file, one.line)
