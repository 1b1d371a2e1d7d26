"""Names that a shell completes, or that a user mistyped: read without models from the files that define them.

A mistyped name is refused before anything large is imported: that takes more than a second.
"""

import glob
import re
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

import typer

from loop.base.errors import LoopError, UsageError, one_of
from loop.base.places import MANIFEST, Project, project, shipped

Completion = Callable[[typer.Context, str], list[str]]
REFUSED: dict[Completion, str] = {}
"""Completion of a parameter to the kind of its values: one that is not there is refused."""
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

    REFUSED[complete] = kind
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


def refuse_unknown(parameters: Iterable[Parameter], values: Mapping[str, Any]) -> None:
    """Raise UsageError for a target, variant, workload set, pattern, plan or session that is not there."""
    target = values.get("target")
    if target is not None and target.name != MANIFEST and not (target / MANIFEST).is_file():
        if not target.exists():
            project(target, Path.cwd())  # Raises; a task in another format has names of its own.
        return
    for parameter in parameters:
        value, completed = values.get(parameter.name), parameter.annotation.__metadata__[0].autocompletion
        if not value or completed not in REFUSED:
            continue
        kind, here = REFUSED[completed], project(target, Path.cwd())
        known = known_names(kind, here)
        for name in (value,) if isinstance(value, str) else value:
            if known and name not in known and not _may_be(kind, name, known, here):
                from loop.base.documents import did_you_mean

                if kind == "session":
                    newest = one_of(known[5:0:-1], "`loop run session` makes one")
                    raise UsageError(f"{here.sessions}: no session {name}", hint=newest)
                of = f"target {here.target.name} has " if kind in ("variant", "workload set") else ""
                hint = did_you_mean(name, known) or f"there are {', '.join(known)}"
                raise UsageError(f"{of}no {kind} {name!r}", hint)


def _may_be(kind: str, name: str, known: list[str], here: Project) -> bool:
    """Whether a name may exist: a workload may be given by its sizes, a session by the beginning of its id."""
    if kind == "workload set":
        return not re.fullmatch("[a-z][a-z0-9_-]*", name)
    if kind != "session":
        return False
    imported = any(True for _ in here.sessions.glob("*/recorded.json"))  # They have other names, too.
    return imported or any(session.startswith(name) or name.startswith("last") for session in known[1:])
