"""Snapshots of a target's files: what changed between a failure and its cure, with git and without."""

from pathlib import Path

import pytest

from loop.store import snapshots
from loop.store.sessions import SessionFolder
from loop.store.snapshots import Snapshot, changed, every, take


def folder(tmp_path: Path, name: str) -> SessionFolder:
    """An empty session folder."""
    (tmp_path / name).mkdir(exist_ok=True)
    return SessionFolder(tmp_path / name)


def snapshot(tmp_path: Path, name: str, texts: dict[str, str]) -> Snapshot:
    """The snapshot of a target with these files."""
    target = tmp_path / f"target-{name}"
    target.mkdir()
    for file, text in texts.items():
        (target / file).write_text(text)
    files = [target / file for file in texts]
    take(folder(tmp_path, name), name * 32, files, target)
    return every(folder(tmp_path, name))[0]


def test_files_that_differ_are_named(tmp_path: Path) -> None:
    """Also those that are new or gone; what is equal is left out."""
    before = snapshot(tmp_path, "a", {"k.c": "one\ntwo\n", "same.c": "s\n", "gone.c": "g\n"})
    after = snapshot(tmp_path, "b", {"k.c": "one\n2\n", "same.c": "s\n", "new.c": "n"})
    assert ("gone.c", "k.c", "new.c") == changed(before, after)


def test_a_snapshot_is_taken_once_for_each_state_and_damage_is_passed_over(tmp_path: Path) -> None:
    """What was kept first stays; a torn file says nothing."""
    first = snapshot(tmp_path, "a", {"k.c": "one\n"})
    (tmp_path / "target-a" / "k.c").write_text("two\n")
    take(folder(tmp_path, "a"), "a" * 32, [tmp_path / "target-a" / "k.c"], tmp_path / "target-a")
    assert [first] == every(folder(tmp_path, "a"))
    (tmp_path / "a" / snapshots.FOLDER / "torn.json").write_text('{"format": 1')
    assert [first] == every(folder(tmp_path, "a"))


@pytest.mark.parametrize("name", ["missing.c"])
def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path, name: str) -> None:
    """It may have gone since it was listed."""
    take(folder(tmp_path, "a"), "a" * 32, [tmp_path / name], tmp_path)
    assert {} == every(folder(tmp_path, "a"))[0].files
