"""A command of the user's, asked about commits: exit codes, numbers, and what is no answer."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.base.processes import finish
from loop.bisect.builds import Untestable
from loop.bisect.candidates import Line, read_line
from loop.bisect.trying import Question
from loop.bisect.user_command import CommandProbe
from loop.repository.worktree import make_at
from tests.bisect.histories import make_history


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """Three commits whose file says 1, 2 and 4."""
    folder = tmp_path / "r"
    commits = make_history(folder, ["1", "2", "4"])
    return read_line(folder, commits[0], "HEAD")


def probe(
    line: Line, tmp_path: Path, *command: str, number: bool = False, limit_s: float | None = 20.0
) -> CommandProbe:
    """The command in worktrees of its own."""
    tree = make_at(line.folder, tmp_path / "tree", line.good.commit)
    beside = make_at(line.folder, tmp_path / "beside", line.good.commit) if number else None
    return CommandProbe(["sh", "-c", *command], tree, beside, limit_s, line.good)


def tried(asked: CommandProbe, line: Line, index: int, count: int = 1) -> Sequence[float]:
    """What came of it."""
    found = finish(asked.tried(Question(line.ends[index], count, line.good)))
    assert isinstance(found, tuple)
    return found


HANG = "echo $$ >> ../started; sleep 1000 & wait"
"""Never ends, with a child of its own."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [False, True])
def test_a_commit_that_hangs_is_skipped(line: Line, tmp_path: Path, number: bool) -> None:
    """With what the good end takes beside it; what it started is gone, and the others are judged on."""
    asked = probe(line, tmp_path, f"cat state; grep -q 2 state && {{ {HANG}; }}; true", number=number, limit_s=0.5)
    with pytest.raises(Untestable, match=r"the command hangs: killed after 0\.5 s, 0\.\d+ s on the good end"):
        tried(asked, line, 1)
    assert not any(Path(f"/proc/{one}").exists() for one in (tmp_path / "started").read_text().split())
    assert (math.log(4) if number else 1.0,) == pytest.approx(tried(asked, line, 2))
    assert "" == asked.remark


@pytest.mark.slow
def test_the_limit_is_what_the_good_end_takes_many_times_over(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user says nothing: a commit that hangs costs a limit, not ten minutes."""
    monkeypatch.setattr("loop.bisect.user_command.LEAST_S", 0.3)
    asked = probe(line, tmp_path, f"sleep 0.1; grep -q 2 state && {{ {HANG}; }}; true", limit_s=None)
    with pytest.raises(Untestable, match="the command hangs") as hanging:
        tried(asked, line, 1)
    assert asked.took_s is not None
    assert f"killed after {max(0.3, 10 * asked.took_s):.3g} s" in str(hanging.value)
    assert (1.0,) == tried(asked, line, 0)


def test_a_good_end_that_hangs_is_nothing_to_search_from(line: Line, tmp_path: Path) -> None:
    """It is the command, or its limit."""
    with pytest.raises(LoopError, match=r"did not end at the good end, .*: killed after 0\.3 s") as error:
        tried(probe(line, tmp_path, HANG, limit_s=0.3), line, 2)
    assert error.value.hint is not None
    assert "--probe-limit-s" in error.value.hint


@pytest.mark.slow
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
    command = f"grep -q 1 state && {{ echo 1; exit 0; }}; {command}"
    with pytest.raises(Untestable, match=said):
        tried(probe(line, tmp_path, command, number=True), line, 1)
