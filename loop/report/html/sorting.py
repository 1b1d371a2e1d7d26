"""What a cell of a table is sorted by: the number it begins with, in the unit that its column has in common."""

import re

_TIMES = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_JOULES = {"nJ": 1e-9, "µJ": 1e-6, "mJ": 1e-3, "J": 1.0}
_BYTES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
UNITS = _TIMES | _JOULES | _BYTES
_NUMBER = re.compile(
    r"^[<>]?(?P<sign>-?)\$?(?P<digits>\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)x?(?:$|\s+(?P<unit>[^\s\[]*))"
)
_MINUTES = re.compile(r"^(\d+) min (\d+) s$")


def sort_value(cell: str) -> float | None:
    """The number of a cell, in seconds, joules or bytes where it has such a unit; None for words."""
    minutes = _MINUTES.match(cell)
    if minutes:
        return 60.0 * int(minutes[1]) + int(minutes[2])
    found = _NUMBER.match(cell)
    if found is None:
        return None
    value = float(found["digits"].replace(",", "")) * UNITS.get(found["unit"] or "", 1.0)
    return -value if found["sign"] else value
