"""Converts plain data to frozen models, and pydantic's errors to complaints with line and column."""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from loop.base.documents.complaints import Document, Place, complain, did_you_mean, quote
from loop.base.errors import Complaint, DefinitionError

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T", bound="BaseModel")
EXPECTED_AND_GOT = re.compile(r"(?:Input should be|(?:Value error, )?expected) (.*?)(?:, got (.*))?", re.DOTALL)
"""Splits messages of pydantic and of our validators into `expected` and `got`."""
CHOICE_ERRORS = ("literal_error", "enum", "union_tag_invalid")
WHOLE_VALUE_ERRORS = (*CHOICE_ERRORS, "int_from_float", "too_short")
"""Error types that concern a whole value, besides `*_type`."""
MISSING_VALUE_ERRORS = ("missing", "union_tag_not_found")


def parse(model: type[T], document: Document, place: Place = ()) -> T:
    """The part of a document at `place` as `model`; a missing part counts as an empty mapping. Raises
    DefinitionError with all mistakes."""
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
        raise DefinitionError(_make_complaints(model, document, place, data, mistakes)) from error


def _make_complaints(
    model: type[T], document: Document, start: Place, data: Any, mistakes: list[Any]
) -> list[Complaint]:
    """One complaint for each wrong value, in file order. `mistakes`: pydantic's errors. `data`: the part of the
    document at `start`, which was read as `model`. pydantic reports one error for each branch of a union. Those
    that refuse a whole value become one complaint; none, if a branch finds a mistake inside that value."""
    groups: dict[tuple[Place, Any], list[Any]] = {}  # Of errors with one place and, within it, one location.
    for mistake in mistakes:
        kind = mistake["type"]
        is_about_whole_value = kind.endswith("_type") or kind in WHOLE_VALUE_ERRORS
        location = None if is_about_whole_value else mistake["loc"]
        groups.setdefault((_place_of_mistake(data, mistake), location), []).append(mistake)
    enclosing_places = {place[:end] for place, _ in groups for end in range(len(place))}
    located = []
    for (place, location), same_place_mistakes in groups.items():
        if location is None and place in enclosing_places:
            continue
        first = same_place_mistakes[0]
        is_key = first["type"] == "extra_forbidden" or first["loc"][-1:] == ("[key]",)
        full_place = (*start, *place)
        located.append((document.position(full_place, key=is_key), full_place, is_key, same_place_mistakes))
    complaints: list[Complaint] = []
    for _, place, is_key, same_place_mistakes in sorted(located, key=lambda group: group[0]):
        expected, got, wrong_word, choices = _describe_mistakes(model, same_place_mistakes)
        # Finding a hint is slow: only complaints that will be shown get one.
        needs_hint = len(complaints) < DefinitionError.MAX_SHOWN and isinstance(wrong_word, str)
        hint = did_you_mean(wrong_word, choices) if needs_hint else None
        complaints.append(complain(document, place, expected, got, hint, key=is_key))
    return complaints


def _place_of_mistake(data: Any, mistake: Any) -> Place:
    """Keys and indices in a pydantic error's `loc`, which also names union branches: ("run", "tuple", 0)."""
    place: list[str | int] = []
    # Of a missing field, the last part is its name.
    for part in mistake["loc"][:-1] if mistake["type"] == "missing" else mistake["loc"]:
        is_key = isinstance(data, dict) and part in data
        if is_key or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            data = data[part]
            place.append(part)
    if mistake["type"] == "union_tag_invalid":
        place.append(mistake["ctx"]["discriminator"].strip("'"))
    return tuple(place)


def _describe_mistakes(model: type[T], same_place_mistakes: list[Any]) -> tuple[str, str, Any, Sequence[str]]:
    """(expected, got, wrong word, possible words) for the pydantic errors about one place.
    The last two are for a hint; None and empty where there can be none."""
    from loop.base.documents.schemas import known_fields

    first = same_place_mistakes[0]
    kind, value = first["type"], first["input"]
    choices: list[str] = []
    if kind in MISSING_VALUE_ERRORS:
        name = repr(first["loc"][-1]) if kind == "missing" else first["ctx"]["discriminator"]
        return f"a value for {name}", "nothing", None, ()
    if kind == "extra_forbidden":
        name = str(first["loc"][-1])
        return "a known name", quote(name), name, known_fields(model)
    if kind == "union_tag_invalid":
        value, expected = first["ctx"]["tag"], first["ctx"]["expected_tags"]
        choices = re.findall(r"'([^']*)'", expected)
        return f"one of {expected}", quote(value), value, choices
    matches: list[re.Match[str]] = []
    for item in same_place_mistakes:
        if item["type"] in CHOICE_ERRORS:
            choices += re.findall(r"'([^']*)'", item["ctx"]["expected"])
        if match := EXPECTED_AND_GOT.fullmatch(item["msg"]):
            matches.append(match)
    if not matches:
        text = first["msg"].removeprefix("Value error, ")
        return "what fits", f"{quote(value)}: {text}", value, choices
    expected = " or ".join(dict.fromkeys(match[1] for match in matches))
    return expected, matches[0][2] or quote(value), value, choices
