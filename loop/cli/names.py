"""Shell completion: the names of variants, workload sets, patterns, plans, sessions and targets."""

import glob
from collections.abc import Callable
from pathlib import Path

import typer

from loop.base.errors import LoopError
from loop.base.places import MANIFEST, Project, find_project, shipped

Completion = Callable[[typer.Context, str], list[str]]
FOLDERS = {"patterns": "patterns", "plans": "sessions/plans"}
"""Kind of definition (and its folder in a project) to the folder shipped with loop."""


def known_names(kind: str, here: Project) -> list[str]:
    """The names of a kind, as `variants` of a manifest. Raises LoopError, KeyError or TypeError for a bad one."""
    if kind == "sessions":
        ids = [head.parent.name for head in here.sessions.glob("*/session.json")]
        return ["last", *sorted(ids, reverse=True)]  # An id begins with its date: the newest first.
    if kind in FOLDERS:
        folders = filter(None, (shipped(FOLDERS[kind]), here.definitions_folder(kind)))
        return [path.stem for folder in folders for path in sorted(folder.glob("*.yaml"))]
    from loop.base.documents import load_yaml

    return list(load_yaml(here.manifest).data[kind])


def _completion(kind: str) -> Completion:
    """A completion function for a kind of name; it completes nothing if the project is unreadable."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        target = ctx.params.get("target")
        try:
            names = known_names(kind, find_project(Path(target) if target else None, Path.cwd()))
        except (LoopError, OSError, KeyError, TypeError):
            return []
        return [name for name in names if name.startswith(incomplete)]

    return complete


def targets(incomplete: str) -> list[str]:
    """Completion of folders with a target.yaml; other folders end in a slash, to go on below them."""
    folders = sorted(glob.glob(f"{glob.escape(incomplete)}*/"))
    return [folder.rstrip("/") if (Path(folder) / MANIFEST).is_file() else folder for folder in folders]


variants = _completion("variants")
workload_sets = _completion("workloads")
patterns = _completion("patterns")
plans = _completion("plans")
sessions = _completion("sessions")
