"""Drives a walk: writes each event to disk, shows it, checks the limits, then asks for another.

The limits end a session before its plan is done: minutes, dollars, and preemption of its machine.
"""

import contextlib
import math
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError, MachineFailure, Stopped, UsageError
from loop.base.processes import raise_if_signalled, signals_as_flags
from loop.cloud.clouds import CHOICES, Watch
from loop.machine.failures import find_machine_failure
from loop.model.change import hosts_of
from loop.model.money import AiUse, Bill, RateCard
from loop.model.plan import ResolvedPlan
from loop.model.record import Finished, HostUse, Line, SessionHead, Started, Status
from loop.money.bill import SessionUse, make_bill
from loop.report import format as say
from loop.report.screen import Screen
from loop.session.walk import (
    PatternBegan,
    PatternEnded,
    StepBegan,
    StepEnded,
    Ticked,
    Walk,
    WalkEvent,
)
from loop.store import journal, sessions
from loop.store.journal import Journal

REPORT_S, REPORT_SHARE = 2.0, 0.1  # Seconds kept back to write the report; at most this share.
LONGEST_S = 1e7  # Seconds, about four months: a budget that lasts longer than that is no limit.


@dataclass(frozen=True)
class Ending:
    """How a walk ended: status, reason and exit code."""

    status: Status | None  # None: the walk reached its end, and the step records decide.
    reason: str
    exit_code: int
    why_not_reached: str = ""  # Why other planned steps did not run; empty at the end and after ^C.
    resume_phrase: str = ""  # Words before the resume command; empty: the walk reached its end.
    unwatched_sentences: tuple[str, ...] = ()  # Why the machine was not watched for preemption.

    @classmethod
    def interrupted_by(cls, stop: Stopped | MachineFailure) -> "Ending":
        """The ending of a walk that preemption, budget, a signal or a machine failure stopped."""
        reason, code, phrase = str(stop), stop.exit_code, "go on with"
        if isinstance(stop, MachineFailure):
            phrase = f"{stop.hint}; then go on with"
            return cls("paused", reason, code, "the machine failed before it was done", phrase)
        if code == ExitCode.PAUSED:
            return cls("paused", reason, code, "the session was paused before it was done", phrase)
        if code == ExitCode.OVER_BUDGET:
            phrase = "go on, with more or no budget"
            return cls("aborted", reason, code, "the budget did not reach so far", phrase)
        return cls("aborted", reason, code, resume_phrase=phrase)  # A signal, as ^C.


@dataclass
class Bounds:
    """The limits of one walk: seconds (dollars are converted to seconds) and a preemption watch."""

    limit_s: float = math.inf  # Seconds for all walks of a session, the first and each resume.
    limit_text: str = ""  # The limit in words, for messages: `5 min`, `$0.10, which lasts for 7 s`.
    earlier_walks_s: float = 0.0
    plan: ResolvedPlan | None = None
    preemption_watch: Watch | None = None
    free_reserve: Callable[[], None] = lambda: None  # Deletes a spare file: room for last records.

    def raise_if_over(self, event: WalkEvent, walked_s: float) -> None:
        """Raise Stopped for a preemption notice, a limit that is reached, or a step that begins and
        should exceed it: by earlier sessions (`measured`), else by its share of its pattern's
        expected time (`prior`). `walked_s`: seconds of this walk so far."""
        if self.preemption_watch is not None and self.preemption_watch.notice:
            raise Stopped(self.preemption_watch.notice, ExitCode.PAUSED)
        report_s = min(REPORT_S, REPORT_SHARE * self.limit_s)  # Kept back to write the report.
        remaining_s = self.limit_s - report_s - self.earlier_walks_s - walked_s
        budget = f"its budget of {self.limit_text}"
        if isinstance(event, Ticked) and remaining_s <= 0:
            raise Stopped(f"stopped at {budget}", ExitCode.OVER_BUDGET)
        if isinstance(event, StepBegan) and self.plan is not None:
            step, planned = event.started, self.plan.find_pattern(event.started.pattern)
            budgets_s = sum(other.budget_s for other in planned.pattern.steps)
            expected_s, evidence = planned.seconds * step.budget_s / budgets_s, "prior"
            if step.step in planned.step_s:
                expected_s, evidence = planned.step_s[step.step], "measured"
            if remaining_s <= 0 or expected_s > remaining_s:
                needed_text = f"{step.label} takes about {expected_s:.1f} s ({evidence})"
                remaining_text = f"{max(0.0, remaining_s):.1f} s are left of {budget}"
                raise Stopped(f"{needed_text}, and {remaining_text}", ExitCode.OVER_BUDGET)


def affordable_seconds(usd: float, cost_usd: Callable[[float], float]) -> float:
    """The most seconds (0 to `LONGEST_S`, in ms) that `usd` pays. `cost_usd` must not decrease."""
    milliseconds = range(int(LONGEST_S * 1000))
    return bisect_right(milliseconds, usd, key=lambda ms: cost_usd(ms / 1000)) / 1000


@dataclass(frozen=True)
class SessionLimits:
    """The user's limits on all walks of a session: minutes, dollars, and which cloud is watched."""

    minutes: float | None = None
    usd: float | None = None
    watched_cloud: str = field(default_factory=lambda: os.getenv("LOOP_WATCH_PREEMPTION") or "auto")

    def check(self, head: SessionHead, card: RateCard) -> None:
        """Raise UsageError for a limit that is too low, an unknown cloud or price of the GPU."""
        for option, limit in (("--budget-minutes", self.minutes), ("--max-usd", self.usd)):
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                raise UsageError(f"{option} {limit:g}: expected a number above 0", f"{option} 10")
        if self.watched_cloud not in CHOICES:
            hint = f"LOOP_WATCH_PREEMPTION: one of {', '.join(CHOICES)}"
            raise UsageError(f"unknown cloud {self.watched_cloud!r} to watch", hint=hint)
        if self.usd is None:
            return
        first_bill = charges_so_far(0.0, card, head)  # A cloud can charge a minimum time at once.
        option = f"--max-usd {self.usd:g}"
        for missing in first_bill.unmeasured:
            if missing.resource == "gpu":
                raise UsageError(f"{option}: what the GPU costs is not known", hint=missing.reason)
        if first_bill.usd >= self.usd:
            charge = f"${first_bill.usd:.4f} is charged for a GPU's first minute"
            raise UsageError(f"{option}: {charge}", hint="allow more; loop cost rates shows prices")

    def make_bounds(
        self, head: SessionHead, card: RateCard, lines: Sequence[Line], ai: AiUse | None
    ) -> Bounds:
        """The bounds of one walk by the stricter limit. Starts the preemption watch. `lines`: the
        journal so far, whose time counts. `ai`: AI use so far; None: unknown."""
        hosts = hosts_of(journal.finished_steps(lines))
        limits = [(math.inf, "")]  # (seconds, the limit in words)
        if self.minutes is not None:
            limits.append((self.minutes * 60, say.seconds(self.minutes * 60)))
        if self.usd is not None:
            seconds = affordable_seconds(
                self.usd, lambda s: charges_so_far(s, card, head, ai, hosts).usd
            )
            ai_text = f" beside ${ai.usd:.4f} of AI" if ai is not None and ai.usd else ""
            text = f"${self.usd:g}, which lasts for {say.seconds(seconds)}{ai_text}"
            limits.append((seconds, text))
        limit_s, limit_text = min(limits)
        earlier_walks_s, watch = sessions.running_seconds(lines), Watch(self.watched_cloud).start()
        return Bounds(limit_s, limit_text, earlier_walks_s, head.plan, watch)


def charges_so_far(
    seconds: float,
    card: RateCard,
    head: SessionHead,
    ai: AiUse | None = None,
    hosts: Sequence[HostUse] = (),
) -> Bill:
    """The bill of a session's first `seconds`. `ai`: its AI use. `hosts`: machines of its jobs."""
    used = SessionUse(seconds=seconds, device=head.device, gpu=head.gpu, ai=ai, hosts=hosts)
    return make_bill(used, card.with_waiting_person(is_attended=head.attended))


@dataclass
class Show:
    """Prints the events of a walk: a live status line in a terminal, else one plain line a step."""

    screen: Screen
    as_events: bool = False
    recall_lines: Callable[[Finished], Sequence[str]] = lambda record: ()
    """Takes a failed step; returns lines about the same failure in earlier sessions."""
    last_begun: Started | None = None  # The last step whose begin was printed without a terminal.
    printed_skips: set[tuple[str, str]] = field(default_factory=set)  # (pattern, reason) printed.

    def print_event(self, event: WalkEvent) -> None:
        """Print an event; without a terminal, of progress only the begin and heartbeats."""
        if self.as_events:
            self._print_json(event)
        if isinstance(event, PatternBegan):
            self.screen.say(f"[{event.index}/{event.of}] {event.title}")
        elif isinstance(event, Ticked):
            step, budget_text = event.started, say.seconds(event.started.budget_s)
            position_text = f"  {step.index}/{step.of} {step.step}"
            time_text = f"{say.seconds(event.seconds)} of {budget_text}"
            if self.screen.may_animate:
                self.screen.status(f"{position_text}: {event.note} ({time_text})")
                return
            if self.last_begun != step:
                self.last_begun = step
                self.screen.say(f"  begins   {step.step} (budget {budget_text})")
            if event.heartbeat:
                self.screen.say(f"{position_text}: still at it, {event.note} ({time_text})")
        elif isinstance(event, StepEnded):
            self._print_step_end(event)
        elif isinstance(event, PatternEnded) and event.answered_by:
            self.screen.say(f"  {event.name} {event.status}: {event.answered_by} answers")

    def _print_step_end(self, event: StepEnded) -> None:
        """Print how a step ended, and its hint; of steps skipped for one reason, only the first."""
        record = event.finished
        skip_key = (record.pattern, record.skipped_because)
        if skip_key in self.printed_skips:
            return
        if record.skipped_because:
            self.printed_skips.add(skip_key)
        time_text = ""
        if record.status != "skipped":
            time_text = f" ({say.seconds(record.seconds)} of {say.seconds(record.budget_s)}"
            time_text += ", as before)" if event.replayed else ")"
        text = f" {record.step}{time_text}: {record.message}"
        self.screen.outcome(record.status, text, prefix="  ", status_columns=8)
        if record.status in ("failed", "paused") and record.hint:
            self.screen.say(f"           next: {record.hint}")
        for line in self.recall_lines(record) if record.status == "failed" else ():
            self.screen.say(f"           {line}")

    def _print_json(self, event: WalkEvent) -> None:
        """Write an event to stdout as a line of JSON, except progress without a heartbeat."""
        if isinstance(event, Ticked) and not event.heartbeat:
            return
        fields = vars(event)
        if isinstance(event, StepBegan | Ticked):
            fields = event.started.model_dump(mode="json")
        elif isinstance(event, StepEnded):
            fields = event.finished.model_dump(mode="json")
            fields["seen_before"] = list(self.recall_lines(event.finished))
        line = {"schema_version": 1, "happening": type(event).__name__, **fields}
        self.screen.data(to_json(line, None))


def drive(
    walk: Walk, show: Show, store: Callable[[WalkEvent], WalkEvent], bounds: Bounds | None = None
) -> Ending:
    """Run a walk until it ends, or a limit, a signal or a machine failure stops it; a step that
    runs then gets a record with the ending's status. Returns how it ended; raises other errors.
    `store` writes an event to disk and returns it to be shown. `bounds`: None: no limits."""
    begin, bounds = time.monotonic(), bounds or Bounds()
    last_event: WalkEvent | None = None
    with contextlib.closing(walk.events()) as events:
        try:
            with signals_as_flags():
                raise_if_signalled()
                for event in events:
                    if isinstance(event, StepBegan):  # Before anything is recorded of the step.
                        bounds.raise_if_over(event, time.monotonic() - begin)
                    last_event = store(event)
                    show.print_event(last_event)
                    if not isinstance(event, StepBegan):
                        bounds.raise_if_over(last_event, time.monotonic() - begin)
                    raise_if_signalled()
        except (Stopped, LoopError, OSError, MemoryError) as error:
            events.close()
            end = error if isinstance(error, Stopped) else find_machine_failure(error, walk.folders)
            if end is None:
                raise
            ending = Ending.interrupted_by(end)
            bounds.free_reserve()  # On a full disk, this is room for the interrupted step's record.
            if isinstance(last_event, StepBegan | Ticked):  # The running step ends so, too.
                started, workshop = last_event.started, walk.context.task.workshop
                steps = walk.resolved.find_pattern(started.pattern).pattern.steps
                (action,) = [step.action for step in steps if step.id == started.step]
                status, hint = ending.status or "aborted", ""
                if workshop and status == "paused":
                    hint = f"{ending.resume_phrase}: {workshop.resume_command}"
                seconds = last_event.seconds if isinstance(last_event, Ticked) else 0.0
                record = Finished.of(
                    started, action, status, ending.reason, hint=hint or None, seconds=seconds
                )
                show.print_event(store(StepEnded(record)))
            return ending
    if walk.failure is not None:  # A failure of the machine paused the last step.
        return Ending.interrupted_by(walk.failure)
    if walk.is_paused:
        return Ending("paused", walk.stop_reason or "", ExitCode.PAUSED, resume_phrase="go on with")
    stop_text = ""
    if walk.is_stop_reached:
        stop_text = f"the plan stops where `{walk.resolved.plan.stop_if}` is true"
        show.screen.say(f"no further step is begun: {stop_text}")
    code = ExitCode.BUG if walk.has_bug else ExitCode.OK
    return Ending(None, walk.stop_reason or "", code, stop_text)


def store_event(folder: sessions.SessionFolder, journal: Journal, event: WalkEvent) -> WalkEvent:
    """Append an event's record to the journal, with the files of its samples. Returns the event."""
    if isinstance(event, StepBegan):
        journal.append(event.started)
    elif isinstance(event, StepEnded) and not event.replayed:
        record, files = event.finished, list[str]()
        prefix = f"{record.run}-{record.step}-{record.attempt}"
        for name, segments in event.samples.items():  # First: the record names their files.
            files.append(folder.write_samples(f"{prefix}-{name}", segments))
        event = StepEnded(record.model_copy(update={"artifacts": tuple(files)}), event.samples)
        journal.append(event.finished)
    return event
