"""A command of the user's, asked about commits: exit codes, numbers, and what is no answer."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from loop.bisect.builds import Broken
from loop.bisect.candidates import Line, read_line
from loop.bisect.probes import CommandProbe, Question
from loop.errors import LoopError
from loop.processes import finish
from loop.repository.worktree import make_at
from tests.bisect.histories import make_history


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """Three commits whose file says 1, 2 and 4."""
    folder = tmp_path / "r"
    commits = make_history(folder, ["1", "2", "4"])
    return read_line(folder, commits[0], "HEAD")


def probe(line: Line, tmp_path: Path, *command: str, number: bool = False, limit_s: float = 20.0) -> CommandProbe:
    """The command in worktrees of its own."""
    tree = make_at(line.folder, tmp_path / "tree", line.good.commit)
    beside = make_at(line.folder, tmp_path / "beside", line.good.commit) if number else None
    return CommandProbe(["sh", "-c", *command], tree, beside, limit_s, line.good)


def tried(asked: CommandProbe, line: Line, index: int, count: int = 1) -> Sequence[float]:
    """What came of it."""
    found = finish(asked.tried(Question(line.ends[index], count, line.good)))
    assert isinstance(found, tuple)
    return found


def test_an_exit_code_judges(line: Line, tmp_path: Path) -> None:
    """0 is good, any other bad; as often as asked."""
    asked = probe(line, tmp_path, 'test "$(cat state)" -lt 3')
    assert [(1.0,), (1.0,), (0.0,)] == [tried(asked, line, index) for index in range(3)]
    assert (0.0, 0.0) == tried(asked, line, 2, 2)


@pytest.mark.parametrize(
    ("command", "said"),
    [("echo no headers >&2; exit 125", "cannot judge it: no headers"), ("sleep 30", "killed after")],
)
def test_what_cannot_be_judged_is_broken(line: Line, tmp_path: Path, command: str, said: str) -> None:
    """Skipped by its own word, or hanging."""
    asked = probe(line, tmp_path, command, limit_s=0.5)
    with pytest.raises(Broken, match=said):
        tried(asked, line, 1)


def test_a_command_that_is_not_there_says_nothing_of_a_commit(line: Line, tmp_path: Path) -> None:
    """It would be bad everywhere. Where it can be run at the good end it is bad, as `git bisect run` has it."""
    with pytest.raises(LoopError, match=r"cannot be run at the good end, .*: exit 127"):
        tried(probe(line, tmp_path, "no-such-command"), line, 1)
    (tmp_path / "tree").rename(tmp_path / "old")
    asked = probe(line, tmp_path, "grep -q 1 state || exec no-such-command")
    assert [(0.0,), (1.0,), (0.0,)] == [tried(asked, line, index) for index in (1, 0, 2)]


def test_numbers_are_compared_with_the_good_ends(line: Line, tmp_path: Path) -> None:
    """As log ratios: twice the number is log(2)."""
    asked = probe(line, tmp_path, "echo timing; cat state", number=True)
    assert (0.0,) == tried(asked, line, 0)
    assert [math.log(4)] * 2 == pytest.approx(tried(asked, line, 2, 2))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo fast", "no number above zero: fast"),
        ("echo 0", "no number above zero: 0"),
        ("true", "nothing was printed"),
        ("echo oh >&2; exit 3", "exit 3.*: oh"),
        ("echo nan", "no number above zero: nan"),
    ],
)
def test_what_is_no_number_is_broken(line: Line, tmp_path: Path, command: str, said: str) -> None:
    """With what was there instead."""
    with pytest.raises(Broken, match=said):
        tried(probe(line, tmp_path, command, number=True), line, 1)
