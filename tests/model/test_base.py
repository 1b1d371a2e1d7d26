"""The base of all nouns."""

import datetime
import enum
from typing import Any

import pytest
from pydantic import Field

from loop.model.base import Model
from loop.model.signature import Signature


class Colour(enum.Enum):
    """One colour."""

    RED = "red"


class Inner(Model):
    """A part."""

    names: tuple[str, ...]


class Outer(Model):
    """A record."""

    inner: Inner
    colour: Colour
    at: datetime.datetime
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")
    ratio: float = 1.0


def make_outer(**fields: Any) -> Outer:
    """A record with all kinds of fields."""
    moment = datetime.datetime(2026, 11, 21, 5, 19, 0, 123000, tzinfo=datetime.UTC)
    base = {"inner": {"names": ("a", "b")}, "colour": Colour.RED, "at": moment}
    return Outer.model_validate({**base, **fields})


def test_a_record_comes_back_from_json_the_same() -> None:
    """Tuples, enumerations, moments and fields with another name in files survive."""
    outer = make_outer(**{"with": {"flags": ["-O3"], "n": 1}})
    text = outer.model_dump_json()
    assert '"with":{"flags":["-O3"],"n":1}' in text
    assert outer == Outer.model_validate_json(text)
    assert outer == Outer.model_validate_json(text, strict=True)
    assert outer == Outer.model_validate(outer.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("field", "names"), [("updates", {"new": "old"}), ("types", {"new": "float32"}), ("words", {"N": "rows"})]
)
def test_an_error_never_offers_an_empty_list(field: str, names: dict[str, str]) -> None:
    """Where no name could stand, it says why."""
    with pytest.raises(ValueError, match=f"{field}: expected an? ") as error:
        Signature.model_validate({field: names})
    assert "one of ," not in str(error.value)
