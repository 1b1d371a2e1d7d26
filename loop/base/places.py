"""Paths of shipped files, project, caches and state, with checks that no other user can write there."""

import atexit
import contextlib
import functools
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import UsageError, remark_once


def who_else_may_write(path: Path) -> str:
    """Why another user could change `path`, in words; empty if only this user, a group and root can."""
    closed: Path | None = None
    for entry, facts, last in _way(path):
        if facts.st_uid not in (0, os.geteuid(), os.stat("/").st_uid):  # Also root of a user namespace.
            return f"{entry} belongs to user {facts.st_uid}"
        if closed is not None and entry.is_relative_to(closed):
            continue
        for_all = facts.st_mode & stat.S_IWOTH and not stat.S_ISLNK(facts.st_mode)
        if for_all and (last or not facts.st_mode & stat.S_ISVTX):
            return f"everybody can write {entry} (mode {stat.S_IMODE(facts.st_mode):04o})"
        if stat.S_ISDIR(facts.st_mode) and not facts.st_mode & 0o011:  # Others cannot enter it.
            closed = entry
    return ""


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Existing parent folders of a path (also resolved), top first, then the path: (entry, stat, is path)."""
    for end in dict.fromkeys((path.absolute(), Path(os.path.realpath(path)))):
        for entry in (*reversed(end.parents), end):
            with contextlib.suppress(OSError):
                yield entry, os.lstat(entry), entry == end


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700. Ignores errors."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    with contextlib.suppress(OSError):
        for place in reversed(missing):
            place.mkdir(mode=0o700, exist_ok=True)


@functools.cache
def private_folder(name: str) -> Path:
    """A temporary folder `loop-UID/NAME`. If another user can write it: a new one for this process."""
    import tempfile

    folder = Path(tempfile.gettempdir()) / f"loop-{os.geteuid()}" / name
    make_private(folder)
    if folder.is_dir() and not who_else_may_write(folder):
        return folder
    alone = Path(tempfile.mkdtemp(prefix="loop-"))
    atexit.register(shutil.rmtree, alone, ignore_errors=True)
    return alone


PACKAGE = Path(__file__).resolve().parents[1]
BUNDLED_TARGET = "kernels/attention"
MANIFEST = "target.yaml"
WORKTREES = "worktrees"
"""Subfolder of the state folder: worktrees in which sessions edit targets."""
JOBS = "jobs"
"""Subfolder of the state folder: jobs with their files."""


def shipped(name: str) -> Path:
    """Path of a shipped folder or file, such as `patterns`: in the package, else in the checkout."""
    packaged = PACKAGE / "_data" / name
    return packaged if packaged.exists() else PACKAGE.parent / name


def include_folder() -> Path:
    """Folder of the header loop_kernel.h."""
    return shipped("kernels/include")


def cache_folder() -> Path:
    """Folder of builds and caches, safe to delete: LOOP_CACHE, else the user's cache folder. Private."""
    return _folder("LOOP_CACHE", "XDG_CACHE_HOME", ".cache")


def tasks_folder() -> Path:
    """Folder of targets that `loop` made from tasks in other formats. `loop` can make them again."""
    return cache_folder() / "tasks"


def state_folder() -> Path:
    """Folder of grants, worktrees and jobs: LOOP_STATE, else the user's state folder. Private."""
    return _folder("LOOP_STATE", "XDG_STATE_HOME", ".local/state")


def config_folder() -> Path:
    """Folder of the user's settings for all projects (`hosts.yaml`): `loop` in XDG_CONFIG_HOME or ~/.config."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config").absolute() / "loop"


def _folder(own: str, shared: str, default: str) -> Path:
    """The folder in variable `own`, else `loop` below that in `shared`, else below `~/default`.
    If others could write there: a private folder instead, with a remark."""
    usual = Path.home() / default / "loop"
    base = os.environ.get(shared)
    wanted = Path(base).absolute() / "loop" if base else usual
    wanted = Path(os.environ[own]).absolute() if os.environ.get(own) else wanted
    make_private(wanted)
    why = who_else_may_write(wanted)
    if not why:
        return wanted
    make_private(usual)
    used = usual if usual != wanted and not who_else_may_write(usual) else private_folder(own.lower())
    remark_once(
        f"{wanted} is not used: {why}. {used} is used instead; mend that, or name another folder with {own}"
    )
    return used


def shared_locks() -> Path | None:
    """Lock folder that all `loop` processes of this user share; None if no private one can be made."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    for folder in (Path(runtime) / "loop", Path(f"/tmp/loop-{os.getuid()}")):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            if not who_else_may_write(folder) and os.access(folder, os.W_OK):
                return folder
    return None


@dataclass(frozen=True)
class Project:
    """A target and the folders that belong to it."""

    target: Path
    sessions: Path
    bundled: bool
    """True for the target that ships with loop."""

    @property
    def manifest(self) -> Path:
        """Path of the target's manifest, `target.yaml`."""
        return self.target / MANIFEST

    def own(self, name: str) -> Path | None:
        """The project's folder `patterns`, `plans` or `templates`; None if it has none."""
        folder = self.target / name
        return folder if not self.bundled and folder.is_dir() else None


def project(target: Path | None, here: Path) -> Project:
    """The project to work on: folder or manifest `target`, else `here`, else the bundled target.

    Raises UsageError when `target` has no manifest.
    """
    around = _sessions(PACKAGE.parent if _in_checkout(here) else here.absolute())
    chosen = target if target is not None else (here if (here / MANIFEST).is_file() else None)
    if chosen is None:
        return Project(shipped(BUNDLED_TARGET), around, bundled=True)
    folder = chosen.parent if chosen.name == MANIFEST else chosen
    folder = folder.absolute()
    if not (folder / MANIFEST).is_file():
        what = f"no {MANIFEST} there" if folder.exists() else "no such file or folder"
        raise UsageError(f"{folder}: {what}", hint="loop init makes one: loop init --help")
    bundled = folder.resolve() == shipped(BUNDLED_TARGET).resolve()
    elsewhere = bundled or folder.parent == tasks_folder()
    return Project(folder.resolve(), around if elsewhere else _sessions(folder), bundled)


def refuse_unnamed(target: Path | None, here: Path, what: str) -> None:
    """Raises UsageError if there is no target: the bundled one is not meant. `what`: the command's verb."""
    if project(target, here).bundled and target is None and not _in_checkout(here):
        own = f"loop's own is --target {shipped(BUNDLED_TARGET)}"
        raise UsageError(
            f"{here}: no {MANIFEST} here, so there is no target to {what}",
            hint=f"--target FOLDER, or cd to it; loop init makes one; {own}",
        )


def _in_checkout(here: Path) -> bool:
    """Whether `here` is inside the checkout of `loop` itself."""
    checkout = PACKAGE.parent
    return (checkout / "pyproject.toml").is_file() and here.resolve().is_relative_to(checkout)


def target_words(folder: Path) -> list[str]:
    """Words that name a target in a command: `--target FOLDER`; empty for the bundled one."""
    return [] if folder.resolve() == shipped(BUNDLED_TARGET).resolve() else ["--target", str(folder)]


def _sessions(folder: Path) -> Path:
    """The sessions folder: LOOP_SESSIONS, else `sessions` in `folder`."""
    chosen = os.environ.get("LOOP_SESSIONS")
    return Path(chosen).absolute() if chosen else folder / "sessions"
