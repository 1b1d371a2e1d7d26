"""`loop patterns list`: a row each, from the files as they are. No model is imported, so that it is quick.

What is wrong with a pattern is said by `loop patterns check`, and by every command that runs one.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from loop.base.documents import load_yaml, to_json
from loop.base.errors import ExitCode
from loop.base.places import Project, project, shipped
from loop.base.screen import Screen


def list_patterns(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """All patterns, a row each."""
    chosen = project(target, Path.cwd())
    try:
        rows = _rows(chosen)
    except (KeyError, TypeError, AttributeError):
        from loop.library import definitions

        rows = [summary(read.value.model_dump(mode="json")) for read in definitions.patterns(chosen).values()]
    return show_rows(rows, screen, as_json=as_json)


def _rows(chosen: Project) -> list[dict[str, Any]]:
    """By number; a project's own pattern replaces a bundled one of its name. Raises where a file is no pattern."""
    folders = [folder for folder in (shipped("patterns"), chosen.own("patterns")) if folder]
    paths = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    named = {row["name"]: row for row in (summary(load_yaml(path).data) for path in paths)}
    return sorted(named.values(), key=lambda row: int(row["number"]))


def summary(pattern: Mapping[str, Any]) -> dict[str, Any]:
    """What a list says of a pattern. `pattern`: its fields as a file has them."""
    fields = {name: pattern[name] for name in ("name", "number", "title", "problem", "use_when")}
    return {**fields, "priority": pattern.get("priority", "P2"), "steps": len(pattern["steps"])}


def show_rows(rows: Iterable[Mapping[str, Any]], screen: Screen, *, as_json: bool) -> int:
    """Patterns as a table or as JSON."""
    if as_json:
        screen.data(to_json({"schema_version": 1, "patterns": list(rows)}))
        return ExitCode.OK
    keys = ("number", "priority", "name", "steps", "problem")
    screen.table(("#", "", "pattern", "steps", "answers"), [[row[key] for key in keys] for row in rows])
    screen.say("how each stands, and by which runs: loop patterns stats")
    return ExitCode.OK
