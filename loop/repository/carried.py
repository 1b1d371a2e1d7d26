"""What another machine needs of a project: its work tree without what git ignores, and its history."""

import os
from collections.abc import Iterator
from pathlib import Path

from loop.base.errors import LoopError
from loop.repository.git import read_bytes

LOCKS = (".lock", ".tmp")


def carried(root: Path) -> tuple[str, ...]:
    """Files of a checkout, or of a folder outside git, as paths below it; with `.git` where that is a folder."""
    try:
        listed = read_bytes(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
    except LoopError:
        names = list(_below(root, root))
    there = [name for name in dict.fromkeys(names) if os.path.lexists(root / name)]
    history = [name for name in _below(root / ".git", root) if not name.endswith(LOCKS)]
    return (*there, *history)


def _below(folder: Path, root: Path) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if one != "__pycache__")
        yield from (os.path.relpath(os.path.join(where, name), root) for name in sorted(files))
        if not files and not folders:
            yield os.path.relpath(where, root)  # Git wants some of its folders though they are empty.
