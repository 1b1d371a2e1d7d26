"""Drafts from session folders that somebody else wrote: nothing shipped is touched, nothing unchecked is kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from loop.base.places import shipped
from loop.model.pattern import Step
from loop.model.record import Finished
from tests.makers import make_finished, make_pattern, make_plan
from tests.projects import loop, make_project
from tests.store.folders import make_session

MESSAGE = 'x.cu(4): error: identifier "foo" is undefined'


def three(root: Path, message: str = MESSAGE, step: str = "verify", **head: Any) -> str:
    """Three sessions that failed so; the name of the draft that they make."""
    for day in (18, 19, 20):
        failed: Finished = make_finished(step, status="failed", message=message)
        make_session(root, f"2026-11-{day}-090000-a", failed, status="failed", **head)
    done = loop("patterns", "drafts", "--json")
    (found,) = json.loads(done.stdout)["drafts"]
    return str(found["name"])


def files(folder: Path) -> set[Path]:
    """All files below a folder."""
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_what_ships_with_loop_is_never_written_to(tmp_path: Path) -> None:
    """The bundled target has no patterns of its own: a draft can be looked at, and taken elsewhere."""
    before = files(shipped("patterns"))
    name = three(tmp_path / "sessions")
    assert 0 == loop("patterns", "drafts", "show", name).returncode
    done = loop("patterns", "drafts", "accept", name)
    assert (2, True) == (done.returncode, f"loop patterns drafts show {name} > {name}.yaml" in done.stderr)
    assert before == files(shipped("patterns"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ({"action": "no.such.action"}, "expected"),
        ({"gate": "nothing.known"}, "nothing.known"),
        ({"with": {"nonsense": 1}}, "nonsense"),
    ],
)
def test_a_draft_that_does_not_pass_the_checks_is_not_kept(
    tmp_path: Path, steps: dict[str, Any], said: str
) -> None:
    """As from a session of another version of loop, or one that somebody made up."""
    step = {"id": "verify", "title": "Do it", "action": "kernel.verify", "budget_s": 1.0, **steps}
    pattern = make_pattern().model_copy(update={"steps": (Step.model_validate(step),)})
    name = three(tmp_path / "sessions", plan=make_plan(pattern))
    folder = make_project(tmp_path / "project")
    done = loop("patterns", "drafts", "accept", name, "--target", str(folder))
    assert 2 == done.returncode, done.stderr
    assert said in done.stderr
    assert set() == {path for path in files(folder) if "patterns" in path.parts}


@pytest.mark.slow
def test_a_message_full_of_yaml_stays_a_message(tmp_path: Path) -> None:
    """It cannot add a step, nor break the file."""
    name = three(tmp_path / "sessions", "error: x\u2028steps: [{run: rm}] # {{ no }} &a *a | > % @ ` \\ \" '")
    folder = make_project(tmp_path / "project")
    done = loop("patterns", "drafts", "accept", name, "--target", str(folder))
    assert 0 == done.returncode, done.stderr
    assert 0 == loop("patterns", "check", "--target", str(folder)).returncode
    assert ["verify"] == [one["id"] for one in json.loads(shown(name, folder))["steps"]]


def shown(name: str, folder: Path) -> str:
    """The accepted pattern as loop reads it."""
    return loop("patterns", "show", name, "--target", str(folder), "--json").stdout
