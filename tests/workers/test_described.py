"""An exception in one line."""

import sys
from pathlib import Path

import pytest

from loop.workers.messages import described


def raised(code: str, file: str) -> Exception:
    """What this code raises, as if it stood in that file."""
    try:
        exec(compile(code, file, "exec"), {})
    except Exception as error:
        return error
    raise AssertionError("it raises nothing")


@pytest.mark.parametrize(
    ("code", "own", "said"),
    [
        ("x = 1\nraise ValueError('no\\nmore')", True, "ValueError: no (answer.py:2)"),
        ("assert False", True, "AssertionError (answer.py:1)"),
        ("(lambda: 0)(1)", False, "TypeError: <lambda>() takes 0 positional arguments but 1 was given"),
    ],
    ids=["the first line", "no text", "nothing of theirs"],
)
def test_a_line_is_one_of_the_targets_own(
    code: str, own: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of `loop`, or of a library, tells nobody what to mend."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert said == described(raised(code, str(tmp_path / "answer.py") if own else "/elsewhere/module.py"))
