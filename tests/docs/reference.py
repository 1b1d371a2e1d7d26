"""The reference, generated from the code: the formats of files, actions and errors."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.actions import ACTIONS
from loop.base.documents.schemas import schema_of
from loop.base.errors import ERROR_CODES, ExitCode
from loop.cli.patterns import SCHEMAS, schema_text
from loop.model.base import Model
from loop.report.markdown import escape_literal, inline_code
from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Generated from the code by `make docs`. -->"
TITLES = {
    "pattern": "Format of a pattern",
    "plan": "Format of a plan",
    "target": "Format of a target",
    "rates": "Format of a rate card",
    "history": "Format of a recorded history",
}
FILES = {
    "pattern": "`patterns/<name>.yaml`",
    "plan": "`sessions/plans/<name>.yaml`, in a project `plans/<name>.yaml`",
    "target": "`target.yaml`",
    "rates": "`sessions/rates.yaml`; a project's own `rates.yaml` goes before it",
    "history": "a file for `loop sessions import`",
}
NUMBERS = {"minimum": "from", "maximum": "to", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}


def pages() -> dict[str, str]:
    """Every page by its file name."""
    formats = {f"{name}.md": _page(TITLES.get(name, f"Format of `{name}`"), _format(name)) for name in SCHEMAS}
    return {
        **formats,
        "actions.md": _page("Actions", _actions()),
        "errors.md": _page("Exit codes and error codes", _errors()),
    }


def write(folder: Path = FOLDER, texts: Mapping[str, str] | None = None) -> list[str]:
    """Write all pages into an empty folder; their names."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    texts = pages() if texts is None else texts
    for name, text in texts.items():
        (folder / name).write_text(text)
    return list(texts)


def _page(title: str, lines: Iterator[str]) -> str:
    text = "\n".join([f"# {title}", "", NOTE, "", *lines])
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table; cells are Markdown already."""
    if rows:
        yield f"| {' | '.join(heads)} |"
        yield f"|{'---|' * len(heads)}"
        yield from (f"| {' | '.join(row)} |" for row in rows)
        yield ""


def cell(text: object) -> str:
    """Plain text as a cell; text between backticks stays code."""
    parts = re.split(r"(`[^`|]+`)", " ".join(str(text).split()))
    return "".join(part if re.fullmatch(r"`[^`|]+`", part) else _kept(part) for part in parts)


def _kept(part: str) -> str:
    before, after = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :]
    return f"{before}{escape_literal(part)}{after}" if part.strip() else part


# How commands end.


def _errors() -> Iterator[str]:
    yield "With `--json`, a failed command prints `error` on stdout. It has `code`, `message`, `next` (what to do)"
    yield "and `exit_code`. A code keeps its meaning; new ones may come."
    yield ""
    yield from table(("Exit code", "Means"), [(inline_code(int(code)), cell(code.meaning)) for code in ExitCode])
    yield from table(
        ("Error code", "Means"), [(inline_code(code), cell(text)) for code, text in ERROR_CODES.items()]
    )


# The formats of files.


def _format(name: str) -> Iterator[str]:
    schema = json.loads(schema_text(name))
    written = f"YAML, {FILES[name]}" if name in FILES else "JSON that `loop` writes"
    yield f"{written}. `loop patterns schema {name}` prints the JSON Schema that editors use."
    yield ""
    yield from _model(schema, SCHEMAS[name].__name__)
    for title, inner in sorted(schema.get("$defs", {}).items()):
        yield from _model(inner, title)


def _model(schema: Mapping[str, Any], title: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    if schema.get("description"):
        yield cell(schema["description"].partition("\n\n")[0])
        yield ""
    if "enum" in schema:
        yield f"One of {', '.join(inline_code(value) for value in schema['enum'])}."
    yield from _fields(schema)


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    needed = set(schema.get("required", ()))
    rows = []
    for name, prop in schema.get("properties", {}).items():
        default = "required" if name in needed else _written(prop.get("default"))
        rows.append((inline_code(name), cell(kind(prop)), default, cell(prop.get("description", ""))))
    yield from table(("Field", "Type", "Default", "Meaning"), rows)


def _written(default: Any) -> str:
    return "" if default in (None, [], {}, "") else inline_code(json.dumps(default, ensure_ascii=False))


def kind(schema: Mapping[str, Any]) -> str:
    """A type in words: `list of Step`, `number from 0`, `cpu, cuda or any`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for word in ("allOf", "anyOf", "oneOf"):
        if word in schema:
            kinds = dict.fromkeys(kind(part) for part in schema[word])
            return " or ".join(text for text in kinds if text != "null")
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return " or ".join(f"`{value}`" for value in values if value != "")
    return _plain_kind(schema)


def _plain_kind(schema: Mapping[str, Any]) -> str:
    name = schema.get("type", "anything")
    if name == "array":
        return f"list of {kind(_items(schema))}"
    if name == "object":
        inner = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
        return f"mapping to {kind(inner)}" if isinstance(inner, dict) and inner else "mapping"
    limits = [f"{word} {schema[key]:g}" for key, word in NUMBERS.items() if key in schema]
    return " ".join(
        [{"string": "text", "integer": "whole number", "boolean": "true or false"}.get(name, name), *limits]
    )


def _items(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    items = schema.get("items") or {}
    return {"anyOf": items} if isinstance(items, list) else items


# The actions.


def _actions() -> Iterator[str]:
    yield "What a step of a pattern can do. Arguments stand under `with:`; a `gate` reads the output by its names,"
    yield "the step's own and, as `step.name`, those of earlier steps. Every output also has:"
    yield ""
    common = schema_of(next(iter(ACTIONS.values())).output.__mro__[1])["properties"]
    yield from _fields({"properties": common})
    yield from table(
        ("Action", "What it does"),
        [(f"[`{name}`](#{name.replace('.', '')})", cell(action.summary)) for name, action in ACTIONS.items()],
    )
    for name, action in ACTIONS.items():
        yield f"## {name}"
        yield ""
        yield cell(" ".join((action.run.__doc__ or "").split()))
        yield ""
        yield from _part("Arguments", action.arguments, set())
        yield from _part("Output", action.output, set(common))


def _part(title: str, model: type[Model], without: set[str]) -> Iterator[str]:
    schema = schema_of(model)
    properties = {name: prop for name, prop in schema.get("properties", {}).items() if name not in without}
    if properties:
        yield from (f"{title}:", "")
        yield from _fields({**schema, "properties": properties})
