"""Files that are whole or not there, stable JSON, content hashes."""

import contextlib
import datetime
import enum
import errno
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from loop.base.errors import UsageError, WorkFailed
from loop.base.remarks import ACTED_ON

_ACTED_ON = re.compile(ACTED_ON)
NO_SUCH_PLACE = (FileExistsError, FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""What the system says of a path that was named wrongly."""
HINTS = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "your quota is used up: free some space",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EACCES: "no permission: choose another folder, or change its owner",
    errno.EPERM: "no permission: choose another folder, or change its owner",
    errno.ENOENT: "its folder does not exist: create it first",
}


def write_atomic(path: Path, content: str | bytes, *, lasting: bool = True) -> None:
    """Write a file so that a reader sees the old content or the new, never a part; on disk when it returns.

    The path keeps its kind: links are followed, devices and pipes are written into.
    `lasting`: False for what nobody needs after a loss of power. It costs no wait for the disk.
    Raises LoopError when the disk refuses; the old file is then untouched.
    """
    data = encoded(content) if isinstance(content, str) else content
    try:
        place = _behind_links(path)
        if isinstance(place, int) or _is_stream(place):
            with open(os.dup(place) if isinstance(place, int) else place, "wb", buffering=0) as stream:
                while data:
                    data = data[stream.write(data) :]
        else:
            _replace(place, data, lasting=lasting)
    except OSError as error:
        raise unusable(path, "written", error) from error


def folder_beside(path: Path) -> Path | None:
    """The folder of the file that `path` leads to; None for a device or a pipe, which has no files beside it."""
    place = _behind_links(path)
    return None if isinstance(place, int) or _is_stream(place) else place.parent


MOST_LINKS = 40
"""Links that Linux follows before it gives up."""


def _behind_links(path: Path) -> Path | int:
    """The path behind all links; the number of an open file for /dev/stdout and whatever else names one."""
    place = path
    for _ in range(MOST_LINKS):
        if not place.is_symlink():
            return place
        if place.name.isdigit() and os.path.realpath(place.parent) == os.path.realpath("/dev/fd"):
            return int(place.name)
        place = place.parent / os.readlink(place)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _is_stream(path: Path) -> bool:
    """Whether a path is a device or a pipe. Raises UsageError for a disk or a socket: neither holds text."""
    if not path.exists() or path.is_file() or path.is_dir():
        return False
    if path.is_char_device() or path.is_fifo():
        return True
    raise UsageError(f"{path}: is a disk or a socket, and is not written to", hint="name a file")


def _replace(path: Path, data: bytes, *, lasting: bool) -> None:
    """Put a new file in the place of the old one, in one go."""
    temporary = path.parent / f".{os.urandom(8).hex()}.tmp"
    try:
        _write_new(temporary, data, lasting=lasting)
        _keep_mode(path, temporary)
        os.replace(temporary, path)
        if lasting:
            _sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def encoded(text: str) -> bytes:
    """Text as a file holds it. Only our JSON can hold lone surrogates: a backslash escape means the same there."""
    return text.encode(errors="backslashreplace")


def unusable(
    path: Path, how: Literal["read", "written", "made"], error: OSError, hint: str | None = None
) -> UsageError | WorkFailed:
    """What the system said of a file, and what to do about it."""
    error.filename = error.filename or str(path)
    reason = error.strerror or type(error).__name__
    kind = UsageError if how == "read" or isinstance(error, NO_SUCH_PLACE) else WorkFailed
    return kind(f"{path}: cannot be {how}: {reason}", hint=hint or HINTS.get(error.errno or 0))


def _write_new(path: Path, data: bytes, *, lasting: bool) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        if lasting:
            os.fsync(file.fileno())


def _keep_mode(path: Path, temporary: Path) -> None:
    """A file that is replaced stays as readable, and as executable, as it was."""
    if path.exists():
        temporary.chmod(path.stat().st_mode & 0o777)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def to_json(value: Any, indent: int | None = 1) -> str:
    """Indented JSON with a final line end. Models, mappings and sequences; NaN and infinities become null.

    What a terminal would act on is escaped: it may be printed to one.
    """
    text = json.dumps(plain(value), indent=indent, ensure_ascii=False)
    return _ACTED_ON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def plain(value: Any) -> Any:
    """`value` as dicts, lists and scalars that JSON knows; what it does not know, as text."""
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json", by_alias=True))
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat().replace("+00:00", "Z")
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def content_hash(content: str | bytes | Iterable[str | bytes]) -> str:
    """SHA-256 in hex, of some content or of several contents in their order."""
    import hashlib

    if isinstance(content, str | bytes):
        return hashlib.sha256(_bytes(content)).hexdigest()
    whole = hashlib.sha256()
    for one in map(_bytes, content):
        whole.update(b"%d:" % len(one))  # Its length first, so that ("ab", "c") is not ("a", "bc").
        whole.update(one)
    return whole.hexdigest()


def _bytes(content: str | bytes) -> bytes:
    return content.encode(errors="surrogateescape") if isinstance(content, str) else content


def hash_files(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 in hex over names relative to `root` and contents, whatever the order of the paths.

    Raises LoopError for a file that cannot be read or is not below `root`.
    """
    parts = sorted({_relative(path, root): _content(path) for path in paths}.items())
    return content_hash(part for pair in parts for part in pair)


def _relative(path: Path, root: Path) -> str:
    try:
        return path.relative_to(root).as_posix()
    except ValueError as error:
        raise UsageError(f"{path}: expected a file below {root}, got one outside") from error


def _content(path: Path) -> bytes:
    import hashlib

    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise unusable(path, "read", error) from error
