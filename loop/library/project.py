"""Which target a command works on, and the folders that belong to it."""

import os
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import UsageError
from loop.base.places import MANIFEST, PACKAGE, require_unicode, shipped, tasks_folder

BUNDLED_TARGET = "kernels/attention"


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

    def definitions_folder(self, kind: str) -> Path | None:
        """The project's own `patterns`, `plans` or `templates` (`kind`); None if it has none, or is bundled."""
        folder = self.target / kind
        return folder if not self.bundled and folder.is_dir() else None


def find_project(target: Path | None, current_folder: Path) -> Project:
    """The project of `target` (folder or manifest), else `current_folder`, else the bundled. Sessions of a target
    that ships or that `loop` made are stored with the checkout or the current folder, others with their target.
    Raises UsageError if `target` has no manifest."""
    is_in_checkout = _is_in_checkout(current_folder)
    sessions_parent = PACKAGE.parent if is_in_checkout else current_folder.absolute()
    default_sessions = _sessions_folder(sessions_parent)
    if target is None:
        if not (current_folder / MANIFEST).is_file():
            return Project(shipped(BUNDLED_TARGET), default_sessions, bundled=True)
        target = current_folder
    folder = require_unicode((target.parent if target.name == MANIFEST else target).absolute())
    if not (folder / MANIFEST).is_file():
        problem = f"no {MANIFEST} there" if folder.exists() else "no such file or folder"
        raise UsageError(f"{folder}: {problem}", hint="loop init makes one: loop init --help")
    bundled = folder.resolve() == shipped(BUNDLED_TARGET).resolve()
    is_made_by_loop = bundled or folder.parent == tasks_folder()
    sessions = default_sessions if is_made_by_loop else _sessions_folder(folder)
    return Project(folder.resolve(), sessions, bundled)


def require_named_target(target: Path | None, current_folder: Path, verb: str) -> None:
    """Raise UsageError if no target is named or here, for commands that edit or search one: outside the checkout,
    the bundled one is no default. `verb`: what the command does, for the message."""
    is_bundled = target is None and find_project(None, current_folder).bundled
    if is_bundled and not _is_in_checkout(current_folder):
        own_target = f"loop's own is --target {shipped(BUNDLED_TARGET)}"
        raise UsageError(
            f"{current_folder}: no {MANIFEST} here, so there is no target to {verb}",
            hint=f"--target FOLDER, or cd to it; loop init makes one; {own_target}",
        )


def _is_in_checkout(folder: Path) -> bool:
    checkout = PACKAGE.parent
    return (checkout / "pyproject.toml").is_file() and folder.resolve().is_relative_to(checkout)


def target_options(folder: Path) -> list[str]:
    """Words that name a target in a command: `--target FOLDER`; empty for the bundled one."""
    is_bundled = folder.resolve() == shipped(BUNDLED_TARGET).resolve()
    return [] if is_bundled else ["--target", str(folder)]


def _sessions_folder(folder: Path) -> Path:
    """Where sessions are stored, resolved: LOOP_SESSIONS, else `sessions` in `folder`. Raises UsageError for a
    file there, and for a link that leads to no folder."""
    place = Path(os.environ.get("LOOP_SESSIONS") or folder / "sessions").absolute()
    if os.path.lexists(place) and not os.path.isdir(place):
        hint = "move it away, or name a folder for sessions with LOOP_SESSIONS"
        raise UsageError(f"{place}: no folder, so that no session can be there", hint)
    return place.resolve()
