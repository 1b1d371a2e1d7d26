"""Checksums of what is stored: a flipped bit is damage that has a name, never another figure.

Files and lines without one were written by an older loop, and are read as they are. One that lost its checksum to
a flipped bit holds a field that no model knows, and is damaged too.
"""

import hashlib
import re
from pathlib import Path

from loop.errors import LoopError

_AT_END = re.compile(rb',\s*"sum": "([0-9a-f]{16})"\s*\}\s*\Z')


def sealed(text: str, before: str = "") -> str:
    """The text of a JSON object with its checksum as the last field; `before`: that of what comes before it."""
    body, last = text.rstrip().removesuffix("}").rstrip(), text[len(text.rstrip()) :]
    wide = "\n" if "\n" in body else ""
    return f'{body},{wide or ""} "sum": "{_sum(before, body.encode())}"{wide}}}{last}'


def opened(path: Path, data: bytes) -> bytes:
    """A file's JSON object without its checksum. Raises LoopError where the two do not belong together."""
    body, _, whole = parted(data)
    if not whole:
        hint = f"move {path.parent} aside"
        raise LoopError(f"{path}: damaged: its checksum does not match", hint=hint, exit_code=1)
    return body


def parted(data: bytes, before: str = "") -> tuple[bytes, str, bool]:
    """A JSON object without its checksum, the checksum that the next one continues, and whether they match."""
    found = _AT_END.search(data)
    if found is None:
        return data, _sum(before, data), True
    body, told = data[: found.start()], found[1].decode()
    return body + b"}", told, told == _sum(before, body)


def _sum(before: str, body: bytes) -> str:
    return hashlib.blake2b(before.encode() + body, digest_size=8).hexdigest()
