"""Whole files, stable JSON, hashes, folders that variables name."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from loop.base.documents import content_hash, write_atomic
from loop.base.errors import LoopError, UsageError
from loop.base.places import cache_folder, make_folder_variables_absolute, state_folder
from loop.library.definitions import find_project


def failing(number: int) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    """A script stays executable; a new file gets what the user's mask says."""
    path, beside = tmp_path / "a.sh", tmp_path / "b"
    path.write_text("old")
    path.chmod(0o750)
    beside.touch()
    write_atomic(path, "new")
    write_atomic(tmp_path / "c", "new")
    assert 0o750 == path.stat().st_mode & 0o777
    assert beside.stat().st_mode == (tmp_path / "c").stat().st_mode


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EROFS, "writable again"),
        (errno.EACCES, "permission to write"),
        (errno.EIO, "look after the disk"),
    ],
)
def test_a_refused_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, hint: str
) -> None:
    """The old content stays, no temporary file stays, and the message says what to do."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr(os, call, failing(number))
    with pytest.raises(LoopError, match=r"a\.txt: cannot be written") as refused:
        write_atomic(path, "new")
    monkeypatch.undo()
    assert hint in (refused.value.hint or "")
    assert "old" == path.read_text()
    assert [] == list(tmp_path.glob(".*tmp"))


def test_a_hash_is_sha_256_and_tells_parts_apart() -> None:
    """One content has its plain SHA-256; several contents are hashed with their borders."""
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert empty == content_hash("") == content_hash(b"")
    assert content_hash("é") == content_hash("é".encode())
    assert content_hash(["ab", "c"]) != content_hash(["a", "bc"])
    assert content_hash(["a"]) != content_hash("a")


@pytest.mark.parametrize("written", ["x/../real", "link", "link/../real"])
def test_a_folder_has_a_single_spelling(written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths below it are compared as text; children, which get the variable, run in other folders."""
    for name in ("x", "real"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    for variable in ("LOOP_CACHE", "LOOP_STATE", "LOOP_SESSIONS"):
        monkeypatch.setenv(variable, written)
    make_folder_variables_absolute()
    monkeypatch.chdir("/")
    assert str(tmp_path / written) == os.environ["LOOP_STATE"]
    assert {tmp_path / "real"} == {cache_folder(), state_folder(), find_project(None, Path("/")).sessions}


def test_a_link_to_itself_is_named_and_stays(tmp_path: Path) -> None:
    """It leads to no file that could be replaced."""
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(UsageError, match="a: cannot be written: it is a link to itself"):
        write_atomic(tmp_path / "a", "new")
    assert (tmp_path / "a").is_symlink()
