"""Every command reaches the function that does its work, and gives it what it takes."""

import dataclasses
import importlib
import inspect
from inspect import Parameter

import pytest
from pydantic import TypeAdapter

from loop.cli import ALL
from loop.cli.command import Command

ELSEWHERE = {"on", "keep_until"}
"""What `Command.call` itself makes use of."""


def wanted(command: Command) -> dict[str, Parameter]:
    """Parameters of the function that does the work, those of its request in place of the request."""
    module, _, name = command.work.partition(":")
    parameters = dict(inspect.signature(getattr(importlib.import_module(f"loop.{module}"), name)).parameters)
    if "request" in parameters:
        kind = parameters.pop("request").annotation
        assert dataclasses.is_dataclass(kind)
        parameters |= dict(inspect.signature(kind).parameters)
    return parameters


@pytest.mark.parametrize("command", [each for each in ALL if each.work], ids=lambda command: command.words)
def test_a_command_gives_its_function_what_it_takes(command: Command) -> None:
    """Each option reaches a parameter, and nothing that has to be given is missing."""
    parameters = wanted(command)
    options = {parameter.name for parameter in command.parameters} - ELSEWHERE
    given = {*options, "subcommand", "screen"} | ({"as_json"} if "json" in options else set())
    rest = {name for name, each in parameters.items() if each.kind is Parameter.VAR_KEYWORD}
    needed = {name for name, each in parameters.items() if each.default is Parameter.empty} - rest
    assert set() == needed - given
    assert set() == (set() if rest else options - {"json", *parameters})


@pytest.mark.parametrize(
    "command", [each for each in ALL if "json" in each.parameter_names], ids=lambda command: command.words
)
def test_what_a_command_prints_as_json_has_a_type(command: Command) -> None:
    """`result` names it, or what the function returns is annotated with it."""
    assert TypeAdapter(command.json_type).json_schema()
