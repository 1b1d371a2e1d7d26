"""A pattern: a named way of working, written as executable steps in one YAML file."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

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
    """What the step does, as shown on the screen and in the report."""
    action: Text
    """Which kind of thing it does: a name from the table of actions."""
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")
    """Values for the action."""
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
    """Name of the pattern that answers."""
    visits: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How often this answer may be given in one session."""


class PatternEvidence(Model):
    """One session in which the pattern was seen to matter."""

    session: Text
    """Session of the recorded history, or an id of this project's own."""
    note: Text
    """What was seen."""


class Pattern(Model):
    """A named way of working: ordered steps, and the patterns that answer its outcomes."""

    format: Literal[1]
    name: Name
    """Name; the same as the file's."""
    number: Annotated[int, Field(ge=1)]
    """Number in the catalogue."""
    title: Text
    """Title for people."""
    priority: Literal["P0", "P1", "P2"] = "P2"
    """P0 belongs in every session."""
    problem: Text
    """One sentence on what goes wrong without it."""
    use_when: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Occasions for it, for people and for search."""
    estimate: TimeBudget
    """Time a run is thought to take, before any was measured here."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    """What is done, in order."""
    next: tuple[Next, ...] = ()
    """Answers to outcomes; the first whose `when` holds is taken."""
    evidence: tuple[PatternEvidence, ...] = ()
    """Where the pattern comes from."""
