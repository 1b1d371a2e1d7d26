"""Objects of a user's classes."""

import torch

from loop.calls.torch_side import FEW_WEIGHTS, Maker, made

MADE: list[int] = []


class Large(torch.nn.Module):
    """A module whose weights take a while to draw."""

    def __init__(self) -> None:
        super().__init__()
        MADE.append(1)
        self.weights = torch.nn.Parameter(torch.randn(FEW_WEIGHTS + 1))


class Unlike(Large):
    """One that cannot be copied."""

    def __deepcopy__(self, memo: object) -> object:
        raise TypeError("no copies")


def test_a_large_module_is_drawn_once_and_each_has_its_own_weights() -> None:
    maker, before = Maker(), len(MADE)
    one = maker.made(Large, None, 7)
    one.weights.zero_()
    other = maker.made(Large, None, 7)
    assert len(MADE) == before + 1
    assert torch.equal(other.weights, made(Large, None, 7).weights)


def test_random_numbers_go_on_after_a_copy_as_after_the_module_itself() -> None:
    made(Large, None, 7)
    expected = torch.rand(3)
    maker = Maker()
    for _ in range(2):
        maker.made(Large, None, 7)
        assert torch.equal(torch.rand(3), expected)


def test_another_seed_or_class_is_made_anew() -> None:
    maker = Maker()
    first = maker.made(Large, None, 7)
    assert not torch.equal(maker.made(Large, None, 8).weights, first.weights)
    assert type(maker.made(Unlike, None, 8)) is Unlike


def test_what_cannot_be_copied_is_made_each_time() -> None:
    maker, before = Maker(), len(MADE)
    assert torch.equal(maker.made(Unlike, None, 7).weights, maker.made(Unlike, None, 7).weights)
    assert len(MADE) == before + 2
