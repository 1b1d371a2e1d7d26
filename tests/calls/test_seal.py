"""What a variant replaces of that it is timed and judged with is named."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loop.calls import invocation, memory
from loop.calls.seal import Seal


def fake(*_: Any, **__: Any) -> Any:
    """Something else."""


def test_nothing_is_broken_that_nobody_touched() -> None:
    """Also not by what is imported later."""
    assert [] == Seal().replaced_functions()


@pytest.mark.parametrize(
    ("space", "name", "said"),
    [
        (time, "perf_counter_ns", "time.perf_counter_ns"),
        (json, "dumps", "json.dumps"),
        (memory, "differing_positions", "loop.calls.memory.differing_positions"),
        (invocation.DelayReader, "read", "loop.calls.invocation.DelayReader.read"),
    ],
)
def test_what_is_replaced_is_named(space: Any, name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of modules that time and reply, and our own functions and methods."""
    seal = Seal()
    monkeypatch.setattr(space, name, fake)
    assert said in seal.replaced_functions()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (memory.differing_positions, "loop.calls.memory.differing_positions (code)"),
        (Path.read_bytes, "Path.read_bytes (code)"),
    ],
)
def test_other_code_in_the_same_function_is_named(
    function: Callable[..., Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of our own functions, and of the classes that we import."""
    seal = Seal()
    monkeypatch.setattr(function, "__code__", fake.__code__)
    broken = seal.replaced_functions()
    monkeypatch.undo()
    assert any(name.endswith(said) for name in broken)
