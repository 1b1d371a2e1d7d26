"""How much of a session fits into the minutes and dollars that it was given, its report included."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from loop.model.plan import ResolvedPlan

REPORT_S = 2.0
"""Kept for ending what runs and writing the report ..."""
REPORT_SHARE = 0.1
"""... but not more than this part of a short allowance."""
LONGEST_S = 1e7
"""Four months: a price so low that the money would last longer bounds nothing."""
Key = tuple[str, str]
"""Pattern and step."""
Evidence = Literal["measured", "prior"]


@dataclass(frozen=True)
class Expected:
    """How long a step is expected to take."""

    seconds: float
    evidence: Evidence
    """Earlier runs of the step, or its part of what the whole pattern is expected to take."""


@dataclass(frozen=True)
class Allowance:
    """Seconds that all walks of a session may take together."""

    limit_s: float
    """All of them."""
    words: str
    """What was given: `5 min`, `$0.10, which lasts for 7 s`."""
    spent_s: float = 0.0
    """What earlier walks took."""
    expected: Mapping[Key, Expected] = field(default_factory=dict)
    """How long each step is expected to take."""

    @property
    def reserve_s(self) -> float:
        """What is kept for the report."""
        return min(REPORT_S, REPORT_SHARE * self.limit_s)

    def left_s(self, walked_s: float) -> float:
        """What is left for steps when this walk has taken so long; below 0 when it is over."""
        return self.limit_s - self.reserve_s - self.spent_s - walked_s

    def exceeded(self, walked_s: float) -> str | None:
        """Why what runs has to end now; None while there is time."""
        return f"stopped at its budget of {self.words}" if self.left_s(walked_s) <= 0 else None

    def refuses(self, pattern: str, step: str, walked_s: float) -> str | None:
        """Why a step is not begun; None where it fits."""
        left = self.left_s(walked_s)
        if left <= 0:
            return f"its budget of {self.words} is spent before {pattern}/{step}"
        expected = self.expected.get((pattern, step))
        if expected is None or expected.seconds <= left:
            return None
        needs = f"{pattern}/{step} takes about {expected.seconds:.1f} s ({expected.evidence})"
        return f"{needs}, and {left:.1f} s are left of its budget of {self.words}"


def seconds_for(usd: float, cost_usd: Callable[[float], float]) -> float:
    """The longest time whose cost is within `usd`, by bisection; `cost_usd` of seconds never falls."""
    if cost_usd(LONGEST_S) <= usd:
        return LONGEST_S
    low, high = 0.0, LONGEST_S
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if cost_usd(middle) <= usd else (low, middle)
    return low


def expected_steps(plan: ResolvedPlan) -> dict[Key, Expected]:
    """Every step of a plan as predicted: by its earlier runs, else its share of its pattern by its budget."""
    steps: dict[Key, Expected] = {}
    for planned in plan.patterns:
        budget_s = sum(step.budget_s for step in planned.pattern.steps)
        for step in planned.pattern.steps:
            seconds = planned.step_s.get(step.id)
            share = Expected(planned.seconds * step.budget_s / budget_s, "prior")
            steps[planned.pattern.name, step.id] = share if seconds is None else Expected(seconds, "measured")
    return steps
