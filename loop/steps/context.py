"""The types of an action's input (`Context`) and output (`Result`); results of earlier sessions.

A result of an earlier session is used again for some hours, if all that it depends on is unchanged.
"""

import datetime
import functools
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_args, get_type_hints

from pydantic import Field

from loop.base.documents import content_hash, hash_files
from loop.base.places import PACKAGE, include_folder
from loop.base.processes import Waiting
from loop.cloud.clouds import Watch
from loop.library.definitions import target_options
from loop.model.base import Model
from loop.model.campaign import Campaign
from loop.model.change import ON_CHANGE, TriedChange
from loop.model.index import SessionRow
from loop.model.measurement import Segment
from loop.model.money import RateCard
from loop.model.output import EarlierTry, Output, OutputType, outputs_of, read_output
from loop.model.plan import Pattern, Plan, Step
from loop.model.record import Finished, KnownGood, Machine
from loop.workers.bench import Bench


@dataclass(frozen=True)
class Workshop:
    """Where a session edits its target: apart from the user's checkout."""

    worktree: Path  # Path of the git worktree, which may not exist yet.
    briefs_folder: Path  # Folder for briefs and patches, inside the session's folder.
    resume_command: str
    is_declined: bool = False


@dataclass(frozen=True)
class Task:
    """What a session is asked to do: fixed when it begins."""

    plan: Plan
    variants: tuple[str, ...]  # Variants that are built, verified and measured.
    machine: Machine
    seed: int
    folder: Path  # The target's folder: where commands run.
    emulated: tuple[str, ...] = ()  # GPU variants that are verified under the emulator instead.
    session: str = ""
    sources_hash: str = ""
    uncompiled_hash: str = ""  # Hash of the target's files that no compiler reads.
    hypothesis: str = ""
    workshop: Workshop | None = None  # Where the target may be edited; None outside a session.
    patterns: tuple[Pattern, ...] = ()  # All patterns that the session can reach.
    retries_lost_changes: bool = False
    card: RateCard | None = None
    usd_per_hour: float = 0.0  # Cost of one hour of the session in dollars, without AI.
    campaign: Campaign = field(default_factory=Campaign)

    @property
    def has_change_steps(self) -> bool:
        """Whether any step judges or asks for a code change."""
        steps = (step for pattern in self.patterns for step in pattern.steps)
        return any(step.action.startswith(ON_CHANGE) for step in steps)

    def first_step(self, action: str) -> Step | None:
        """The first step with this action; None if no step has it."""
        steps = (step for pattern in self.patterns for step in pattern.steps)
        return next((step for step in steps if step.action == action), None)


@dataclass(frozen=True)
class Past:
    """What earlier sessions found."""

    known_good: Mapping[str, KnownGood] = field(default_factory=dict)
    """Variant to its last known-good build: the last for which all gates passed."""
    verified_builds: tuple[EarlierTry, ...] = ()  # Those judged in earlier sessions, oldest first.
    reverted_changes: tuple[TriedChange, ...] = ()  # Lost in earlier sessions, same environment.
    sessions: tuple[SessionRow, ...] = ()  # Earlier sessions of the target, oldest first.
    read_steps: Callable[[str], Sequence[Finished]] = lambda session: ()  # Session id to its steps.


@dataclass(frozen=True)
class Context:
    """Everything that an action can read: the task, the past, the bench, and the finished steps."""

    bench: Bench  # Processes that run and judge variants.
    task: Task
    past: Past = field(default_factory=Past)
    preemption_watch: Watch | None = None  # A thread that polls the cloud for a notice, or None.
    finished: Sequence[Finished] = ()  # The steps of this session that have ended.
    budget_s: float = 60.0
    kill_after_s: float = 600.0  # Time limit in seconds: then every process of the step is killed.

    def command(self, *words: str) -> str:
        """A shell command of loop for this target: `loop kernels verify cpu --target my-kernel`."""
        return shlex.join(["loop", *words, *target_options(self.task.folder)])

    def latest_output(self, action: str, output_class: type[OutputType]) -> OutputType | None:
        """The `output_class` result of the last step with this action; None without one."""
        records = [record for record in self.finished if record.action == action and record.output]
        return read_output(records[-1], output_class) if records else None


ActionOutput = TypeVar("ActionOutput", bound=Output, covariant=True)


@dataclass(frozen=True)
class Result(Generic[ActionOutput]):
    """What an action returns: its output, and raw samples that are stored in files."""

    output: ActionOutput
    samples: Mapping[str, Sequence[Segment]] = field(default_factory=dict)
    paused: bool = False  # Whether the step waits for a person, for example for a code change.
    idle: bool = False  # Nothing was to do: passed counts as skipped, and the message says why.


RunningAction = Waiting[Result[ActionOutput]]  # Yields ticks while it waits; returns its result.


class NoArguments(Model):
    """The arguments of an action that takes none."""


@dataclass(frozen=True)
class Action:
    """An entry of the table of actions: a function, described by its signature and docstring."""

    run: Callable[[Context, Any], RunningAction[Output]]

    @property
    def summary(self) -> str:
        """The first sentence of the function's docstring."""
        return " ".join((self.run.__doc__ or "").split()).partition(". ")[0].rstrip(".")

    @property
    def arguments(self) -> type[Model]:
        """The model of a step's `with`: the type of the function's second parameter."""
        _, arguments, _ = get_type_hints(self.run).values()
        return arguments  # type: ignore[no-any-return]

    @property
    def output(self) -> type[Output]:
        """The model of the output, whose fields a gate may read: `X` in `RunningAction[X]`."""
        _, _, result = get_args(get_type_hints(self.run)["return"])
        return get_args(result)[0]  # type: ignore[no-any-return]


SOURCE_SUFFIXES = {".py", ".c", ".h"}  # Suffixes of loop's own source files.
IRRELEVANT_FIELDS = {"name", "load"}  # Fields of a machine on which no result depends.


class ResultLifetime(Model):
    """For how long a result of an earlier session is reused."""

    lasts_h: Annotated[float, Field(ge=0, le=24 * 30)] = 0
    """Hours for which an earlier session's result is reused if loop, the machine, and all files of
    the target that no compiler reads are unchanged. 0: never reused."""


def dependency_hash(context: Context, action: str, *build_ids: str) -> str:
    """Hash of all that a step's result depends on but the seed: loop, machine, variants, workloads,
    `build_ids`, files that no compiler reads. Empty outside a session: nothing is reused then."""
    task, bench = context.task, context.bench
    if not task.uncompiled_hash:
        return ""
    machine_text = task.machine.model_dump_json(exclude=IRRELEVANT_FIELDS)
    names = json.dumps([task.variants, task.emulated, task.plan.workloads, task.plan.checks])
    texts = [action, _hash_of_loop(), task.uncompiled_hash, machine_text, bench.device]
    return content_hash([*texts, str(bench.threads), names, *build_ids])


def reuse_result(
    context: Context,
    output_class: type[OutputType],
    inputs_digest: str,
    lifetime: ResultLifetime,
    depends_on: str = "the gate, the target and the builds",
) -> OutputType | None:
    """The result with this `dependency_hash` of the last earlier session that has one; its message
    names that session, and what the result `depends_on`. None without one, if it was not good, or
    began more than `lasts_h` ago."""
    oldest = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=lifetime.lasts_h)
    rows = [row for row in context.past.sessions if inputs_digest in row.lasting]
    row = rows[-1] if inputs_digest and rows else None
    if row is None or row.started is None or row.started < oldest or not row.lasting[inputs_digest]:
        return None
    for output in reversed(outputs_of(context.past.read_steps(row.id), output_class)):
        if output.rests_on == inputs_digest:
            reason = f"taken from {row.id}: {depends_on} have not changed"
            fields = {"taken_from": row.id, "message": f"{output.message}; {reason}"}
            return output.model_copy(update=fields)
    return None


@functools.cache
def _hash_of_loop() -> str:
    """Hash of loop's own sources: another version of the gate may find something else."""
    sources = [path for path in PACKAGE.rglob("*") if path.suffix in SOURCE_SUFFIXES]
    include = include_folder()
    return content_hash([hash_files(sources, PACKAGE), hash_files(include.glob("*.h"), include)])
