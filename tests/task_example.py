"""What an example of a target of format 2 is: its Python file, its variants, what the gate says of each."""

from dataclasses import dataclass, field
from typing import Any

FLOAT = {"float32": {"atol": 1.0e-5, "rtol": 1.0e-5}}


@dataclass(frozen=True)
class Example:
    """One target: what its Python file says, and its manifest beside that."""

    code: str
    """`make` makes the inputs, `right` is a right variant, `reference` the reference."""
    wrong: dict[str, str]
    """Other variants: name to what the gate says of them, as a cause; empty where they are right, too."""
    fields: dict[str, Any] = field(default_factory=dict)
    """What else stands in the manifest."""
    workloads: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    function: dict[str, Any] = field(default_factory=dict)
    """What else stands with each variant in Python."""
    compiled: dict[str, str] = field(default_factory=dict)
    """Other variants, in C."""

    @property
    def others(self) -> dict[str, str]:
        """All variants but the first, with what the gate says of them."""
        return {**self.wrong, **self.compiled}
