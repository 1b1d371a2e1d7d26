"""What rounding does to a few elements is not forgiven in all of them."""

import pytest
import torch
from torch import Tensor

from loop.calls.call import TensorFile
from loop.calls.rounding import moved
from loop.model.functions import Tolerance
from loop.workers.findings import finding
from loop.workers.judge_messages import Finding
from loop.workers.tails import FEW, tail_of
from loop.workers.truth import Truth, beyond, truth_of

STATED = Tolerance(atol=1e-5, rtol=1e-5)
X = torch.rand(1_000_000, generator=torch.Generator().manual_seed(5))
"""A few dozen of these lie where the function is steep."""


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_as_many_may_be_off_as_rounding_moves() -> None:
    """Other roundings of the inputs move the same elements by as much, each otherwise."""
    for seed in range(5):
        signs = torch.randint(2, X.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        nudged = X.double() * (1 + signs * torch.finfo(torch.float32).eps / 2)
        output = steep(nudged).float()
        assert beyond(STATED, steep(X.double()), output).reach.max() > FEW
        assert not found(output).wrong


def test_without_a_tail_all_elements_may_be_off_as_far_as_allowed() -> None:
    """Where nothing is lost beyond what is stated, nothing is counted."""
    assert truth().tail is None
    assert truth(steep(X.double())).tail is None


@pytest.mark.parametrize("size", [1e-100, 0.3, 1.0, 2.0**-3, 1e100])
def test_errors_reach_the_powers_of_two_below_them(size: float) -> None:
    """One that is a power of two reaches it."""
    few, many = torch.tensor([size], dtype=torch.float64), torch.tensor([size] * (FEW + 1), dtype=torch.float64)
    least = tail_of(few[:0]).crowded_from(tail_of(many))
    assert least is not None
    assert least <= size < 2 * least
    assert tail_of(many).crowded_from(tail_of(many)) is None
    assert tail_of(few[:0]).crowded_from(tail_of(few)) is None


def test_errors_that_are_a_power_of_two_are_wrong_too() -> None:
    """One unit in the last place is one: what is allowed is less than that."""
    output = steep(X.double())
    output[:5000] += 2.0**-9
    small = truth(steep(X)).facing(output)
    assert small.outside(output)[:5000].sum() > 4000


def test_movements_by_element_are_those_of_the_worse_way_to_round() -> None:
    """At random or upwards; none where the function jumps."""
    x = torch.tensor([0.25, 0.3**0.5, 0.75])
    each = moved(lambda inputs: steep(inputs[0].double()), [x], steep(x.double()), "float32").each
    assert each[1] > 1e4 * each[0] > 0
