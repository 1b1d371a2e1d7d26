"""JSON Schema, draft 7: what editors understand. pydantic emits 2020-12."""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from loop.base.documents.fields import models_in

DRAFT = "http://json-schema.org/draft-07/schema#"


def draft7(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model, field docstrings as descriptions."""
    schema = model.model_json_schema(by_alias=True)
    for each in _models_of(model):
        place = schema if each is model else schema.get("$defs", {}).get(each.__name__, {})
        _describe(each, place.get("properties", {}))
    converted = _convert(schema)
    assert isinstance(converted, dict)
    return {"$schema": DRAFT, **converted}


def _models_of(model: type[BaseModel]) -> list[type[BaseModel]]:
    """A model and all that its fields lead to."""
    found = [model]
    for each in found:  # Grows while it is walked.
        for info in each.model_fields.values():
            found += [inner for inner in models_in(info.annotation) if inner not in found]
    return found


def _describe(model: type[BaseModel], properties: dict[str, Any]) -> None:
    """Put the docstring below each field into its schema. pydantic can do that, but does it at every import."""
    for owner in reversed(model.__mro__):
        for name, text in _docstrings(owner).items():
            info = model.model_fields.get(name)
            shown = properties.get((info.alias or name) if info else name)
            if shown is not None:
                shown["description"] = text


def _docstrings(owner: type) -> dict[str, str]:
    if not issubclass(owner, BaseModel) or owner is BaseModel:
        return {}
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, following in pairwise(body.body):
        text = following.value if isinstance(following, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = inspect.cleandoc(text.value)
    return found


def _convert(node: Any) -> Any:
    """Draft 7 spells some things differently, and ignores what stands beside a $ref."""
    if isinstance(node, list):
        return [_convert(item) for item in node]
    if not isinstance(node, dict):
        return node
    dropped = (*DROPPED, "items") if "prefixItems" in node else DROPPED
    converted = {RENAMED.get(key, key): _inner(key, value) for key, value in node.items() if key not in dropped}
    if isinstance(converted.get("$ref"), str):
        reference = converted.pop("$ref").replace("#/$defs/", "#/definitions/")
        return {**converted, "allOf": [{"$ref": reference}]} if converted else {"$ref": reference}
    if "prefixItems" in node:
        converted["additionalItems"] = _convert(node.get("items", False))
    return converted


def _inner(key: str, value: Any) -> Any:
    """What a keyword holds: names of the user's own and plain values are left as they are."""
    if key in NAMED and isinstance(value, dict):
        return {name: _convert(schema) for name, schema in value.items()}
    return value if key in VALUES else _convert(value)


RENAMED = {"$defs": "definitions", "prefixItems": "items"}
DROPPED = ("discriminator",)
NAMED = ("properties", "patternProperties", "$defs")
VALUES = ("const", "default", "enum", "examples", "required")
