"""What an action is given and what it gives back."""

import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop.base.places import named
from loop.base.processes import Tick
from loop.cloud import Watch
from loop.model.base import Model
from loop.model.change import LostIdea, PastSearch
from loop.model.debugging import Try
from loop.model.index import SessionRow
from loop.model.measurement import Segment
from loop.model.money import RateCard
from loop.model.output import Output
from loop.model.pattern import Pattern
from loop.model.plan import Plan
from loop.model.record import Finished, KnownGood, Machine
from loop.workers.bench import Bench


@dataclass(frozen=True)
class Workshop:
    """Where a session has its target edited, apart from the user's checkout."""

    tree: Path
    """Where the worktree is, or will be made."""
    notes: Path
    """Where briefs and patches are kept: a folder of the session."""
    resume: str
    """The command that goes on with the session."""
    declined: bool = False
    """Whether the user wants no further change."""


@dataclass(frozen=True)
class Context:
    """The session as an action sees it: values only."""

    bench: Bench
    plan: Plan
    variants: tuple[str, ...]
    """Variants that are built, verified and measured."""
    machine: Machine
    seed: int
    """Base of all input seeds."""
    folder: Path
    """The target's folder: where commands run."""
    emulated: tuple[str, ...] = ()
    """Variants made for a GPU that are verified under the emulator instead."""
    finished: Sequence[Finished] = ()
    """Steps of this session that have ended, so far."""
    budget_s: float = 60.0
    """What the step is meant to take."""
    kill_after_s: float = 600.0
    """When everything the step started is killed."""
    known_good: Mapping[str, KnownGood] = field(default_factory=dict)
    """Variant to what it was when all gates last passed."""
    session: str = ""
    """Id of the session; empty outside one."""
    ground: str = ""
    """Hash of the target's files."""
    hypothesis: str = ""
    """What the user thinks is wrong, and has changed something for."""
    tries: tuple[Try, ...] = ()
    """Builds that went through the gate in earlier sessions, oldest first."""
    workshop: Workshop | None = None
    """Where the target may be edited; None outside a session."""
    patterns: tuple[Pattern, ...] = ()
    """Everything that the session could come to."""
    lost: tuple[LostIdea, ...] = ()
    """Changes that earlier sessions took back, in the same environment."""
    searches: tuple[PastSearch, ...] = ()
    """Searches over values of earlier sessions, in the same environment, oldest first."""
    again: bool = False
    """Whether what lost before is to be tried all the same."""
    card: RateCard | None = None
    """Prices."""
    past: tuple[SessionRow, ...] = ()
    """Earlier sessions of the target, oldest first."""
    watch: Watch | None = None
    """What asks whether the machine is about to be taken away."""

    def command(self, *words: str) -> str:
        """A command of loop on this target, to be copied: `loop kernels verify cpu --target my-kernel`."""
        return shlex.join(["loop", *words, *named(self.folder)])

    def latest(self, action: str) -> dict[str, Any] | None:
        """Output of the last finished step of a kind; None when there was none."""
        outputs = [record.output for record in self.finished if record.action == action and record.output]
        return outputs[-1] if outputs else None


@dataclass(frozen=True)
class Result:
    """What an action found, and raw samples to be stored beside it."""

    output: Output
    samples: Mapping[str, Sequence[Segment]] = field(default_factory=dict)
    paused: bool = False
    """Whether somebody has to do something before the step can go on."""


Working = Generator[Tick, None, Result]


class NoArguments(Model):
    """For actions that take none."""


@dataclass(frozen=True)
class Action:
    """A kind of thing a step can do."""

    summary: str
    """What it does, in one line."""
    arguments: type[Model]
    """What stands under `with`."""
    output: type[Output]
    """What it finds: the names a gate may read."""
    run: Callable[[Context, Any], Working]
    """Does it, yielding ticks while it waits."""
