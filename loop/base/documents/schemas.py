"""JSON schemas of our models. Imported late: only to print a schema or to suggest a mistyped name."""

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
DEFAULT_DESCRIPTIONS = {
    "against": "What it was compared with.",
    "as_of": "When it was true.",
    "attempt": "1, or more after a resume.",
    "budget_s": "Seconds that it is meant to take.",
    "build_id": "Hash of its build; null where nothing is built.",
    "cause": "What is wrong, as a code.",
    "device": "Where it runs: cpu or cuda.",
    "good": "Whether the change passes this step.",
    "hint": "What to do next.",
    "interval": "Where the ratio lies, at 99 %.",
    "message": "What came of it, in a line.",
    "not_exercised": "What was not run, and why.",
    "ok": "Whether it found nothing wrong.",
    "right": "Names of the variants that are right.",
    "seed": "Base seed of the inputs.",
    "threads": "CPU threads of each process.",
    "verdict": "What may be said of it.",
    "wrong": "Names of those that are wrong.",
}
"""Default descriptions of fields by name, for fields without a docstring."""


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


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model. `_add_descriptions` says where a field's description is from."""
    schema = model.model_json_schema(by_alias=True, schema_generator=Untitled)
    for inner in collect_models(model):
        inner_schema = schema if inner is model else schema.get("$defs", {}).get(inner.__name__, {})
        _add_descriptions(inner, inner_schema.get("properties", {}))
    return {"$schema": DRAFT_URL, **schema}


def schema_of_all(type_by_name: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with these properties, each of its type. Unknown fields are allowed."""
    adapters: list[Any] = []
    models: list[type[BaseModel]] = []
    for name, type_ in type_by_name.items():
        adapters.append((name, "serialization", TypeAdapter(type_)))
        models += find_models(type_)
    schemas, schema = TypeAdapter.json_schemas(adapters, by_alias=True, schema_generator=Untitled)
    for model in collect_models(*models):
        _add_descriptions(model, schema["$defs"].get(model.__name__, {}).get("properties", {}))
    for definition in schema["$defs"].values():
        definition.pop("additionalProperties", None)
    return {
        "$schema": DRAFT_URL,
        **schema,
        "properties": {name: schemas[name, "serialization"] for name in type_by_name},
    }


def collect_models(*models: type[BaseModel]) -> list[type[BaseModel]]:
    """The models and all models in their fields, directly or indirectly."""
    collected = list(models)
    for model in collected:  # Grows while it is walked.
        for info in model.model_fields.values():
            collected += [inner for inner in find_models(info.annotation) if inner not in collected]
    return collected


def find_models(annotation: Any) -> list[type[BaseModel]]:
    """All models inside an annotation such as `tuple[Step, ...]` or `A | B`."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for inner in get_args(annotation) for model in find_models(inner)]


@functools.cache
def enclosing_fields(model: type[BaseModel]) -> dict[str, list[str]]:
    """Field of a model, or of models inside it, to the fields that may contain it: for a pattern, `when` to
    `steps` and `next`. Empty list: a field of `model` itself. For hints at misplaced fields."""
    parents_by_key: dict[str, list[str]] = {}
    parents: dict[type[BaseModel], list[str]] = {}
    for inner in collect_models(model):
        for name, info in inner.model_fields.items():
            key = info.alias or name
            parents_by_key.setdefault(key, []).extend(parents.get(inner, ()))
            for child in find_models(info.annotation):
                parents.setdefault(child, []).append(key)
    return parents_by_key


def _add_descriptions(model: type[BaseModel], properties: dict[str, Any]) -> None:
    """Describe each schema in `properties`: by the docstring below its field, else the default for its name, else
    its type's. pydantic could read the docstrings at import, but that slows every start."""
    texts: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            texts |= _field_docstrings(owner)
    for name, info in model.model_fields.items():
        text = texts.get(name) or DEFAULT_DESCRIPTIONS.get(name)
        for inner in find_models(info.annotation)[:1]:
            text = text or (inner.__doc__ or "").partition("\n")[0]
        property_schema = properties.get(info.alias or name)
        if property_schema is not None and text:
            property_schema["description"] = text


def _field_docstrings(owner: type) -> dict[str, str]:
    """Field name to the docstring below it in the source of class `owner`."""
    class_node = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(class_node, ast.ClassDef)
    texts = {}
    for statement, following in pairwise(class_node.body):
        match statement, following:
            case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text))):
                texts[name] = inspect.cleandoc(text)
    return texts
