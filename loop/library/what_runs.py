"""What of a project's definitions decides which code runs, a line each; the rest is data."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loop.base.documents import content_hash, load_yaml
from loop.base.errors import LoopError
from loop.base.places import Project
from loop.library.made_of import MADE
from loop.library.response_files import named_by

DEFINITIONS = ("patterns", "plans", "templates")
DATA = {
    "target": (
        "tolerance", "workloads", "values", "flops", "bytes", "memory", "dtypes", "devices.*.*",
        "signature.words", "signature.shorthand",
        "variants.*.title", "variants.*.role", "variants.*.takes", "variants.*.deterministic", "variants.*.dtypes",
        "variants.*.launch", "variants.*.budgets",
        "components.*.title", "components.*.tolerance", "components.*.workloads", "components.*.values",
        "tuning.*.title", "tuning.*.workloads",
    ),
    "patterns": (
        "number", "title", "priority", "problem", "use_when", "estimate", "without", "evidence",
        "steps.*.title", "steps.*.budget_s", "steps.*.limit_s", "steps.*.skipped_because",
    ),
    "plans": ("title", "workloads", "checks", "budget", "phases"),
}  # fmt: skip
"""Keys that name no program, file, module, function, flag, environment or argument. Any other key counts."""


def definition_files(project: Project) -> list[Path]:
    """The files that decide what runs."""
    return [*_written(project), *sorted(flag_files(project))]


def _written(project: Project) -> list[Path]:
    """The definitions themselves."""
    folders = [folder for name in DEFINITIONS if (folder := project.own(name))]
    return [
        project.manifest,
        *(path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()),
    ]


def flag_files(project: Project) -> dict[Path, str]:
    """Files that the commands of a project's definitions take flags from, with what they hold."""
    yamls = (path for path in _written(project) if path.suffix == ".yaml")
    words = [word for path in yamls for text in _texts(_value(path)) for word in text.split()]
    return named_by(words, project.target)


def definition_lines(project: Project) -> list[str]:
    """Everything in a project's definitions that decides what runs, in a fixed order."""
    lines = []
    for path in _written(project):
        name = os.path.relpath(path, project.target)
        is_made = path.read_bytes().startswith(MADE.encode())  # A task's own programs count, too.
        data = _value(path) if path.suffix == ".yaml" and not is_made else None
        kind = "target" if path == project.manifest else Path(name).parts[0]
        if isinstance(data, dict) and kind in DATA:
            lines += [f"{name}: {line}" for line in _lines(data, kind)]
        else:
            lines.append(f"{name}: content {content_hash(path.read_bytes())}")
    for path, text in flag_files(project).items():
        lines.append(f"flags from {os.path.relpath(path, project.target)}: {json.dumps(text)}")
    return sorted(lines)


def _lines(data: Mapping[str, Any], kind: str) -> Iterator[str]:
    data_keys = [place.split(".") for place in DATA[kind]]
    for place, value in _leaves(data, ()):
        known = (keys for keys in data_keys if len(keys) <= len(place))
        if not any(all(key in ("*", part) for key, part in zip(keys, place, strict=False)) for keys in known):
            names = (part if part.replace("-", "_").isidentifier() else json.dumps(part) for part in place)
            yield f"{'.'.join(names)}: {json.dumps(value)}"
    if kind == "target":
        yield f"devices: {json.dumps([*_mapping(data.get('devices'))])}"  # They become flags of a compiler.
        yield from _read_by_generator(data)


def _leaves(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value by its place; a list of plain values is one, as a command line is."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*place, key))
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*place, str(index)))
    else:
        yield place, value


def _read_by_generator(data: Mapping[str, Any]) -> Iterator[str]:
    """Texts that workloads give the generator: they may name files."""
    parameters = _mapping(_mapping(data.get("signature")).get("parameters"))
    texts = {name for name, parameter in parameters.items() if _mapping(parameter).get("kind") == "text"}
    for place, value in _leaves(data.get("workloads"), ()):
        if texts.intersection(place):
            yield f"a text of workloads: {json.dumps(value)}"


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _value(path: Path) -> Any:
    """What a definition holds; nothing where it cannot be read: then it is not run either."""
    try:
        return load_yaml(path).data
    except LoopError:
        return None


def _texts(value: Any) -> Iterator[str]:
    """All text in a definition, in its order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
