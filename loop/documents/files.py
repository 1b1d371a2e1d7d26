"""Files that are whole or not there, stable JSON, content hashes."""

import contextlib
import errno
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from loop.errors import LoopError

HINTS = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EACCES: "no permission: choose another folder, or change its owner",
}


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part; on disk when it returns.

    Raises LoopError when the disk refuses; the old file is then untouched.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        hint = HINTS.get(error.errno or 0)
        raise LoopError(f"{path}: cannot be written: {error.strerror}", hint=hint) from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def to_json(value: Any) -> str:
    """Indented JSON with a final line end. Models, mappings and sequences; NaN and infinities become null."""
    return json.dumps(plain(value), indent=1, ensure_ascii=False) + "\n"


def plain(value: Any) -> Any:
    """`value` as dicts, lists and scalars that JSON knows."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def content_hash(content: str | bytes) -> str:
    """SHA-256 of some content, in hex."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
