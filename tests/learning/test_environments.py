"""Environments: how much a run in one says of another."""

import pytest

from loop.learning.durations import FACTS, alike
from loop.model.index import Environment

L4 = ("AMD EPYC", "NVIDIA L4", "550", "12.4", "2.4.1", "g++ 12")
CPU = ("AMD EPYC", None, None, None, "2.4.1", "g++ 12")


def test_facts_are_the_fields_of_an_environment() -> None:
    """In their order: places are tuples."""
    assert FACTS == tuple(Environment.model_fields)


def test_the_same_environment_counts_in_full() -> None:
    """So does one of which less is known."""
    assert 1.0 == alike(L4, L4)
    assert 1.0 == alike(L4, ("AMD EPYC", "NVIDIA L4", None, "12.4", None, None))
    assert 1.0 == alike(CPU, ("", *CPU[1:]))


@pytest.mark.parametrize(
    ("fact", "weight"),
    [("processor", 0.5), ("gpu", 0.25), ("driver", 0.5), ("cuda", 0.5), ("torch", 0.5), ("compiler", 0.5)],
)
def test_each_fact_that_differs_takes_its_part(fact: str, weight: float) -> None:
    """Half for a toolchain, a quarter for a GPU."""
    other = tuple("another" if name == fact else value for name, value in zip(FACTS, L4, strict=True))
    assert weight == alike(L4, other)


def test_a_gpu_and_none_are_not_the_same() -> None:
    """What is not there is known not to be there."""
    assert 0.25 == alike(L4, ("AMD EPYC", None, *L4[2:]))
