"""Plain data to frozen models; what does not fit is said in words, at its line and column."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from loop.base.documents.branches import Finding, find, of_best_branches
from loop.base.documents.fields import names_at
from loop.base.documents.positions import Document, Place, dotted
from loop.base.documents.quoting import clip, quote
from loop.base.documents.wording import choices_of, expected_of, got_of
from loop.base.errors import Complaint, DefinitionError

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T", bound="BaseModel")
LONGEST = 200
"""Characters of one side of a complaint."""


def parse(model: type[T], document: Document) -> T:
    """The document as a `model`. Raises DefinitionError with every mistake."""
    return parse_part(model, document, ())


def parse_part(model: type[T], document: Document, place: Place) -> T:
    """The part of a document at `place` as a `model`; an absent part counts as an empty mapping."""
    # Strict validation of JSON is the meaning we want: lists become tuples and text becomes dates, but text
    # is no number and true is no integer.
    from pydantic import ValidationError

    data = part(document.data, place)
    try:
        return model.model_validate_json(json.dumps(data), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        found = of_best_branches(find(data, error.errors(include_url=False)))
        raise DefinitionError(_complaints(model, document, place, found)) from error


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
    sides = clip(expected, LONGEST), clip(got, LONGEST)
    return Complaint(document.name, line, column, dotted(place), *sides, hint)


def nearest(word: str, choices: Sequence[str]) -> list[str]:
    """The choices that `word` may have been meant to be, best first."""
    if len(word) > LONGEST:
        return []
    import difflib

    return difflib.get_close_matches(word, choices, n=3, cutoff=0.6)


def did_you_mean(word: str, choices: Sequence[str]) -> str | None:
    """A hint at the nearest choice, when one is near."""
    close = nearest(word, choices)
    return f"did you mean {close[0]!r}?" if close else None


def _complaints(
    model: "type[BaseModel]", document: Document, start: Place, found: Sequence[Finding]
) -> list[Complaint]:
    """In the order of the file. Only those that are shown get a hint: looking for near names takes time."""

    def where(finding: Finding) -> tuple[int, int]:
        return document.position((*start, *finding.place), key=finding.key)

    ordered = sorted(found, key=where)
    made = [
        _complaint(model, document, start, finding, hinted=index < DefinitionError.SHOWN)
        for index, finding in enumerate(ordered)
    ]
    return list(dict.fromkeys(made))


def _complaint(
    model: "type[BaseModel]", document: Document, start: Place, finding: Finding, *, hinted: bool
) -> Complaint:
    place = (*start, *finding.place)
    if finding.kind == "missing":
        return complain(document, place, f"a value for {finding.name!r}", "nothing")
    if finding.kind == "extra_forbidden":
        hint = _known(model, document, start, finding) if hinted else None
        return complain(document, place, "a known name", quote(finding.name), hint, key=True)
    choices = choices_of(finding.items) if hinted else []
    hint = did_you_mean(str(finding.value), choices) if isinstance(finding.value, str) else None
    return complain(document, place, expected_of(finding.items), got_of(finding), hint, key=finding.key)


def _known(model: "type[BaseModel]", document: Document, start: Place, finding: Finding) -> str | None:
    names = names_at(model, part(document.data, start), finding.place[:-1])
    close = did_you_mean(finding.name, names)
    return close or (f"known: {', '.join(names)}" if names else None)
