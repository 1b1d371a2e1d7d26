"""The error that a variant may have: that of the plain implementation, with slack for few elements."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from loop.workers.truth import (
    MAX_FLOOR,
    MAX_SLACK,
    MEAN_FLOOR,
    MEAN_SLACK,
    error_limits,
    largest_and_mean_error,
    measure_input_rounding,
)
from tests.attention import eager

Tensors = tuple[Tensor, Tensor, Tensor]
Formula = Callable[[Tensor], Tensor]


def draw(seed: int, *shape: int) -> Tensors:
    """Queries, keys and values, float16 unit normals."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(*shape, generator=generator).half() for _ in range(3))
    return q, k, v


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The formula written out."""
    return eager(q, k, v, causal=True, alignment="top_left", scale=None)


def tensor_cores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As kernels on tensor cores work: sums in float32, weights rounded to float16, divided at the end."""
    logits = (q.float() @ k.float().mT) / math.sqrt(q.size(-1))
    rows, columns = logits.shape[-2:]
    logits = logits.masked_fill(~torch.ones(rows, columns, dtype=torch.bool).tril(), -math.inf)
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    return ((weights.half().float() @ v.float()) / weights.sum(-1, keepdim=True)).half()


def test_honest_rounding_of_sixteen_elements_is_never_wrong() -> None:
    """A limit from the plain implementation's error alone would reject some of these."""
    rejected = alone = 0
    for seed in range(1000):
        tensors = draw(seed, 1, 1, 4, 4)
        reference = plain(*(tensor.double() for tensor in tensors))
        error, mean = largest_and_mean_error(tensor_cores(*tensors), reference)
        plain_max, plain_mean = largest_and_mean_error(plain(*tensors), reference)
        most, most_in_mean = error_limits(reference, plain_max, plain_mean, "float16")
        rejected += error > most or mean > most_in_mean
        alone += error > MAX_SLACK * plain_max + MAX_FLOOR or mean > MEAN_SLACK * plain_mean + MEAN_FLOOR
    assert 0 == rejected
    assert alone > 0


def summed(terms: Tensor) -> Tensor:
    """Sums along the last dimension, one term after the other."""
    total = torch.zeros_like(terms[..., 0])
    for term in terms.unbind(-1):
        total = total + term
    return total


def normalised(x: Tensor) -> Tensor:
    """Rows of mean zero and variance one."""
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()


def by_moments(x: Tensor) -> Tensor:
    """The same from sums of x and of its squares: sound where the mean is small."""
    mean = summed(x) / x.shape[-1]
    variance = summed(x * x) / x.shape[-1] - mean * mean
    return (x - mean[:, None]) / (variance + 1e-5).sqrt()[:, None]


SOUND: dict[str, tuple[Formula, Formula]] = {
    "layer norm": (normalised, by_moments),
    "softmax": (lambda x: torch.softmax(x, -1), lambda x: x.exp() / summed(x.exp())[:, None]),
    "product": (lambda x: x @ x[:8].mT, lambda x: summed(x[:, None] * x[:8])),
}
"""The function, and one term after the other in float32."""


def error_in_roundings(exact: Formula, written: Formula, x: Tensor) -> float:
    """The largest error, as a multiple of what rounding may cause."""
    reference = exact(x.double())
    _, largest, _ = measure_input_rounding(lambda inputs: exact(inputs[0]), [x], reference, "float32", x.shape[-1])
    lost, _ = largest_and_mean_error(written(x), reference)
    return lost / largest


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("terms", [64, 2000])
def test_sums_in_any_order_are_worth_what_rounding_does(name: str, terms: int) -> None:
    """A loop over thousands of terms loses more than a library's tree: neither is wrong."""
    exact, written = SOUND[name]
    x = torch.randn(32, terms, generator=torch.Generator().manual_seed(terms))
    assert error_in_roundings(exact, written, x) < 1


@pytest.mark.parametrize("lossy", ["cancellation", "half", "low weight"])
def test_what_no_rounding_explains_is_not_forgiven(lossy: str) -> None:
    """Moments of rows far from zero, a product of half-precision inputs, a weight that is off by a thousandth."""
    x = torch.randn(32, 1000, generator=torch.Generator().manual_seed(0))
    product = SOUND["product"][0]
    ratio = {
        "cancellation": lambda: error_in_roundings(normalised, by_moments, x + 10),
        "half": lambda: error_in_roundings(product, lambda x: product(x.half().float()), x),
        "low weight": lambda: error_in_roundings(product, lambda x: 1.001 * product(x), x),
    }[lossy]()
    assert ratio > 3


def test_a_jump_is_no_rounding() -> None:
    """An index that flips with an input's last bit changes the output by any amount: nothing is allowed for it."""
    table = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)).double()
    index = torch.arange(10).float()

    def gather(inputs: list[Tensor]) -> Tensor:
        return table[inputs[0].floor().long().clamp(0, 9)]

    assert 0.0 == measure_input_rounding(gather, [index], gather([index.double()]), "float32", 1)[1]


@pytest.mark.parametrize(("size", "share"), [(4, 1.0), (65, 1e-3)])
def test_more_than_rounding_stays_wrong(size: int, share: float) -> None:
    """A thousandth of the largest value in one element, and a mean that grows by all of that of many."""
    tensors = draw(1, 1, 2, size, 64)
    reference = plain(*(tensor.double() for tensor in tensors))
    plain_max, plain_mean = largest_and_mean_error(plain(*tensors), reference)
    most, most_in_mean = error_limits(reference, plain_max, plain_mean, "float16")
    assert most < 2e-3 * float(reference.abs().max())
    assert most_in_mean < 1.8 * plain_mean + 1e-6
    assert share * float(reference.abs().max()) > most_in_mean
