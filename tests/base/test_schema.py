"""The schema that editors read says what the models say."""

from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import Field

from loop.base.documents.schemas import schema_of
from loop.model.base import Model
from loop.model.plan import Pattern, Plan
from loop.model.target import Target


class Blue(Model):
    """A kind."""

    kind: Literal["blue"]
    """Says blue."""
    depth: int = 1
    """How deep."""


class Picture(Model):
    """Names that look like keywords, pairs, references."""

    discriminator: str = ""
    """A field, not a keyword."""
    prefix: tuple[int, str] = (1, "a")
    arguments: dict[str, Any] = Field(default_factory=dict, alias="$defs")
    """Known as $defs in files."""
    colours: dict[str, Annotated[Blue, Field()]] = Field(default_factory=dict)
    first: Blue = Blue(kind="blue")
    """The first one."""


@pytest.mark.parametrize("model", [Pattern, Plan, Target, Picture])
def test_a_schema_is_valid(model: type[Model]) -> None:
    """It passes the meta-schema."""
    jsonschema.Draft202012Validator.check_schema(schema_of(model))


def test_fields_are_described_by_their_docstrings() -> None:
    """Also beside a reference."""
    schema = schema_of(Picture)
    assert "Known as $defs in files." == schema["properties"]["$defs"]["description"]
    assert "The first one." == schema["properties"]["first"]["description"]
    assert "How deep." == schema["$defs"]["Blue"]["properties"]["depth"]["description"]
