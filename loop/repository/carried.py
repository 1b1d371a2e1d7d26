"""What another machine needs of a project: its work tree and history. What it gives back: branches of sessions."""

import os
from collections.abc import Iterator
from pathlib import Path

from loop.base.errors import LoopError
from loop.repository.git import OFFLINE, git, read_bytes

LOCKS = (".lock", ".tmp")
OURS = "refs/heads/loop/*"
"""Branches that sessions keep changes on."""
CHECKED = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "transfer.fsckObjects", "GIT_CONFIG_VALUE_0": "true"}
"""Objects of another machine are looked at before they are believed."""


def carried(root: Path) -> tuple[str, ...]:
    """Files of a checkout, or of a folder outside git, as paths below it; with `.git` where that is a folder."""
    try:
        listed = read_bytes(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
    except LoopError:
        names = list(_below(root, root))
    there = [name for name in dict.fromkeys(names) if os.path.lexists(root / name)]
    history = [name for name in _below(root / ".git", root) if not name.endswith(LOCKS)]
    return (*there, *(name for name in history if not name.startswith(".git/worktrees/")))


def take_branches(root: Path, bundle: Path) -> tuple[str, ...]:
    """Take the branches of sessions over from a bundle; their names. None of the user's is touched.

    Raises WorkFailed for a bundle that is damaged, and for a branch that went another way here.
    """
    before = _ours(root)
    words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", str(bundle), f"{OURS}:{OURS}")
    git(root, *words, variables={**OFFLINE, **CHECKED})
    return tuple(name for name, commit in _ours(root).items() if before.get(name) != commit)


def _ours(root: Path) -> dict[str, str]:
    lines = git(root, "for-each-ref", "--format=%(refname:short) %(objectname)", OURS[:-2]).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines)


def _below(folder: Path, root: Path) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if one != "__pycache__")
        yield from (os.path.relpath(os.path.join(where, name), root) for name in sorted(files))
        if not files and not folders:
            yield os.path.relpath(where, root)  # Git wants some of its folders though they are empty.
