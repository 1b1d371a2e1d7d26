"""Whole files, stable JSON, hashes, lines with checksums, folders that variables name."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from loop.base import errors
from loop.base.documents import content_hash, sums, write_atomic
from loop.base.errors import LoopError
from loop.base.places import cache_folder, find_project, make_folder_variables_absolute, state_folder
from loop.model.base import Model


def failing(number: int) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    """A script stays executable; a new file gets what the user's mask says."""
    path, other = tmp_path / "a.sh", tmp_path / "b"
    path.write_text("old")
    path.chmod(0o750)
    other.touch()
    write_atomic(path, "new")
    write_atomic(tmp_path / "c", "new")
    assert 0o750 == path.stat().st_mode & 0o777
    assert other.stat().st_mode == (tmp_path / "c").stat().st_mode


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
    """One content is hashed as it is; several are hashed so that their borders count."""
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


class Note(Model):
    """What a line holds."""

    text: str


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A file of three lines."""
    errors.PRINTED_REMARKS.clear()
    path = tmp_path / "notes.jsonl"
    for word in ("one", "two", "three"):
        sums.append_sealed(path, f'{{"text": "{word}"}}')
    return path


def words(path: Path) -> list[str]:
    """What can be read."""
    return [note.text for note in sums.sealed_lines(path, Note)]


@pytest.mark.parametrize("old", ["two", '"text": "two', ', "sum"', "\n"])
def test_a_flipped_bit_costs_its_line_and_is_named(
    kept: Path, capsys: pytest.CaptureFixture[str], old: str
) -> None:
    """Wherever it is: in a value, a name, the checksum's own name, or a line end, which costs two lines."""
    data = kept.read_bytes()
    at = data.index(old.encode(), len(data) // 3)
    kept.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    found = words(kept)
    assert {"one", "three"} >= set(found)
    assert f"{kept}:2: damaged line, left out" in capsys.readouterr().err


def test_a_torn_end_is_named_and_the_next_line_stands_on_its_own(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a kill leaves it."""
    kept.write_bytes(kept.read_bytes()[:-9])
    assert ["one", "two"] == words(kept)
    assert f"{kept}:3: a line without its end, left out" in capsys.readouterr().err
    sums.append_sealed(kept, '{"text": "four"}')
    assert ["one", "two", "four"] == words(kept)
