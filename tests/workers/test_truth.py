"""What an output may be off, where the stated tolerance tells nothing."""

import torch

from loop.calls.call import TensorFile
from loop.workers.findings import finding
from loop.workers.judge_messages import Finding, Tolerance
from loop.workers.truth import tightened, truth_of

SOFTMAX = torch.softmax(torch.randn(8, 4096, generator=torch.Generator().manual_seed(1)).double(), dim=1)
STATED = Tolerance(1e-2, 1e-2)


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


def test_what_is_wrong_as_stated_is_not_blamed_on_the_tolerance() -> None:
    assert not found(SOFTMAX.float() + 1).loose


def test_a_share_of_elements_that_may_be_off_lets_no_zeros_pass() -> None:
    assert found(torch.zeros_like(SOFTMAX), stated=Tolerance(1e-2, 1e-2, 0.99)).wrong


def test_a_tolerance_that_rejects_zeros_is_applied_as_stated() -> None:
    stated = Tolerance(1e-6, 1e-2)
    assert tightened(stated, SOFTMAX, 1e-9) is stated


def test_noise_alone_may_be_as_large_as_the_tolerance_says() -> None:
    """Where the reference in its own types loses as much as there is to see, no variant can do better."""
    assert tightened(STATED, SOFTMAX, 1e-4) is STATED
    assert tightened(STATED, torch.zeros(3).double(), 0.0) is STATED


def test_whole_numbers_may_be_off_as_stated() -> None:
    """An int8 that is rounded the other way is one off, however small the values are."""
    whole = torch.tensor([0.0, 1.0, -1.0, 1.0]).double()
    truth = truth_of(TensorFile("q", "", (4,), "int8"), ["N"], whole, whole, Tolerance(1.0, 0.0))
    assert (1.0, None) == (truth.tolerance.atol, truth.stated)
