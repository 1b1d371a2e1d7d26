"""Plain data to frozen models. Every mistake is said in words, at its line and column."""

import json
from typing import TYPE_CHECKING, TypeVar

from loop.base.documents.complaints import Document, Place
from loop.base.errors import DefinitionError

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T", bound="BaseModel")


def parse(model: type[T], document: Document, place: Place = ()) -> T:
    """The part of a document at `place` as a `model`; an absent part counts as an empty mapping.

    Raises DefinitionError with every mistake.
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
        # Strict validation of JSON is the meaning we want: lists become tuples and text becomes dates, but text
        # is no number and true is no integer.
        return model.model_validate_json(json.dumps(data), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        from loop.base.documents.mistakes import complaints

        raise DefinitionError(complaints(model, document, place, data, error)) from error
