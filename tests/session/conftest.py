"""Fixtures of walks: a session, and commands that a test defines."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.actions import ACTIONS
from loop.model.output import CommandOutput
from loop.steps.actions import ShellCommand
from loop.steps.context import Action, Context, RunningAction, Task
from tests.makers import make_machine, make_plan
from tests.session.walks import Behaviour
from tests.targets import compiled, open_bench, write_target


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """A session on the tiny target; nothing is built."""
    target = write_target(tmp_path / "tiny", {"right": compiled(), "other": compiled()})
    with open_bench(tmp_path / "tiny", target, tmp_path) as bench:
        plan, machine = make_plan().plan, make_machine()
        task = Task(plan, ("right", "other"), machine, seed=1, folder=tmp_path / "tiny", session="s-1")
        yield Context(bench, task)


@pytest.fixture
def behave(monkeypatch: pytest.MonkeyPatch) -> dict[str, Behaviour]:
    """Name to the function that runs in place of the shell command of that name."""
    behaviours: dict[str, Behaviour] = {}

    def run(context: Context, arguments: ShellCommand) -> RunningAction[CommandOutput]:
        return (yield from behaviours[arguments.run](context))

    monkeypatch.setitem(ACTIONS, "command.run", Action(run))
    return behaviours
