"""Atomic file writes, stable JSON and content hashes."""

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

from loop.base.errors import CONTROL_CHARACTERS, UsageError, WorkFailed

_CONTROL_CHARACTERS = re.compile(CONTROL_CHARACTERS)
WRONG_PATH_ERRORS = (FileExistsError, FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""System errors that mean that the user named a wrong path."""
ADVICE = {
    errno.ENOSPC: "free space on {place}",
    errno.EDQUOT: "your quota is used up: free space on {place}",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`)",
    errno.EROFS: "make {place} writable again: its file system is read-only",
    errno.EACCES: "give yourself permission to write in {place}",
    errno.EPERM: "give yourself permission to write in {place}",
    errno.EIO: "look after the disk of {place}: it answers with errors",
    errno.ENOMEM: "free memory, or raise its limit (`ulimit -v`)",
    errno.EAGAIN: "end other processes, or raise their limit (`ulimit -u`)",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "end other processes: the system has too many open files",
}
"""Error number of a failed machine to what to do next. `place`: the folder."""


def write_atomic(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write a file atomically: readers see the old or the new content. It is on disk at return.

    Follows links; writes directly to devices and pipes; keeps the mode of an existing file. `durable`: False skips
    the wait for the disk; the file may then be lost in a power failure. Raises LoopError when the write fails; the
    old file is then unchanged."""
    # Only our JSON can contain lone surrogates. A backslash escape means the same in JSON.
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    folder = folder_for_temporary(path)
    temporary = (folder or Path()) / f".{os.urandom(8).hex()}.tmp"
    try:
        if folder is None:
            path.write_bytes(data)
            return
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            raise FileExistsError(errno.ELOOP, "it is a link to itself")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        os.replace(temporary, target)
        if durable:
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except OSError as error:
        raise file_error(path, "written", error) from error
    finally:
        if folder is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def folder_for_temporary(path: Path) -> Path | None:
    """Folder in which to prepare the file that replaces `path`; None for a device or pipe: one writes into it."""
    if path.is_char_device() or path.is_fifo() or path.absolute().is_relative_to("/dev"):
        return None
    return Path(os.path.realpath(path)).parent


def file_error(
    path: Path, attempt: Literal["read", "written", "made"], error: OSError, hint: str | None = None
) -> UsageError | WorkFailed:
    """UsageError for a failed read or a wrong path, else WorkFailed. `hint` None: advice by the error number. Sets
    a missing `error.filename`: `find_machine_failure` looks at that file's folder."""
    error.filename = error.filename or str(path)
    reason = error.strerror or str(error) or type(error).__name__
    kind = UsageError if attempt == "read" or isinstance(error, WRONG_PATH_ERRORS) else WorkFailed
    advice = ADVICE.get(error.errno or 0, "").format(place=path.parent)
    return kind(f"{path}: cannot be {attempt}: {reason}", hint=hint or advice or None)


def to_json(value: Any, indent: int | None = 1) -> str:
    """JSON with a final line end; `indent` None: in one line. NaN becomes null. Control characters are escaped,
    because a terminal may print the text."""
    text = json.dumps(to_plain(value), indent=indent, ensure_ascii=False)
    return _CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def to_plain(value: Any) -> Any:
    """Convert `value` to dicts, lists and scalars of JSON: sets to sorted lists, NaN and infinity
    to None, other types to text."""
    if hasattr(value, "model_dump"):
        return to_plain(value.model_dump(mode="json", by_alias=True))
    if isinstance(value, Mapping):
        return {str(to_plain(key)): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return to_plain(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, set | frozenset):
        return sorted((to_plain(item) for item in value), key=str)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat().replace("+00:00", "Z")
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def content_hash(content: str | bytes | Iterable[str | bytes]) -> str:
    """SHA-256 (hex) of one content, or of several in order, each with its length."""
    import hashlib

    def as_bytes(part: str | bytes) -> bytes:
        return part.encode(errors="surrogateescape") if isinstance(part, str) else part

    if isinstance(content, str | bytes):
        return hashlib.sha256(as_bytes(content)).hexdigest()
    digest = hashlib.sha256()
    for part in map(as_bytes, content):
        digest.update(b"%d:" % len(part))  # Else ("ab", "c") would equal ("a", "bc").
        digest.update(part)
    return digest.hexdigest()


def hash_files(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 (hex) of contents and of names relative to `root`, in any order. LoopError: unreadable."""
    import hashlib

    parts: dict[str, bytes] = {}
    for path in paths:
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise file_error(path, "read", error) from error
        parts[path.relative_to(root).as_posix()] = digest
    return content_hash(part for pair in sorted(parts.items()) for part in pair)
