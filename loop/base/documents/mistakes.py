"""What pydantic says of data that does not fit, in our words, at line and column. Imported only where needed.

pydantic puts the names of union branches between the steps of a location: ("run", "tuple[str, ...]", 0).
The data tell which parts are steps.
"""

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from loop.base.documents.complaints import Document, Place, complain, did_you_mean, quote
from loop.base.errors import Complaint, DefinitionError

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
        usual = MEANINGS.get(name) or "".join((kind.__doc__ or "").partition("\n")[0] for kind in inner)
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


WORDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "a name that matches {pattern}",
    "union_tag_not_found": "a value for {discriminator}",
}
"""pydantic's type of an error to what should have been there."""
OF_CHOICES = ("literal_error", "enum", "union_tag_invalid")
FOLLOWS = re.compile(r".*_type|int_from_float|too_short|too_long")
"""Errors of a whole value that say nothing where something in it is wrong: its branch of a union was not meant."""
Mistake = tuple[Place, bool, list[Any]]
"""Place in the data, whether the key is wrong rather than its value, and pydantic's errors there."""


def complaints(
    model: type[BaseModel], document: Document, start: Place, data: Any, error: ValidationError
) -> list[Complaint]:
    """One complaint for each mistake, in the order of the file.

    `data`: the part of the document at `start`. Only complaints that are shown get a hint, because looking for
    similar names takes time.
    """
    groups: dict[tuple[Place, bool, str], Mistake] = {}
    for item in error.errors(include_url=False):
        place, key = _place(data, item)
        whole = FOLLOWS.fullmatch(item["type"]) or item["type"] in OF_CHOICES
        groups.setdefault((place, key, "" if whole else str(item["loc"])), (place, key, []))[2].append(item)
    inside = {place[:end] for place, _, _ in groups.values() for end in range(len(place))}
    mistakes = [
        (place, key, items)
        for place, key, items in groups.values()
        if not (place in inside and all(FOLLOWS.fullmatch(item["type"]) for item in items))
    ]
    mistakes.sort(key=lambda mistake: document.position((*start, *mistake[0]), key=mistake[1]))
    return [
        _complaint(model, document, start, mistake, hinted=index < DefinitionError.SHOWN)
        for index, mistake in enumerate(mistakes)
    ]


def _place(data: Any, item: Any) -> tuple[Place, bool]:
    """Where an error is, and whether the key is wrong. Parts of the location that name a branch are left out."""
    location, key = item["loc"], item["type"] == "extra_forbidden"
    if location and location[-1] == "[key]":
        location, key = location[:-1], True
    elif item["type"] == "missing":
        location = location[:-1]
    place: list[str | int] = []
    for part in location:
        if (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        ):
            data = data[part]
            place.append(part)
    if item["type"] == "union_tag_invalid":
        place.append(str(item["ctx"]["discriminator"]).strip("'"))
    return tuple(place), key


def _complaint(
    model: type[BaseModel], document: Document, start: Place, mistake: Mistake, *, hinted: bool
) -> Complaint:
    inner, key, items = mistake
    place, item, kind = (*start, *inner), items[0], items[0]["type"]
    if kind == "missing":
        return complain(document, place, f"a value for {str(item['loc'][-1])!r}", "nothing")
    if kind == "extra_forbidden":
        name = str(item["loc"][-1])
        hint = did_you_mean(name, _field_names(model)) if hinted else None
        return complain(document, place, "a known name", quote(name), hint, key=True)
    if kind in ("value_error", "assertion_error"):
        text = str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
        stated = re.fullmatch(r"expected (.*), got (.*)", text, re.DOTALL)
        sides = stated.groups() if stated else ("values that fit together", f"{quote(item['input'])}: {text}")
        return complain(document, place, *sides, key=key)
    value = item["ctx"]["tag"] if kind == "union_tag_invalid" else item["input"]
    got = quote(value)
    if kind in ("too_short", "too_long", "union_tag_not_found"):
        got = str(item["ctx"].get("actual_length", "nothing"))
    choices = [
        word for item in items if item["type"] in OF_CHOICES for word in re.findall(r"'([^']*)'", _listed(item))
    ]
    hint = did_you_mean(value, choices) if hinted and isinstance(value, str) else None
    return complain(document, place, _expected(items), got, hint, key=key)


@functools.cache
def _field_names(model: type[BaseModel]) -> tuple[str, ...]:
    """Names that files use for fields of a model and of all models inside it."""
    fields = [pair for inner in models_of(model) for pair in inner.model_fields.items()]
    return tuple(dict.fromkeys(info.alias or name for name, info in fields))


def _expected(items: Sequence[Any]) -> str:
    """What should have been there; of a union, everything that could have been."""
    words: dict[str, None] = {}
    for item in items:
        kind = item["type"]
        if kind in OF_CHOICES:
            words["one of " + re.sub(r"'([^']*)'", r"\1", _listed(item)).replace(" or ", ", ")] = None
        elif kind in WORDS:
            words[WORDS[kind].format(**item.get("ctx", {}))] = None
        elif kind.startswith("date"):
            example = "a date and time as 2026-11-21T05:19:00Z" if "time" in kind else "a date as 2026-11-21"
            words[example] = None
        else:
            words[str(item["msg"]).removeprefix("Input should be ")] = None
    if "a number" in words:
        words.pop("a whole number", None)
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _listed(item: Any) -> str:
    return str(item["ctx"].get("expected") or item["ctx"].get("expected_tags"))
