"""JSON Schema (draft 2020-12) of models, with the sentence below each field as its description."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

DRAFT = "https://json-schema.org/draft/2020-12/schema"
MEANINGS = {
    "against": "What it was compared with.",
    "as_of": "When it was true.",
    "attempt": "1, or more after a resume.",
    "branch": "Branch of git; empty or null where there is none.",
    "budget_s": "Seconds that it is meant to take.",
    "build_id": "Hash of its build; null where nothing is built.",
    "cause": "What is wrong, as a code.",
    "charges": "Use with its price.",
    "commit": "Hash of the commit; null where there is none.",
    "compiler": "First line of what the compiler says of its version.",
    "device": "Where it runs: cpu or cuda.",
    "driver": "Version of the NVIDIA driver.",
    "files": "Files that it is about.",
    "format": "Number of this format.",
    "good": "Whether the change passes this step.",
    "hint": "What to do next.",
    "id": "Its id, or name.",
    "interval": "Where the ratio lies, at 99 %.",
    "loop_version": "Version of loop.",
    "message": "What came of it, in a line.",
    "minutes": "Minutes.",
    "name": "Its name.",
    "not_exercised": "What was not run, and why.",
    "notes": "What a reader has to know of it.",
    "ok": "Whether it found nothing wrong.",
    "output": "The end of what it printed.",
    "patch": "File with the patch.",
    "pattern": "Name of the pattern.",
    "reason": "Why, in a line.",
    "resource": "What is paid for: gpu, ai or engineer.",
    "right": "Names of the variants that are right.",
    "savings": "What was spared, as measured.",
    "schema_version": "Number of this schema.",
    "seconds": "How long it took.",
    "seed": "Base seed of the inputs.",
    "session": "Id of the session.",
    "source": "Where it comes from.",
    "status": "How it ended.",
    "step": "Id of the step.",
    "target": "Name of the target.",
    "threads": "CPU threads of each process.",
    "title": "What it is, in a few words.",
    "unmeasured": "Resources without a figure.",
    "usd": "Dollars.",
    "variant": "Name of the variant.",
    "variants": "Names, or what is said of each variant.",
    "verdict": "What may be said of it.",
    "verdicts": "A verdict for each variant and workload.",
    "why": "Why, in a line.",
    "workload": "The workload, or its name.",
    "wrong": "Names of those that are wrong.",
}
"""What a field of that name means where its model says nothing else; else the class of its value tells."""


class Untitled(GenerateJsonSchema):
    """Without the titles that pydantic makes of names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        fields = super().model_schema(schema)
        fields.pop("title", None)
        return fields


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model."""
    schema = model.model_json_schema(by_alias=True, schema_generator=Untitled)
    for inner in models_of(model):
        place = schema if inner is model else schema.get("$defs", {}).get(inner.__name__, {})
        _describe(inner, place.get("properties", {}))
    return {"$schema": DRAFT, **schema}


def schema_of_all(kinds: Mapping[str, Any]) -> dict[str, Any]:
    """One schema of values of several types, by name; readers of it have to bear fields that they do not know."""
    adapters = [(name, "serialization", TypeAdapter(kind)) for name, kind in kinds.items()]
    schemas, schema = TypeAdapter.json_schemas(adapters, by_alias=True, schema_generator=Untitled)  # type: ignore[arg-type]
    for inner in models_of(*(model for kind in kinds.values() for model in models_in(kind))):
        _describe(inner, schema["$defs"].get(inner.__name__, {}).get("properties", {}))
    for inner in schema["$defs"].values():
        inner.pop("additionalProperties", None)
    return {"$schema": DRAFT, **schema, "properties": {name: schemas[name, "serialization"] for name in kinds}}


def models_of(*models: type[BaseModel]) -> list[type[BaseModel]]:
    """Models and all that their fields lead to."""
    every = list(models)
    for model in every:  # Grows while it is walked.
        for info in model.model_fields.values():
            every += [inner for inner in models_in(info.annotation) if inner not in every]
    return every


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """All models inside an annotation such as `tuple[Step, ...]` or `A | B`."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_in(inner)]


def _describe(model: type[BaseModel], properties: dict[str, Any]) -> None:
    """Put the docstring below each field into its schema. pydantic can do that, but does it at every import."""
    texts: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            texts |= _docstrings(owner)
    for name, info in model.model_fields.items():
        shown, inner = properties.get(info.alias or name), models_in(info.annotation)[:1]
        usual = MEANINGS.get(name) or "".join((model.__doc__ or "").partition("\n")[0] for model in inner)
        if shown is not None and (text := texts.get(name) or usual):
            shown["description"] = text


def _docstrings(owner: type) -> dict[str, str]:
    """Field to the text below it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for field, following in pairwise(body.body):
        text = following.value if isinstance(following, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            assert isinstance(field.target, ast.Name)
            texts[field.target.id] = inspect.cleandoc(text.value)
    return texts
