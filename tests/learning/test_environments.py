"""Environments: how much a run in one says of another."""

import pytest

from loop.learning.prediction import FACTS, alike
from loop.model.index import Environment

CPU = Environment(processor="AMD EPYC", torch="2.4.1", compiler="g++ 12")
L4 = CPU.model_copy(update={"gpu": "NVIDIA L4", "driver": "550", "cuda": "12.4"})


def test_facts_are_the_fields_of_an_environment() -> None:
    """Each has a weight."""
    assert [*FACTS] == [*Environment.model_fields]


def test_the_same_environment_counts_in_full() -> None:
    """So does one of which less is known."""
    assert 1.0 == alike(L4, L4)
    assert 1.0 == alike(L4, L4.model_copy(update={"driver": None, "torch": None, "compiler": None}))
    assert 1.0 == alike(CPU, CPU.model_copy(update={"processor": ""}))


@pytest.mark.parametrize(
    ("fact", "weight"),
    [("processor", 0.5), ("gpu", 0.25), ("driver", 0.5), ("cuda", 0.5), ("torch", 0.5), ("compiler", 0.5)],
)
def test_each_fact_that_differs_takes_its_part(fact: str, weight: float) -> None:
    """Half for a toolchain, a quarter for a GPU."""
    assert weight == alike(L4, L4.model_copy(update={fact: "another"}))


def test_a_gpu_and_none_are_not_the_same() -> None:
    """What is not there is known not to be there."""
    assert 0.25 == alike(L4, L4.model_copy(update={"gpu": None}))
