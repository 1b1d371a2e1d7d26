"""`make bench-faults`: faults injected into real sessions, class by class, and what each class promises."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, cast

Case = tuple[str, Callable[[Path], str]]
"""A name, and a function of a fresh folder: "" where the promise held, else a sentence that says what broke."""


class FaultClass(Protocol):
    """What each module of a class has."""

    NAME: str
    """Its row in the table."""
    MUST: str
    """What has to hold."""

    def cases(self, seed: int) -> Iterator[Case]:
        """All its cases, in an order and with draws that the seed alone decides."""


def classes() -> dict[str, FaultClass]:
    """Every class by the name of its module: each module of this package that has cases."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    looked_at = [name for name in names if not name.startswith(("_", "test_"))]
    found = {name: importlib.import_module(f"{__name__}.{name}") for name in looked_at}
    return {name: cast(FaultClass, module) for name, module in found.items() if hasattr(module, "cases")}


def side_by_side(module: FaultClass) -> int:
    """How many cases run at a time, where the class asks for a load of its own; 0 leaves it to the runner."""
    return int(getattr(module, "SIDE_BY_SIDE", 0))


def asked_for(module: FaultClass) -> bool:
    """Whether the class is run only where it is named: it takes hours."""
    return bool(getattr(module, "ASKED_FOR", False))


def limit_s(module: FaultClass) -> float:
    """Seconds after which one of its cases counts as hung."""
    return float(getattr(module, "LIMIT_S", 300.0))
