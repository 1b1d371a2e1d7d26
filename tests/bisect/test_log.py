"""The log of a search is one that git itself takes."""

from pathlib import Path

import pytest

from loop.bisect.candidates import read_line
from loop.bisect.hunt import bisect_log
from tests.bisect.histories import make_history
from tests.repository.test_reading import git


@pytest.mark.parametrize("first_bad", range(1, 8))
def test_git_replays_it_and_comes_to_the_same_commit(tmp_path: Path, first_bad: int) -> None:
    """Whichever commit it is, with some that could not be tried."""
    folder = tmp_path / "r"
    commits = make_history(folder, [str(number) for number in range(8)])
    line = read_line(folder, commits[0], "HEAD")
    skipped = {commits[number]: "broken" for number in (2, 5) if number not in (first_bad, first_bad - 1)}
    log = tmp_path / "log"
    log.write_text(bisect_log(line, first_bad, skipped))
    assert f"# first bad commit: [{commits[first_bad]}] commit {first_bad}" in log.read_text()
    said = git(folder, "bisect", "replay", str(log))
    assert f"{commits[first_bad]} is the first bad commit" in said + git(folder, "bisect", "log")


def test_what_is_uncommitted_is_no_business_of_git(tmp_path: Path) -> None:
    """No commit is called bad where the edits are to blame, and git takes the log."""
    folder = tmp_path / "r"
    commits = make_history(folder, ["a", "b", "c"])
    (folder / "state").write_text("d")
    line = read_line(folder, commits[0], None)
    text = bisect_log(line, 3, {})
    assert "uncommitted" not in text
    assert "bad" not in text
    log = tmp_path / "log"
    log.write_text(text)
    git(folder, "bisect", "replay", str(log))
