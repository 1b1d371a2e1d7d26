"""What of a kernel may be tuned: values that a search tries under the gate, and the best of each device."""

import itertools
import math
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from loop.model.base import Model
from loop.model.pattern import Identifier, Text

Value = bool | int
Values = dict[Identifier, Value]
"""Field to value: one point of a search."""
Scalar = bool | int | float | str
Entry = dict[str, Scalar | tuple[Scalar, ...]]
"""Workloads as a manifest writes them: a list as a value stands for one workload each."""
Macro = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
DeviceKey = Annotated[str, StringConstraints(pattern=r"^(cpu|sm_\d{2,3})$")]


class Tuning(Model):
    """One set of values that belong together, such as the shape of a tile.

    They reach the compiler as macros: field `rows` of macro `TILE` is `-DTILE_ROWS=64`, in the place of `{tuned}`
    among a variant's flags.
    """

    title: Text
    """What is tuned, in a few words."""
    variant: Identifier
    """The compiled variant that is timed; others may use the same macros."""
    macro: Macro
    """What the macros' names begin with."""
    values: Annotated[dict[Identifier, Annotated[tuple[Value, ...], Field(min_length=1)]], Field(min_length=1)]
    """Field to the values that are tried."""
    best: dict[DeviceKey, Values]
    """Device to its best values, as far as anybody measured: `cpu`, or a compute capability. A GPU that is not
    here takes the first one's."""
    workloads: Annotated[tuple[Entry, ...], Field(min_length=1)]
    """What the values are timed on, as workloads are written everywhere."""

    @model_validator(mode="after")
    def _best_is_whole(self) -> "Tuning":
        for device, chosen in self.best.items():
            if chosen.keys() != self.values.keys():
                fields, got = ", ".join(self.values), ", ".join(chosen)
                raise ValueError(f"best.{device}: expected values for {fields}, got {got or 'none'}")
        return self

    @property
    def size(self) -> int:
        """How many points there are."""
        return math.prod(map(len, self.values.values()))

    @property
    def points(self) -> Iterator[Values]:
        """Every combination of the values, in order."""
        for chosen in itertools.product(*self.values.values()):
            yield dict(zip(self.values, chosen, strict=True))

    def best_on(self, device: str) -> Values | None:
        """The best values of a device: its own; for a GPU without any the first GPU's; None for another kind."""
        same = [key for key in self.best if (key == "cpu") == (device == "cpu")]
        return self.best.get(device) or (self.best[same[0]] if same else None)

    def defines(self, chosen: Values) -> tuple[str, ...]:
        """Values as a compiler is told them."""
        return tuple(f"-D{self.macro}_{field.upper()}={literal(value)}" for field, value in chosen.items())


def literal(value: Value) -> str:
    """A value as C and YAML write it: `true`, `64`."""
    return str(value).lower()
