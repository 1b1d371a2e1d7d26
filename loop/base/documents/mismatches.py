"""What pydantic says of data that does not fit: in words, at line and column. Imported only where it is needed."""

from typing import TYPE_CHECKING, Any

from loop.base.documents.branches import Finding, find, of_best_branches
from loop.base.documents.complaints import complain, did_you_mean
from loop.base.documents.fields import names_at
from loop.base.documents.positions import Document, Place
from loop.base.documents.quoting import quote
from loop.base.documents.wording import choices_of, expected_of, got_of
from loop.base.errors import Complaint, DefinitionError

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
