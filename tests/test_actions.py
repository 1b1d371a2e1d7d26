"""The table of actions: what it says of each function is what the function says itself."""

import pytest

from loop.actions import ACTIONS
from loop.model.base import Model
from loop.model.output import Output


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_is_described_by_its_function(name: str) -> None:
    """Its first sentence, its second parameter, and an output by whose name stored ones are read back."""
    action = ACTIONS[name]
    assert action.summary
    assert "." not in action.summary[-1:]
    assert issubclass(action.arguments, Model)
    assert issubclass(action.output, Output)
    assert name in action.output.actions
