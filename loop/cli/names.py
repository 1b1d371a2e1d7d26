"""The names that a shell completes: read from the files that define them, without models, so that it is quick."""

import glob
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from loop.base.errors import LoopError
from loop.base.places import MANIFEST, Project, project, shipped

Completion = Callable[[typer.Context, str], list[str]]


def _completion(names: Callable[[Project], Iterable[str]]) -> Completion:
    """Completes what a project names; nothing where that cannot be read: the command itself says why."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        target = ctx.params.get("target")
        try:
            found = list(names(project(Path(target) if target else None, Path.cwd())))
        except (LoopError, OSError, ValueError):
            return []
        return [name for name in found if name.startswith(incomplete)]

    return complete


def _defined(project: Project, what: str) -> Iterable[str]:
    """What a target's manifest defines: its variants, its workload sets."""
    import yaml

    try:
        read: Any = yaml.load(project.manifest.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return list(read[what])
    except (yaml.YAMLError, KeyError, TypeError):
        return []


def _files(project: Project, ours: str, own: str) -> Iterator[str]:
    """Names of definitions: those that ship with loop, and the project's."""
    for folder in filter(None, (shipped(ours), project.own(own))):
        yield from sorted(path.stem for path in folder.glob("*.yaml"))


def _sessions(project: Project) -> list[str]:
    """`last`, and ids, the newest first."""
    return ["last", *sorted((head.parent.name for head in project.sessions.glob("*/session.json")), reverse=True)]


def targets(incomplete: str) -> list[str]:
    """Folders with a manifest; others end in a slash, to go on below them."""
    folders = sorted(glob.glob(f"{glob.escape(incomplete)}*/"))
    return [folder.rstrip("/") if (Path(folder) / MANIFEST).is_file() else folder for folder in folders]


variants = _completion(lambda project: _defined(project, "variants"))
workload_sets = _completion(lambda project: _defined(project, "workloads"))
patterns = _completion(lambda project: _files(project, "patterns", "patterns"))
plans = _completion(lambda project: _files(project, "sessions/plans", "plans"))
sessions = _completion(_sessions)
