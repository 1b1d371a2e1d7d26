"""Sums over sessions: what they cost, by resource, and what they saved, by class of evidence."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass, field

from loop.model.ledger import Account, Avoided

RESOURCES = ("gpu", "ai", "engineer", "energy")


@dataclass(slots=True)
class Totals:
    """What sessions took and cost."""

    sessions: int = 0
    minutes: float = 0.0
    energy_j: float | None = None
    """Joules that GPUs took while they were measured; None where no sensor told."""
    charged: dict[str, float] = field(default_factory=dict)
    """Resource to dollars."""
    unknown: set[str] = field(default_factory=set)
    """Resources that some session has no figure for."""

    @property
    def usd(self) -> float:
        """All that is known."""
        return sum(self.charged.values())

    @property
    def known_usd(self) -> float | None:
        """The same; None where that is nothing at all: no charge, and something that has no figure."""
        return None if not self.charged and self.unknown - {"energy"} else self.usd

    def of(self, resource: str) -> float | None:
        """Dollars for one resource. None where none is known; 0 where none was used, which is known."""
        return self.charged.get(resource, None if resource in self.unknown else 0.0)

    def count(self, one: Account) -> None:
        """One session more, its charges not among it."""
        self.sessions += 1
        self.minutes += one.seconds / 60
        self.unknown.update(one.unmeasured)
        if one.energy_j is not None:
            self.energy_j = (self.energy_j or 0.0) + one.energy_j

    def add(self, resource: str, usd: float) -> None:
        """One charge more."""
        self.charged[resource] = self.charged.get(resource, 0.0) + usd


@dataclass(frozen=True)
class Saved:
    """Savings of one class of evidence."""

    minutes: float = 0.0
    minutes_low: float = 0.0
    minutes_high: float = 0.0
    usd: float = 0.0
    usd_low: float = 0.0
    usd_high: float = 0.0

    def roi(self, cost: float) -> tuple[float, float, float] | None:
        """(savings - charges) / charges, with its interval; None where nothing was charged."""
        if cost <= 0:
            return None
        low, middle, high = ((value - cost) / cost for value in (self.usd_low, self.usd, self.usd_high))
        return middle, low, high


def saved(savings: Iterable[Avoided]) -> dict[str, Saved]:
    """Savings by class of evidence: a prior never stands in a measured sum."""
    sums: dict[str, tuple[float, ...]] = {}
    for one in savings:
        before = sums.get(one.evidence) or astuple(Saved())
        sums[one.evidence] = tuple(a + b for a, b in zip(before, one[3:], strict=True))
    return {evidence: Saved(*values) for evidence, values in sums.items()}
