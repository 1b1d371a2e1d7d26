"""What an action is given and what it gives back."""

import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from loop.base.places import target_words
from loop.base.processes import Tick
from loop.cloud import Watch
from loop.model.base import Model
from loop.model.campaign import Campaign
from loop.model.change import ON_CHANGE, PastSearch, TriedChange
from loop.model.debugging import EarlierTry
from loop.model.index import SessionRow
from loop.model.measurement import Segment
from loop.model.money import RateCard
from loop.model.output import Output
from loop.model.plan import Pattern, Plan, Step
from loop.model.record import Finished, KnownGood, Machine
from loop.report.sections import Section
from loop.workers.bench import Bench


@dataclass(frozen=True)
class Workshop:
    """Where a session has its target edited, apart from the user's checkout."""

    tree: Path
    """Where the worktree is, or will be made."""
    notes: Path
    """Where briefs and patches are kept: a folder of the session."""
    resume: str
    declined: bool = False


@dataclass(frozen=True)
class Task:
    """What a session is to do: fixed when it begins."""

    plan: Plan
    variants: tuple[str, ...]
    """Variants that are built, verified and measured."""
    machine: Machine
    seed: int
    folder: Path
    """The target's folder: where commands run."""
    emulated: tuple[str, ...] = ()
    """Variants made for a GPU that are verified under the emulator instead."""
    session: str = ""
    ground: str = ""
    harness: str = ""
    """Hash of those that no compiler reads: manifest, reference, baseline, inputs."""
    hypothesis: str = ""
    workshop: Workshop | None = None
    """Where the target may be edited; None outside a session."""
    patterns: tuple[Pattern, ...] = ()
    """Everything that the session could come to."""
    again: bool = False
    card: RateCard | None = None
    usd_per_hour: float = 0.0
    """What an hour of the session costs, AI left out."""
    campaign: Campaign = field(default_factory=Campaign)

    @property
    def changes(self) -> bool:
        """Whether it may come to a change of the target."""
        return any(step.action.startswith(ON_CHANGE) for pattern in self.patterns for step in pattern.steps)

    def step(self, action: str) -> Step | None:
        """The first step of its patterns that does this; None where none does."""
        steps = (step for pattern in self.patterns for step in pattern.steps)
        return next((step for step in steps if step.action == action), None)


@dataclass(frozen=True)
class Past:
    """What was before the session began."""

    known_good: Mapping[str, KnownGood] = field(default_factory=dict)
    """Variant to what it was when all gates last passed."""
    tries: tuple[EarlierTry, ...] = ()
    """Builds that went through the gate in earlier sessions, oldest first."""
    lost: tuple[TriedChange, ...] = ()
    """Changes that earlier sessions took back, in the same environment."""
    searches: tuple[PastSearch, ...] = ()
    """Searches over values of earlier sessions, in the same environment, oldest first."""
    sessions: tuple[SessionRow, ...] = ()
    """Earlier sessions of the target, oldest first."""
    steps_of: Callable[[str], Sequence[Finished]] = lambda session: ()
    """Steps of an earlier session, by its id."""


@dataclass(frozen=True)
class Context:
    """The session as an action sees it: what is fixed, what is past, and what goes on beside the step."""

    bench: Bench
    """Processes that run and judge variants."""
    task: Task
    past: Past = field(default_factory=Past)
    watch: Watch | None = None
    """A thread that asks whether the machine is about to be taken away."""
    finished: Sequence[Finished] = ()
    """Steps of this session that have ended, so far."""
    budget_s: float = 60.0
    kill_after_s: float = 600.0
    """When everything the step started is killed."""

    def command(self, *words: str) -> str:
        """A command of loop on this target, to be copied: `loop kernels verify cpu --target my-kernel`."""
        return shlex.join(["loop", *words, *target_words(self.task.folder)])

    def latest(self, action: str) -> dict[str, Any] | None:
        """Output of the last finished step of a kind; None when there was none."""
        outputs = [record.output for record in self.finished if record.action == action and record.output]
        return outputs[-1] if outputs else None


Found = TypeVar("Found", bound=Output, covariant=True)


@dataclass(frozen=True)
class Result(Generic[Found]):
    """What an action found, and raw samples to be stored beside it."""

    output: Found
    samples: Mapping[str, Sequence[Segment]] = field(default_factory=dict)
    paused: bool = False
    """Whether somebody has to do something before the step can go on."""


Working = Generator[Tick, None, Result[Found]]
"""An action at work: ticks while it waits, then what it found."""


class NoArguments(Model):
    """For actions that take none."""


@dataclass(frozen=True)
class Action:
    """A kind of thing a step can do, as its function says it."""

    run: Callable[[Context, Any], Working[Output]]
    section: Callable[[Any], Section | None] | None = None
    """What its output adds to the report, where no section of the report's own shows it."""

    @property
    def summary(self) -> str:
        """What it does: the first line of the function's docstring."""
        return (self.run.__doc__ or "").partition("\n")[0].rstrip(".")

    @property
    def arguments(self) -> type[Model]:
        """What stands under `with`: the type of the function's second parameter."""
        _, arguments, _ = get_type_hints(self.run).values()
        return arguments  # type: ignore[no-any-return]

    @property
    def output(self) -> type[Output]:
        """What it finds, and so the names that a gate may read: the `VerifyOutput` of `Working[VerifyOutput]`."""
        _, _, result = get_args(get_type_hints(self.run)["return"])
        return get_args(result)[0]  # type: ignore[no-any-return]
