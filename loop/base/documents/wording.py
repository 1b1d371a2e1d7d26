"""What pydantic says of data that does not fit, in our words, at line and column. Imported only where needed."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loop.base.documents.branches import Finding, find, of_best_branches
from loop.base.documents.complaints import Document, Place, complain, did_you_mean, quote
from loop.base.documents.schema import names_at
from loop.base.errors import Complaint, DefinitionError

DATE = "a date as 2026-11-21"
MOMENT = "a date and time as 2026-11-21T05:19:00Z"
WORDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "nothing",
    "path_type": "a path",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "a name that matches {pattern}",
    "literal_error": "one of {expected}",
    "enum": "one of {expected}",
    "union_tag_invalid": "one of {expected_tags}",
    "union_tag_not_found": "a value for {discriminator}",
}
COUNTED = ("too_short", "too_long")


def expected_of(items: Sequence[Any]) -> str:
    """What should have been there; of a union, everything that could have been."""
    words = list(dict.fromkeys(_expected(item) for item in items))
    if "a number" in words and "a whole number" in words:
        words.remove("a whole number")
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def _expected(item: Any) -> str:
    kind, limits = item["type"], item.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        stated = _stated(item)
        return stated[0] if stated else "values that fit together"
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        limits = {**limits, "expected": _listed(item), "expected_tags": _listed(item)}
    if kind in WORDS:
        return WORDS[kind].format(**limits)
    if kind.startswith("datetime"):
        return MOMENT
    return DATE if kind.startswith("date") else str(item["msg"]).removeprefix("Input should be ")


def got_of(finding: Finding) -> str:
    """What was there instead."""
    item = finding.items[0]
    if finding.kind in ("value_error", "assertion_error"):
        stated = _stated(item)
        return stated[1] if stated else f"{quote(finding.value)}: {_reason(item)}"
    if finding.kind == "union_tag_not_found":
        return "nothing"
    if finding.kind in COUNTED:
        return str(item["ctx"]["actual_length"])
    return quote(finding.value)


def _reason(item: Any) -> str:
    return str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")


def _stated(item: Any) -> tuple[str, str] | None:
    """Both sides, where a validator of ours already says `expected ..., got ...`."""
    found = re.fullmatch(r"expected (.*), got (.*)", _reason(item), re.DOTALL)
    return (found[1], found[2]) if found else None


def choices_of(items: Sequence[Any]) -> list[str]:
    """The words that would have been right, where there are some."""
    texts = (item.get("ctx", {}).get("expected") or item.get("ctx", {}).get("expected_tags") for item in items)
    return [word for text in texts if text for word in re.findall(r"'([^']*)'", str(text))]


def _listed(item: Any) -> str:
    limits = item["ctx"]
    text = str(limits.get("expected") or limits.get("expected_tags"))
    return re.sub(r"'([^']*)'", r"\1", text).replace(" or ", ", ")


if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def complaints(
    model: "type[BaseModel]", document: Document, start: Place, data: Any, error: "ValidationError"
) -> list[Complaint]:
    """In the order of the file. Only those that are shown get a hint: looking for near names takes time.

    `data`: the part of the document at `start`.
    """

    def where(finding: Finding) -> tuple[int, int]:
        return document.position((*start, *finding.place), key=finding.key)

    found = of_best_branches(find(data, error.errors(include_url=False)))
    ordered = sorted(found, key=where)
    made = [
        _complaint(model, document, start, data, finding, hinted=index < DefinitionError.SHOWN)
        for index, finding in enumerate(ordered)
    ]
    return list(dict.fromkeys(made))


def _complaint(
    model: "type[BaseModel]", document: Document, start: Place, data: Any, finding: Finding, *, hinted: bool
) -> Complaint:
    place = (*start, *finding.place)
    if finding.kind == "missing":
        return complain(document, place, f"a value for {finding.name!r}", "nothing")
    if finding.kind == "extra_forbidden":
        hint = _known(model, data, finding) if hinted else None
        return complain(document, place, "a known name", quote(finding.name), hint, key=True)
    choices = choices_of(finding.items) if hinted else []
    hint = did_you_mean(str(finding.value), choices) if isinstance(finding.value, str) else None
    return complain(document, place, expected_of(finding.items), got_of(finding), hint, key=finding.key)


def _known(model: "type[BaseModel]", data: Any, finding: Finding) -> str | None:
    names = names_at(model, data, finding.place[:-1])
    close = did_you_mean(finding.name, names)
    return close or (f"known: {', '.join(names)}" if names else None)
