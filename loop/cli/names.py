"""Names that a shell completes, or that a user mistyped: read without models from the files that define them.

A mistyped name is refused before anything large is imported: that takes more than a second.
"""

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any

import typer

from loop.base.errors import LoopError, UsageError, one_of
from loop.base.places import MANIFEST, Project, project, shipped

Completion = Callable[[typer.Context, str], list[str]]


def _completion(names: Callable[[Project], Iterable[str]]) -> Completion:
    """Completes what a project names; nothing where that cannot be read: the command itself says why."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        target = ctx.params.get("target")
        try:
            known = list(names(project(Path(target) if target else None, Path.cwd())))
        except (LoopError, OSError, ValueError):
            return []
        return [name for name in known if name.startswith(incomplete)]

    return complete


def _defined(project: Project, what: str) -> Iterable[str]:
    """What a target's manifest defines: its variants, its workload sets."""
    import yaml

    try:
        read: Any = yaml.load(project.manifest.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return list(read[what])
    except (yaml.YAMLError, KeyError, TypeError):
        return []


def _files(project: Project, bundled: str, own: str) -> Iterator[str]:
    """Names of definitions: those that ship with loop, and the project's."""
    for folder in filter(None, (shipped(bundled), project.own(own))):
        yield from sorted(path.stem for path in folder.glob("*.yaml"))


def _sessions(project: Project) -> list[str]:
    """`last`, and ids, the newest first."""
    return ["last", *sorted((head.parent.name for head in project.sessions.glob("*/session.json")), reverse=True)]


def targets(incomplete: str) -> list[str]:
    """Folders with a manifest; others end in a slash, to go on below them."""
    folders = sorted(glob.glob(f"{glob.escape(incomplete)}*/"))
    return [folder.rstrip("/") if (Path(folder) / MANIFEST).is_file() else folder for folder in folders]


NAMES: dict[str, Callable[[Project], Iterable[str]]] = {
    "variant": lambda project: _defined(project, "variants"),
    "workload set": lambda project: _defined(project, "workloads"),
    "pattern": lambda project: _files(project, "patterns", "patterns"),
    "plan": lambda project: _files(project, "sessions/plans", "plans"),
    "session": _sessions,
}
"""Kind of names to the function that lists them."""
variants = _completion(NAMES["variant"])
workload_sets = _completion(NAMES["workload set"])
patterns = _completion(NAMES["pattern"])
plans = _completion(NAMES["plan"])
sessions = _completion(_sessions)
REFUSED = {
    variants: "variant",
    workload_sets: "workload set",
    patterns: "pattern",
    plans: "plan",
    sessions: "session",
}
"""Completion of a parameter to the kind of its values: one that is not there is refused."""


def refuse_unknown(parameters: Iterable[Parameter], values: Mapping[str, Any]) -> None:
    """Raise UsageError for a target, variant, workload set, pattern, plan or session that is not there."""
    target = values.get("target")
    if target is not None and target.name != MANIFEST and not (target / MANIFEST).is_file():
        if not target.exists():
            project(target, Path.cwd())  # Raises; a task in another format has names of its own.
        return
    for parameter in parameters:
        value, completed = values.get(parameter.name), parameter.annotation.__metadata__[0].autocompletion
        if value and completed in REFUSED:
            kind, here = REFUSED[completed], project(target, Path.cwd())
            known = list(NAMES[kind](here))
            for name in (value,) if isinstance(value, str) else value:
                if known and not _is_known(kind, name, known, here):
                    raise _unknown(kind, name, known, here)


def _is_known(kind: str, name: str, known: Sequence[str], here: Project) -> bool:
    """Whether a name may exist: a workload may be given by its sizes, a session by the beginning of its id."""
    if kind == "workload set":
        return name in known or not re.fullmatch("[a-z][a-z0-9_-]*", name)
    if kind != "session":
        return name in known
    imported = any(True for _ in here.sessions.glob("*/recorded.json"))  # They have other names, too.
    ids = known[1:]
    return imported or any(session.startswith(name) or name.startswith("last") for session in ids)


def _unknown(kind: str, name: str, known: Sequence[str], here: Project) -> UsageError:
    from loop.base.documents import did_you_mean

    if kind == "session":
        newest = one_of(known[5:0:-1], "`loop run session` makes one")
        return UsageError(f"{here.sessions}: no session {name}", hint=newest)
    of = f"target {here.target.name} has " if kind in ("variant", "workload set") else ""
    return UsageError(f"{of}no {kind} {name!r}", did_you_mean(name, known) or f"there are {', '.join(known)}")
