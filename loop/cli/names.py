"""Names that a shell completes, read without models from the files that define them: that is quick."""

import glob
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from loop.base.errors import LoopError
from loop.base.places import MANIFEST, Project, project, shipped

Completion = Callable[[typer.Context, str], list[str]]
FOLDERS = {"pattern": ("patterns", "patterns"), "plan": ("sessions/plans", "plans")}
"""Kind of a definition to the folders that hold it: of those that ship with loop, and of a project's own."""


def known_names(kind: str, here: Project) -> list[str]:
    """What a project names of a kind; empty where its manifest cannot be read: the command itself says why."""
    if kind == "session":  # The newest first.
        return ["last", *sorted((head.parent.name for head in here.sessions.glob("*/session.json")), reverse=True)]
    if kind in FOLDERS:
        bundled, own = FOLDERS[kind]
        folders = filter(None, (shipped(bundled), here.own(own)))
        return [path.stem for folder in folders for path in sorted(folder.glob("*.yaml"))]
    import yaml

    try:
        read: Any = yaml.load(here.manifest.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return list(read["variants" if kind == "variant" else "workloads"])
    except (yaml.YAMLError, KeyError, TypeError):
        return []


def _completion(kind: str) -> Completion:
    """Completes what a project names; nothing where that cannot be read."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        target = ctx.params.get("target")
        try:
            known = known_names(kind, project(Path(target) if target else None, Path.cwd()))
        except (LoopError, OSError, ValueError):
            return []
        return [name for name in known if name.startswith(incomplete)]

    return complete


def targets(incomplete: str) -> list[str]:
    """Folders with a manifest; others end in a slash, to go on below them."""
    folders = sorted(glob.glob(f"{glob.escape(incomplete)}*/"))
    return [folder.rstrip("/") if (Path(folder) / MANIFEST).is_file() else folder for folder in folders]


variants = _completion("variant")
workload_sets = _completion("workload set")
patterns = _completion("pattern")
plans = _completion("plan")
sessions = _completion("session")
