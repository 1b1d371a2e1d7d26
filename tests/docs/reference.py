"""The reference, generated from the code: the command line, the formats of files, and the actions."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer.main

from loop.actions import ACTIONS
from loop.base.documents.schema import draft7
from loop.base.errors import ERROR_CODES, EXIT_CODES
from loop.cli import app
from loop.cli.checking import PRINTED, SCHEMAS, schema_text
from loop.model.base import Model
from loop.report.markdown import code, columns, escape
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
        "cli.md": _page("Command line", _commands()),
        **formats,
        "actions.md": _page("Actions", _actions()),
        "errors.md": _page("Exit codes and error codes", _errors()),
        "json.md": _page("What commands print with --json", _printed()),
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
        yield f"| {' | '.join(column.title for column in columns(*heads))} |"
        yield f"|{'---|' * len(heads)}"
        yield from (f"| {' | '.join(row)} |" for row in rows)
        yield ""


def cell(text: object) -> str:
    """Plain text for a cell; what stands between backticks stays code."""
    parts = re.split(r"(`[^`|]+`)", " ".join(str(text).split()))
    return "".join(part if re.fullmatch(r"`[^`|]+`", part) else _kept(part) for part in parts)


def _kept(part: str) -> str:
    before, after = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :]
    return f"{before}{escape(part)}{after}" if part.strip() else part


# The command line.


def walk(group: Any, words: tuple[str, ...] = ("loop",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group, with the words that call it."""
    for name, command in sorted(group.commands.items()):
        yield (*words, name), command
        if hasattr(command, "commands"):
            yield from walk(command, (*words, name))


def _commands() -> Iterator[str]:
    root = typer.main.get_command(app)
    found = list(walk(root))
    yield "Every command has `--help`, in short `-h`. What it prints as data goes to stdout, talk goes to stderr."
    yield ""
    singles = [(words, one) for words, one in found if not hasattr(one, "commands") or one.invoke_without_command]
    rows = [(f"[`{' '.join(words)}`](#{'-'.join(words)})", cell(_summary(one))) for words, one in singles]
    yield from table(("Command", "What it does"), rows)
    for words, one in singles:
        yield f"## {' '.join(words)}"
        yield ""
        yield from _help(one.help or "")
        yield from _parameters(one)


def _summary(command: Any) -> str:
    return str(command.help or "").strip().splitlines()[0]


def _help(text: str) -> Iterator[str]:
    """The docstring: sentences as text, examples as code."""
    lines, examples = text.strip().splitlines(), []
    for line in lines:
        if re.match(r"  (loop|cp) ", line):
            examples.append(line.strip())
        elif line.strip() not in ("\b", "Example:", "Examples:"):
            yield cell(line)
    yield from ("", "```sh", *examples, "```", "")


def _parameters(command: Any) -> Iterator[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    rows = [(code(one.metavar or one.name.upper()), cell(getattr(one, "help", "") or "")) for one in arguments]
    yield from table(("Argument", "Meaning"), rows)
    chosen = [
        (code(_option(one)), code(_default(one)) if _default(one) else "", cell(one.help)) for one in options
    ]
    yield from table(("Option", "Default", "Meaning"), chosen)


def _option(option: Any) -> str:
    """`--seed NUMBER`; a flag by its name alone."""
    name = max(option.opts, key=len)
    return name if option.is_flag else f"{name} {option.metavar}"


def _default(option: Any) -> str:
    hidden = (
        option.default is None or option.default is False or option.default in ("", ()) or callable(option.default)
    )
    return "" if hidden else str(option.default)


# How commands end.


def _errors() -> Iterator[str]:
    yield "With `--json`, a failed command prints `error` on stdout. It has `code`, `message`, `next` (what to do)"
    yield "and `exit_code`. A code keeps its meaning; new ones may come."
    yield ""
    yield from table(
        ("Exit code", "Means"), [(code(int(one or 0)), cell(text)) for one, text in EXIT_CODES.items()]
    )
    yield from table(("Error code", "Means"), [(code(one), cell(text)) for one, text in ERROR_CODES.items()])


def _printed() -> Iterator[str]:
    yield "Each command prints one object. `loop patterns schema commands` prints the JSON Schema of all of them,"
    yield "and of types that are only named here. New fields may come. Those that are here keep their names and"
    yield "meanings, or `schema_version` rises."
    yield ""
    schema = json.loads(schema_text(PRINTED))
    for words, one in schema["properties"].items():
        yield f"## {f'loop {words}' if words != 'error' else 'A command that failed'}"
        yield ""
        for each in one.get("anyOf", [one]):
            found = schema["definitions"][each["$ref"].rpartition("/")[2]]
            yield cell(found.get("description", "").partition("\n\n")[0])
            yield ""
            rows = [
                (code(name), cell(kind(each)), cell(each.get("description", "")))
                for name, each in found["properties"].items()
            ]
            yield from table(("Field", "Type", "Meaning"), rows)


# The formats of files.


def _format(name: str) -> Iterator[str]:
    schema = json.loads(schema_text(name))
    written = f"YAML, {FILES[name]}" if name in FILES else "JSON that `loop` writes"
    yield f"{written}. `loop patterns schema {name}` prints the JSON Schema that editors use."
    yield ""
    yield from _model(schema, SCHEMAS[name].__name__)
    for title, inner in sorted(schema.get("definitions", {}).items()):
        yield from _model(inner, title)


def _model(schema: Mapping[str, Any], title: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    if schema.get("description"):
        yield cell(schema["description"].partition("\n\n")[0])
        yield ""
    if "enum" in schema:
        yield f"One of {', '.join(code(value) for value in schema['enum'])}."
    yield from _fields(schema)


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    needed = set(schema.get("required", ()))
    rows = []
    for name, one in schema.get("properties", {}).items():
        default = "required" if name in needed else _written(one.get("default"))
        rows.append((code(name), cell(kind(one)), default, cell(one.get("description", ""))))
    yield from table(("Field", "Type", "Default", "Meaning"), rows)


def _written(default: Any) -> str:
    return "" if default in (None, [], {}, "") else code(json.dumps(default, ensure_ascii=False))


def kind(schema: Mapping[str, Any]) -> str:
    """A type in words: `list of Step`, `number from 0`, `cpu, cuda or any`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for word in ("allOf", "anyOf", "oneOf"):
        if word in schema:
            kinds = dict.fromkeys(kind(one) for one in schema[word])
            return " or ".join(one for one in kinds if one != "null")
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
    common = draft7(next(iter(ACTIONS.values())).output.__mro__[1])["properties"]
    yield from _fields({"properties": common})
    yield from table(
        ("Action", "What it does"),
        [(f"[`{name}`](#{name.replace('.', '')})", cell(one.summary)) for name, one in ACTIONS.items()],
    )
    for name, one in ACTIONS.items():
        yield f"## {name}"
        yield ""
        yield f"{cell(one.summary[0].upper() + one.summary[1:])}."
        yield ""
        yield from _part("Arguments", one.arguments, set())
        yield from _part("Output", one.output, set(common))


def _part(title: str, model: type[Model], without: set[str]) -> Iterator[str]:
    schema = draft7(model)
    own = {name: one for name, one in schema.get("properties", {}).items() if name not in without}
    if own:
        yield from (f"{title}:", "")
        yield from _fields({**schema, "properties": own})
