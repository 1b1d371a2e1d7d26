"""A plan: the ordered list of patterns a session walks through."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.pattern import Name, Pattern, Positive, Text


class PlanBudget(Model):
    """What the whole plan is meant to take."""

    minutes: Positive
    """Minutes."""


class Plan(Model):
    """An ordered list of patterns and the workloads they run on."""

    format: Literal[1]
    """Format number of this file."""
    name: Name
    """Name; the same as the file's."""
    title: Text
    """The objective, in one sentence."""
    patterns: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Patterns, in order."""
    workloads: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of workload sets of the target that are verified and timed."""
    checks: tuple[str, ...] = ()
    """Names of workload sets that are verified only, where the target has them."""
    budget: PlanBudget
    """What the whole is meant to take."""
    parameters: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Further names that expressions may read as `plan.<name>`."""


class PlannedPattern(Model):
    """One pattern of a resolved plan, with its predicted time."""

    pattern: Pattern
    """The definition as it was when the session began."""
    planned: bool
    """True when the plan lists it; false when only an outcome leads to it."""
    seconds: float
    """Predicted seconds."""
    evidence: Literal["measured", "prior"]
    """Whether the prediction rests on earlier sessions of this target or on the pattern's own estimate."""


class ResolvedPlan(Model):
    """A plan with every pattern it could reach, read and checked before anything runs."""

    plan: Plan
    """The plan itself."""
    patterns: tuple[PlannedPattern, ...]
    """Listed patterns in order, then those that outcomes could lead to."""

    def find(self, name: str) -> PlannedPattern:
        """The planned pattern called `name`; resolving has made sure that there is one."""
        return next(planned for planned in self.patterns if planned.pattern.name == name)

    @property
    def seconds(self) -> float:
        """Predicted seconds of the patterns that the plan lists."""
        return sum(self.find(name).seconds for name in self.plan.patterns)
