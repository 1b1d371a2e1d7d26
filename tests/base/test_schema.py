"""The schema that editors read says what the models say."""

from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import Field

from loop.base.documents.schema import draft7
from loop.model.base import Model
from loop.model.pattern import Pattern
from loop.model.plan import Plan
from loop.model.target import Target


class Red(Model):
    """One kind."""

    kind: Literal["red"]
    """Says red."""


class Blue(Model):
    """The other."""

    kind: Literal["blue"]
    """Says blue."""
    depth: int = 1
    """How deep."""


class Picture(Model):
    """Names that look like keywords, and everything draft 7 spells differently."""

    discriminator: str = ""
    """A field, not a keyword."""
    prefix: tuple[int, str] = (1, "a")
    """A pair."""
    arguments: dict[str, Any] = Field(default_factory=dict, alias="$defs")
    """Known as $defs in files."""
    colours: dict[str, Annotated[Red | Blue, Field(discriminator="kind")]] = Field(default_factory=dict)
    """Colours by name."""
    first: Blue = Blue(kind="blue")
    """The first one."""


def errors(schema: dict[str, Any], value: Any) -> list[str]:
    """What a draft-7 validator says."""
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(value)]


@pytest.mark.parametrize("model", [Pattern, Plan, Target, Picture])
def test_a_schema_is_valid_draft_7(model: type[Model]) -> None:
    """It passes the meta-schema, says which draft it is, and holds nothing of later drafts."""
    schema = draft7(model)
    jsonschema.Draft7Validator.check_schema(schema)
    assert "http://json-schema.org/draft-07/schema#" == schema["$schema"]
    for later in ("#/$defs/", "'prefixItems'", "'mapping'"):
        assert later not in str(schema)


def test_the_schema_takes_and_refuses_what_the_model_does() -> None:
    """References, pairs and kinds are followed."""
    schema = draft7(Picture)
    good = {"discriminator": "x", "prefix": [1, "a"], "$defs": {"a": 1}, "colours": {"a": {"kind": "blue"}}}
    assert [] == errors(schema, good)
    bad = (
        {"prefix": ["a", 1]},
        {"prefix": [1, "a", 2]},
        {"colours": {"a": {"kind": "green"}}},
        {"x": 1},
        {"first": 3},
    )
    for value in bad:
        assert [] != errors(schema, value)


def test_fields_are_described_by_their_docstrings() -> None:
    """Also beside a reference, where draft 7 ignores what is not in an allOf."""
    schema = draft7(Picture)
    assert "A field, not a keyword." == schema["properties"]["discriminator"]["description"]
    assert "The first one." == schema["properties"]["first"]["description"]
    assert [{"$ref": "#/definitions/Blue"}] == schema["properties"]["first"]["allOf"]
    assert "How deep." == schema["definitions"]["Blue"]["properties"]["depth"]["description"]
