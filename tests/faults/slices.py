"""Slices of the fault bench for the tests of every day."""

import itertools
from pathlib import Path

from tests.faults import FaultClass
from tests.faults.__main__ import SEED


def broken(module: FaultClass, number: int, folder: Path) -> str:
    """Run one case of a class; what broke."""
    name, case = next(itertools.islice(module.cases(SEED), number, None))
    place = folder / "case"
    place.mkdir()
    found = case(place)
    return f"{name}: {found}" if found else ""
