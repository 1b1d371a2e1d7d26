"""What another machine needs of a project: its work tree and history. What it gives back: branches of sessions."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from loop.base.errors import LoopError, UsageError
from loop.repository.git import OFFLINE, git, read_bytes

LOCKS = (".lock", ".tmp")
HISTORY = ("HEAD", "packed-refs", "index", "shallow", "info", "logs", "lfs", "objects", "refs", "reftable")
"""What of `.git` another machine needs: no hooks, no other repositories, and no configuration as it is."""
SETTINGS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|symlinks|ignorecase|autocrlf|eol|safecrlf|precomposeunicode)"
    r"|extensions\.(objectformat|refstorage)|filter\..*|user\.(name|email)"
)
"""Settings that say how files are kept, and by whom; any other may hold a password or an address."""
OURS = "refs/heads/loop/*"
"""Branches that sessions keep changes on."""
CHECKED = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "transfer.fsckObjects", "GIT_CONFIG_VALUE_0": "true"}
"""Objects of another machine are looked at before they are believed."""


def carried_files(root: Path) -> tuple[str, ...]:
    """Files of a checkout with its submodules, or of a folder outside git, as paths below it; with their history
    where `.git` is a folder.

    Raises UsageError where that borrows from another repository, which is not sent.
    """
    borrows = root / ".git" / "objects" / "info" / "alternates"
    if borrows.is_file() and borrows.read_text().strip():
        mend = f"give it objects of its own: git -C {root} repack -a -d && rm {borrows}"
        raise UsageError(f"{root} borrows objects of another repository ({borrows})", mend)
    there = [name for name in dict.fromkeys(_work_tree(root)) if os.path.lexists(root / name)]
    for name in _below(root / ".git", root):
        part = name.split("/")[1]
        if (part in HISTORY or part.startswith("sharedindex.")) and not name.endswith(LOCKS):
            there.append(name)
    return tuple(there)


def settings(root: Path) -> str:
    """The text of `.git/config` for another machine, without anything secret; empty where `.git` is no folder."""
    if not (root / ".git").is_dir():
        return ""
    listed = git(root, "config", "--local", "--list", "-z").split("\0")
    lines = []
    for name, _, value in (row.partition("\n") for row in listed):
        section, _, rest = name.partition(".")
        below, _, key = rest.rpartition(".")
        if SETTINGS.fullmatch(name):
            lines += [f"[{section} {_quoted(below)}]" if below else f"[{section}]", f"\t{key} = {_quoted(value)}"]
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    """Text as git's configuration has it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _work_tree(root: Path) -> Iterator[str]:
    """What git does not ignore, also in repositories within this one."""
    try:
        listed = read_bytes(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except LoopError:
        yield from _below(root, root)
        return
    for name in (os.fsdecode(name).rstrip("/") for name in listed.split(b"\0") if name):
        if (root / name / ".git").exists() and not (root / name).is_symlink():
            yield from (f"{name}/{inner}" for inner in _work_tree(root / name))
        else:
            yield name


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
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (os.path.relpath(os.path.join(where, name), root) for name in sorted(files))
        if not files and not folders:
            yield os.path.relpath(where, root)  # Git wants some of its folders though they are empty.
