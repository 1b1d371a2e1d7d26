"""The fault bench reports each promise that a test breaks on purpose."""

import subprocess
from pathlib import Path

import pytest

from loop.base.processes import process_name
from tests.faults import classes
from tests.faults import world as worlds
from tests.faults.__main__ import Slice
from tests.faults.results import PROMISES, SHOWN, Outcome, filled, page
from tests.faults.world import Running, World, beside, left, lost, make_world, repeated, traceback_in


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world of its own."""
    (tmp_path / "case").mkdir()
    return make_world(tmp_path / "case")


def ended_command(world: World, *lines: str, errors: str = "") -> Running:
    """A command that has printed these lines, and has ended."""
    running = Running(subprocess.Popen(["true"]), world.folder / "said", world.folder / "errors")
    running.process.wait()
    running.stdout.write_text("".join(f"{line}\n" for line in lines))
    running.errors.write_text(errors)
    return running


@pytest.mark.parametrize("trace", ["environment", "folder", "note"])
def test_what_is_left_is_found(world: World, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process is found by its environment, its folder or its note, and is killed."""
    monkeypatch.setattr(worlds, "GONE_S", 0.1)
    env = world.env if trace == "environment" else {}
    cwd = world.folder if trace == "folder" else Path("/")
    with subprocess.Popen(["/bin/sleep", "60"], env=env, cwd=cwd) as process:
        if trace == "note":
            (world.folder / "pid-1").write_text(process_name(process.pid))
        assert str(process.pid) in left(world)
        assert process.wait(20) != 0
    assert "" == left(world)


def test_a_step_that_was_told_and_is_not_stored_is_lost(world: World) -> None:
    """Whole lines of events count as acknowledged; a line without its end does not."""
    event = (
        '{"happening": "StepEnded", "run": 1, "pattern": "try", "step": "s1", "attempt": 1, "status": "passed", '
    )
    event += '"seconds": 0.1, "budget_s": 1.0, "message": "", "action": "command.run"}'
    assert "lost: s1" in lost(world, ended_command(world, event))
    (world.folder / "ran-1").write_text("1\n2\n")
    assert "s1 had passed, and ran 2 times" == repeated(world, ended_command(world, event))
    torn = ended_command(world)
    torn.stdout.write_text(event)
    assert "" == lost(world, torn)


def test_a_traceback_and_a_second_life_are_seen(world: World) -> None:
    """A KeyboardInterrupt before loop was loaded is Python's own, and no fault."""
    text = "Traceback (most recent call last):\n  x\n"
    assert "ValueError" in traceback_in(ended_command(world, errors=f"{text}ValueError: no\n"))
    assert "" == traceback_in(ended_command(world, errors=f"{text}KeyboardInterrupt\n"))
    (world.folder / "beside").write_text("2\n")
    assert "step 2 ran beside its own earlier life" == beside(world)


def test_every_class_says_what_it_promises_and_is_drawn_from_the_seed_alone() -> None:
    """The shards together hold all cases of a class."""
    for name, module in classes().items():
        assert module.NAME
        assert module.MUST
        names = [case for case, _ in module.cases(3)]
        assert len(set(names)) == len(names), name
        parts = [case for part in (1, 2, 3) for case, _ in Slice(3, None, part, 3).cases(module)]
        assert sorted(names) == sorted(parts)


def test_each_class_has_its_promise_on_the_page() -> None:
    """Figures of RESULTS.md stand beside the promises."""
    text = PROMISES.read_text()
    assert set(classes()) <= {match[1] for match in SHOWN.finditer(text)}
    outcome = Outcome("children", "one", "", 1.0, {}, 1, "2026-11-22", "two cores", "x")
    promises = filled(text, [outcome, Outcome(**{**vars(outcome), "case": "two", "broken": "left"})])
    assert "CLASSES=children`: 2 cases, 1 broken, 2026-11-22." in promises
    assert "CLASSES=random_kills`: not run yet." in promises
    assert "- `children` two: left" in "\n".join(
        page([Outcome(**{**vars(outcome), "broken": "left", "case": "two"})], 1)
    )
