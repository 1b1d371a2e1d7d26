"""Reads names of variants, plans and so on for shell completion and for errors about mistyped names.

It reads YAML without pydantic models: importing those takes more than a second.
"""

import glob
import re
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

import typer

from loop.base.errors import LoopError, UsageError, list_choices
from loop.base.places import MANIFEST, Project, find_project, shipped

Completion = Callable[[typer.Context, str], list[str]]
KIND_BY_COMPLETION: dict[Completion, str] = {}
"""Completion function of a parameter to the kind of name it takes; unknown names are refused."""
FOLDERS = {"pattern": ("patterns", "patterns"), "plan": ("sessions/plans", "plans")}
"""Kind of definition to its two folders: the one shipped with loop, and the project's own."""


def known_names(kind: str, here: Project) -> list[str]:
    """The names of a kind in a project; empty if its manifest is unreadable (the command reports that)."""
    if kind == "session":
        ids = [head.parent.name for head in here.sessions.glob("*/session.json")]
        return ["last", *sorted(ids, reverse=True)]  # An id begins with its date: the newest first.
    if kind in FOLDERS:
        shipped_folder, own_folder = FOLDERS[kind]
        folders = filter(None, (shipped(shipped_folder), here.definitions_folder(own_folder)))
        return [path.stem for folder in folders for path in sorted(folder.glob("*.yaml"))]
    try:
        return list(load_unchecked(here.manifest)["variants" if kind == "variant" else "workloads"])
    except (ValueError, KeyError, TypeError):
        return []


def load_unchecked(path: Path) -> Any:
    """The data of a YAML file, by PyYAML's own loader, which is quick. Raises ValueError and OSError."""
    import yaml

    try:
        return yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _completion(kind: str) -> Completion:
    """A completion function for a kind of name; it completes nothing if the project is unreadable."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        target = ctx.params.get("target")
        try:
            names = known_names(kind, find_project(Path(target) if target else None, Path.cwd()))
        except (LoopError, OSError, ValueError):
            return []
        return [name for name in names if name.startswith(incomplete)]

    KIND_BY_COMPLETION[complete] = kind
    return complete


def targets(incomplete: str) -> list[str]:
    """Completion of folders with a target.yaml; other folders end in a slash, to go on below them."""
    folders = sorted(glob.glob(f"{glob.escape(incomplete)}*/"))
    return [folder.rstrip("/") if (Path(folder) / MANIFEST).is_file() else folder for folder in folders]


variants = _completion("variant")
workload_sets = _completion("workload set")
patterns = _completion("pattern")
plans = _completion("plan")
sessions = _completion("session")


def refuse_unknown(parameters: Iterable[Parameter], values: Mapping[str, Any]) -> None:
    """Raise UsageError for an unknown target, variant, workload set, pattern, plan or session."""
    target = values.get("target")
    if target is not None and target.name != MANIFEST and not (target / MANIFEST).is_file():
        if not target.exists():
            find_project(target, Path.cwd())  # Raises. A task in another format is checked elsewhere.
        return
    for parameter in parameters:
        value = values.get(parameter.name)
        kind = KIND_BY_COMPLETION.get(parameter.annotation.__metadata__[0].autocompletion)
        if not value or kind is None:
            continue
        here = find_project(target, Path.cwd())
        names = known_names(kind, here)
        for name in (value,) if isinstance(value, str) else value:
            if names and name not in names and not _may_be_valid(kind, name, names, here):
                from loop.base.documents import did_you_mean

                if kind == "session":  # Name the five newest, the newest last; `names` begins with `last`.
                    hint = list_choices(names[5:0:-1], "`loop run session` makes one")
                    raise UsageError(f"{here.sessions}: no session {name}", hint=hint)
                owner = f"target {here.target.name} has " if kind in ("variant", "workload set") else ""
                hint = did_you_mean(name, names) or f"there are {', '.join(names)}"
                raise UsageError(f"{owner}no {kind} {name!r}", hint)


def _may_be_valid(kind: str, name: str, names: list[str], here: Project) -> bool:
    """Whether an unlisted name may be valid: a workload given by sizes, or a prefix of a session's id."""
    if kind == "workload set":
        return not re.fullmatch("[a-z][a-z0-9_-]*", name)
    if kind != "session":
        return False
    has_imported = any(
        True for _ in here.sessions.glob("*/recorded.json")
    )  # Not in `names`, which begins with `last`.
    return has_imported or any(session.startswith(name) or name.startswith("last") for session in names[1:])
