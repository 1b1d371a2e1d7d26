"""What a function is given is taken apart into tensors and the rest, and put together around other tensors."""

from typing import Any, NamedTuple

import pytest
import torch

from loop.calls.callee import outputs_of, put_together, take_apart
from loop.calls.refusal import Refused


class Pair(NamedTuple):
    """Two values by name."""

    left: Any
    right: Any


def test_a_structure_is_the_same_around_other_tensors() -> None:
    """Tuples by name, lists, dicts, modules and numbers; a tensor that stands twice is one."""
    shared, module = torch.ones(2), torch.nn.Linear(2, 1)
    value = {"a": [shared, 3, Pair(shared, "word")], "m": module}

    apart = take_apart(value)
    again = put_together(apart.rest, [one + 1 for one in apart.tensors])

    assert ("a.2.left", "m.weight", "m.bias") == apart.names
    assert again["a"][0] is again["a"][2].left
    assert (3, "word") == (again["a"][1], again["a"][2].right)
    assert torch.equal(torch.full((2,), 2.0), again["a"][0])
    assert torch.equal(module.weight + 1, again["m"].weight)


def test_outputs_have_the_names_of_their_places() -> None:
    """A number is a tensor without dimensions; nothing is no output."""
    found = outputs_of({"x": torch.ones(1), "more": (torch.zeros(2), None, 4)})
    assert ["x", "more.0", "more.2"] == list(found)
    assert torch.int64 == found["more.2"].dtype


def test_what_is_no_plain_tensor_is_refused() -> None:
    """A tensor of another class could compute when it is looked at."""
    with pytest.raises(Refused, match="cannot pass a Late"):
        take_apart([torch.ones(1).as_subclass(type("Late", (torch.Tensor,), {}))])
