"""Converts plain data to frozen models, and pydantic's errors to complaints with line and column."""

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

from loop.base.documents.complaints import Document, Place, complain, did_you_mean, quote
from loop.base.errors import Complaint, DefinitionError

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T", bound="BaseModel")
SIDES = re.compile(r"(?:Input should be|(?:Value error, )?expected) (.*?)(?:, got (.*))?", re.DOTALL)
"""Splits messages of pydantic and of our validators into `expected` and `got`."""
OF_CHOICES = ("literal_error", "enum", "union_tag_invalid")
WHOLE = (*OF_CHOICES, "int_from_float", "too_short")
"""Error types that concern a whole value, besides `*_type`."""
ABSENT = ("missing", "union_tag_not_found")


def parse(model: type[T], document: Document, place: Place = ()) -> T:
    """Convert the part of a document at `place` to `model`. A missing part counts as an empty mapping.

    Raises DefinitionError with all mistakes.
    """
    from pydantic import ValidationError

    data = document.data
    for step in place:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            data = None
    data = {} if data is None and place else data
    try:
        # Strict JSON validation turns lists into tuples and text into dates, but accepts neither text as a
        # number nor true as an integer.
        text = json.dumps(data)
        return model.model_validate_json(text, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        raise DefinitionError(_complaints(model, document, place, data, mistakes)) from error


def _complaints(
    model: type[T], document: Document, start: Place, data: Any, mistakes: list[Any]
) -> list[Complaint]:
    """One complaint per mistake, in file order. Only those that will be shown get a hint.

    `data`: the document's part at `start`. pydantic reports one error per branch of a union. Errors at the
    same place become one complaint; they are dropped if another branch has a mistake deeper inside.
    """
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for mistake in mistakes:
        place, kind = _place(data, mistake), mistake["type"]
        own = None if kind.endswith("_type") or kind in WHOLE else mistake["loc"]
        groups.setdefault((place, own), []).append(mistake)
    inside = {place[:end] for place, _ in groups for end in range(len(place))}
    placed = []
    for (place, own), items in groups.items():
        if own is None and place in inside:
            continue
        key = items[0]["type"] == "extra_forbidden" or items[0]["loc"][-1:] == ("[key]",)
        placed.append((document.position((*start, *place), key=key), (*start, *place), key, items))
    complaints: list[Complaint] = []
    for _, place, key, items in sorted(placed, key=lambda group: group[0]):
        expected, got, wrong, choices = _said(model, items)
        shown = len(complaints) < DefinitionError.SHOWN
        hint = did_you_mean(wrong, choices) if shown and isinstance(wrong, str) else None
        complaints.append(complain(document, place, expected, got, hint, key=key))
    return complaints


def _place(data: Any, mistake: Any) -> Place:
    """The place of a pydantic error in the data.

    pydantic adds names of union branches: ("run", "tuple[str, ...]", 0). Only parts that exist in the
    data are real keys or indices.
    """
    place: list[str | int] = []
    for part in mistake["loc"][:-1] if mistake["type"] == "missing" else mistake["loc"]:
        known = isinstance(data, dict) and part in data
        if known or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            data = data[part]
            place.append(part)
    if mistake["type"] == "union_tag_invalid":
        place.append(mistake["ctx"]["discriminator"].strip("'"))
    return tuple(place)


def _said(model: type[T], items: list[Any]) -> tuple[str, str, Any, list[str]]:
    """(expected, got, wrong word, possible words) for the pydantic errors of one place."""
    from loop.base.documents.schemas import field_names

    first = items[0]
    kind, value = first["type"], first["input"]
    if kind in ABSENT:
        name = repr(first["loc"][-1]) if kind == "missing" else first["ctx"]["discriminator"]
        return f"a value for {name}", "nothing", None, []
    if kind == "extra_forbidden":
        name = str(first["loc"][-1])
        return "a known name", quote(name), name, field_names(model)
    if kind == "union_tag_invalid":
        value, expected = first["ctx"]["tag"], first["ctx"]["expected_tags"]
        return f"one of {expected}", quote(value), value, re.findall(r"'([^']*)'", expected)
    choices = [
        name
        for item in items
        if item["type"] in OF_CHOICES
        for name in re.findall(r"'([^']*)'", item["ctx"]["expected"])
    ]
    sides = [SIDES.fullmatch(item["msg"]) for item in items]
    stated = [match for match in sides if match]
    if not stated:
        text = first["msg"].removeprefix("Value error, ")
        return "what fits", f"{quote(value)}: {text}", value, choices
    expected = " or ".join(dict.fromkeys(match[1] for match in stated))
    return expected, stated[0][2] or quote(value), value, choices
