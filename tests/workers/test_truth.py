"""What an output may be off, where the stated tolerance tells nothing."""

import torch

from loop.calls.call import TensorFile
from loop.model.signature import Tolerance
from loop.workers.judge_messages import Finding
from loop.workers.truth import finding, tightened, truth_of

SOFTMAX = torch.softmax(torch.randn(8, 4096, generator=torch.Generator().manual_seed(1)).double(), dim=1)
STATED = Tolerance(atol=1e-2, rtol=1e-2)


def found(output: torch.Tensor, stated: Tolerance = STATED) -> Finding:
    """What is found in an output that should be a softmax."""
    part = TensorFile("output", "", tuple(SOFTMAX.shape), "float32")
    truth = truth_of(part, ["N", "M"], SOFTMAX, SOFTMAX.float(), stated)
    return finding(truth, output, bounded=False)


def test_zeros_are_wrong_though_the_tolerance_is_larger_than_every_value() -> None:
    """And it is said that they are right as stated; what is right stays so."""
    zeros, right = found(torch.zeros_like(SOFTMAX)), found(SOFTMAX.float())
    assert (True, True) == (zeros.wrong > SOFTMAX.numel() / 2, zeros.loose)
    assert (0, False) == (right.wrong, right.loose)


def test_a_share_of_elements_that_may_be_off_lets_no_zeros_pass() -> None:
    assert found(torch.zeros_like(SOFTMAX), stated=Tolerance(atol=1e-2, rtol=1e-2, matched=0.99)).wrong


def kept(stated: Tolerance, reference: torch.Tensor, lost: float = 1e-9, dtype: str = "float32") -> bool:
    """Whether a tolerance is applied as stated."""
    return tightened(stated, reference.double(), lost, dtype) is stated


def test_a_tolerance_that_rejects_zeros_is_applied_as_stated() -> None:
    """By its size, by its cap, or because a number is infinite."""
    spike = SOFTMAX.clone()
    spike[0, 0] = 2.0
    assert kept(Tolerance(atol=1e-6, rtol=1e-2), SOFTMAX)
    assert kept(Tolerance(atol=1e-2, rtol=0.0, matched=0.99, cap=1.0), spike)
    assert kept(STATED, SOFTMAX.where(SOFTMAX < SOFTMAX.max(), -torch.inf))


def test_a_tolerance_that_lets_zeros_pass_in_any_case_is_applied_as_stated() -> None:
    """Relative errors of 1; an infinite one, by which nothing is judged; values that a GPU flushes to zero."""
    assert kept(Tolerance(atol=1e-2, rtol=1.0), SOFTMAX)
    assert kept(STATED, SOFTMAX * 1e-35, lost=1e-44)
