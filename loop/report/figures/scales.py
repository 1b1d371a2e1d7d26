"""From values to places in a figure: linear and logarithmic axes with round marks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 5.0)
_FINE = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_FINEST = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
_PREFIXES = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}


@dataclass(frozen=True)
class Scale:
    """An axis between two values, drawn between two places."""

    low: float
    high: float
    start: float
    """Where `low` is drawn."""
    end: float
    """Where `high` is drawn."""
    log: bool = False

    def __call__(self, value: float) -> float:
        """Where a value is drawn; one beyond an end is drawn at that end."""
        held = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(held / self.low) / math.log(self.high / self.low)
        else:
            share = (held - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def marks(self, most: int = 8) -> list[float]:
        """Round values along the axis, at most so many."""
        return _log_marks(self.low, self.high, most) if self.log else _linear_marks(self.low, self.high, most)


def logarithmic(values: Sequence[float], start: float, end: float, *, room: float = 1.15) -> Scale:
    """Around positive values, with a margin; at least a factor of two wide."""
    low, high = min(values) / room, max(values) * room
    if high / low < 2:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(2), middle * math.sqrt(2)
    return Scale(low, high, start, end, log=True)


def _linear_marks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (*_STEPS, 10.0, 20.0) if power * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, int(high / step + 1e-9) + 1)]


def _log_marks(low: float, high: float, most: int) -> list[float]:
    """The finest steps of each decade of which there are not too many; of wide axes every so many decades."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in (_FINEST, _FINE, _STEPS, (1.0,)):
        marks = [step * 10.0**decade for decade in decades for step in steps]
        inside = [value for value in marks if low * 0.999 <= value <= high * 1.001]
        if len(inside) <= most:
            return inside if len(inside) > 1 else [value for value in _linear_marks(low, high, most) if value > 0]
    return inside[:: math.ceil(len(inside) / most)]


def plain_number(value: float) -> str:
    """`0.25`, `1`, `12.5`, `2,000`."""
    if 1000 <= abs(value) < 100_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.0e}".replace("e-0", "e-")


def with_prefix(value: float) -> str:
    """`100 G`, `2.5 T`: a value with the prefix of its thousands."""
    power = min(15, max(-12, 3 * math.floor(math.log10(value) / 3 + 1e-9))) if value > 0 else 0
    return f"{value / 10.0**power:.3g} {_PREFIXES[power]}".strip()
