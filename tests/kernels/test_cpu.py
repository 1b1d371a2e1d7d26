"""The bundled CPU kernel at its C interface: strides, NaN, wrong arguments; matrix units."""

import ctypes
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.builds import build
from loop.calls.call import LoopTensor
from loop.library import targets
from loop.library.definitions import find_project
from loop.model.target import BuildRecipe

CODES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
TOLERANCES = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
"""Absolute and relative tolerances of target.yaml; float32 has the tighter error of a right kernel."""
PORTABLE = ("-std=c++17", "-O2", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden")


@pytest.fixture(scope="module", params=["native", "portable"])
def kernel(request: pytest.FixtureRequest, build_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The library built as the manifest says, and for any x86-64 without OpenMP."""
    bundled = find_project(None, tmp_path_factory.mktemp("nowhere"))
    target = targets.read_target(bundled).value
    variant = target.compiled_variant("cpu", "")
    if request.param == "portable":
        recipe = BuildRecipe(compiler="g++", flags=(*PORTABLE, *target.tuning_macros("cpu")))
        variant = variant.model_copy(update={"build": recipe})
    options = {"cache": build_cache / "builds", "include": include_folder(), "limit_s": 120.0}
    output = run_to_end(build.build("cpu", variant, bundled.target, **options))
    library = ctypes.CDLL(output.library)
    library.loop_error.restype = ctypes.c_char_p
    return library


@pytest.fixture(params=CODES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param  # type: ignore[no-any-return]


def describe(tensor: Tensor) -> LoopTensor:
    """The LoopTensor of a tensor with any strides."""
    described = LoopTensor(tensor.data_ptr(), CODES[tensor.dtype], tensor.dim())
    for axis in range(tensor.dim()):
        described.sizes[axis], described.strides[axis] = tensor.shape[axis], tensor.stride(axis)
    return described


def call(kernel: Any, inputs: list[LoopTensor], o: Tensor, *numbers: float) -> int:
    """The entry's error; `numbers` are causal, alignment and scale."""
    tensors, outputs = (LoopTensor * 3)(*inputs), (LoopTensor * 1)(describe(o))
    attributes = (ctypes.c_double * 3)(*(*numbers, *(0.0, 0.0, math.nan)[len(numbers) :]))
    return int(kernel.attention_cpu(tensors, outputs, attributes, None))


def attend(kernel: Any, q: Tensor, k: Tensor, v: Tensor, *numbers: float) -> Tensor:
    """The output of a call."""
    o = torch.full_like(q, math.nan, memory_format=torch.contiguous_format)
    assert 0 == call(kernel, [describe(each) for each in (q, k, v)], o, *numbers)
    return o


def exact(q: Tensor, k: Tensor, v: Tensor, causal: float = 0, right: float = 0, scale: float = math.nan) -> Tensor:
    """The same in float64; rows that see no key are zero."""
    scale = q.shape[-1] ** -0.5 if math.isnan(scale) else scale
    scores = scale * q.double() @ k.double().mT
    visible = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if causal:
        visible = visible.tril(visible.shape[1] - visible.shape[0] if right else 0)
    weights = scores.masked_fill(~visible, -math.inf).softmax(-1)
    return weights.masked_fill(~visible.any(-1, keepdim=True), 0.0) @ v.double()


def draw(dtype: torch.dtype, queries: int, keys: int, size: int, heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of a batch: unit normals."""
    make = torch.Generator().manual_seed(queries * 1000 + keys)
    shapes = ((1, heads, queries, size), (1, heads, keys, size), (1, heads, keys, size))
    q, k, v = (torch.randn(shape, generator=make).to(dtype) for shape in shapes)
    return q, k, v


def assert_right(output: Tensor, right: Tensor, slack: float = 1.0) -> None:
    """To the tolerance of its type, times `slack`."""
    most = slack * TOLERANCES[output.dtype]
    assert not (output.double() - right).abs().gt(most + most * right.abs()).any()


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(), (1.0,), (1.0, 1.0)], ids=["full", "causal", "causal to the right"])
def test_sizes_need_not_fill_tiles(kernel: Any, dtype: torch.dtype, numbers: tuple[float, ...]) -> None:
    """Features, queries and keys may fill several tiles, and the last one partly."""
    for size in (1, 7, 31, 32, 40, 100, 128):
        for queries, keys in ((1, 1), (1, 300), (15, 17), (48, 32), (49, 129), (20, 7)):
            q, k, v = draw(dtype, queries, keys, size)
            assert_right(attend(kernel, q, k, v, *numbers), exact(q, k, v, *numbers))


@pytest.mark.parametrize("scale", [0.0, -0.3, 2.0, 1e-3])
def test_scores_are_scaled_after_the_product(kernel: Any, dtype: torch.dtype, scale: float) -> None:
    """A negative scale and zero are right; masked keys stay masked."""
    q, k, v = draw(dtype, 70, 90, 64)
    assert_right(attend(kernel, q, k, v, 1.0, 0.0, scale), exact(q, k, v, 1.0, 0.0, scale), 4)


def test_large_logits_are_not_rounded_again(kernel: Any, dtype: torch.dtype) -> None:
    """Logits of standard deviation 20, and maxima that grow from tile to tile, are right."""
    q, k, v = draw(dtype, 97, 97, 64)
    assert_right(attend(kernel, 20 * q, k, v), exact(20 * q, k, v), 20)
    q, k, v = draw(dtype, 40, 700, 64)
    k = (k.double() + q[:, :, :1].double() * torch.arange(700).reshape(-1, 1) / 300).to(dtype)
    assert_right(attend(kernel, q, k, v), exact(q, k, v), 20)


def test_rows_lie_where_they_want(kernel: Any, dtype: torch.dtype) -> None:
    """Heads in the third place, rows with gaps, and keys that all heads share; an output in a larger buffer."""
    q, k, v = draw(dtype, 50, 70, 64, heads=4)
    q = q.transpose(1, 2).contiguous().transpose(1, 2)
    gaps = torch.zeros(1, 4, 70, 99, dtype=dtype)
    gaps[..., 5:69] = k
    shared, buffer = v[:, :1].expand_as(v), torch.full((1, 4, 50, 72), 7.0, dtype=dtype)
    inputs = [describe(each) for each in (q, gaps[..., 5:69], shared)]
    assert 0 == call(kernel, inputs, buffer[..., :64], 1.0)
    assert_right(buffer[..., :64], exact(q, k, shared, 1.0))
    assert (buffer[..., 64:] == 7.0).all()


def test_a_nan_key_reaches_only_rows_that_see_it(kernel: Any, dtype: torch.dtype) -> None:
    """Under a causal mask the rows before it are as if it were not there."""
    q, k, v = draw(dtype, 60, 60, 64)
    clean = attend(kernel, q, k, v, 1.0)
    k[:, :, 40] = math.nan
    output = attend(kernel, q, k, v, 1.0)
    assert torch.equal(clean[:, :, :40], output[:, :, :40])
    assert output[:, :, 40:].isnan().all()


def test_rows_that_see_no_key_are_zero(kernel: Any, dtype: torch.dtype) -> None:
    """bottom_right with more queries than keys masks the first rows completely."""
    q, k, v = draw(dtype, 60, 30, 64)
    output = attend(kernel, q, k, v, 1.0, 1.0)
    assert (output[:, :, :30] == 0).all()
    assert not output.isnan().any()


def test_a_call_leaves_nothing_behind(kernel: Any, dtype: torch.dtype) -> None:
    """A call gives the same bits after PyTorch used the same units, whatever memory held before."""
    a, b = torch.randn(64, 96).bfloat16(), torch.randn(96, 80).bfloat16()
    before, (q, k, v) = a @ b, draw(dtype, 50, 77, 40)
    first = attend(kernel, q, k, v, 1.0)
    attend(kernel, *(math.inf * each for each in draw(dtype, 130, 260, 128)))
    assert torch.equal(first, attend(kernel, q, k, v, 1.0))
    assert torch.equal(before, a @ b)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_infinity_is_what_it_is_in_float64(kernel: Any, dtype: torch.dtype, name: str) -> None:
    """A key of minus infinity has no weight; other infinities reach the rows that see them."""
    tensors = dict(zip("qkv", draw(dtype, 40, 50, 64), strict=True))
    q, k, v = tensors.values()
    q[..., 3], tensors[name][:, :, 20, 3] = q[..., 3].abs() + 0.1, -math.inf
    output, right = attend(kernel, q, k, v), exact(q, k, v)
    assert torch.equal(output.isnan(), right.isnan())
    assert_right(output.nan_to_num(), right.to(dtype).nan_to_num().double(), 4)


def shifted(tensor: Tensor) -> LoopTensor:
    """The same tensor at an address that no element has."""
    described = describe(tensor)
    described.data += 1
    return described


def unknown(tensor: Tensor, **fields: Any) -> LoopTensor:
    """The same tensor with other fields."""
    described = describe(tensor)
    for name, value in fields.items():
        setattr(described, name, value)
    return described


WRONG: dict[str, Callable[[Tensor], LoopTensor]] = {
    "misaligned": shifted,
    "three dimensions": lambda x: describe(x[0]),
    "another size": lambda x: describe(x[..., :-1].contiguous()),
    "strided last dimension": lambda x: describe(x.repeat_interleave(2, -1)[..., ::2]),
    "a null pointer": lambda x: unknown(x, data=None),
    "an unknown type": lambda x: unknown(x, dtype=99),
}


@pytest.mark.parametrize("how", WRONG)
def test_wrong_arguments_are_refused_with_a_sentence(kernel: Any, how: str) -> None:
    """An error number of its own, explained; the output is not touched."""
    q, k, v = draw(torch.float32, 37, 37, 64)
    o = torch.full_like(q, 7.0)
    error = call(kernel, [describe(q), WRONG[how](k), describe(v)], o)
    assert 10 < len(kernel.loop_error(error).decode())
    assert (o == 7.0).all()
