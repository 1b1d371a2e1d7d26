"""The allowed error of an output if the stated tolerance is too wide."""

import torch
from torch import Tensor

from loop.calls.call import TensorFile
from loop.model.target import Tolerance
from loop.workers.judge_messages import Finding
from loop.workers.truth import (
    EXPECTED_EXTRA,
    MOST_DISTANCE,
    Truth,
    compare_output,
    count_errors_beyond,
    distance_in_roundings,
    make_truth,
    tighten_tolerance,
)

SOFTMAX = torch.softmax(torch.randn(8, 4096, generator=torch.Generator().manual_seed(1)).double(), dim=1)
STATED = Tolerance(atol=1e-2, rtol=1e-2)


def check_softmax(output: torch.Tensor, stated: Tolerance = STATED) -> Finding:
    """The finding on an output that should be a softmax."""
    part = TensorFile("output", "", tuple(SOFTMAX.shape), "float32")
    truth = make_truth(part, ["N", "M"], SOFTMAX, SOFTMAX.float(), stated)
    return compare_output(truth, output, limits_by_plain=False)


def test_zeros_are_wrong_though_the_tolerance_is_larger_than_every_value() -> None:
    """Zeros only pass by the stated rule, also if a share may be off; right outputs pass."""
    zeros, right = check_softmax(torch.zeros_like(SOFTMAX)), check_softmax(SOFTMAX.float())
    assert (True, True) == (zeros.wrong > SOFTMAX.numel() / 2, zeros.passes_only_as_stated)
    assert (0, False) == (right.wrong, right.passes_only_as_stated)
    assert check_softmax(torch.zeros_like(SOFTMAX), stated=Tolerance(atol=1e-2, rtol=1e-2, matched=0.99)).wrong


def is_as_stated(stated: Tolerance, reference: torch.Tensor, lost: float = 1e-9, dtype: str = "float32") -> bool:
    """Whether a tolerance is applied as stated."""
    return tighten_tolerance(stated, reference.double(), lost, dtype) is stated


def test_a_tolerance_is_applied_as_stated_where_it_rejects_zeros_or_cannot() -> None:
    """By size, cap or infinity; a relative error of 1 lets zeros pass in any case."""
    spike = SOFTMAX.clone()
    spike[0, 0] = 2.0
    assert is_as_stated(Tolerance(atol=1e-6, rtol=1e-2), SOFTMAX)
    assert is_as_stated(Tolerance(atol=1e-2, rtol=0.0, matched=0.99, cap=1.0), spike)
    assert is_as_stated(STATED, SOFTMAX.where(SOFTMAX < SOFTMAX.max(), -torch.inf))
    assert is_as_stated(Tolerance(atol=1e-2, rtol=1.0), SOFTMAX)
    assert is_as_stated(STATED, SOFTMAX * 1e-35, lost=1e-44)


STEEP = Tolerance(atol=1e-5, rtol=1e-5)
X = torch.rand(1_000_000, generator=torch.Generator().manual_seed(5))
"""Some of these lie where the function is steep."""


def steep(x: Tensor) -> Tensor:
    """A slope of 1 nearly everywhere, and one of a hundred thousand beside the root of 0.3."""
    return x + torch.tanh(1e5 * (x * x - 0.3))


def truth(plain: Tensor | None = None) -> Truth:
    """The right answer, with or without the loss of its own type."""
    part = TensorFile("output", "", tuple(X.shape), "float32")
    return make_truth(part, ["N"], steep(X.double()), plain, STEEP)


def found_steep(output: Tensor) -> Finding:
    """The finding on an output, given what float32 loses."""
    return compare_output(truth(steep(X)), output, limits_by_plain=False)


def test_a_share_off_everywhere_is_wrong_though_a_few_elements_may_be_off_by_more() -> None:
    """The largest loss in float32 is a hundred times the tolerance, but only in a few elements."""
    rounding = (steep(X).double() - steep(X.double())).abs()
    assert rounding.max() > 2e-3
    wrong = found_steep(1.001 * steep(X))
    assert wrong.wrong > 500_000
    assert wrong.worst is not None
    assert wrong.worst.allowed < wrong.max_error < float(truth(steep(X)).allowed.max())
    assert not found_steep(steep(X)).wrong
    assert not found_steep(steep(X.double()).float()).wrong


def test_as_many_may_be_off_as_rounding_moves() -> None:
    """Other roundings of the inputs move the same elements by as much, each otherwise."""
    for seed in range(2):
        signs = torch.randint(2, X.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        nudged = X.double() * (1 + signs * torch.finfo(torch.float32).eps / 2)
        output = steep(nudged).float()
        assert count_errors_beyond(STEEP, steep(X.double()), output).max() > EXPECTED_EXTRA
        assert not found_steep(output).wrong


def test_whole_numbers_that_differ_are_as_far_apart_as_a_reply_can_say() -> None:
    """Whole numbers have no rounding, and a reply cannot hold infinity."""
    part = TensorFile("output", "", (2,), "int64")
    values = torch.tensor([1, 2]), torch.tensor([1, 3])
    near, far = (make_truth(part, ["N"], value.double(), value, Tolerance(atol=0, rtol=0)) for value in values)
    assert (0.0, MOST_DISTANCE) == (distance_in_roundings([near], [near]), distance_in_roundings([near], [far]))
    finding = Finding(max_error=1.0, total=2, answer_distance=MOST_DISTANCE)
    assert finding == Finding.model_validate_json(finding.model_dump_json())
