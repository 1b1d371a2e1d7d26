"""Limits that end a session before its plan is done: minutes, dollars, and preemption of its machine."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from loop.base.documents import nearest
from loop.base.errors import ExitCode, MachineFailure, Stopped, UsageError
from loop.base.screen import seconds_text
from loop.cloud import CHOICES, Watch
from loop.model.change import hosts_of
from loop.model.jobs import HostUse
from loop.model.money import AiUse, Bill, RateCard
from loop.model.plan import ResolvedPlan
from loop.model.record import Line, SessionHead, Status
from loop.money.bill import Used, make_bill
from loop.session.walk import Happening, StepBegan, StepDue, Ticked
from loop.store import journal, sessions

REPORT_S = 2.0
"""Seconds of a budget that are kept back to end running work and to write the report ..."""
REPORT_SHARE = 0.1
"""... but at most this share of the budget."""
LONGEST_S = 1e7
"""Seconds, about four months: a budget that lasts longer than that is no limit."""


@dataclass(frozen=True)
class Ending:
    """How a walk ended: status, reason and exit code."""

    status: Status | None
    """None when the walk reached its end: then the step records decide the status."""
    reason: str
    exit_code: int
    not_reached: str = "the session did not get there"
    cut: bool = False
    """Whether the walk was interrupted while a step was running."""
    unwatched: tuple[str, ...] = ()
    """Sentences for the report: why the machine was not watched for preemption."""
    mend: str = ""
    """What the user has to repair before the session can resume; empty for nothing."""

    @property
    def to_go_on(self) -> str:
        """The words that a message prints before the resume command, such as `go on with`."""
        if self.mend:
            return f"{self.mend}; then go on with"
        return "go on, with more or no budget" if self.exit_code == ExitCode.OVER_BUDGET else "go on with"


def broken_off(stop: Stopped | MachineFailure) -> Ending:
    """The ending of a walk that a stop (signal, budget, preemption) or a machine failure interrupted."""
    words, code = str(stop), stop.exit_code
    if isinstance(stop, MachineFailure):
        reached = "the machine failed before it was done"
        return Ending("paused", words, code, reached, cut=True, mend=stop.hint or "")
    if code == ExitCode.PAUSED:
        return Ending("paused", words, code, "the session was paused before it was done", cut=True)
    if code == ExitCode.OVER_BUDGET:
        return Ending("aborted", words, code, "the budget did not reach so far", cut=True)
    return Ending("aborted", words, code)


@dataclass
class Bounds:
    """The limits of one walk: seconds (dollars are converted to seconds) and a preemption watch."""

    limit_s: float = math.inf
    """Seconds that all walks of a session (the first and each resume) may take together."""
    words: str = ""
    """The limit in words, for messages: `5 min`, `$0.10, which lasts for 7 s`."""
    spent_s: float = 0.0
    """Seconds that earlier walks of the session took."""
    expected: Mapping[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    """(pattern, step) to its expected seconds and where they come from: `measured` or `prior`."""
    watch: Watch | None = None
    """Asks the cloud whether it will take the machine away; None: no watch."""
    reserve: Path | None = None
    """A file that only occupies disk space. Deleting it makes room for the last journal lines."""

    def give_room(self) -> None:
        """Delete the reserve file, so that the last records fit on a full disk."""
        if self.reserve is not None:
            with contextlib.suppress(OSError):
                self.reserve.unlink(missing_ok=True)

    def hold(self, event: Happening, walked_s: float) -> None:
        """Raise Stopped at this event when the cloud takes the machine away or the time limit is reached.

        `walked_s`: seconds of this walk so far. A step that is expected to exceed the limit does not begin.
        """
        if self.watch is not None and self.watch.notice:
            raise Stopped(self.watch.notice, ExitCode.PAUSED)
        if not isinstance(event, StepDue | StepBegan | Ticked):
            return
        left_s = self.limit_s - min(REPORT_S, REPORT_SHARE * self.limit_s) - self.spent_s - walked_s
        why = ""
        if not isinstance(event, StepDue):
            why = f"stopped at its budget of {self.words}" if left_s <= 0 else ""
        elif left_s <= 0:
            why = f"its budget of {self.words} is spent before {event.pattern}/{event.step}"
        else:
            seconds, evidence = self.expected.get((event.pattern, event.step), (0.0, ""))
            if seconds > left_s:
                needs = f"{event.pattern}/{event.step} takes about {seconds:.1f} s ({evidence})"
                why = f"{needs}, and {left_s:.1f} s are left of its budget of {self.words}"
        if why:
            raise Stopped(why, ExitCode.OVER_BUDGET)

    def closed(self, ending: Ending) -> Ending:
        """Stop the preemption watch. Returns the ending, with what the watch could not observe."""
        if self.watch is None:
            return ending
        self.watch.close()
        return replace(ending, unwatched=self.watch.unwatched())


def seconds_for(usd: float, cost_usd: Callable[[float], float]) -> float:
    """The most seconds that cost at most `usd`, by bisection. `cost_usd(seconds)` must not decrease."""
    if cost_usd(LONGEST_S) <= usd:
        return LONGEST_S
    low, high = 0.0, LONGEST_S
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if cost_usd(middle) <= usd else (low, middle)
    return low


def expected_steps(plan: ResolvedPlan) -> dict[tuple[str, str], tuple[float, str]]:
    """Expected seconds of each step: `measured` in earlier runs, else a share of its pattern's estimate."""
    steps: dict[tuple[str, str], tuple[float, str]] = {}
    for planned in plan.patterns:
        budget_s = sum(step.budget_s for step in planned.pattern.steps)
        for step in planned.pattern.steps:
            seconds = planned.step_s.get(step.id)
            share = planned.seconds * step.budget_s / budget_s, "prior"
            steps[planned.pattern.name, step.id] = share if seconds is None else (seconds, "measured")
    return steps


@dataclass(frozen=True)
class SessionLimits:
    """The user's limits on all walks of a session: minutes, dollars, and which cloud is watched."""

    minutes: float | None = None
    usd: float | None = None
    watch: str = "auto"

    def check(self, head: SessionHead, card: RateCard) -> None:
        """Raise UsageError for a limit that is not positive, an unknown cloud, or dollars too few to begin."""
        for option, value in (("--budget-minutes", self.minutes), ("--max-usd", self.usd)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"{option} {value:g}: expected a number above 0", hint=f"{option} 10")
        if self.watch not in CHOICES:
            close = nearest(self.watch, CHOICES) or [", ".join(CHOICES)]
            raise UsageError(f"unknown cloud {self.watch!r} to watch", hint=f"LOOP_WATCH_PREEMPTION={close[0]}")
        if self.usd is None:
            return
        at_once = charges_so_far(0.0, card, head)
        unpriced = [missing.reason for missing in at_once.unmeasured if missing.resource == "gpu"]
        if unpriced:
            raise UsageError(f"--max-usd {self.usd:g}: what the GPU costs is not known", hint=unpriced[0])
        if at_once.usd >= self.usd:
            minute = f"${at_once.usd:.4f} is charged as soon as a GPU is held, for its first minute"
            hint = "allow more; `loop cost rates` shows the prices"
            raise UsageError(f"--max-usd {self.usd:g}: {minute}", hint=hint)

    def bounds(self, head: SessionHead, card: RateCard, lines: Sequence[Line], ai: AiUse | None) -> Bounds:
        """The bounds of a session: the stricter limit of minutes and dollars. Starts the preemption watch.

        `lines`: the session's journal. `ai`: AI use so far, measured or stated by the user; None: unknown.
        """
        hosts = hosts_of(journal.finished_steps(lines))
        limits = [(math.inf, "")]
        if self.minutes is not None:
            limits.append((self.minutes * 60, seconds_text(self.minutes * 60)))
        if self.usd is not None:
            seconds = seconds_for(self.usd, lambda s: charges_so_far(s, card, head, ai, hosts).usd)
            used = f" beside ${ai.usd:.4f} of AI" if ai is not None and ai.usd else ""
            limits.append((seconds, f"${self.usd:g}, which lasts for {seconds_text(seconds)}{used}"))
        spent_s, watch = sessions.wall_seconds(lines), Watch(self.watch).start()
        return Bounds(*min(limits), spent_s, expected_steps(head.plan), watch)


def charges_so_far(
    seconds: float, card: RateCard, head: SessionHead, ai: AiUse | None = None, hosts: Sequence[HostUse] = ()
) -> Bill:
    """The bill of the first `seconds` of a session. `ai`: its AI use. `hosts`: machines that ran its jobs."""
    used = Used(seconds=seconds, device=head.device, gpu=head.gpu, ai=ai, hosts=hosts)
    return make_bill(used, card.with_waiting_person(head.attended))
