"""A search among commits of a Python variant: each is copied, and timed beside the good one's copy."""

import json
from pathlib import Path

import pytest

from tests.noise import timed
from tests.optimize.test_python import VARIANTS, WHOLE
from tests.projects import FUNCTIONS, TARGET, loop
from tests.repository.test_reading import git

SLOWER = WHOLE.replace("    return", "    x = x.clone().clone().clone()\n    return")


@timed
@pytest.mark.slow
def test_the_commit_that_made_it_slower_is_found(tmp_path: Path) -> None:
    """Among others that add a comment; the checkout stays as it is."""
    folder = tmp_path / "project"
    folder.mkdir()
    head = TARGET.partition("  ours: ")[0].replace("{N: 3, M: [5, 17]}", "{N: 64, M: 256}")
    (folder / "target.yaml").write_text(head + VARIANTS)
    (folder / "functions.py").write_text(FUNCTIONS)
    git(folder, "init", "-q", "-b", "main")
    for number, text in enumerate([WHOLE, WHOLE, SLOWER, SLOWER]):
        (folder / "mine.py").write_text(f"{text}# {number}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"change {number}")
    assert 0 == loop("trust", str(folder)).returncode
    words = ("--good", "HEAD~3", "--variant", "ours", "--threads", "1", "--seed", "1", "--json")
    done = loop("bisect", "--target", str(folder), *words)
    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert ("culprit", git(folder, "rev-parse", "HEAD~1")[:12]) == (found["outcome"], found["why"].split()[1][:12])
    assert f"{SLOWER}# 3\n" == (folder / "mine.py").read_text()
