"""Paths of shipped files, project, caches and state. No other user can write the last two."""

import atexit
import contextlib
import functools
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from loop.base.errors import UsageError, remark_once


def explain_foreign_access(path: Path) -> str:
    """Why another user could change `path`; empty if only this user, a group and root can."""
    private_parent: Path | None = None  # Others cannot enter it: modes below it do not matter.
    trusted_users = (0, os.geteuid(), os.stat("/").st_uid)  # Also root of a user namespace.
    for entry, status, is_path_itself in _walk_down_to(path):
        if status.st_uid not in trusted_users:
            return f"{entry} belongs to user {status.st_uid}"
        if private_parent is not None and entry.is_relative_to(private_parent):
            continue
        is_world_writable = status.st_mode & stat.S_IWOTH and not stat.S_ISLNK(status.st_mode)
        # In a sticky folder, as /tmp, others cannot replace what they do not own.
        if is_world_writable and (is_path_itself or not status.st_mode & stat.S_ISVTX):
            return f"everybody can write {entry} (mode {stat.S_IMODE(status.st_mode):04o})"
        if stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o011:
            private_parent = entry
    return ""


def _walk_down_to(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """(entry, stat, is it `path`?) of parents and path, top first; then with links resolved."""
    for path_form in dict.fromkeys((path.absolute(), Path(os.path.realpath(path)))):
        for entry in (*reversed(path_form.parents), path_form):
            with contextlib.suppress(OSError):
                yield entry, os.lstat(entry), entry == path_form


def create_private(folder: Path) -> None:
    """Make a folder and missing parents with mode 0700; others keep their mode. Ignores errors."""
    missing_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    with contextlib.suppress(OSError):
        for path in reversed(missing_folders):  # Parents first.
            path.mkdir(mode=0o700, exist_ok=True)


@functools.cache
def private_folder(name: str) -> Path:
    """The temporary folder `loop-UID/NAME`; if others can write it, one until this process ends."""
    import tempfile

    folder = Path(tempfile.gettempdir()) / f"loop-{os.geteuid()}" / name
    create_private(folder)
    if folder.is_dir() and not explain_foreign_access(folder):
        return folder
    process_folder = Path(tempfile.mkdtemp(prefix="loop-"))
    atexit.register(shutil.rmtree, process_folder, ignore_errors=True)
    return process_folder


PACKAGE = Path(__file__).resolve().parents[1]
MANIFEST = "target.yaml"
WORKTREES = "worktrees"  # Subfolder of the state folder: worktrees in which sessions edit targets.
JOBS = "jobs"  # Subfolder of the state folder: jobs with their files.


def shipped(name: str) -> Path:
    """Path of a folder or file that ships with loop: `patterns` in the package or the checkout."""
    packaged = PACKAGE / "_data" / name
    return packaged if packaged.exists() else PACKAGE.parent / name


def include_folder() -> Path:
    """Folder of the header loop_kernel.h."""
    return shipped("kernels/include")


def cache_folder() -> Path:
    """Folder of builds and caches, which may be deleted: LOOP_CACHE, or the user's cache folder."""
    return _user_folder("LOOP_CACHE", "XDG_CACHE_HOME", ".cache")


def tasks_folder() -> Path:
    """Folder of targets that `loop` made from tasks in other formats, and can make again."""
    return cache_folder() / "tasks"


def state_folder() -> Path:
    """Folder of grants, worktrees and jobs: LOOP_STATE, else the user's state folder."""
    return _user_folder("LOOP_STATE", "XDG_STATE_HOME", ".local/state")


def make_folder_variables_absolute() -> None:
    """Make the user's folders absolute, as children run elsewhere. Raises as `require_unicode`."""
    for variable in ("LOOP_CACHE", "LOOP_STATE", "LOOP_SESSIONS", "TMPDIR", "HOME"):
        if os.environ.get(variable):
            os.environ[variable] = str(require_unicode(Path(os.environ[variable]).absolute()))


def require_unicode(folder: Path) -> Path:
    """The folder, if JSON records can hold its path. Raises UsageError if it is not UTF-8."""
    if os.fsencode(folder).decode(errors="ignore") != str(folder):
        raise UsageError(f"{folder}: its path is not UTF-8, so no record can name it", "rename it")
    return folder


def _user_folder(variable: str, xdg_variable: str, home_subfolder: str) -> Path:
    """The folder that `variable` names, else `loop` below `xdg_variable`, else below home; made if
    missing. If others could write it, its mode stays, and the one below home or a private temporary
    one is used, with a remark. Resolved, because paths are compared as text."""
    default = Path.home() / home_subfolder / "loop"
    xdg_folder = os.environ.get(xdg_variable)
    chosen = Path(xdg_folder).absolute() / "loop" if xdg_folder else default
    if os.environ.get(variable):
        chosen = Path(os.environ[variable]).absolute()
    create_private(chosen)
    used = chosen
    if danger := explain_foreign_access(chosen):
        create_private(default)
        used = private_folder(variable.lower()) if explain_foreign_access(default) else default
        advice = f"mend that, or name another folder with {variable}"
        remark_once(f"{chosen} is not used: {danger}. {used} is used instead; {advice}")
    return Path(os.path.realpath(used))  # Unlike `resolve` it bears a link to itself.


def shared_locks() -> Path | None:
    """Folder of the locks that all `loop` processes of this user share; None if none is private."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    for folder in (Path(runtime) / "loop", Path(f"/tmp/loop-{os.getuid()}")):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            if not explain_foreign_access(folder) and os.access(folder, os.W_OK):
                return folder
    return None
