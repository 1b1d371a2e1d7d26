"""Walk a resolved plan: step by step, each timed against its budget, outcomes answered by patterns.

A generator of events. It neither prints nor writes; whoever drives it stores each record before asking
for the next event.
"""

import ast
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loop.actions import ACTIONS
from loop.base.errors import ExitCode, LoopError, MachineFailure
from loop.base.expressions import Expression, ExpressionError
from loop.base.machine_failures import Folders, Gauge, failure_behind
from loop.base.processes import HEARTBEAT_S, Tick
from loop.gate.verify import FIRST_CALLS
from loop.model.measurement import Segment
from loop.model.output import Output
from loop.model.plan import Pattern, ResolvedPlan, Step
from loop.model.record import Finished, Started, Status
from loop.session.objective import Objective
from loop.steps.context import Context, Result


@dataclass(frozen=True)
class PatternBegan:
    """A pattern begins."""

    run: int
    name: str
    title: str
    index: int
    """Its place among the patterns walked so far, from 1."""
    of: int
    """Patterns known to be walked in all."""


@dataclass(frozen=True)
class StepDue:
    """A step is going to be done next. Nothing is written of it yet: whoever drives may stop here."""

    pattern: str
    step: str


@dataclass(frozen=True)
class StepBegan:
    """A step begins; its record is written before anything else happens."""

    started: Started


@dataclass(frozen=True)
class Ticked:
    """A sign of life. `heartbeat` is set when nothing was shown for 30 s."""

    started: Started
    seconds: float
    note: str
    heartbeat: bool


@dataclass(frozen=True)
class StepEnded:
    """A step has ended; its record and samples are to be written before the next one begins."""

    finished: Finished
    samples: Mapping[str, Sequence[Segment]] = field(default_factory=dict)
    replayed: bool = False
    """True when the record stands from before a resume."""


@dataclass(frozen=True)
class PatternEnded:
    """A pattern has ended."""

    run: int
    name: str
    status: Status
    seconds: float
    answered_by: str | None = None
    """The pattern that answers its outcome."""


Happening = PatternBegan | StepDue | StepBegan | Ticked | StepEnded | PatternEnded


FORMS = {
    r"device == 'cuda'": "needs a GPU",
    r"device == 'cpu'": "is for a session on the CPU",
    r"passed": "an earlier step failed",
    r"failed": "no step failed",
    r"\w+\.right != \[\]": "no correct variant",
    r"\w+\.wrong != \[\]": "no wrong variant",
    r"(\w+)\.good": r"step \1 did not pass",
    r"\w+\.edited": "nothing was edited",
    r"not session\.wrong": "a variant is wrong",
}
"""What may be asked for, and what it means that it does not hold."""


def reason_to_skip(step: Step, values: Mapping[str, object]) -> str:
    """Why a step is not to be done; empty where it is. Its own words go first."""
    for part in Expression.parse(step.when).parts if step.when else ():
        try:
            if part.evaluate_bool(values):
                continue
        except ExpressionError as error:
            steps = sorted({name.partition(".")[0] for name in part.names} - {"session", "plan"})
            never_ran = next((name for name in steps if values.get(name, {}) == {}), None)
            return f"step {never_ran} did not run" if never_ran else error.message
        if step.skipped_because:
            return step.skipped_because
        test = ast.unparse(part.tree)
        matches = ((re.fullmatch(form, test), words) for form, words in FORMS.items())
        return next((match.expand(words) for match, words in matches if match), f"only when {test}")
    return ""


ENDED = ("passed", "failed", "skipped")
REPORT_BUG = "please report it with the journal of this session"
Key = tuple[int, str, str]
"""Run, pattern and step."""
Clock = Callable[[], float]
Facts = Callable[[Sequence[Finished]], Mapping[str, object]]
"""From the steps that have ended to what expressions read as `session`."""


@dataclass
class Ran:
    """What came of one run of a pattern, so far."""

    outputs: dict[str, Any] = field(default_factory=dict)
    status: Status = "passed"
    seconds: float = 0.0
    stopped: str | None = None
    """Why the chain ends here; None where it may go on."""
    left: bool = False
    """Whether the rest of the steps is not done."""

    def add(self, pattern: Pattern, step: Step, record: Finished) -> None:
        """One more step has ended."""
        self.outputs[step.id] = record.output
        self.seconds += record.seconds
        if record.status == "paused":
            self.status, self.stopped, self.left = "paused", record.message, True
        elif record.status == "failed":
            self.status, self.left = "failed", step.on_fail != "continue"
            if step.on_fail == "stop":
                self.stopped = f"{pattern.name}/{step.id}: {record.message}"


@dataclass(frozen=True)
class Outcome:
    """How a step ended."""

    status: Status
    message: str
    hint: str | None = None
    output: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, Sequence[Segment]] = field(default_factory=dict)
    killed: bool = False

    @property
    def bad(self) -> bool:
        """Whether it says of anything that it failed: of the step, or of a variant in it."""
        unjudged = any(verdict["ratio"] is None for verdict in self.output.get("verdicts", ()))
        return self.status == "failed" or unjudged or not self.output.get("ok", False)


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
    objective: Objective | None = None
    """What may end the walk early, and what answers a miss; None for walks without a plan of their own."""
    stopped: str | None = None
    enough: bool = False
    """Whether the plan's `stop_if` is true."""
    paused: bool = False
    """Whether somebody has to do something before it can go on."""
    failure: MachineFailure | None = None
    bug: bool = False
    """Whether an action crashed: a mistake of loop, not of the kernel."""
    folders: Folders = field(default_factory=Folders)
    standing: dict[Key, Finished] = field(init=False)
    """The records that this walk may reuse."""
    visits: Counter[tuple[str, str]] = field(init=False, default_factory=Counter)
    """How often a pattern was answered by another."""

    def __post_init__(self) -> None:
        self.standing = still_standing(self.earlier)

    def events(self) -> Generator[Happening, None, None]:
        """Walk. Listed patterns in order; the answer to an outcome comes next, and only once if it was listed.

        Steps come in order until one stops the chain or leaves its pattern.
        """
        waiting, run = list(self.resolved.plan.patterns), 0
        while waiting and self.stopped is None and not self.enough:
            run += 1
            name = waiting.pop(0)
            pattern, ran = self.resolved.find(name).pattern, Ran()
            yield PatternBegan(run, name, pattern.title, run, run + len(waiting))
            for index, step in enumerate(pattern.steps, start=1):
                record = yield from self._step(run, pattern, index, ran)
                self.finished.append(record)
                ran.add(pattern, step, record)
                if self.objective is not None:
                    self.enough = self.objective.enough(self.finished, self.facts(self.finished))
                if ran.left or self.enough:
                    break
            self.stopped, self.paused = ran.stopped, ran.status == "paused"
            answer = None if self.enough else self._answer(pattern, ran)
            yield PatternEnded(run, name, ran.status, ran.seconds, answer)
            if answer is not None:
                self.stopped = None
                waiting = [answer, *(other for other in waiting if other != answer)]
            if not waiting and self.stopped is None:
                waiting = self._otherwise()

    def _otherwise(self) -> list[str]:
        """The pattern that answers a missed objective, where it has not been walked."""
        name = self.resolved.plan.otherwise
        known = any(planned.pattern.name == name for planned in self.resolved.patterns)
        if self.objective is None or not known or any(record.pattern == name for record in self.finished):
            return []
        reached = self.objective.judge(self.finished, self.facts(self.finished))
        return [name] if name and reached is not None and reached.missed else []

    def _step(self, run: int, pattern: Pattern, index: int, ran: Ran) -> Generator[Happening, None, Finished]:
        step = pattern.steps[index - 1]
        key = (run, pattern.name, step.id)
        earlier = self.standing.get(key)
        if earlier is not None and earlier.output.get("identity") is None:
            yield StepEnded(earlier, replayed=True)
            return earlier
        because = reason_to_skip(step, self._values(ran))
        if not because:
            yield StepDue(pattern.name, step.id)
        started = Started(
            run=run,
            pattern=pattern.name,
            step=step.id,
            attempt=sum(before.key == key for before in self.begun) + 1,
            title=step.title,
            index=index,
            of=len(pattern.steps),
            budget_s=step.budget_s,
        )
        yield StepBegan(started)
        timer = StepTimer(self.clock)
        outcome = Outcome("skipped", f"skipped: {because}")
        if not because:
            outcome = yield from self._done(step, started, timer, ran)
        record = Finished(
            **started.model_dump(include={"run", "pattern", "step", "attempt", "budget_s"}),
            action=step.action,
            status=outcome.status,
            message=outcome.message,
            hint=outcome.hint,
            output=dict(outcome.output),
            skipped_because=because,
            killed=outcome.killed,
            **({"seconds": 0.0} if because else timer.end()),
        )
        forget_what_stood_on(self.standing, record)
        yield StepEnded(record, outcome.samples)
        return record

    def _done(
        self, step: Step, started: Started, timer: "StepTimer", ran: Ran
    ) -> Generator[Happening, None, Outcome]:
        """How a step ended; paused where the machine is behind it, and not what the step looked at."""
        gauge, failure = Gauge(self.folders), None
        try:
            result = yield from self._act(step, started, timer, gauge)
            outcome = self._judged(step, result, ran)
        except LoopError as error:
            failure = failure_behind(error, self.folders)
            killed = error.exit_code == ExitCode.OVER_BUDGET
            outcome = Outcome("failed", error.message, step.mend or error.hint, killed=killed)
        except Exception as error:
            failure = failure_behind(error, self.folders)
            self.bug = self.bug or failure is None
            message, trace = f"bug in loop: {type(error).__name__}: {error}", traceback.format_exc()
            outcome = Outcome("failed", message, REPORT_BUG, {"traceback": trace})
        # A failure of the machine may be named in any of its texts.
        text = "\n".join(map(str, (outcome.status, outcome.message, outcome.hint, outcome.output)))
        self.failure = failure or gauge.failure(bad=outcome.bad, text=text if outcome.bad else "")
        if self.failure is None:
            return outcome
        shop = self.context.task.workshop
        mended = self.failure.then(f"go on with: {shop.resume}" if shop else "run the same command again")
        return Outcome("paused", self.failure.message, mended.hint)

    def _act(
        self, step: Step, started: Started, timer: "StepTimer", gauge: Gauge
    ) -> Generator[Ticked, None, Result[Output]]:
        """Drive the action; past its limit, closing the generator ends everything it started."""
        bench = self.context.bench
        before_s = bench.first_calls_s

        def limit_s() -> float:
            """The step's own limit, and what first calls took, and what `FIRST_CALLS` and one more may take."""
            first_s = max(bench.target.first_call_s or 0.0, bench.slowest_first_s)
            return step.kill_after_s + (1 + FIRST_CALLS) * first_s + bench.first_calls_s - before_s

        finished, action = tuple(self.finished), ACTIONS[step.action]
        context = replace(self.context, finished=finished, budget_s=step.budget_s, kill_after_s=limit_s())
        arguments = action.arguments.model_validate(step.arguments)  # Resolving has checked them.
        working: Generator[Tick, None, Result[Output]] = action.run(context, arguments)
        try:
            while True:
                tick = next(working)
                gauge.tick()
                heartbeat = timer.tick()
                yield Ticked(started, timer.seconds, tick.note, heartbeat or tick.at_once)
                if timer.seconds > limit_s():
                    message = f"killed after {timer.seconds:.0f} s, its limit ({tick.note})"
                    raise LoopError(message, exit_code=ExitCode.OVER_BUDGET)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            working.close()

    def _judged(self, step: Step, result: Result[Output], ran: Ran) -> Outcome:
        """What an action found, by the step's gate where it has one."""
        output = result.output.model_dump(mode="json")
        message, passed = result.output.message, result.output.ok
        if step.gate is not None:
            try:
                values = {**self._values(ran), step.id: output}
                passed = Expression.parse(step.gate).evaluate_bool(values)
                if not passed and result.output.ok:
                    message = f"gate `{step.gate}` is false: {message}"
            except ExpressionError as error:
                message, passed = f"gate {error.message}", False
        hint = None if passed and not result.paused else result.output.hint or step.mend
        status: Status = "paused" if result.paused else "passed" if passed else "failed"
        return Outcome(status, message, hint, output, result.samples)

    def _values(self, ran: Ran) -> dict[str, object]:
        """What an expression of a pattern may read."""
        return {
            **ran.outputs,
            "failed": ran.status == "failed",
            "passed": ran.status == "passed",
            "target": self.context.bench.target.name,
            "device": self.context.bench.device,
            "plan": self.resolved.plan.parameters,
            "session": self.facts(self.finished),
        }

    def _answer(self, pattern: Pattern, ran: Ran) -> str | None:
        """The pattern that answers an outcome, while it may still be visited; none to a pause."""
        for following in pattern.next if ran.status != "paused" else ():
            try:
                holds = Expression.parse(following.when).evaluate_bool(self._values(ran))
            except ExpressionError:  # It asks about a step that never ran.
                continue
            if holds:
                pair = pattern.name, following.pattern
                self.visits[pair] += 1
                return following.pattern if self.visits[pair] <= following.visits else None
        return None


def still_standing(earlier: Iterable[Finished]) -> dict[Key, Finished]:
    """The last record of each step that ended, without those that stood on something which has changed since."""
    standing: dict[Key, Finished] = {}
    for record in earlier:
        if record.status in ENDED:
            forget_what_stood_on(standing, record)
            standing[record.key] = record
    return standing


def forget_what_stood_on(standing: dict[Key, Finished], record: Finished) -> None:
    """Drop the results of all later steps where a repeated step came to another output than before."""
    earlier = standing.get(record.key)
    if earlier is not None and earlier.output.get("identity") != record.output.get("identity"):
        keys = list(standing)
        for key in keys[keys.index(record.key) + 1 :]:
            del standing[key]


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

    def tick(self, least_s: float = HEARTBEAT_S) -> bool:
        """Whether it is time for a heartbeat, which counts as a sign of life."""
        now = self._clock()
        silence = now - self._shown
        if silence < least_s:
            return False
        self._silence, self._shown = max(self._silence, silence), now
        return True

    def end(self) -> dict[str, float]:
        """What the record says of time."""
        self.tick(0.0)
        return {"seconds": self._shown - self._begun, "longest_silence_s": self._silence}
