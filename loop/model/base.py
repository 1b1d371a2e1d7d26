"""The base of all nouns: frozen, strict, every field explained."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A frozen value. Unknown fields are refused; text is not a number and a boolean is not an integer."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
        defer_build=True,  # Validators are made when first used: listing patterns needs few of them.
    )
