"""JSON Schema, draft 7: what editors understand (pydantic emits 2020-12); and the names that a model knows."""

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from loop.base.documents.complaints import Place

DRAFT = "http://json-schema.org/draft-07/schema#"


class Untitled(GenerateJsonSchema):
    """Without the titles that pydantic makes of names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        made = super().model_schema(schema)
        made.pop("title", None)
        return made


def draft7(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model, field docstrings as descriptions."""
    schema = model.model_json_schema(by_alias=True, schema_generator=Untitled)
    for each in _models_of(model):
        place = schema if each is model else schema.get("$defs", {}).get(each.__name__, {})
        _describe(each, place.get("properties", {}))
    converted = _convert(schema)
    assert isinstance(converted, dict)
    return {"$schema": DRAFT, **converted}


def draft7_of(kinds: Mapping[str, Any]) -> dict[str, Any]:
    """One schema of values of several types, by name; readers of it have to bear fields that they do not know."""
    adapters = [(name, "serialization", TypeAdapter(kind)) for name, kind in kinds.items()]
    found, schema = TypeAdapter.json_schemas(adapters, by_alias=True, schema_generator=Untitled)  # type: ignore[arg-type]
    for each in _models_of(*(model for kind in kinds.values() for model in models_in(kind))):
        _describe(each, schema["$defs"].get(each.__name__, {}).get("properties", {}))
    for each in schema["$defs"].values():
        each.pop("additionalProperties", None)
    converted = _convert({**schema, "properties": {name: found[name, "serialization"] for name in kinds}})
    assert isinstance(converted, dict)
    return {"$schema": DRAFT, **converted}


def _models_of(*models: type[BaseModel]) -> list[type[BaseModel]]:
    """Models and all that their fields lead to."""
    found = list(models)
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


def names_at(model: type[BaseModel], data: Any, place: Place) -> list[str]:
    """Field names, as files write them, of the mapping at `place` in the data."""
    choices: list[Any] = [model]
    for step in place:
        choices = [inner for choice in _fitting(choices, data) for inner in _inside(choice, step)]
        data = _item(data, step)
    names = [name for choice in _fitting(choices, data) if _is_model(choice) for name in written_names(choice)]
    return list(dict.fromkeys(names))


def written_names(model: type[BaseModel]) -> dict[str, Any]:
    """Annotations of a model's fields, by the names that files use for them."""
    return {info.alias or name: info.annotation for name, info in model.model_fields.items()}


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """All models inside an annotation such as `tuple[Step, ...]` or `A | B`."""
    if _is_model(annotation):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_in(inner)]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and hasattr(annotation, "model_fields")


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types that a value of this annotation can have."""
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for inner in get_args(annotation):
            yield from _alternatives(inner)
    else:
        yield annotation


def _inside(annotation: Any, step: str | int) -> list[Any]:
    """The types of what lies one step further in."""
    if _is_model(annotation):
        known = written_names(annotation)
        return list(_alternatives(known[str(step)])) if step in known else []
    inner = get_args(annotation)
    if not inner or get_origin(annotation) is Literal:
        return []
    fixed = get_origin(annotation) is tuple and Ellipsis not in inner
    chosen = inner[step] if fixed and isinstance(step, int) and step < len(inner) else inner[-1]
    return list(_alternatives(inner[0] if chosen is Ellipsis else chosen))


def _fitting(choices: list[Any], data: Any) -> list[Any]:
    """Without the models that the data's own tag, such as `kind: python`, rules out."""
    return [choice for choice in choices if not (_is_model(choice) and _ruled_out(choice, data))]


def _ruled_out(model: type[BaseModel], data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    tags = {name: get_args(a) for name, a in written_names(model).items() if get_origin(a) is Literal}
    return any(name in data and data[name] not in allowed for name, allowed in tags.items())


def _item(data: Any, step: str | int) -> Any:
    try:
        return data[step]
    except (KeyError, IndexError, TypeError):
        return None
