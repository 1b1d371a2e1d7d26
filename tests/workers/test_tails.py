"""What rounding does to a few elements is not forgiven in all of them."""

import torch
from torch import Tensor

from loop.calls.call import TensorFile
from loop.model.signature import Tolerance
from loop.workers.judge_messages import Finding
from loop.workers.truth import FEW, Truth, beyond, finding, truth_of

STATED = Tolerance(atol=1e-5, rtol=1e-5)
X = torch.rand(1_000_000, generator=torch.Generator().manual_seed(5))
"""Some of these lie where the function is steep."""


def steep(x: Tensor) -> Tensor:
    """A slope of 1 nearly everywhere, and one of a hundred thousand beside the root of 0.3."""
    return x + torch.tanh(1e5 * (x * x - 0.3))


def truth(plain: Tensor | None = None) -> Truth:
    """What is right of it; with what its own type loses, or without."""
    part = TensorFile("output", "", tuple(X.shape), "float32")
    return truth_of(part, ["N"], steep(X.double()), plain, STATED)


def found(output: Tensor) -> Finding:
    """What is found in an output, by what float32 loses."""
    one = truth(steep(X))
    return finding(one.facing(output), output, bounded=False)


def test_a_share_off_everywhere_is_wrong_though_a_few_elements_may_be_off_by_more() -> None:
    """The largest loss in float32 is a hundred times what is stated, and only a few have it."""
    own = (steep(X).double() - steep(X.double())).abs()
    assert own.max() > 2e-3
    wrong = found(1.001 * steep(X))
    assert wrong.wrong > 500_000
    assert wrong.worst is not None
    assert wrong.worst.allowed < wrong.max_error < float(truth(steep(X)).allowed.max())
    assert not found(steep(X)).wrong
    assert not found(steep(X.double()).float()).wrong


def test_as_many_may_be_off_as_rounding_moves() -> None:
    """Other roundings of the inputs move the same elements by as much, each otherwise."""
    for seed in range(2):
        signs = torch.randint(2, X.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        nudged = X.double() * (1 + signs * torch.finfo(torch.float32).eps / 2)
        output = steep(nudged).float()
        assert beyond(STATED, steep(X.double()), output).reach.max() > FEW
        assert not found(output).wrong
