"""The fault bench sees what it is there to see: each promise, broken on purpose, is called broken."""

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


def told(world: World, *lines: str, errors: str = "") -> Running:
    """A command that has said these lines, and has ended."""
    running = Running(subprocess.Popen(["true"]), world.folder / "said", world.folder / "errors")
    running.process.wait()
    running.said.write_text("".join(f"{line}\n" for line in lines))
    running.errors.write_text(errors)
    return running


@pytest.mark.parametrize("how", ["environment", "folder", "note"])
def test_what_is_left_is_found(world: World, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its environment, by where it stands, or by what noted itself; and it is ended."""
    monkeypatch.setattr(worlds, "GONE_S", 0.1)
    env = world.env if how == "environment" else {}
    cwd = world.folder if how == "folder" else Path("/")
    with subprocess.Popen(["/bin/sleep", "60"], env=env, cwd=cwd) as process:
        if how == "note":
            (world.folder / "pid-1").write_text(process_name(process.pid))
        assert str(process.pid) in left(world)
        assert process.wait(20) != 0
    assert "" == left(world)


def test_a_step_that_was_told_and_is_not_stored_is_lost(world: World) -> None:
    """Whole lines of events are what was acknowledged."""
    event = (
        '{"happening": "StepEnded", "run": 1, "pattern": "try", "step": "s1", "attempt": 1, "status": "passed", '
    )
    event += '"seconds": 0.1, "budget_s": 1.0, "message": "", "action": "command.run"}'
    assert "lost: s1" in lost(world, told(world, event))
    (world.folder / "ran-1").write_text("1\n2\n")
    assert "s1 had passed, and ran 2 times" == repeated(world, told(world, event))
    torn = told(world)
    torn.said.write_text(event)
    assert "" == lost(world, torn)


def test_a_traceback_and_a_second_life_are_seen(world: World) -> None:
    """A Ctrl-C before loop was loaded is Python's own."""
    text = "Traceback (most recent call last):\n  x\n"
    assert "ValueError" in traceback_in(told(world, errors=f"{text}ValueError: no\n"))
    assert "" == traceback_in(told(world, errors=f"{text}KeyboardInterrupt\n"))
    (world.folder / "beside").write_text("2\n")
    assert "step 2 ran beside its own earlier life" == beside(world)


def test_every_class_says_what_it_promises_and_is_drawn_from_the_seed_alone() -> None:
    """A slice can run anywhere; together the shards are all cases."""
    for name, module in classes().items():
        assert module.NAME
        assert module.MUST
        names = [case for case, _ in module.cases(3)]
        assert len(set(names)) == len(names), name
        parts = [case for part in (1, 2, 3) for case, _ in Slice(3, None, part, 3).cases(module)]
        assert sorted(names) == sorted(parts)


def test_each_class_has_its_promise_on_the_page() -> None:
    """With the figures of RESULTS.md."""
    text = PROMISES.read_text()
    assert set(classes()) <= {found[1] for found in SHOWN.finditer(text)}
    outcome = Outcome("children", "one", "", 1.0, {}, 1, "2026-11-22", "two cores", "x")
    done = filled(text, [outcome, Outcome(**{**vars(outcome), "case": "two", "broken": "left"})])
    assert "CLASSES=children`: 2 cases, 1 broken, 2026-11-22." in done
    assert "CLASSES=random_kills`: not run yet." in done
    assert "- `children` two: left" in "\n".join(
        page([Outcome(**{**vars(outcome), "broken": "left", "case": "two"})], 1)
    )
