"""Plain data to frozen models; what does not fit is said in words, at its line and column."""

import json
from typing import TYPE_CHECKING, Any, TypeVar

from loop.base.documents.complaints import Document, Place
from loop.base.errors import DefinitionError

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T", bound="BaseModel")


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
        from loop.base.documents.wording import complaints

        raise DefinitionError(complaints(model, document, place, data, error)) from error


def part(data: Any, place: Place) -> Any:
    """The value at `place`; an empty mapping when there is none."""
    for step in place:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return {} if data is None and place else data
