"""Checksums of stored JSON: a flipped bit is reported as damage, not read as another number."""

import errno
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from loop.base.documents import to_json, write_atomic
from loop.base.errors import WorkFailed

_CHECKSUM_AT_END = re.compile(rb',\s*"sum": "([0-9a-f]{16})"\s*\}\s*\Z')
T = TypeVar("T", bound=BaseModel)


def write_sealed(path: Path, value: Any) -> None:
    """Write a JSON object with its checksum (see `write_atomic`). Raises LoopError if it fails."""
    write_atomic(path, with_checksum(to_json(value)))


def read_sealed(model: type[T], path: Path, hint: str = "move it aside") -> T:
    """A file of `write_sealed` as a model; drops unknown fields. Raises OSError or LoopError."""
    try:
        body = without_checksum(path, read_regular(path), hint)
        return model.model_validate_json(body, strict=False, extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        complaint = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        raise WorkFailed(f"{path}: damaged, or of another format: {complaint}", hint) from error


def read_regular(path: Path) -> bytes:
    """Read a regular file. Raises OSError for a pipe or device, whose reading may never end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    return path.read_bytes()


def with_checksum(text: str, previous_checksum: str = "") -> str:
    """A JSON object's text with a checksum, which covers the `previous_checksum` in a chain."""
    body, line_end = text.rstrip().removesuffix("}").rstrip(), text[len(text.rstrip()) :]
    newline = "\n" if "\n" in body else ""
    checksum = _checksum(previous_checksum, body.encode())
    return f'{body},{newline} "sum": "{checksum}"{newline}}}{line_end}'


def without_checksum(path: Path, data: bytes, hint: str = "") -> bytes:
    """JSON `data` of file `path`, without its checksum. Raises LoopError if that is wrong."""
    body, _, is_intact = split_checksum(data)
    if not is_intact:
        hint = hint or f"move {path.parent} aside"
        raise WorkFailed(f"{path}: damaged: its checksum does not match", hint=hint)
    return body


def split_checksum(data: bytes, previous_checksum: str = "") -> tuple[bytes, str, bool]:
    """Split a JSON object into (object without checksum, checksum or "", whether it is right)."""
    match = _CHECKSUM_AT_END.search(data)
    if match is None:
        return data, "", False
    body, checksum = data[: match.start()], match[1].decode()
    return body + b"}", checksum, checksum == _checksum(previous_checksum, body)


def _checksum(previous_checksum: str, body: bytes) -> str:
    """16 hexadecimal digits that depend on these bytes and on the object before."""
    return hashlib.blake2b(previous_checksum.encode() + body, digest_size=8).hexdigest()
