"""What a worker keeps from check to check."""

from typing import Any

import pytest

from loop.calls.call import Call, TensorFile
from loop.workers.worker_program import LoadedCandidate

CALL = Call(
    "some #1", "float32", (), TensorFile("output", "", (1,), "float32"), {}, (),
    structure="1-given", structure_digest="of tensors", seed=7,
)  # fmt: skip


class Prepared:
    """A prepared call that notes what it is filled with again."""

    def __init__(self) -> None:
        self.filled: list[Call] = []

    def refill(self, call: Call) -> None:
        """Note it."""
        self.filled.append(call)


class Loaded:
    """A variant that prepares."""

    def prepare(self, call: Call, layout: str = "contiguous") -> Any:
        """A call of its own each time."""
        return Prepared()


def test_a_call_on_other_values_is_the_same_call_refilled() -> None:
    """Its inputs lie where they lay, and the module stays: a variant that remembers by address meets it again."""
    one, other = LoadedCandidate(Loaded()), CALL.but(key="some #2", structure="2-given")
    assert one.prepare(CALL, "contiguous") is one.prepare(other, "contiguous")
    assert [other] == one.prepare(CALL, "contiguous").filled[:1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "layout"),
    [({"structure_digest": "of others"}, "contiguous"), ({"seed": 8}, "contiguous"), ({}, "strided")],
)
def test_a_call_of_another_form_is_made_anew_and_none_of_it_is_known(changes: dict[str, Any], layout: str) -> None:
    """Other weights, another structure, or another layout."""
    one = LoadedCandidate(Loaded())
    first = one.prepare(CALL, "contiguous")
    one.slow = True
    assert first is not one.prepare(CALL.but(**changes), layout)
    assert not one.slow
