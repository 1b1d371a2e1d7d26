"""Walks over small patterns, and the events that they emit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loop.base.processes import Tick
from loop.model.output import CommandOutput
from loop.model.plan import Pattern, ResolvedPlan
from loop.model.record import Finished
from loop.session.walk import PatternBegan, StepBegan, StepEnded, Walk, WalkEvent
from loop.steps.context import Context, Result, RunningAction
from tests.makers import make_pattern, make_plan

Behaviour = Callable[[Context], RunningAction[CommandOutput]]  # The behaviour of a command in a test.


def make_step(name: str, run: str = "true", **fields: Any) -> dict[str, Any]:
    """A step that runs a command."""
    base = {"id": name, "title": name, "action": "command.run", "with": {"run": run}, "budget_s": 5.0}
    return {**base, **fields}


def pattern(name: str, *steps: dict[str, Any], answers: Sequence[dict[str, Any]] = ()) -> Pattern:
    """A pattern of these steps and answers."""
    return Pattern.model_validate({**make_pattern(name).model_dump(), "steps": steps, "next": tuple(answers)})


def plan_of(*patterns: Pattern, listed: Sequence[str] = ()) -> ResolvedPlan:
    """A resolved plan that lists these patterns, or only those named."""
    resolved = make_plan(*patterns)
    names = tuple(listed) or resolved.plan.patterns
    return resolved.model_copy(update={"plan": resolved.plan.model_copy(update={"patterns": names})})


@dataclass
class Clock:
    """A clock that only a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Walked:
    """A walk and the events that it emitted."""

    walk: Walk
    events: list[WalkEvent] = field(default_factory=list)

    def to_its_end(self) -> "Walked":
        """Walk to the end."""
        self.events += self.walk.events()
        return self

    def until(self, step: str) -> "Walked":
        """Walk until a step has begun, and be killed there."""
        walking = self.walk.events()
        for event in walking:
            self.events.append(event)
            if isinstance(event, StepBegan) and event.started.step == step:
                walking.close()
                return self
        raise AssertionError(f"{step} never began")

    @property
    def ended(self) -> list[Finished]:
        """Records of the steps that ended now or before."""
        return [event.finished for event in self.events if isinstance(event, StepEnded)]

    @property
    def record(self) -> Finished:
        (record,) = self.ended
        return record

    @property
    def steps(self) -> list[str]:
        """Each step with how it ended."""
        return [f"{record.step} {record.status}" for record in self.ended]

    @property
    def chain(self) -> list[str]:
        """The patterns in the order in which they were walked."""
        return [event.name for event in self.events if isinstance(event, PatternBegan)]

    @property
    def done(self) -> list[str]:
        """The steps that were really done, with their attempt."""
        return [f"{e.started.step} {e.started.attempt}" for e in self.events if isinstance(e, StepBegan)]

    def resumed(self, context: Context | None = None) -> "Walked":
        """A walk that resumes from this one's journal."""
        walk = self.walk
        written = [event.finished for event in self.events if isinstance(event, StepEnded) and not event.replayed]
        begun = [event.started for event in self.events if isinstance(event, StepBegan)]
        return Walked(
            replace(
                walk,
                context=context or walk.context,
                earlier_records=[*walk.earlier_records, *written],
                begun_attempts=[*walk.begun_attempts, *begun],
                finished=[],
                stop_reason=None,
            )
        )


def walking(context: Context, *patterns: Pattern, listed: Sequence[str] = (), **fields: Any) -> Walked:
    facts = {"minutes": 1.0, "usd": 0.5, "speedup": None, "regressed": False}
    plan = plan_of(*patterns, listed=listed)
    return Walked(Walk(plan, context, lambda finished: {**facts, "usd": float(len(finished))}, **fields))


def walk(context: Context, *patterns: Pattern, listed: Sequence[str] = (), **fields: Any) -> Walked:
    """The same, walked to its end."""
    return walking(context, *patterns, listed=listed, **fields).to_its_end()


def found(ok: bool = True, **fields: Any) -> Result[CommandOutput]:
    """The output of a command."""
    return Result(CommandOutput(ok=ok, message="done", **fields))


def at_once(result: Result[CommandOutput]) -> Behaviour:
    """Return an output without waiting."""

    def act(context: Context) -> RunningAction[CommandOutput]:
        yield Tick("at it")
        return result

    return act
