"""The one error family."""

import subprocess
import sys

import pytest

from loop.base.errors import (
    Complaint,
    DefinitionError,
    ExitCode,
    LoopError,
    MachineFailure,
    UsageError,
    WorkFailed,
)


def make_complaint(line: int = 4, **fields: str) -> Complaint:
    """A complaint about a budget."""
    said = {"path": "steps.0.budget_s", "expected": "a number", "got": "'soon'", **fields}
    return Complaint("patterns/x.yaml", line, 5, **said)


def test_a_complaint_says_where_and_what() -> None:
    """The form that editors and terminals turn into links."""
    assert "patterns/x.yaml:4:5: steps.0.budget_s: expected a number, got 'soon'" == str(make_complaint())


def test_a_complaint_leaves_out_what_it_does_not_have() -> None:
    """Without a path there is no empty one; a hint comes in brackets."""
    said = str(make_complaint(path="", hint="quote it"))
    assert "patterns/x.yaml:4:5: expected a number, got 'soon' (quote it)" == said


def test_all_complaints_come_together() -> None:
    """One a line, twenty at most, the rest counted; none is lost."""
    error = DefinitionError([make_complaint(line) for line in range(1, 26)])
    lines = str(error).splitlines()
    assert str(make_complaint(1)) == lines[0]
    assert "... and 5 more" == lines[20]
    assert 21 == len(lines)
    assert 25 == len(error.complaints)
    assert ExitCode.USAGE == error.exit_code


def test_an_error_carries_its_hint_and_exit_code() -> None:
    """What went wrong, what to do next, and what the process says at its end."""
    error = LoopError("no agent", hint="start one", exit_code=ExitCode.PAUSED)
    assert ("no agent", "start one", 75) == (str(error), error.hint, error.exit_code)


def test_no_exit_code_is_one_by_default() -> None:
    """Each class of error has its own; where none fits it has to be said."""
    assert [2, 1, 75] == [
        UsageError("x").exit_code,
        WorkFailed("x").exit_code,
        MachineFailure("x", "mend it").exit_code,
    ]
    with pytest.raises(TypeError, match="exit_code"):
        LoopError("x")  # type: ignore[call-arg]


def test_exit_codes_are_the_documented_ones() -> None:
    """Scripts depend on them."""
    assert [0, 1, 2, 3, 75, 124, 125, 130] == [int(code) for code in ExitCode]


def test_errors_cost_nothing_to_import() -> None:
    """Neither pydantic nor YAML nor Jinja2 comes with them."""
    code = "import sys, loop.base.errors; print([m for m in ('pydantic', 'yaml', 'jinja2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
