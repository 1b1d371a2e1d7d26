"""The generated histories of `make bench-bisect-real` are what they claim to be."""

from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.base.places import include_folder
from loop.base.processes import finish
from loop.builds.build import BuildFailed, build
from loop.library.definitions import read_file
from loop.model.target import Target
from tests.bisect import kernel_edits as edits
from tests.bisect.kernel_histories import CASES, FOLDER, Case, Features, files_of, make_history
from tests.repository.test_reading import git

HARMLESS: Features = frozenset(
    f"{kind} {number}"
    for kind, count in (("rename", len(edits.NAMES)), ("move", len(edits.MOVES)), ("remark", 9), ("docs", 4))
    for number in range(count)
)
"""Every refactor at once."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_a_seed_makes_one_history(tmp_path: Path, case: Case) -> None:
    """Hash by hash; with so many commits, a clean checkout, and a culprit between the ends."""
    one, other = (make_history(tmp_path / name, case, 3, 48) for name in ("one", "other"))
    assert (one.good, one.bad, one.culprit, one.broken) == (other.good, other.bad, other.culprit, other.broken)
    assert "48" == git(one.folder, "rev-list", "--count", "HEAD")
    assert str(one.merges) == git(one.folder, "rev-list", "--count", "--merges", "HEAD")
    assert "" == git(one.folder, "status", "--porcelain")
    assert one.bad == git(one.folder, "rev-parse", "HEAD")
    assert one.bad not in one.broken | {one.culprit}
    assert (case == "none") == (one.culprit is None)


@pytest.mark.slow
def test_refactors_build_and_breaks_do_not(tmp_path: Path) -> None:
    """All of the former together with each recipe; one of the latter at a time."""
    for recipe in ("units", "file"):
        assert built(tmp_path, HARMLESS | {f"recipe {recipe}", "slow 2", "wrong 1"})
    for number in range(len(edits.BROKEN)):
        assert not built(tmp_path, HARMLESS | {f"broken {number}"})
    assert not built(tmp_path, HARMLESS | {"recipe unlinked"})


def built(folder: Path, features: Features) -> bool:
    """Whether a commit with these features has a build."""
    place = folder / str(len(list(folder.iterdir())))
    for path, text in files_of(features).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    target = place / FOLDER
    try:
        variant = read_file(target / "target.yaml", Target).value.compiled("cpu", "sm_89")
        finish(build("cpu", variant, target, cache=folder / "cache", include=include_folder(), limit_s=300))
    except (BuildFailed, LoopError):
        return False
    return True
