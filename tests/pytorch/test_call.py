"""Calls of an operator: right values, clear errors, no leaks."""

import gc
import math
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor

from loop.pytorch import Operator
from tests.pytorch.operators import attention, exact, make_inputs, raw, worst

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture
def op() -> Operator:
    """The bundled target's operator."""
    return attention()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"causal": True, "alignment": "bottom_right", "scale": 0.3}]
)
def test_values_are_those_of_the_reference(op: Operator, dtype: torch.dtype, options: dict[str, Any]) -> None:
    """Values agree in every type, with attributes given by name."""
    inputs = make_inputs(2, 3, 33, 40, keys=47, dtype=dtype)
    output = op(*inputs, **options)
    assert dtype == output.dtype
    assert TOLERANCE[dtype] > worst(output, exact(inputs, **options))
    assert output.is_contiguous()


def test_the_raw_operator_is_public(op: Operator) -> None:
    """`torch.ops` has it: choices by index, NaN for a missing number, arguments also by name."""
    inputs = make_inputs(1, 2, 9, 8, keys=12)
    output = getattr(torch.ops, op.contract.namespace).cpu(*inputs, causal=True, alignment=1, scale=math.nan)
    assert torch.equal(op(*inputs, causal=True, alignment="bottom_right"), output)


def test_strided_inputs_are_taken_as_they_lie(op: Operator) -> None:
    """[B, S, H, D] storage, padded rows, an expanded head, a shifted address: no copy, the same values."""
    q, k, v = make_inputs(2, 3, 17, 8)
    padded = torch.nn.functional.pad(q, (0, 3))[..., :8]
    across = k.transpose(1, 2).contiguous().transpose(1, 2)
    shifted = torch.cat([v.new_zeros(1), v.reshape(-1)])[1:].view_as(v)
    expected = op(q, k, v, causal=True)
    assert torch.equal(expected, op(padded, across, shifted, causal=True))
    shared = k[:, :1].expand(2, 3, 17, 8)
    assert torch.equal(op(q, shared.contiguous(), v), op(q, shared, v))


Change = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]
WRONG: dict[str, Change] = {
    "q: expected float32 or bfloat16 or float16, got int64": lambda q, k, v: (q.long(), k, v),
    "k: expected float32, as q is, got float16": lambda q, k, v: (q, k.half(), v),
    "v: expected 4 dimensions (B Hk Sk D), got 3": lambda q, k, v: (q, k, v[0]),
    "v: expected Hk = 1, as in k, got 2": lambda q, k, v: (q, k[:, :1], v),
    "q requires a gradient, and the operator has none: call it under torch.no_grad(), or detach q": (
        lambda q, k, v: (q.requires_grad_(), k, v)
    ),
    "error 12: the features of a row are not adjacent: the last stride must be 1": (
        lambda q, k, v: (q.mT.contiguous().mT, k, v)
    ),
}


@pytest.mark.parametrize("words", WRONG)
def test_an_error_names_the_argument(op: Operator, words: str) -> None:
    """All ways to call it give the same message; a declined call has the kernel's own."""
    with pytest.raises(RuntimeError, match=f"^{re.escape(f'{op.contract.title}: {words}')}$"):
        op(*WRONG[words](*make_inputs(1, 2, 7, 8)))


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        ({"alignment": "left"}, ValueError, "alignment: expected one of 'top_left', 'bottom_right', got 'left'"),
        ({"scale": True}, ValueError, "scale: expected a number or None, got True"),
        ({"casual": True}, TypeError, "no attribute 'casual'; there are: causal, alignment, scale"),
    ],
)
def test_a_wrong_attribute_is_told(op: Operator, args: dict[str, Any], error: type[Exception], words: str) -> None:
    """The message uses the manifest's words."""
    with pytest.raises(error, match=re.escape(words)):
        op(*make_inputs(1, 1, 3, 4), **args)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda q, k, v: (q, k), "Tensor, Tensor"),
        (lambda q, k, v: (q, k, v, True), "Tensor, Tensor, Tensor, bool"),
        (lambda q, k, v: (q, None, v), "Tensor, NoneType, Tensor"),
        (lambda q, k, v: (q, k, v.numpy()), "Tensor, Tensor, ndarray"),
    ],
)
def test_what_is_no_tensor_is_told(op: Operator, change: Change, words: str) -> None:
    """How many there have to be, and which one it is."""
    message = f"{op.contract.title}: expected tensors (q, k, v), got ({words}); attributes are given by name"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        op(*change(*make_inputs(1, 1, 3, 4)))


def test_gradients_are_not_asked_for_where_none_are_recorded(op: Operator) -> None:
    """Under no_grad and in inference mode, the output requires no gradient."""
    inputs = [tensor.requires_grad_() for tensor in make_inputs(1, 1, 5, 4)]
    with torch.no_grad():
        assert not op(*inputs).requires_grad
    with torch.inference_mode():
        assert op(*inputs).is_inference()


def test_inputs_are_let_go(op: Operator) -> None:
    """After a call, and after one that failed; the output belongs to the caller alone."""
    inputs = make_inputs(1, 2, 7, 8)
    before = [tensor._use_count() for tensor in inputs]
    output = op(*inputs)
    with pytest.raises(RuntimeError):
        op(inputs[0], inputs[1], inputs[2][:, :, :6])
    with pytest.raises(RuntimeError):
        op.op(*inputs, *raw(alignment=7))
    assert before == [tensor._use_count() for tensor in inputs]
    assert before[0] == output._use_count()


def test_threads_do_not_disturb_each_other(op: Operator) -> None:
    """Each thread has its own shapes and values, some of them wrong."""

    def work(number: int) -> bool:
        inputs = make_inputs(1, 2, 8 + number, 16)
        wanted = exact(inputs, causal=True)
        right = all(worst(op(*inputs, causal=True), wanted) < 1e-5 for _ in range(100))
        with pytest.raises(RuntimeError, match=f"got {number}$"):
            op(inputs[0], inputs[1], inputs[2][:, :, :number])
        return right

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(8)))


CALLS = 10_000


GROWTH_BYTES = 1 << 20


@pytest.mark.slow
def test_memory_does_not_grow() -> None:
    """Neither ten thousand calls nor a thousand failing ones leave memory behind."""
    op = attention()
    inputs, process = make_inputs(1, 1, 8, 4), psutil.Process(os.getpid())

    def some(count: int) -> None:
        for _ in range(count):
            op(*inputs, causal=True)
        for _ in range(count // 10):
            with pytest.raises(RuntimeError):
                op(inputs[0], inputs[1][..., :2], inputs[2])

    some(CALLS // 10)
    gc.collect()
    before = process.memory_info().rss
    some(CALLS)
    gc.collect()
    assert GROWTH_BYTES > process.memory_info().rss - before
