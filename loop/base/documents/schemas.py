"""JSON schemas of our models. Imported late: only to print one or to suggest a mistyped name."""

import ast
import functools
import inspect
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

DRAFT_URL = "https://json-schema.org/draft/2020-12/schema"


class Untitled(GenerateJsonSchema):
    """Generates schemas without the titles that pydantic derives from names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Called by pydantic for each field: False, since a title would only repeat the name."""
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        """Called by pydantic for each model: its JSON schema, here without the title."""
        json_schema = super().model_schema(schema)
        json_schema.pop("title", None)
        return json_schema


class Described(Untitled):
    """Adds descriptions to fields. pydantic could read docstrings, but that slows every start."""

    def model_schema(self, schema: Any) -> dict[str, Any]:
        """A model's JSON schema. A field is described by the docstring below it, or its model's."""
        json_schema, model = super().model_schema(schema), schema["cls"]
        texts: dict[str, str] = {}
        for owner in reversed(model.__mro__):
            if issubclass(owner, BaseModel) and owner is not BaseModel:
                texts |= _field_docstrings(owner)
        for name, field in model.model_fields.items():
            text = texts.get(name)
            for inner in find_models(field.annotation)[:1]:
                text = text or (inner.__doc__ or "").partition("\n")[0]
            property_schema = json_schema["properties"].get(field.alias or name)
            if property_schema is not None and text:
                property_schema["description"] = text
        return json_schema


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model, as files have it."""
    schema = model.model_json_schema(by_alias=True, schema_generator=Described)
    return {"$schema": DRAFT_URL, **schema}


def schema_of_all(type_by_name: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with these properties, each of its type. Others are allowed."""
    mode = "serialization"
    adapters: list[Any] = [(name, mode, TypeAdapter(type_)) for name, type_ in type_by_name.items()]
    schemas, schema = TypeAdapter.json_schemas(adapters, by_alias=True, schema_generator=Described)
    for definition in schema["$defs"].values():
        definition.pop("additionalProperties", None)
    properties = {name: schemas[name, "serialization"] for name in type_by_name}
    return {"$schema": DRAFT_URL, **schema, "properties": properties}


def find_models(annotation: Any) -> list[type[BaseModel]]:
    """All models inside an annotation such as `tuple[Step, ...]` or `A | B`."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for inner in get_args(annotation) for model in find_models(inner)]


@functools.cache
def known_fields(model: type[BaseModel]) -> tuple[str, ...]:
    """Names of the fields of a model and of all models inside it. For hints at mistyped names."""
    models, names = [model], list[str]()
    for inner in models:  # Grows while it is walked.
        for name, field in inner.model_fields.items():
            names.append(field.alias or name)
            models += [other for other in find_models(field.annotation) if other not in models]
    return tuple(names)


def _field_docstrings(owner: type) -> dict[str, str]:
    """Field name to the docstring below it in the source of class `owner`."""
    class_node = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(class_node, ast.ClassDef)
    texts = {}
    for statement, following in pairwise(class_node.body):
        match statement, following:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str() as text)):
                texts[name] = inspect.cleandoc(text)
    return texts
