"""The state of a search over commits, read from the journal of what was asked and told. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from loop.bisect.model import Asked, Broken, Key, Lost, Outcome, Positions, Problem, Try, Values
from loop.model.bisect import Claim

Links = dict[int, list[float]]
"""Observations of a position, by relink; runs count 1 where they passed."""


@dataclass
class Confirmation:
    """The observations of one confirmation."""

    claim: Claim
    values: dict[int, Links] = field(default_factory=dict)
    """By the position that was observed."""
    later: dict[int, int] = field(default_factory=dict)
    """Observations of the search since, by position."""


@dataclass
class Observations:
    """What the journal says, by position."""

    positions: Positions
    values: dict[int, Links] = field(default_factory=dict)
    """Observations of the search."""
    confirmations: dict[Key, Confirmation] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    """Positions that cannot be tested, and why."""
    built: set[tuple[int, int]] = field(default_factory=set)
    """Positions and relinks whose build is there."""
    unlinked: bool = False
    """A relinked build failed: no more of them."""
    lost: int = 0
    """Tries in a row that were lost, the last one included."""
    reason: str = ""
    """Why the last one was."""
    observations: int = 0

    def count(self, position: int) -> int:
        """Observations of the search at a position."""
        return sum(map(len, self.values.get(position, {}).values()))


def read(problem: Problem, journal: Sequence[Asked]) -> Observations:
    """The state of a search that has asked and been told this."""
    seen = Observations(problem.positions)
    for one in journal:
        _note(seen, one.asked, _plain(one.outcome), paired=problem.metric == "latency" and problem.noise.paired)
    return seen


def _plain(outcome: Outcome) -> Outcome:
    """Values as numbers, those that are none left out. Where no value came the try counts as lost."""
    if isinstance(outcome, Broken | Lost):
        return outcome
    return [float(value) for value in outcome if math.isfinite(value)] or Lost("no value came")


def _note(seen: Observations, asked: Try, outcome: Outcome, *, paired: bool) -> None:
    """Add one line of the journal.

    Ratios to another commit than the good end come from a search with other ends: they say nothing here.
    """
    place = seen.positions.place
    if isinstance(outcome, Lost):
        seen.lost, seen.reason = seen.lost + 1, outcome.reason
        return
    seen.lost, seen.reason = 0, ""
    if isinstance(outcome, Broken) and asked.relink:
        seen.unlinked = True
    elif isinstance(outcome, Broken):
        seen.broken[place[asked.commit]] = outcome.reason
    else:
        seen.built |= {
            (place[asked.commit], asked.relink),
            (place[asked.against], asked.relink if asked.claim else 0),
        }
        if asked.claim or not paired or place[asked.against] == 0:
            _note_values(seen, asked, outcome)


def _note_values(seen: Observations, asked: Try, values: Values) -> None:
    position, against = seen.positions.place[asked.commit], seen.positions.place[asked.against]
    seen.observations += len(values)
    kept = seen.values
    if asked.claim is None:
        for made in seen.confirmations.values():
            made.later[position] = made.later.get(position, 0) + len(values)
    else:  # Either side of a confirmation may be the one that was observed.
        key = max(position, against), min(position, against), asked.claim.number
        kept = seen.confirmations.setdefault(key, Confirmation(asked.claim)).values
    kept.setdefault(position, {}).setdefault(asked.relink, []).extend(values)
