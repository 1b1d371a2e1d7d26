"""The base of all nouns: frozen, nothing unknown in them, every field explained."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]


class Model(BaseModel):
    """A frozen value. Unknown fields are refused.

    What people write is read strictly, by `documents.parse`: text is no number, a boolean no integer. What loop
    itself wrote, such as a record, is read back as it is, lists for tuples included.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
        json_schema_serialization_defaults_required=True,  # What is printed has every field.
        defer_build=True,  # Validators are made when first used: listing patterns needs few of them.
    )


class Printed(Model):
    """What a command prints with `--json`. New fields may come; those that are here keep names and meanings."""

    model_config = ConfigDict(allow_inf_nan=True)

    schema_version: int = 1
    """Number of this schema."""
