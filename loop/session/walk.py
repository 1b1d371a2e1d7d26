"""Walk a resolved plan: step by step, each timed against its budget, outcomes answered by patterns.

A generator of events. It neither prints nor writes; whoever drives it stores each record before asking
for the next event.
"""

import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loop.actions import ACTIONS
from loop.base.errors import LoopError, MachineFailure
from loop.base.expressions import Expression, ExpressionError
from loop.base.machine_failures import Folders, Gauge, behind
from loop.base.processes import Tick
from loop.model.output import Output
from loop.model.pattern import Pattern, Step
from loop.model.plan import ResolvedPlan
from loop.model.record import Finished, Started, Status, StepKey
from loop.session.events import Happening, PatternBegan, PatternEnded, StepBegan, StepDue, StepEnded, Ticked
from loop.session.plan import arguments_of
from loop.steps.context import Context, Result

HEARTBEAT_S = 30.0
ENDED = ("passed", "failed", "skipped")
Key = tuple[int, str, str]
"""Run, pattern and step."""
Clock = Callable[[], float]
Facts = Callable[[Sequence[Finished]], Mapping[str, object]]
"""From the steps that have ended to what expressions read as `session`."""


@dataclass
class Walk:
    """One walk over a plan. `earlier` are the records of the walk that this one resumes."""

    resolved: ResolvedPlan
    context: Context
    facts: Facts
    earlier: Sequence[Finished] = ()
    begun: Sequence[Started] = ()
    """The steps that were begun before the resume, whether or not they ended."""
    clock: Clock = time.monotonic
    finished: list[Finished] = field(default_factory=list)
    stopped: str | None = None
    """Why the chain was stopped; None when it ran to its end."""
    paused: bool = False
    """Whether somebody has to do something before it can go on."""
    failure: MachineFailure | None = None
    """What failed of the machine, where that is why it is paused."""
    bug: bool = False
    """Whether an action crashed: a mistake of loop, not of the kernel."""
    folders: Folders = field(default_factory=Folders)
    """What it writes to, and is watched for room."""
    refused: frozenset[Path] = field(init=False)
    """Those that could not be written from the first."""
    standing: dict[Key, Finished] = field(init=False)
    """The records that this walk may reuse."""

    def __post_init__(self) -> None:
        self.standing = still_standing(self.earlier)
        self.refused = frozenset(self.folders.short())

    def events(self) -> Generator[Happening, None, None]:
        """Walk. Listed patterns in order; the answer to an outcome comes next, and only once if it was listed."""
        waiting = list(self.resolved.plan.patterns)
        visits: dict[tuple[str, str], int] = {}
        run = 0
        while waiting and self.stopped is None:
            run += 1
            name = waiting.pop(0)
            walked = PatternRun(self, run, self.resolved.find(name).pattern)
            yield PatternBegan(run, name, walked.pattern.title, run, run + len(waiting))
            yield from walked.events()
            answer = walked.answer(visits)
            yield PatternEnded(run, name, walked.status, walked.seconds, answer)
            if self.paused:
                return
            if answer is not None:
                self.stopped = None
                waiting = [answer, *(other for other in waiting if other != answer)]

    def attempts(self, key: Key) -> int:
        """How often a step was begun before."""
        return sum(key_of(started) == key for started in self.begun)


def key_of(step: StepKey) -> Key:
    """Which step of which run."""
    return (step.run, step.pattern, step.step)


def still_standing(earlier: Iterable[Finished]) -> dict[Key, Finished]:
    """The last record of each step that ended, without those that stood on something which has changed since."""
    standing: dict[Key, Finished] = {}
    for record in earlier:
        if record.status in ENDED:
            forget_what_stood_on(standing, record)
            standing[key_of(record)] = record
    return standing


def forget_what_stood_on(standing: dict[Key, Finished], record: Finished) -> None:
    """When a repeated step now stands on something else, nothing after it is reused."""
    earlier = standing.get(key_of(record))
    if earlier is not None and earlier.output.get("identity") != record.output.get("identity"):
        keys = list(standing)
        for key in keys[keys.index(key_of(record)) + 1 :]:
            del standing[key]


@dataclass
class PatternRun:
    """One run of one pattern."""

    walk: Walk
    run: int
    pattern: Pattern
    outputs: dict[str, Any] = field(default_factory=dict)
    status: Status = "passed"
    seconds: float = 0.0

    def events(self) -> Iterator[Happening]:
        """Do the steps in order, until one of them stops the chain or leaves the pattern."""
        for index, step in enumerate(self.pattern.steps, start=1):
            record = yield from self._step(step, index)
            self.walk.finished.append(record)
            self.outputs[step.id] = record.output
            self.seconds += record.seconds
            if record.status == "paused":
                self.status, self.walk.paused, self.walk.stopped = "paused", True, record.message
                return
            if record.status == "failed":
                self.status = "failed"
                if step.on_fail == "stop":
                    self.walk.stopped = f"{self.pattern.name}/{step.id}: {record.message}"
                if step.on_fail != "continue":
                    return

    def _step(self, step: Step, index: int) -> Generator[Happening, None, Finished]:
        key = (self.run, self.pattern.name, step.id)
        earlier = self.walk.standing.get(key)
        if earlier is not None and earlier.output.get("identity") is None:
            yield StepEnded(earlier, replayed=True)
            return earlier
        if self._reason_to_skip(step) is None:
            yield StepDue(self.pattern.name, step.id)
        started = Started(
            run=self.run,
            pattern=self.pattern.name,
            step=step.id,
            attempt=self.walk.attempts(key) + 1,
            title=step.title,
            index=index,
            of=len(self.pattern.steps),
            budget_s=step.budget_s,
        )
        yield StepBegan(started)
        record, result = yield from self._timed(step, started)
        forget_what_stood_on(self.walk.standing, record)
        yield StepEnded(record, result.samples if result else {})
        return record

    def _timed(
        self, step: Step, started: Started
    ) -> Generator[Happening, None, tuple[Finished, Result[Output] | None]]:
        timing = StepTimer(self.walk.clock)
        fields = started.model_dump(include={"run", "pattern", "step", "attempt", "budget_s"})
        fields["action"] = step.action
        reason = self._reason_to_skip(step)
        if reason is not None:
            return Finished(status="skipped", seconds=0.0, message=reason, **fields), None
        gauge = Gauge(self.walk.folders, self.walk.refused)
        outcome, result = yield from self._tried(step, started, timing, gauge)
        bad = _is_bad(outcome)
        failure = self.walk.failure or gauge.failure(bad=bad, said=_said(outcome) if bad else "")
        if failure is not None:
            self.walk.failure, self.walk.bug, result = failure, False, None
            outcome = {"status": "paused", "message": failure.message, "hint": self._go_on(failure)}
        return Finished(**outcome, **fields, **timing.end()), result

    def _tried(
        self, step: Step, started: Started, timing: "StepTimer", gauge: Gauge
    ) -> Generator[Happening, None, tuple[dict[str, Any], Result[Output] | None]]:
        """How the step ended, and its result where it has one."""
        try:
            result = yield from self._act(step, started, timing, gauge)
        except Exception as error:
            self.walk.failure = behind(error, self.walk.folders)
            if isinstance(error, LoopError):
                return {"status": "failed", "message": error.message, "hint": step.mend or error.hint}, None
            self.walk.bug = True
            return _bug(error), None
        return self._outcome(step, result), result

    def _go_on(self, failure: MachineFailure) -> str:
        """What to do about a failure of the machine."""
        shop = self.walk.context.task.workshop
        return failure.then(f"go on with: {shop.resume}" if shop else "run the same command again").hint or ""

    def _reason_to_skip(self, step: Step) -> str | None:
        """Why a step's `when` does not hold; None when it is to be done."""
        try:
            holds = step.when is None or self._holds(step.when)
        except ExpressionError as error:
            return f"skipped: {error.message}"
        return None if holds else f"skipped: not {step.when}"

    def _act(
        self, step: Step, started: Started, timing: "StepTimer", gauge: Gauge
    ) -> Generator[Ticked, None, Result[Output]]:
        """Drive the action; past its limit, closing the generator ends everything it started."""
        limit_s = step.kill_after_s
        context = replace(
            self.walk.context,
            finished=tuple(self.walk.finished),
            budget_s=step.budget_s,
            kill_after_s=limit_s,
        )
        working: Generator[Tick, None, Result[Output]] = ACTIONS[step.action].run(context, arguments_of(step))
        try:
            while True:
                tick = next(working)
                gauge.tick()
                heartbeat = timing.tick()
                yield Ticked(started, timing.seconds, tick.note, heartbeat)
                if timing.seconds > limit_s:
                    raise LoopError(f"killed after {timing.seconds:.0f} s, its limit ({tick.note})", exit_code=124)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            working.close()

    def _outcome(self, step: Step, result: Result[Output]) -> dict[str, Any]:
        output = result.output.model_dump(mode="json")
        message, passed = result.output.message, result.output.ok
        if step.gate is not None:
            self.outputs[step.id] = output
            try:
                passed = self._holds(step.gate)
                if not passed and result.output.ok:
                    message = f"gate `{step.gate}` is false: {message}"
            except ExpressionError as error:
                message, passed = f"gate {error.message}", False
        hint = None if passed and not result.paused else result.output.hint or step.mend
        status = "paused" if result.paused else "passed" if passed else "failed"
        return {"status": status, "message": message, "hint": hint, "output": output}

    def _holds(self, text: str) -> bool:
        walk = self.walk
        values = {
            **self.outputs,
            "failed": self.status == "failed",
            "passed": self.status == "passed",
            "target": walk.context.bench.target.name,
            "device": walk.context.bench.device,
            "plan": walk.resolved.plan.parameters,
            "session": walk.facts(walk.finished),
        }
        return Expression.parse(text).evaluate_bool(values)

    def answer(self, visits: dict[tuple[str, str], int]) -> str | None:
        """The pattern that answers this run's outcome, while it may still be visited; none to a pause."""
        for following in self.pattern.next if self.status != "paused" else ():
            if self._answers(following.when):
                key = (self.pattern.name, following.pattern)
                visits[key] = visits.get(key, 0) + 1
                return following.pattern if visits[key] <= following.visits else None
        return None

    def _answers(self, when: str) -> bool:
        """Whether an outcome is of this kind; not when it asks about a step that never ran."""
        try:
            return self._holds(when)
        except ExpressionError:
            return False


def _bug(error: Exception) -> dict[str, Any]:
    """How a step ended in which loop made a mistake."""
    return {
        "status": "failed",
        "message": f"bug in loop: {type(error).__name__}: {error}",
        "hint": "please report it with the journal of this session",
        "output": {"traceback": traceback.format_exc()},
    }


def _is_bad(outcome: Mapping[str, Any]) -> bool:
    """Whether an outcome says of anything that it failed: of the step, or of a variant in it."""
    output = outcome.get("output") or {"ok": False}
    unjudged = any(verdict["ratio"] is None for verdict in output.get("verdicts", ()))
    return outcome["status"] == "failed" or unjudged or not output["ok"]


def _said(outcome: Mapping[str, Any]) -> str:
    """Everything that an outcome says."""
    return "\n".join(map(str, outcome.values()))


class StepTimer:
    """Seconds of one step, and how long the screen was without a sign of life."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = self._shown = clock()
        self._silence = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return self._clock() - self._begun

    def tick(self) -> bool:
        """Whether it is time for a heartbeat, which counts as a sign of life."""
        now = self._clock()
        if now - self._shown < HEARTBEAT_S:
            return False
        self._note(now)
        return True

    def _note(self, now: float) -> None:
        self._silence = max(self._silence, now - self._shown)
        self._shown = now

    def end(self) -> dict[str, float]:
        """What the record says of time."""
        now = self._clock()
        self._note(now)
        return {"seconds": now - self._begun, "longest_silence_s": self._silence}
