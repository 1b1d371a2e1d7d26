"""Patterns (ordered steps) and plans (ordered patterns that a session runs)."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from loop.base.expressions import Miss
from loop.model.base import Model

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Step(Model):
    """One step of a pattern: an action with a time budget and a gate."""

    id: Identifier
    """Name of the step; later expressions read its output under this name."""
    title: Text
    action: Text
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")
    when: str | None = None
    """Expression; the step is skipped if it is false."""
    skipped_because: Text | None = None
    """Message for a skip, as in `needs a network`. Default: the false part of `when`, in words."""
    gate: str | None = None
    """Expression over this step's output; the step fails if it is false."""
    budget_s: Positive
    """Seconds the step is meant to take."""
    limit_s: Positive | None = None
    """Seconds after which all it started is killed. Default: ten budgets, at least a minute."""
    on_fail: Literal["stop", "continue", "skip_pattern"] = "stop"
    """After a failure: stop the session, go on with the next step, or skip the pattern's rest."""
    mend: Text | None = None
    """Command that usually fixes a failure of this step."""

    @property
    def kill_after_s(self) -> float:
        """Seconds the step may run before its processes are killed."""
        return self.limit_s or max(60.0, 10 * self.budget_s)


class TimeBudget(Model):
    """An expected or allowed duration."""

    minutes: Positive


class Next(Model):
    """The pattern that runs next after a certain outcome."""

    when: str
    """Expression over `failed`, `passed`, `session`, `device` and the outputs of its steps."""
    pattern: Name
    visits: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How often per session this rule may apply."""


class PatternEvidence(Model):
    """A session that shows why the pattern matters."""

    session: Text
    """A session of the recorded history, or an id of this project's sessions."""
    note: Text


class Pattern(Model):
    """A named way of working: ordered steps, and rules for the pattern that follows."""

    format: Literal[1]
    name: Name
    """Name of the pattern; equal to the file's name."""
    number: Annotated[int, Field(ge=1)]
    title: Text
    priority: Literal["P0", "P1", "P2"] = "P2"
    """P0 belongs in every session."""
    problem: Text
    """One sentence: what goes wrong without this pattern."""
    use_when: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Situations in which to use it, for readers and for search."""
    estimate: TimeBudget
    """Estimated duration, used until a run has been measured here."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    next: tuple[Next, ...] = ()
    """Rules for the next pattern. The first whose `when` is true applies."""
    evidence: tuple[PatternEvidence, ...] = ()


class Plan(Model):
    """An ordered list of patterns and the workloads they run on."""

    format: Literal[1]
    name: Name
    title: Text
    patterns: Annotated[tuple[Name, ...], Field(min_length=1)]
    workloads: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of the target's workload sets to verify and time."""
    checks: tuple[str, ...] = ()
    """Names of workload sets to verify only. Sets that the target lacks are ignored."""
    same_within: Annotated[float, Field(ge=0.02, le=0.05)] = 0.02
    """Share of time within which a variant and its known good count as `same`. Wider is decided
    sooner; what is likelier than not above 1 % is timed on. At most the control's slowdown."""
    budget: TimeBudget
    """Planned duration of the whole session."""
    success: str | None = None
    """The objective: an expression over the session's results; reached if it is true."""
    requires: str | None = None
    """Expression over machine, revision and variants. If it is false, no session starts."""
    stop_if: str | None = None
    """Expression over the session's results. Once it is true, no further step starts."""
    otherwise: Name | None = None
    """If the objective is missed: a pattern to run next, or a plan to propose."""
    parameters: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Values that expressions can read as `plan.<name>`."""


class Predicted(Model):
    """Predicted time and cost of a session, made when it began."""

    seconds: float
    low_s: float
    """10th percentile: one session in ten is expected to take less."""
    high_s: float
    usd: float
    low_usd: float
    high_usd: float


class PlannedPattern(Model):
    """One pattern of a resolved plan, with its predicted time."""

    pattern: Pattern
    planned: bool
    """True if the plan lists it; False if only an outcome of another pattern leads to it."""
    seconds: float
    low_s: float | None = None
    """10th percentile of the predicted seconds; None without a prediction."""
    high_s: float | None = None
    step_s: dict[str, float] = Field(default_factory=dict)
    """Step id to predicted seconds, for steps that ran in earlier sessions."""
    evidence: Literal["measured", "prior"]
    """Basis of the prediction: `measured` in earlier sessions, or an estimate (`prior`)."""


class ResolvedPlan(Model):
    """A plan with all patterns that it can reach, checked before anything runs."""

    plan: Plan
    patterns: tuple[PlannedPattern, ...]
    """The plan's patterns in order, then patterns that only outcomes can lead to."""

    def find_pattern(self, name: str) -> PlannedPattern:
        """The planned pattern with this name. Every name in the plan's patterns exists."""
        return next(planned for planned in self.patterns if planned.pattern.name == name)


class Reached(Model):
    """The result for a plan's objective. `success`: its expression."""

    success: str
    missed: tuple[Miss, ...] = ()
    """Parts of the expression that are not true; empty if the objective was reached."""
    judged: bool = True
    """False if the objective concerns variants and no variant was judged."""
    uncompared: tuple[str, ...] = ()
    """Variants that the objective compares with their known good, without any clear result."""
