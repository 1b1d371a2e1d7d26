"""Files of a project to send to another machine, and branches of sessions to take back from it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from loop.base.errors import LoopError, UsageError
from loop.repository.git import OFFLINE, git, git_bytes

LOCK_ENDINGS = (".lock", ".tmp")
GIT_ENTRIES = ("HEAD", "packed-refs", "index", "shallow", "info", "logs", "lfs", "objects", "refs", "reftable")
"""Entries of `.git` to send: no hooks, no submodule repositories, no configuration file."""
SENT_SETTINGS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|symlinks|ignorecase|autocrlf|eol|safecrlf|precomposeunicode)"
    r"|extensions\.(objectformat|refstorage)|filter\..*|user\.(name|email)"
)
"""Git settings to send: storage format and user. Others may contain passwords or addresses."""
SESSION_BRANCHES = "refs/heads/loop/*"  # Branches that hold the kept changes of sessions.
VERIFY_OBJECTS = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "transfer.fsckObjects",
    "GIT_CONFIG_VALUE_0": "true",
}
"""Lets git verify objects that come from another machine."""


def list_files_to_send(root: Path) -> tuple[str, ...]:
    """Files to send, relative to `root`: those that git does not ignore, submodules included, and its
    history from `.git`. Outside git: all files. Without history if `.git` is no folder. Raises UsageError if the
    repository borrows objects of another one, which is not sent."""
    alternates = root / ".git" / "objects" / "info" / "alternates"
    if alternates.is_file() and alternates.read_text().strip():
        remedy = f"give it objects of its own: git -C {root} repack -a -d && rm {alternates}"
        raise UsageError(f"{root} borrows objects of another repository ({alternates})", remedy)
    files = [name for name in dict.fromkeys(_work_tree_files(root)) if os.path.lexists(root / name)]
    for name in _files_below(root / ".git", root):
        git_entry = name.split("/")[1]
        if (git_entry in GIT_ENTRIES or git_entry.startswith("sharedindex.")) and not name.endswith(LOCK_ENDINGS):
            files.append(name)
    return tuple(files)


def git_config_to_send(root: Path) -> str:
    """The text of `.git/config` to send, without secrets; empty if `.git` is no folder."""
    if not (root / ".git").is_dir():
        return ""
    listed = git(root, "config", "--local", "--list", "-z").split("\0")
    lines = []
    for name, _, value in (row.partition("\n") for row in listed):
        section, _, subsection_and_key = name.partition(".")
        subsection, _, key = subsection_and_key.rpartition(".")
        if SENT_SETTINGS.fullmatch(name):
            head = f"{section} {_quoted(subsection)}" if subsection else section
            lines.append(f"[{head}]\n\t{key} = {_quoted(value)}\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    """Quote text for git's configuration file."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _work_tree_files(root: Path) -> Iterator[str]:
    """Files that git does not ignore, nested repositories included; all files outside git."""
    try:
        listed = git_bytes(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except LoopError:
        yield from _files_below(root, root)
        return
    for name in (os.fsdecode(name).rstrip("/") for name in listed.split(b"\0") if name):
        if (root / name / ".git").exists() and not (root / name).is_symlink():
            yield from (f"{name}/{inner}" for inner in _work_tree_files(root / name))
        else:
            yield name


def fetch_session_branches(root: Path, bundle: Path) -> tuple[str, ...]:
    """Fetch the session branches from a git bundle; return the names of new and changed ones. The
    user's branches stay unchanged. Raises WorkFailed for a damaged bundle or a diverged branch."""
    old_commits = _session_branches(root)
    options = ("--quiet", "--no-tags", "--no-write-fetch-head")
    arguments = ("fetch", *options, "--", str(bundle), f"{SESSION_BRANCHES}:{SESSION_BRANCHES}")
    git(root, *arguments, variables={**OFFLINE, **VERIFY_OBJECTS})
    return tuple(name for name, commit in _session_branches(root).items() if old_commits.get(name) != commit)


def _session_branches(root: Path) -> dict[str, str]:
    """Name of each session branch to its commit's hash."""
    listed = git(root, "for-each-ref", "--format=%(refname:short) %(objectname)", SESSION_BRANCHES[:-2])
    return dict(line.rsplit(" ", 1) for line in listed.splitlines())


def _files_below(folder: Path, root: Path) -> Iterator[str]:
    """All files and empty folders below `folder`, as paths relative to `root`."""
    for subfolder, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (os.path.relpath(os.path.join(subfolder, name), root) for name in sorted(files))
        if not files and not folders:
            yield os.path.relpath(subfolder, root)  # Git needs some of its folders even if empty.
