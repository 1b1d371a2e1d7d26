"""Whether a reader that was written for an older schema can read what is printed today."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "older"
Schema = Mapping[str, Any]
SAID = ("description", "title", "examples", "format")
"""Keywords that a reader does without."""


def kept(schema: Any) -> Any:
    """A schema without what only people read; names of properties are left as they are."""
    if isinstance(schema, list):
        return [kept(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    named = ("properties", "definitions", "patternProperties")
    return {
        key: {name: kept(one) for name, one in value.items()} if key in named else kept(value)
        for key, value in schema.items()
        if key not in SAID
    }


def older() -> dict[str, Any]:
    """What commands printed when their schemas were first published."""
    read = json.loads((FOLDER / "commands.json").read_text())
    assert isinstance(read, dict)
    return read


def version(schema: Schema, whole: Schema) -> int:
    """The schema version of what a command prints."""
    found = _resolved(_alternatives(schema, whole)[0], whole).get("properties", {}).get("schema_version", {})
    return int(found.get("const", found.get("default", 1)))


def unreadable(old: Schema, new: Schema, wholes: tuple[Schema, Schema], at: str = "") -> Iterator[str]:
    """Where a reader of `old` would stumble over what `new` allows."""
    seen: set[str] = set()
    yield from _unreadable(old, new, wholes, at, seen)


def _unreadable(old: Schema, new: Schema, wholes: tuple[Schema, Schema], at: str, seen: set[str]) -> Iterator[str]:
    key = json.dumps([old, new], sort_keys=True)
    if key in seen:
        return
    seen.add(key)
    known = _alternatives(old, wholes[0])
    for one in _alternatives(new, wholes[1]):
        reasons = [list(_differs(each, one, wholes, at, seen)) for each in known]
        if all(reasons):
            yield from min(reasons, key=len)


def _differs(old: Schema, new: Schema, wholes: tuple[Schema, Schema], at: str, seen: set[str]) -> Iterator[str]:
    old, new = _resolved(old, wholes[0]), _resolved(new, wholes[1])
    if old.get("type") is None and "enum" not in old and "const" not in old:
        return  # It reads anything.
    values = _values(old)
    if values is not None and not (set(_values(new) or ["anything"]) <= set(values)):
        yield f"{at}: {_values(new)} where {values} was"
    if values is None and not _same_type(old.get("type"), new.get("type")):
        yield f"{at}: {new.get('type')} where {old.get('type')} was"
        return
    for name, one in old.get("properties", {}).items():
        if name not in new.get("properties", {}):
            yield f"{at}.{name}: gone"
        else:
            yield from _unreadable(one, new["properties"][name], wholes, f"{at}.{name}", seen)
    yield from (f"{at}.{name}: no longer always there" for name in _lost(old, new))
    for inner in ("items", "additionalProperties"):
        if isinstance(old.get(inner), dict) and isinstance(new.get(inner), dict):
            yield from _unreadable(old[inner], new[inner], wholes, f"{at}[]", seen)


def _lost(old: Schema, new: Schema) -> list[str]:
    there = new.get("properties", {})
    return [one for one in old.get("required", ()) if one in there and one not in new.get("required", ())]


def _values(schema: Schema) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _same_type(old: Any, new: Any) -> bool:
    return old == new or (old == "number" and new == "integer")


def _resolved(schema: Schema, whole: Schema) -> Schema:
    while "$ref" in schema or len(schema.get("allOf", ())) == 1:
        schema = (
            schema["allOf"][0] if "allOf" in schema else whole["definitions"][schema["$ref"].rpartition("/")[2]]
        )
    return schema


def _alternatives(schema: Schema, whole: Schema) -> list[Schema]:
    schema = _resolved(schema, whole)
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return [each for one in inner for each in _alternatives(one, whole)] or [schema]
