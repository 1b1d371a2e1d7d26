"""Objects of a user's classes."""

import torch

from loop.calls.torch_side import FEW_WEIGHTS, Maker, instance_of

MADE: list[int] = []


class Large(torch.nn.Module):
    """A module whose weights take a while to draw."""

    def __init__(self) -> None:
        super().__init__()
        MADE.append(1)
        self.weights = torch.nn.Parameter(torch.randn(FEW_WEIGHTS + 1))


class Closed(Large):
    """One that holds a function that knows it, and a count of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.act = lambda x: self.counted() * x * self.weights[:1]

    def counted(self) -> int:
        self.calls += 1
        return self.calls


def test_a_module_is_no_copy_where_its_own_function_would_ask_the_first_one() -> None:
    maker, x = Maker(), torch.ones(1)
    first = maker.instance_of(Closed, None, 7)
    expected = first.act(x)
    first.double()
    again = maker.instance_of(Closed, None, 7).act(x)
    assert again.dtype == torch.float32
    assert torch.equal(again, expected)


def test_a_large_module_is_drawn_once_and_each_has_its_own_weights() -> None:
    maker, before = Maker(), len(MADE)
    one = maker.instance_of(Large, None, 7)
    one.weights.zero_()
    other = maker.instance_of(Large, None, 7)
    assert len(MADE) == before + 1
    assert torch.equal(other.weights, instance_of(Large, None, 7).weights)
