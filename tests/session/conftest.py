"""What every walk of this folder needs: a session, and commands that do as they are told."""

from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.actions import ACTIONS, Context, Result
from loop.base.processes import Tick
from tests.makers import make_machine, make_plan
from tests.session.walks import Behaviour
from tests.targets import compiled, open_bench, write_target


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """A session on the tiny target; nothing of it is built."""
    target = write_target(tmp_path / "tiny", {"right": compiled(), "other": compiled()})
    with open_bench(tmp_path / "tiny", target, tmp_path) as bench:
        plan, machine = make_plan().plan, make_machine()
        yield Context(bench, plan, ("right", "other"), machine, seed=1, folder=tmp_path / "tiny", session="s-1")


@pytest.fixture
def behave(monkeypatch: pytest.MonkeyPatch) -> dict[str, Behaviour]:
    """Commands by name that do what a test gives them to do, in place of the shell."""
    behaviours: dict[str, Behaviour] = {}

    def run(context: Context, arguments: Any) -> Generator[Tick, None, Result]:
        return (yield from behaviours[arguments.run](context))

    monkeypatch.setitem(ACTIONS, "command.run", replace(ACTIONS["command.run"], run=run))
    return behaviours
