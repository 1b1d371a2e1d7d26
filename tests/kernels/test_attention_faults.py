"""The bundled target's faults, its benchmark's page, and its file of explicit instantiations."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from loop.base.places import include_folder, shipped
from loop.library.definitions import read_file
from loop.model.target import Target, Workload
from loop.model.workloads import expand_sets
from loop.workers.suspects import Suspect
from loop.workers.target_functions import make_tensor
from loop.workers.workload_call import input_fills, make_call
from tests.attention import eager, faults
from tests.bench.attention_page import PAGE, RECORDED, page
from tests.workers.test_suspects import SMALL as SMALL_TARGETS
from tests.workers.test_suspects import Case

FOLDER = shipped("kernels") / "attention"
TARGET = read_file(FOLDER / "target.yaml", Target).value
SMALL = 1 << 14  # Scores that a test works out in float64.
Function = Callable[..., Tensor]


def fault_functions() -> dict[str, Function]:
    """`as_if` of each fault, and its function."""
    return {as_if: getattr(faults, function.python.partition(":")[2]) for as_if, function in TARGET.faults.items()}


@cache
def cases() -> tuple[tuple[Workload, tuple[Tensor, ...], Tensor], ...]:
    """Every workload of the target that is small enough, its inputs in float64, and the right answer."""
    chosen = []
    for workload in expand_sets(TARGET, TARGET.workloads, "float32"):
        sizes = workload.sizes
        if sizes["B"] * sizes["Hq"] * sizes["Sq"] * sizes["Sk"] <= SMALL:
            inputs = tuple(_inputs(workload))
            chosen.append((workload, inputs, eager(*inputs, **workload.attributes)))
    return tuple(chosen)


def _inputs(workload: Workload) -> Iterator[Tensor]:
    call = make_call(TARGET, workload, "", "test")
    for index, (fill, tensor) in enumerate(zip(input_fills(TARGET, workload), call.inputs, strict=True)):
        axis = TARGET.signature.inputs[tensor.name].split().index(fill.nan_along) if fill.nan_along else None
        flat = make_tensor(fill, workload.seed, index, tensor, axis)
        yield flat[tensor.offset : tensor.offset + tensor.elements].reshape(tensor.shape).double()


def same(left: Tensor, right: Tensor) -> bool:
    """In float64, NaN where NaN is."""
    return left.shape == right.shape and torch.allclose(left, right, 1e-9, 1e-9, equal_nan=True)


@pytest.mark.slow
def test_nothing_is_wrong_where_no_mistake_is_made() -> None:
    """The weights divided by their sums are the reference: with masks, both alignments, no keys, NaN."""
    attend, divided = faults.attend, faults.divided
    for workload, (q, k, v), right in cases():
        assert same(divided(*attend(q, k, v, **workload.attributes), v), right), workload.name
        whole = faults.tile_by_tile(q, k, v, **workload.attributes, tile=1 << 20)
        assert same(whole, right), workload.name
    kinds = {(workload.attributes["causal"], workload.attributes["alignment"]) for workload, *_ in cases()}
    assert 3 <= len(kinds)
    assert any(not workload.sizes["Sk"] for workload, *_ in cases())
    assert any(right.isnan().any() for *_, right in cases())


@pytest.mark.slow
@pytest.mark.parametrize("as_if", TARGET.faults)
def test_each_fault_has_the_right_shape_and_another_answer(as_if: str) -> None:
    """On all workloads, also those without keys or queries; on some of them it shows."""
    function, shows = fault_functions()[as_if], 0
    for workload, inputs, right in cases():
        wrong = function(*inputs, **workload.attributes)
        assert (right.shape, torch.float64) == (wrong.shape, wrong.dtype), workload.name
        assert _meets_nan(inputs) or not wrong.isnan().any(), workload.name
        shows += not torch.allclose(wrong, right, 1e-3, 1e-3, equal_nan=True)
    assert shows >= 2


def _meets_nan(inputs: tuple[Tensor, ...]) -> bool:
    return any(bool(tensor.isnan().any()) for tensor in inputs)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "causal"), [("float32", True), ("float16", False)])
def test_each_is_named_among_those_of_any_kernel(dtype: str, causal: bool) -> None:
    """On workloads that show it, it is named, and no suspect with another answer."""
    attributes = {**SMALL_TARGETS["attention"].attributes, "causal": causal}
    case = Case(replace(SMALL_TARGETS["attention"], attributes=attributes), dtype, values=None, Sq=70, Sk=130)
    inputs = [tensor.double() for tensor in case.inputs]
    extra: list[Suspect] = [(as_if, partial(f, *inputs, **attributes)) for as_if, f in fault_functions().items()]
    answers = {as_if: ask() for as_if, ask in [*extra, *case.suspects()]}
    for as_if, _ in extra:
        if not torch.allclose(answers[as_if], case.right, 1e-2, 1e-2):
            names = case.named(case.rounded(answers[as_if]), own=extra) or []
            assert as_if in names
            assert not [name for name in names if not torch.allclose(answers[name], answers[as_if], 2e-2, 2e-2)]


@pytest.mark.skipif(not RECORDED.exists(), reason="nothing was recorded")
def test_the_page_is_that_of_the_recorded_rows() -> None:
    """No figure in it was written by hand."""
    assert PAGE.read_text() == page(json.loads(RECORDED.read_text()))


USER = """
#include "small.cuh"
#include "tensor_core.cuh"

extern template attention::Error attention::tensor_core<__half, 64>(const attention::Problem &, cudaStream_t);
extern template attention::Error attention::small<__nv_bfloat16, 128>(const attention::Problem &, cudaStream_t);

int main(int count, char **) {
  const attention::Problem problem = {};
  if (count < 2) return 0;
  const int first = attention::tensor_core<__half, 64>(problem, nullptr);
  return first + attention::small<__nv_bfloat16, 128>(problem, nullptr);
}
"""


@pytest.mark.slow
def test_a_second_translation_unit_links_with_it(tmp_path: Path) -> None:
    """It declares the instances without compiling them; without that file they are undefined."""
    cuda = shipped("kernels/attention") / "cuda"
    (tmp_path / "user.cu").write_text(USER)
    tuned = read_file(cuda.parent / "target.yaml", Target).value.tuning_macros("sm_89")
    flags = ["-std=c++17", "-O0", "-DLOOP_EMULATE", *tuned, "-pthread"]
    base = ["g++", "-x", "c++", *flags, f"-I{include_folder()}", f"-I{cuda}", '-DLOOP_BUILD_ID="test"']
    for source in (cuda / "instantiations.cu", tmp_path / "user.cu"):
        place = tmp_path / f"{source.stem}.o"
        subprocess.run([*base, "-c", str(source), "-o", str(place)], check=True, capture_output=True, timeout=120)
    link = ["g++", "-pthread", str(tmp_path / "user.o"), "-o", str(tmp_path / "user")]
    alone = subprocess.run(link, check=False, capture_output=True, text=True, timeout=60)
    assert "undefined reference" in alone.stderr
    subprocess.run([*link, str(tmp_path / "instantiations.o")], check=True, capture_output=True, timeout=60)
    assert 0 == subprocess.run([str(tmp_path / "user")], check=False, timeout=20).returncode
