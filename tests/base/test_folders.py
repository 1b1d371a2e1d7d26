"""Folders: what the system says of them, and what a write finds."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from loop.base.machine_failures import LEAST_BYTES, Folders, glance, temporary

ROOM = SimpleNamespace(f_blocks=1 << 20, f_bfree=1 << 19, f_bavail=1 << 19, f_frsize=4096, f_flag=0)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, 0),
        ({"f_bavail": LEAST_BYTES // 4096 - 1, "f_bfree": LEAST_BYTES // 4096 - 1}, errno.ENOSPC),
        ({"f_bavail": LEAST_BYTES // 4096, "f_bfree": LEAST_BYTES // 4096}, 0),
        ({"f_blocks": 0, "f_bavail": 0, "f_bfree": 0}, 0),
    ],
)
def test_little_room_is_a_full_disk(
    state: dict[str, int], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not tell its size is not full."""
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**{**vars(ROOM), **state}))
    assert expected == glance(tmp_path)


@pytest.mark.parametrize(("flag", "expected"), [(0, errno.EACCES), (os.ST_RDONLY, errno.EROFS)])
def test_a_folder_that_may_not_be_written_says_why(
    flag: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system is read-only, or the permission is missing."""
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**{**vars(ROOM), "f_flag": flag}))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert expected == glance(tmp_path)


def test_only_our_own_folders_have_to_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout may be read-only; it may not be full."""
    found = {tmp_path / "own": errno.EROFS, tmp_path / "checkout": errno.EROFS}
    monkeypatch.setattr("loop.base.machine_failures.glance", found.get)
    folders = Folders((tmp_path / "own",), (tmp_path / "checkout",))
    assert {tmp_path / "own": errno.EROFS} == folders.short()
    found[tmp_path / "checkout"] = errno.ENOSPC
    assert errno.ENOSPC == folders.short()[tmp_path / "checkout"]


def test_of_tmpdir_only_what_is_named_ours_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's project may lie there."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folders = Folders.of(tmp_path / "project" / "sessions")
    assert tmp_path == temporary() == folders.holding(tmp_path / "loop-bench-1-x" / "a.bin")
    assert folders.holding(tmp_path / "project" / "kernel.cu") is None
    assert tmp_path / "project" / "sessions" == folders.holding(tmp_path / "project" / "sessions" / "one")
