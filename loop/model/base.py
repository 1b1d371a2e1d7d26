"""Base class of all models: frozen, without unknown fields."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]


class Model(BaseModel):
    """A frozen value that refuses unknown fields. `documents.parse` reads what people write
    strictly: text is no number, a boolean no integer. What `loop` wrote it reads leniently."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
        json_schema_serialization_defaults_required=True,  # Printed JSON has every field.
        defer_build=True,  # Build validators at first use: most commands need few of them.
    )


class Printed(Model):
    """JSON that a command prints with `--json`. Releases may add fields, and never change one."""

    model_config = ConfigDict(allow_inf_nan=True)

    schema_version: int = 1
