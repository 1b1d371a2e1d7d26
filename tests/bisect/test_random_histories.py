"""Random histories with merges and commits that cannot be judged: the culprit, or a range that holds it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from loop.base.screen import Screen
from loop.bisect.command import BisectRequest, run_bisect
from tests.bisect.histories import grow, import_history
from tests.repository.test_reading import git

HISTORIES = int(os.environ.get("LOOP_FUZZ", "4"))
TELLING = (8, 10)
"""A branch that begins where nothing can be tried; one that is a little slower itself, merged by the culprit."""
JUDGE = "test ! -e broken || exit 125; test $(cat state) = good"
COUNT = "test ! -e broken || exit 125; cat number"


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted({*range(HISTORIES), *TELLING}))
def test_the_culprit_or_a_range_that_holds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    """By exit codes and by numbers; nobody else is named, and nothing is left behind."""
    grown, folder = grow(seed), tmp_path / "r"
    hashes = import_history(folder, grown.nodes)
    for probe, script in (("exit", JUDGE), ("number", COUNT)):
        request = BisectRequest(
            good=hashes[grown.good],
            bad=hashes[grown.bad],
            probe=probe,
            command=("sh", "-c", script),
            target=folder,
            json=True,
        )
        code = run_bisect(request, Screen(quiet=True))
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        culprits, run = ([one["commit"] for one in found[name]] for name in ("culprits", "range"))
        said = f"{probe}, seed {seed}: {found['outcome']}, {found['why']}"
        if found["outcome"] == "culprit":
            assert (0, [hashes[grown.culprit]], []) == (code, culprits, run), said
        else:
            assert ("range", 1, []) == (found["outcome"], code, culprits), said
            assert hashes[grown.culprit] in run, said
            assert found["skipped"] or probe == "number", said
    assert 1 == len(git(folder, "worktree", "list").splitlines())
