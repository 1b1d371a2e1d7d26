"""Walks a resolved plan as a generator of events: runs steps, judges gates, follows answers.

It neither prints nor writes. Its driver stores each record before it asks for the next event.
"""

import ast
import functools
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loop.actions import ACTIONS
from loop.base.errors import ExitCode, LoopError, MachineFailure
from loop.base.expressions import Expression, ExpressionError
from loop.base.processes import HEARTBEAT_S, Waiting
from loop.gate.verify import FIRST_CALLS
from loop.machine.failures import Folders, FolderWatch, find_machine_failure
from loop.model.measurement import NoSpeedVerdict, Segment
from loop.model.output import Output
from loop.model.plan import Pattern, ResolvedPlan, Step
from loop.model.record import Finished, SessionHead, Started, Status
from loop.session.objective import failing_parts, judge_objective, readable_values
from loop.steps.context import Context, Result

Samples = Mapping[str, Sequence[Segment]]  # Name of a file to its raw samples.


@dataclass(frozen=True)
class PatternBegan:
    """A pattern begins."""

    run: int
    name: str
    title: str
    index: int  # Number of this pattern in the walk, from 1.
    of: int  # Number of patterns that the walk is going to run, by what is known now.


@dataclass(frozen=True)
class StepBegan:
    """A step begins that is not skipped. The driver stores this record before the action runs."""

    started: Started


@dataclass(frozen=True)
class Ticked:
    """A running step reports progress. `heartbeat`: nothing was shown for 30 s, so show this."""

    started: Started
    seconds: float
    note: str
    heartbeat: bool


@dataclass(frozen=True)
class StepEnded:
    """A step has ended. The driver stores its record and samples before the next step begins."""

    finished: Finished
    samples: Samples = field(default_factory=dict)
    replayed: bool = False  # Whether the record is from before a resume: the step did not run.


@dataclass(frozen=True)
class PatternEnded:
    """A pattern has ended."""

    run: int
    name: str
    status: Status
    seconds: float
    answered_by: str | None = None  # The pattern that runs next because of this outcome, or None.


WalkEvent = PatternBegan | StepBegan | Ticked | StepEnded | PatternEnded
SKIP_REASONS = {
    r"device == 'cuda'": "needs a GPU",
    r"device == 'cpu'": "is for a session on the CPU",
    r"passed": "an earlier step failed",
    r"failed": "no step failed",
    r"(\w+)\.right != \[\]": r"step \1 found no correct variant on this device",
    r"\w+\.wrong != \[\]": "no wrong variant",
    r"(\w+)\.good": r"step \1 did not pass",
    r"\w+\.not_faster or .*": "a step before did not pass",
    r"not \w+\.not_faster": "a job has shown no gain over the incumbent",
    r"\w+\.edited": "nothing was edited",
    r"not session\.wrong": "a variant is wrong",
}
"""Part of a step's `when` to the reason printed when it is false."""


def reason_to_skip(step: Step, values: Mapping[str, object]) -> str:
    """Why a step is skipped: the first part of its `when` that is false over `values`, or reads a
    step that did not run; in its own `skipped_because`, else by `SKIP_REASONS`. Empty: it runs."""
    for part in Expression.parse(step.when).parts if step.when else ():
        try:
            if part.evaluate_bool(values):
                continue
        except ExpressionError as error:
            steps = sorted({name.partition(".")[0] for name in part.names} - {"session", "plan"})
            never_run = [name for name in steps if values.get(name, {}) == {}]
            return f"step {never_run[0]} did not run" if never_run else error.message
        if step.skipped_because:
            return step.skipped_because
        code = ast.unparse(part.tree)
        for condition, words in SKIP_REASONS.items():
            if match := re.fullmatch(condition, code):
                return match.expand(words)
        return f"only when {code}"
    return ""


Key = tuple[int, str, str]  # Number of the pattern's run, name of the pattern, id of the step.
SessionValues = Callable[[Sequence[Finished]], Mapping[str, object]]  # The values of `session.*`.


@dataclass
class PatternState:
    """The results so far of one run of a pattern."""

    outputs: dict[str, Any] = field(default_factory=dict)
    status: Status = "passed"
    seconds: float = 0.0


@dataclass
class Walk:
    """One walk over a plan. `earlier_records`: from before a resume, in the journal's order."""

    resolved: ResolvedPlan
    context: Context
    session_values: SessionValues
    earlier_records: Sequence[Finished] = ()
    begun_attempts: Sequence[Started] = ()  # Steps begun before the resume: they number attempts.
    clock: Callable[[], float] = time.monotonic
    finished: list[Finished] = field(default_factory=list)
    head: SessionHead | None = None  # The session, with its plan; None for other commands.
    stop_reason: str | None = None
    is_stop_reached: bool = False
    is_paused: bool = False  # Whether the walk waits for a person, for example for a code change.
    failure: MachineFailure | None = None
    has_bug: bool = False  # Whether an action raised an unexpected exception: a bug of loop.
    folders: Folders = field(default_factory=Folders)
    answer_counts: Counter[tuple[str, str]] = field(init=False, default_factory=Counter)
    """(pattern, answering pattern) to how often that answer was chosen; `visits` limits it."""

    @functools.cached_property
    def reusable(self) -> dict[Key, Finished]:
        """By key, the last earlier record of each ended step, which this walk reuses. Left out are
        steps after one that made something else later (see `drop_later_records`)."""
        records: dict[Key, Finished] = {}
        for record in self.earlier_records:
            if record.status in ("passed", "failed", "skipped"):
                drop_later_records(records, record)
                records[record.key] = record
        return records

    def events(self) -> Generator[WalkEvent, None, None]:
        """Run the plan's patterns and yield what happens. A pattern that answers an outcome (by
        `next`) runs next, even if the walk would have ended, and not again where it was planned."""
        pending_names, run = list(self.resolved.plan.patterns), 0
        while pending_names and self.stop_reason is None and not self.is_stop_reached:
            name, run = pending_names.pop(0), run + 1
            pattern, state = self.resolved.find_pattern(name).pattern, PatternState()
            yield PatternBegan(run, name, pattern.title, run, run + len(pending_names))
            for index, step in enumerate(pattern.steps, start=1):
                record = yield from self._run_step(run, pattern, index, state)
                self.finished.append(record)
                state.outputs[step.id] = record.output
                state.seconds += record.seconds
                if record.status in ("failed", "paused"):
                    state.status = record.status
                self.is_paused = record.status == "paused"
                if self.is_paused:
                    self.stop_reason = record.message
                elif record.status == "failed" and step.on_fail == "stop":
                    self.stop_reason = f"{record.label}: {record.message}"
                stop_if = self.resolved.plan.stop_if  # False while it reads an unknown value.
                if stop_if is not None and self.head is not None:
                    session_values = self.session_values(self.finished)
                    values = readable_values(self.head, self.finished, session_values)
                    self.is_stop_reached = not failing_parts(Expression.parse(stop_if), values)
                skips_others = record.status == "failed" and step.on_fail != "continue"
                if self.is_paused or skips_others or self.is_stop_reached:
                    break
            answering_name = self._answering_pattern(pattern, state)
            yield PatternEnded(run, name, state.status, state.seconds, answering_name)
            if answering_name is not None:
                self.stop_reason = None
                others = [other for other in pending_names if other != answering_name]
                pending_names = [answering_name, *others]
            fallback = self.resolved.plan.otherwise  # For a missed objective, if it is a pattern.
            names = [planned.pattern.name for planned in self.resolved.patterns]
            if pending_names or self.stop_reason is not None or self.head is None:
                continue
            if fallback in names and all(record.pattern != fallback for record in self.finished):
                session_values = self.session_values(self.finished)
                reached = judge_objective(self.head, self.finished, session_values)
                if fallback is not None and reached is not None and reached.missed:
                    pending_names = [fallback]

    def _run_step(
        self, run: int, pattern: Pattern, index: int, state: PatternState
    ) -> Generator[WalkEvent, None, Finished]:
        """Run, skip or reuse step `index` of pattern run `run`, both from 1. Returns its record.
        Yields what happens. A step whose output has an `identity`, as of a build, is not reused."""
        step = pattern.steps[index - 1]
        key = (run, pattern.name, step.id)
        earlier_record = self.reusable.get(key)
        if earlier_record is not None and earlier_record.output.get("identity") is None:
            yield StepEnded(earlier_record, replayed=True)
            return earlier_record
        started = Started(
            run=run,
            pattern=pattern.name,
            step=step.id,
            attempt=sum(before.key == key for before in self.begun_attempts) + 1,
            title=step.title,
            index=index,
            of=len(pattern.steps),
            budget_s=step.budget_s,
        )
        samples: Samples = {}
        if reason := reason_to_skip(step, self._values(state)):
            record = Finished.of(
                started, step.action, "skipped", reason, seconds=0.0, skipped_because=reason
            )
        else:
            yield StepBegan(started)
            record, samples = yield from self._act_and_judge(step, started, state)
        drop_later_records(self.reusable, record)  # None, unless its `identity` changed.
        yield StepEnded(record, samples)
        return record

    def _act_and_judge(
        self, step: Step, started: Started, state: PatternState
    ) -> Generator[WalkEvent, None, tuple[Finished, Samples]]:
        """Run a step; returns its record and samples. A LoopError fails the step, and so does a
        bug, with its traceback as output. If the machine failed, it is paused, without output."""
        timer, folder_watch = StepTimer(self.clock), FolderWatch(self.folders)
        output: Output | None = None
        samples: Samples = {}
        fields: dict[str, Any] = {}  # Further fields of the record.
        failure: MachineFailure | None = None
        status: Status = "failed"
        try:
            result = yield from self._act(step, started, timer, folder_watch)
            output, samples = result.output, result.samples
            fields["output"] = output.model_dump(mode="json")
            status, message = self._judge(step, result, state)
            fields["skipped_because"] = message if status == "skipped" else ""
            hint = None if status in ("passed", "skipped") else output.hint or step.mend
        except LoopError as error:
            failure = find_machine_failure(error, self.folders)
            message, hint = error.message, step.mend or error.hint
            fields["killed"] = error.exit_code == ExitCode.OVER_BUDGET
        except Exception as error:
            failure = find_machine_failure(error, self.folders)
            self.has_bug = self.has_bug or failure is None
            message = f"bug in loop: {type(error).__name__}: {error}"
            hint = "please report it with the journal of this session"
            fields["output"] = {"traceback": traceback.format_exc()}
        verdicts = output.verdicts if output is not None else ()
        has_failed = output is None or status == "failed" or not output.ok
        has_failed |= any(isinstance(verdict, NoSpeedVerdict) for verdict in verdicts)
        # A machine failure (a full disk, a lost GPU) can be in any text of the step.
        messages = "\n".join(map(str, (message, hint, fields)))
        self.failure = failure or folder_watch.failure(has_failed=has_failed, messages=messages)
        if self.failure is not None:
            workshop = self.context.task.workshop
            instruction = "run the same command again"
            if workshop:
                instruction = f"go on with: {workshop.resume_command}"
            status, message, fields, samples = "paused", self.failure.message, {}, {}
            hint = self.failure.with_instruction(instruction).hint
        timer.tick(0.0)  # The step's end is a message, too: it ends the last silence.
        fields |= {"seconds": timer.seconds, "longest_silence_s": timer.longest_silence_s}
        return Finished.of(started, step.action, status, message, hint=hint, **fields), samples

    def _act(
        self, step: Step, started: Started, timer: "StepTimer", folder_watch: FolderWatch
    ) -> Generator[Ticked, None, Result[Output]]:
        """Run the step's action, with a `Ticked` for each of its ticks. Returns its result. Raises
        LoopError past its time limit. However it ends, all its processes end."""
        bench, action = self.context.bench, ACTIONS[step.action]
        earlier_first_calls_s = bench.first_calls_s

        def limit_s() -> float:
            """The step's limit, without past and coming first calls, which may compile."""
            slowest_s = max(bench.target.first_call_s or 0.0, bench.slowest_first_call_s)
            spent_s = bench.first_calls_s - earlier_first_calls_s
            return step.kill_after_s + spent_s + (1 + FIRST_CALLS) * slowest_s

        finished = tuple(self.finished)
        context = replace(
            self.context, finished=finished, budget_s=step.budget_s, kill_after_s=limit_s()
        )
        arguments = action.arguments.model_validate(step.arguments)  # Checked with the plan.
        ticks: Waiting[Result[Output]] = action.run(context, arguments)
        try:
            while True:
                tick = next(ticks)
                folder_watch.measure()
                is_heartbeat = timer.tick() or tick.is_urgent
                yield Ticked(started, timer.seconds, tick.note, is_heartbeat)
                if timer.seconds > limit_s():
                    message = f"killed after {timer.seconds:.0f} s, its limit ({tick.note})"
                    raise LoopError(message, exit_code=ExitCode.OVER_BUDGET)
        except StopIteration as end:  # A generator returns its result in this exception.
            return end.value  # type: ignore[no-any-return]
        finally:
            ticks.close()

    def _judge(self, step: Step, result: Result[Output], state: PatternState) -> tuple[Status, str]:
        """Status and message of a step: by its gate (false if a value is unknown), else by the
        output's `ok`. It is paused if it waits for the user, skipped if it had nothing to do."""
        output = result.output
        message, has_passed = output.message, output.ok
        if step.gate is not None:
            values = {**self._values(state), step.id: output.model_dump(mode="json")}
            try:
                has_passed = Expression.parse(step.gate).evaluate_bool(values)
                if not has_passed and output.ok:
                    message = f"gate `{step.gate}` is false: {message}"
            except ExpressionError as error:
                message, has_passed = f"gate {error.message}", False
        if result.paused or not has_passed:
            return "paused" if result.paused else "failed", message
        return "skipped" if result.idle else "passed", message

    def _values(self, state: PatternState) -> dict[str, object]:
        """The values that `when`, `gate` and `next` of a pattern may read."""
        return {
            **state.outputs,
            "failed": state.status == "failed",
            "passed": state.status == "passed",
            "target": self.context.bench.target.name,
            "device": self.context.bench.device,
            "plan": self.resolved.plan.parameters,
            "session": self.session_values(self.finished),
        }

    def _answering_pattern(self, pattern: Pattern, state: PatternState) -> str | None:
        """The pattern of the first rule in `next` that holds, and count it; None without one, if it
        was counted more often than its `visits`, or if the plan stops here."""
        values = self._values(state)
        # A rule that reads a step which did not run does not hold.
        rules = [
            rule for rule in pattern.next if not failing_parts(Expression.parse(rule.when), values)
        ]
        if self.is_stop_reached or state.status == "paused" or not rules:
            return None
        visit = pattern.name, rules[0].pattern
        self.answer_counts[visit] += 1
        return rules[0].pattern if self.answer_counts[visit] <= rules[0].visits else None


def drop_later_records(records: dict[Key, Finished], repeated_record: Finished) -> None:
    """Drop the records after a repeated step if its `identity` changed: it made something else."""
    key, identity = repeated_record.key, repeated_record.output.get("identity")
    if key in records and records[key].output.get("identity") != identity:
        keys = list(records)
        for later_key in keys[keys.index(key) + 1 :]:
            del records[later_key]


class StepTimer:
    """Measures a step's seconds, and its longest time without a message on the screen."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self.longest_silence_s = clock, 0.0
        self._begin = self._last_message = clock()

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return self._clock() - self._begin

    def tick(self, least_s: float = HEARTBEAT_S) -> bool:
        """Whether the last message is `least_s` or more ago. If so, this call counts as one."""
        silence_s = self._clock() - self._last_message
        if silence_s < least_s:
            return False
        self.longest_silence_s = max(self.longest_silence_s, silence_s)
        self._last_message += silence_s
        return True
