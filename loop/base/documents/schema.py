"""JSON Schema, draft 7, which editors understand (pydantic emits 2020-12)."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

DRAFT = "http://json-schema.org/draft-07/schema#"


class Untitled(GenerateJsonSchema):
    """Without the titles that pydantic makes of names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        fields = super().model_schema(schema)
        fields.pop("title", None)
        return fields


def draft7(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model, field docstrings as descriptions."""
    schema = model.model_json_schema(by_alias=True, schema_generator=Untitled)
    for inner in models_of(model):
        place = schema if inner is model else schema.get("$defs", {}).get(inner.__name__, {})
        _describe(inner, place.get("properties", {}))
    converted = _convert(schema)
    assert isinstance(converted, dict)
    return {"$schema": DRAFT, **converted}


def draft7_of(kinds: Mapping[str, Any]) -> dict[str, Any]:
    """One schema of values of several types, by name; readers of it have to bear fields that they do not know."""
    adapters = [(name, "serialization", TypeAdapter(kind)) for name, kind in kinds.items()]
    schemas, schema = TypeAdapter.json_schemas(adapters, by_alias=True, schema_generator=Untitled)  # type: ignore[arg-type]
    for inner in models_of(*(model for kind in kinds.values() for model in models_in(kind))):
        _describe(inner, schema["$defs"].get(inner.__name__, {}).get("properties", {}))
    for inner in schema["$defs"].values():
        inner.pop("additionalProperties", None)
    converted = _convert({**schema, "properties": {name: schemas[name, "serialization"] for name in kinds}})
    assert isinstance(converted, dict)
    return {"$schema": DRAFT, **converted}


def models_of(*models: type[BaseModel]) -> list[type[BaseModel]]:
    """Models and all that their fields lead to."""
    every = list(models)
    for model in every:  # Grows while it is walked.
        for info in model.model_fields.values():
            every += [inner for inner in models_in(info.annotation) if inner not in every]
    return every


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
    texts = {}
    for field, following in pairwise(body.body):
        text = following.value if isinstance(following, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            assert isinstance(field.target, ast.Name)
            texts[field.target.id] = inspect.cleandoc(text.value)
    return texts


def _convert(node: Any) -> Any:
    """Draft 7 spells some things differently, and ignores what stands beside a $ref."""
    if isinstance(node, list):
        return [_convert(item) for item in node]
    if not isinstance(node, dict):
        return node
    dropped = (*DROPPED, "items") if "prefixItems" in node else DROPPED
    converted = {}
    for key, value in node.items():
        if key in NAMED and isinstance(value, dict):  # Names of the user's own are left as they are.
            value = {name: _convert(schema) for name, schema in value.items()}
        elif key not in VALUES:
            value = _convert(value)
        if key not in dropped:
            converted[RENAMED.get(key, key)] = value
    if isinstance(converted.get("$ref"), str):
        reference = converted.pop("$ref").replace("#/$defs/", "#/definitions/")
        return {**converted, "allOf": [{"$ref": reference}]} if converted else {"$ref": reference}
    if "prefixItems" in node:
        converted["additionalItems"] = _convert(node.get("items", False))
    return converted


RENAMED = {"$defs": "definitions", "prefixItems": "items"}
DROPPED = ("discriminator",)
NAMED = ("properties", "patternProperties", "$defs")
VALUES = ("const", "default", "enum", "examples", "required")


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """All models inside an annotation such as `tuple[Step, ...]` or `A | B`."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_in(inner)]
