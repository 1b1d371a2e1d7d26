"""The table of actions takes its descriptions from the functions."""

import pytest

from loop.actions import ACTIONS
from loop.model.base import Model
from loop.model.output import Output


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_is_described_by_its_function(name: str) -> None:
    """It has a summary without a full stop, an arguments model, and an output model that names the action."""
    action = ACTIONS[name]
    assert action.summary
    assert "." not in action.summary[-1:]
    assert issubclass(action.arguments, Model)
    assert issubclass(action.output, Output)
    assert name in action.output.actions
