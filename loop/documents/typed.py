"""Plain data to frozen models; what does not fit is said in words, at its line and column."""

import difflib
import json
from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from loop.documents.yaml_text import Document, Place, dotted
from loop.errors import Complaint, DefinitionError

T = TypeVar("T", bound=BaseModel)
QUOTED = 60
EXPECTED = {
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
    "none_required": "nothing",
    "date_type": "a date as 2026-11-21",
    "date_parsing": "a date as 2026-11-21",
    "date_from_datetime_parsing": "a date as 2026-11-21",
    "date_from_datetime_inexact": "a date as 2026-11-21",
}
"""pydantic's error types in our words; those with limits are worded by `_expected`."""


def parse(model: type[T], document: Document) -> T:
    """The document as a `model`. Raises DefinitionError with every mistake."""
    return parse_part(model, document, ())


def parse_part(model: type[T], document: Document, place: Place) -> T:
    """The part of a document at `place` as a `model`; an absent part counts as an empty mapping."""
    # Strict validation of JSON is the meaning we want: lists become tuples and text becomes dates, but text
    # is no number and true is no integer.
    text = json.dumps(part(document.data, place))
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        found = [_complaint(model, document, place, item) for item in _best(error)]
        raise DefinitionError(sorted(set(found), key=lambda one: (one.line, one.column, one.path))) from error


def part(data: Any, place: Place) -> Any:
    """The value at `place`; an empty mapping when there is none."""
    for step in place:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return {} if data is None and place else data


def complain(
    document: Document, place: Place, expected: str, got: str, hint: str | None = None, *, key: bool = False
) -> Complaint:
    """A complaint about the value (or the key) at `place`."""
    line, column = document.position(place, key=key)
    return Complaint(document.name, line, column, dotted(place), expected, got, hint)


def nearest(word: str, choices: Sequence[str]) -> list[str]:
    """The choices that `word` may have been meant to be, best first."""
    return difflib.get_close_matches(word, choices, n=3, cutoff=0.6)


def _best(error: ValidationError) -> list[Any]:
    """Errors without the noise of unions: of several at one value, those of the branch that got furthest."""
    items = [item for item in error.errors(include_url=False) if not _follows(item, error)]
    kept: list[Any] = []
    for item in items:
        place = _real(item["loc"])
        rivals = [other for other in items if _real(other["loc"]) == place and other["loc"] != item["loc"]]
        if not rivals or item["loc"] <= min((r["loc"] for r in rivals), key=str):
            kept.append(item)
    return kept or items


def _follows(item: Any, error: ValidationError) -> bool:
    """Whether a list only counts as too short because some of its items are wrong."""
    inner = (other["loc"] for other in error.errors(include_url=False) if len(other["loc"]) > len(item["loc"]))
    return item["type"] == "too_short" and any(loc[: len(item["loc"])] == item["loc"] for loc in inner)


def _real(location: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(part for part in location if isinstance(part, int) or not _internal(part))


def _internal(part: str) -> bool:
    """pydantic puts the names of union branches into a location; ours never look like this."""
    return "[" in part or part in UNION_BRANCHES


UNION_BRANCHES = frozenset(("str", "int", "float", "bool", "none", "c_abi", "python", "command"))


def _place(document: Document, start: Place, location: tuple[Any, ...]) -> Place:
    """The location in the document: parts that name nothing there are pydantic's own."""
    place: Place = start
    data = part(document.data, start)
    for index, step in enumerate(location):
        if isinstance(data, dict) and step not in data and index < len(location) - 1:
            continue
        if not isinstance(data, dict | list):
            break
        place = (*place, step)
        data = part(data, (step,)) if _has(data, step) else None
    return place


def _has(data: Any, step: str | int) -> bool:
    if isinstance(data, dict):
        return step in data
    return isinstance(step, int) and step < len(data)


def _complaint(model: type[BaseModel], document: Document, start: Place, item: Any) -> Complaint:
    kind, location = item["type"], item["loc"]
    place = _place(document, start, location)
    if kind == "missing":
        return complain(document, place[:-1], f"a value for {place[-1]!r}", "nothing")
    if kind == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        close = nearest(str(place[-1]), known)
        hint = f"did you mean {close[0]!r}?" if close else (f"known: {', '.join(known)}" if known else None)
        return complain(document, place, "a known name", repr(place[-1]), hint, key=True)
    expected, got = _expected(item), _quote(item["input"])
    choices = _choices(item)
    close = nearest(str(item["input"]), choices) if choices else []
    return complain(document, place, expected, got, f"did you mean {close[0]!r}?" if close else None)


def _expected(item: Any) -> str:
    kind, limits = item["type"], item.get("ctx", {})
    if kind in EXPECTED:
        return EXPECTED[kind]
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        return f"one of {', '.join(_choices(item))}"
    if kind == "union_tag_not_found":
        return f"a value for {str(limits.get('discriminator', '')).strip(chr(39))!r}"
    worded = {
        "greater_than": "a number above {gt}",
        "greater_than_equal": "a number of at least {ge}",
        "less_than": "a number below {lt}",
        "less_than_equal": "a number of at most {le}",
        "too_short": "at least {min_length} of them",
        "string_too_short": "text of at least {min_length} characters",
        "string_pattern_mismatch": "a name that matches {pattern}",
    }
    if kind in worded:
        return worded[kind].format(**limits)
    return str(item["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")


def _choices(item: Any) -> list[str]:
    limits = item.get("ctx", {})
    text = str(limits.get("expected") or limits.get("expected_tags") or "")
    return [word.strip().strip("'") for word in text.replace(" or ", ", ").split(",") if word.strip()]


def _quote(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str | int | float | bool) else f"a {_kind(value)}"
    return text if len(text) <= QUOTED else text[: QUOTED - 3] + "..."


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "mapping"
    return "list" if isinstance(value, list | tuple) else type(value).__name__


def _fields_at(model: Any, location: tuple[Any, ...]) -> list[str]:
    """Field names of the model that a location leads to."""
    for step in location:
        model = _step_into(model, step)
    found = [_with_fields(model)] if model is not None else []
    return [name for fields in found for name in fields]


def _with_fields(model: Any) -> list[str]:
    return [info.alias or name for name, info in getattr(model, "model_fields", {}).items()]


def _step_into(model: Any, step: Any) -> Any:
    """The model type behind one part of a location, as far as it can be told from annotations."""
    fields = getattr(model, "model_fields", None)
    if isinstance(step, int):
        return model
    if fields is None:
        tagged = [m for m in models_in(model) if step in _tags(m)]
        return tagged[0] if tagged else model
    for name, info in fields.items():
        if step in (name, info.alias):
            models = models_in(info.annotation)
            return models[0] if len(models) == 1 else info.annotation
    return None


def _tags(model: Any) -> tuple[Any, ...]:
    kind = getattr(model, "model_fields", {}).get("kind")
    return get_args(kind.annotation) if kind is not None else ()


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """All models inside an annotation such as `tuple[Step, ...]` or `A | B`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_in(inner)]
