"""A plan: the ordered list of patterns a session walks through."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from loop.base.expressions import Miss
from loop.model.base import Model

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Step(Model):
    """One thing done, timed against its budget."""

    id: Identifier
    """Name of the step; later expressions read its output under this name."""
    title: Text
    action: Text
    """Which kind of thing it does: a name from the table of actions."""
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")
    when: str | None = None
    """Expression; the step is skipped when it is false."""
    skipped_because: Text | None = None
    """What is said then, as in `needs a network`. Default: the part of `when` that is false, in words."""
    gate: str | None = None
    """Expression over this step's output; the step fails when it is false."""
    budget_s: Positive
    """Seconds the step is meant to take."""
    limit_s: Positive | None = None
    """Seconds after which everything the step started is killed. Default: ten budgets, at least a minute."""
    on_fail: Literal["stop", "continue", "skip_pattern"] = "stop"
    """What a failure does: stop the chain, go on with the next step, or leave this pattern."""
    mend: Text | None = None
    """The command that usually cures a failure of this step."""

    @property
    def kill_after_s(self) -> float:
        """Seconds the step may run before its processes are killed."""
        return self.limit_s or max(60.0, 10 * self.budget_s)


class TimeBudget(Model):
    """What something is thought or meant to take."""

    minutes: Positive


class Next(Model):
    """Which pattern answers an outcome of this one."""

    when: str
    """Expression over `failed`, `passed`, `session`, `device` and the outputs of this pattern's steps."""
    pattern: Name
    visits: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How often this answer may be given in one session."""


class PatternEvidence(Model):
    """One session in which the pattern was seen to matter."""

    session: Text
    """Session of the recorded history, or an id of this project's own."""
    note: Text


class Pattern(Model):
    """A named way of working: ordered steps, and the patterns that answer its outcomes."""

    format: Literal[1]
    name: Name
    """Name; the same as the file's."""
    number: Annotated[int, Field(ge=1)]
    """Number in the catalogue."""
    title: Text
    priority: Literal["P0", "P1", "P2"] = "P2"
    """P0 belongs in every session."""
    problem: Text
    """One sentence on what goes wrong without it."""
    use_when: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Occasions for it, for people and for search."""
    estimate: TimeBudget
    """Time a run is thought to take, before any was measured here."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    next: tuple[Next, ...] = ()
    """Answers to outcomes; the first whose `when` holds is taken."""
    evidence: tuple[PatternEvidence, ...] = ()


class Plan(Model):
    """An ordered list of patterns and the workloads they run on."""

    format: Literal[1]
    name: Name
    title: Text
    patterns: Annotated[tuple[Name, ...], Field(min_length=1)]
    workloads: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of workload sets of the target that are verified and timed."""
    checks: tuple[str, ...] = ()
    """Names of workload sets that are verified only, where the target has them."""
    budget: TimeBudget
    """What the whole is meant to take."""
    success: str | None = None
    """Expression over what the session found: the objective is reached when it is true."""
    requires: str | None = None
    """Expression over machine, revision and variants; the session is refused when it is false."""
    stop_if: str | None = None
    """Expression over what the session found; no further step is begun once it is true."""
    otherwise: Name | None = None
    """What answers a missed objective: a pattern, which is run next, or a plan, which is proposed."""
    parameters: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Further names that expressions may read as `plan.<name>`."""

    def aims(self) -> Iterator[str]:
        """What it is for, a line each: objective, what it requires, when it stops, what answers a miss."""
        aims = {
            "objective": self.success,
            "requires": self.requires,
            "stops if": self.stop_if,
            "otherwise": self.otherwise,
        }
        return (f"{name}: {text}" for name, text in aims.items() if text)


class Predicted(Model):
    """Time and cost that a session was expected to have, as it was said when it began."""

    seconds: float
    low_s: float
    """One time in ten it was expected to take less."""
    high_s: float
    usd: float
    low_usd: float
    high_usd: float


class PlannedPattern(Model):
    """One pattern of a resolved plan, with its predicted time."""

    pattern: Pattern
    planned: bool
    """True when the plan lists it; false when only an outcome leads to it."""
    seconds: float
    low_s: float | None = None
    """One run in ten is predicted to take less; None before it was predicted."""
    high_s: float | None = None
    step_s: dict[str, float] = Field(default_factory=dict)
    """Predicted seconds of the steps that were run before, by id."""
    evidence: Literal["measured", "prior"]
    """Whether the prediction rests on earlier sessions or on the pattern's own estimate."""


class ResolvedPlan(Model):
    """A plan with every pattern it could reach, read and checked before anything runs."""

    plan: Plan
    patterns: tuple[PlannedPattern, ...]
    """Listed patterns in order, then those that outcomes could lead to."""

    def find(self, name: str) -> PlannedPattern:
        """The planned pattern called `name`; resolving has made sure that there is one."""
        return next(planned for planned in self.patterns if planned.pattern.name == name)

    @property
    def seconds(self) -> float:
        """Predicted seconds of the patterns that the plan lists."""
        return sum(self.find(name).seconds for name in self.plan.patterns)


class Reached(Model):
    """Whether the objective was reached."""

    success: str
    missed: tuple[Miss, ...] = ()
    """Its parts that are not true; empty when it was reached."""
    judged: bool = True
    """Whether it could be judged: one that speaks of variants needs a variant that was judged."""
