"""The end of a recipe: one line, and an exit code."""

import json
from pathlib import Path

import pytest

from loop.base.errors import UsageError
from loop.base.screen import Screen
from loop.machine.machine import machine
from loop.replay.command import replayed
from loop.replay.expectations import expectations
from tests.makers import make_check, make_finished, make_verify


def left(folder: Path, *, right: bool = True, differs: str = "") -> Path:
    """What a recipe leaves: expectations, what `loop kernels verify --json` printed, and differences."""
    expected = expectations([make_finished("verify", output=make_verify())], machine(), [])
    (folder / "expected.jsonl").write_text("".join(f"{one.model_dump_json()}\n" for one in expected))
    output = make_verify(make_check(right=right)).model_dump(mode="json")
    step = {"step": "verify", "status": "passed", "message": "", "output": output}
    (folder / "verify.json").write_text(json.dumps({"steps": [step]}))
    (folder / "differs").write_text(differs)
    return folder


def test_the_last_line_says_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0."""
    assert 0 == replayed(left(tmp_path), Screen(), as_json=False)
    assert ["compared: 1 check", "same"] == capsys.readouterr().out.splitlines()


def test_the_last_line_says_what_is_not_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1; what the script noticed comes first."""
    assert 1 == replayed(
        left(tmp_path, right=False, differs="a.c: not what was judged\n"), Screen(), as_json=False
    )
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("not the same: a.c: not what was judged; cpu is wrong on 1 of 1 that were right")


def test_a_replay_that_compared_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 125."""
    (left(tmp_path) / "expected.jsonl").write_text("")
    assert 125 == replayed(tmp_path, Screen(), as_json=False)
    assert capsys.readouterr().out.splitlines()[-1].startswith("cannot tell: ")


def test_a_program_reads_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As one JSON object."""
    replayed(left(tmp_path), Screen(), as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert ("same", ["1 check"], []) == (found["verdict"], found["compared"], found["differs"])


def test_a_folder_that_no_recipe_left_is_an_error(tmp_path: Path) -> None:
    """Not a difference."""
    with pytest.raises(UsageError, match=r"expected\.jsonl"):
        replayed(tmp_path, Screen(), as_json=False)
