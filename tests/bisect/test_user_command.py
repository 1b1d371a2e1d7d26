"""A command of the user's, asked about commits: exit codes, and what is no answer."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.bisect.candidates import Line, Untestable, read_line
from loop.bisect.trying import CommandProbe
from loop.repository.worktree import make_at
from tests.bisect.histories import make_history


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """Three commits whose file says 1, 2 and 4."""
    folder = tmp_path / "r"
    commits = make_history(folder, ["1", "2", "4"])
    return read_line(folder, commits[0], "HEAD")


def probe(line: Line, tmp_path: Path, *command: str, limit_s: float | None = 20.0) -> CommandProbe:
    """The command in a worktree of its own."""
    tree = make_at(line.folder, tmp_path / "tree", line.good.commit)
    return CommandProbe(["sh", "-c", *command], tree, limit_s, line.good)


def tried(asked: CommandProbe, line: Line, index: int, count: int = 1) -> Sequence[float]:
    """What came of it."""
    found = finish(asked.tried(line.ends[index], count, line.good))
    assert isinstance(found, tuple)
    return found


HANG = "echo $$ >> ../started; sleep 1000 & wait"
"""Never ends, with a child of its own."""


@pytest.mark.slow
def test_a_commit_that_hangs_is_skipped(line: Line, tmp_path: Path) -> None:
    """With what the good end takes beside it; what it started is gone, and the others are judged on."""
    asked = probe(line, tmp_path, f"cat state; grep -q 2 state && {{ {HANG}; }}; true", limit_s=0.5)
    with pytest.raises(Untestable, match=r"the command hangs: killed after 0\.5 s, 0\.\d+ s on the good end"):
        tried(asked, line, 1)
    assert not any(Path(f"/proc/{one}").exists() for one in (tmp_path / "started").read_text().split())
    assert (1.0,) == tried(asked, line, 2)
    assert "" == asked.remark
