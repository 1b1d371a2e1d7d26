"""What a worker makes ready, whatever kind of variant computes it: a call, and a variant that takes calls."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from loop.calls.guarded import Unguarded
from loop.calls.guards import Guard

Run = Callable[[], None]


class Prepared(Protocol):
    """A call with its inputs in memory, ready to be made again and again."""

    call: dict[str, Any]
    """What is computed."""
    timed_apart: bool
    """Whether it times itself and has no windows."""

    @property
    def guarded(self) -> Unguarded:
        """Its tensors, with what stands around them."""

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as something to run; None: the windows whose answer the judge
        knows."""

    def jumble(self, draw: random.Random) -> None:
        """Values nobody knows at every address, for a call whose output is not looked at."""

    def refill(self, call: dict[str, Any]) -> None:
        """The same call on the values of other files, at the same addresses."""

    def poison(self, guard: Guard | None = None) -> None:
        """Make the output NaN, so that an element nobody writes shows, or what `guard` says."""

    def output(self) -> bytes:
        """The last output's bytes, C order; raises Refused when it cannot be one."""

    def changed(self) -> list[str]:
        """Names of inputs that do not hold what they were filled with."""

    def own_seconds(self) -> float | None:
        """Seconds the last run took by the variant's own clock; None when it is timed from outside."""


class Loaded(Protocol):
    """A variant ready to take calls."""

    def prepare(self, call: dict[str, Any], layout: str = "contiguous") -> Prepared:
        """Bring a call's inputs into memory, laid out `contiguous`, `strided` or `misaligned`."""
