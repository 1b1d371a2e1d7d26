"""`make bench-faults`: injects faults into real sessions, in classes that each test a promise."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, cast

Case = tuple[str, Callable[[Path], str]]
"""A name, and a function of a fresh folder. It returns "" if the promise held, else what broke."""


class FaultClass(Protocol):
    """The interface of a module that holds a class of faults."""

    NAME: str
    """Its row in the table."""
    MUST: str
    """The promise that has to hold."""

    def cases(self, seed: int) -> Iterator[Case]:
        """All its cases; the seed alone decides their order and draws."""


def classes() -> dict[str, FaultClass]:
    """Every class by the name of its module: each module of this package that has cases."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    looked_at = [name for name in names if not name.startswith(("_", "test_"))]
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in looked_at}
    return {name: cast(FaultClass, module) for name, module in modules.items() if hasattr(module, "cases")}


def side_by_side(module: FaultClass) -> int:
    """Cases of this class that run at a time; 0 leaves it to the runner."""
    return int(getattr(module, "SIDE_BY_SIDE", 0))


def asked_for(module: FaultClass) -> bool:
    """Whether the class runs only if it is named."""
    return bool(getattr(module, "ASKED_FOR", False))


def limit_s(module: FaultClass) -> float:
    """Seconds after which one of its cases counts as hung."""
    return float(getattr(module, "LIMIT_S", 300.0))
