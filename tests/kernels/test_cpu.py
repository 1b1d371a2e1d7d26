"""The bundled CPU kernel at its C interface: what the bench never asks: strides, NaN and wrong arguments."""

import ctypes
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from numpy.typing import NDArray

from loop.base.places import include_folder, project
from loop.base.processes import finish
from loop.builds import build
from loop.calls.call import LoopTensor
from loop.library import targets
from loop.model.target import BuildRecipe

Array = NDArray[Any]
FLAGS = {
    "native": None,
    "portable": ("-std=c++17", "-O2", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden"),
}


@pytest.fixture(scope="module", params=FLAGS)
def kernel(request: pytest.FixtureRequest, build_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The library built as the manifest says, and for any x86-64 without OpenMP."""
    bundled = project(None, tmp_path_factory.mktemp("nowhere"))
    target = targets.target(bundled).value
    variant = target.compiled("cpu", "")
    flags = FLAGS[request.param]
    if flags is not None:
        recipe = BuildRecipe(compiler="g++", flags=(*flags, *target.tuned("cpu")))
        variant = variant.model_copy(update={"build": recipe})
    options = {"cache": build_cache / "builds", "include": include_folder(), "limit_s": 120.0}
    made = finish(build.build("cpu", variant, bundled.target, **options))
    library = ctypes.CDLL(made.library)
    library.loop_error.restype = ctypes.c_char_p
    return library


def describe(array: Array, dtype: int = 1) -> LoopTensor:
    """A LoopTensor of a float32 array with whatever strides it has."""
    tensor = LoopTensor(array.ctypes.data, dtype, array.ndim)
    for axis in range(array.ndim):
        tensor.sizes[axis] = array.shape[axis]
        tensor.strides[axis] = array.strides[axis] // array.itemsize
    return tensor


def call(kernel: Any, q: Array, k: Array, v: Array, o: Array, *numbers: float) -> int:
    """Call the entry; `numbers` are causal, alignment and scale."""
    inputs = (LoopTensor * 3)(*(describe(x) for x in (q, k, v)))
    outputs = (LoopTensor * 1)(describe(o))
    attributes = (ctypes.c_double * 3)(*(*numbers, *(0.0, 0.0, math.nan)[len(numbers) :]))
    return int(kernel.attention_cpu(inputs, outputs, attributes, None))


def exact(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    """float64, top_left."""
    scores = q.astype(float) @ k.astype(float).swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = numpy.where(numpy.tril(numpy.ones(scores.shape[-2:], dtype=bool)), scores, -numpy.inf)
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v.astype(float)  # type: ignore[no-any-return]


def draw(*shape: int, seed: int = 0) -> Array:
    """Unit normals, float32."""
    return numpy.random.RandomState(seed).standard_normal(shape).astype(numpy.float32)


def inputs(queries: int = 37, keys: int = 37, size: int = 64) -> tuple[Array, Array, Array]:
    """q, k, v of two batches and two heads."""
    return draw(2, 2, queries, size, seed=1), draw(2, 2, keys, size, seed=2), draw(2, 2, keys, size, seed=3)


@pytest.mark.slow
def test_heads_in_the_third_place_need_no_copy(kernel: Any) -> None:
    """[B, S, H, D] in memory, seen as [B, H, S, D]: strides of the outer dimensions are free."""
    q, k, v = (numpy.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in inputs())
    o = numpy.full((2, 37, 2, 64), numpy.nan, dtype=numpy.float32).swapaxes(1, 2)
    assert 0 == call(kernel, q, k, v, o, 1.0)
    assert 2e-6 > abs(o - exact(q, k, v, causal=True)).max()


@pytest.mark.slow
def test_keys_shared_by_all_heads_have_stride_zero(kernel: Any) -> None:
    """Broadcast inputs are read where they lie."""
    q, k, v = inputs()
    k, v = (numpy.broadcast_to(x[:, :1], x.shape) for x in (k, v))
    o = numpy.empty_like(q)
    assert 0 == call(kernel, q, k, v, o)
    assert 2e-6 > abs(o - exact(q, k, v)).max()


@pytest.mark.slow
def test_nothing_is_written_between_the_rows(kernel: Any) -> None:
    """An output inside a larger buffer leaves the rest alone."""
    q, k, v = inputs(size=40)
    buffer = numpy.full((2, 2, 37, 48), 7.0, dtype=numpy.float32)
    assert 0 == call(kernel, q, k, v, buffer[..., :40])
    assert 2e-6 > abs(buffer[..., :40] - exact(q, k, v)).max()
    assert (buffer[..., 40:] == 7.0).all()


def test_a_nan_key_reaches_only_rows_that_see_it(kernel: Any) -> None:
    """Under a causal mask the rows before it are as if it were not there."""
    q, k, v = inputs()
    clean, o = numpy.empty_like(q), numpy.empty_like(q)
    assert 0 == call(kernel, q, k, v, clean, 1.0)
    k[:, :, 20] = numpy.nan
    assert 0 == call(kernel, q, k, v, o, 1.0)
    assert (o[:, :, :20] == clean[:, :, :20]).all()
    assert numpy.isnan(o[:, :, 20:]).all()


def test_large_logits_do_not_overflow(kernel: Any) -> None:
    """The running maximum is taken off before the exponential."""
    q, k, v = inputs()
    q *= 100
    o = numpy.empty_like(q)
    assert 0 == call(kernel, q, k, v, o)
    assert 2e-3 > abs(o - exact(q, k, v)).max()


def test_rows_that_see_no_key_are_zero(kernel: Any) -> None:
    """bottom_right with more queries than keys masks the first rows completely."""
    q, k, v = inputs(queries=40, keys=30)
    o = numpy.full_like(q, numpy.nan)
    assert 0 == call(kernel, q, k, v, o, 1.0, 1.0)
    assert (o[:, :, :10] == 0).all()
    assert not numpy.isnan(o).any()


def shifted(array: Array) -> Array:
    """The same values at an address that no float32 has."""
    raw = numpy.zeros(array.nbytes + 1, dtype=numpy.uint8)
    return numpy.ndarray(array.shape, dtype=numpy.float32, buffer=raw.data, offset=1)


WRONG: dict[str, Callable[[Array], Array]] = {
    "misaligned": shifted,
    "three dimensions": lambda x: x[0],
    "another size": lambda x: numpy.ascontiguousarray(x[..., :-1]),
    "strided last dimension": lambda x: numpy.repeat(x, 2, axis=-1)[..., ::2],
}


@pytest.mark.parametrize("how", WRONG)
def test_wrong_arguments_are_refused_with_a_sentence(kernel: Any, how: str) -> None:
    """An error number of its own, explained; the output is not touched."""
    q, k, v = inputs()
    o = numpy.full_like(q, 7.0)
    error = call(kernel, q, WRONG[how](k), v, o)
    assert 0 != error
    assert 10 < len(kernel.loop_error(error).decode())
    assert (o == 7.0).all()


def test_a_null_pointer_and_an_unknown_type_are_refused(kernel: Any) -> None:
    """Before anything is read."""
    q, k, v = inputs()
    tensors = [describe(x) for x in (q, k, v)]
    output, attributes = (LoopTensor * 1)(describe(numpy.empty_like(q))), (ctypes.c_double * 3)(0, 0, math.nan)
    tensors[1].data = None
    null = kernel.attention_cpu((LoopTensor * 3)(*tensors), output, attributes, None)
    tensors[1] = describe(k, dtype=99)
    unknown = kernel.attention_cpu((LoopTensor * 3)(*tensors), output, attributes, None)
    assert 0 not in (null, unknown)
    assert null != unknown
