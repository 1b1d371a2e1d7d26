"""Where a project stands, as sections: the same for a terminal and for a page of Markdown."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from loop.learning.next_plan import ALL_JUDGED
from loop.report import format as say
from loop.report.sections import Section


@dataclass(frozen=True)
class Running:
    """One session that runs."""

    id: str
    plan: str
    step: str
    """`pattern/step`; empty between two."""
    title: str
    """What the step does."""
    since: datetime.datetime | None
    """When it began, UTC."""
    step_s: float
    """How long it has been at it."""
    step_budget_s: float
    """How long it is meant to take."""
    note: str
    """What it said last."""
    done: int
    """Steps that have ended."""
    of: int
    """Steps that its plan lists."""
    seconds: float
    """Its walks so far."""
    budget_s: float
    """What its plan is meant to take."""
    predicted_s: tuple[float, float, float] | None
    """What it was expected to take: median, and 80 % interval."""
    usd: float
    """Its cost so far, at the rates of the card; AI is added at its end."""


@dataclass(frozen=True)
class WaitingSession:
    """One session that can go on."""

    id: str
    status: str
    """Paused, aborted, or open: killed before its end."""
    why: str
    command: str
    """Goes on with it."""
    usd: float


@dataclass(frozen=True)
class Left:
    """Something that a person may want to look at, and the command for it."""

    what: str
    command: str


@dataclass(frozen=True)
class GpuDecision:
    """Keep or stop the GPU."""

    decision: str
    """`keep`, `stop`, `in use`, or `unknown`."""
    why: str


@dataclass(frozen=True)
class Milestone:
    """What comes next."""

    objective: str
    why: tuple[str, ...]
    expected: str
    command: str


@dataclass(frozen=True)
class Status:
    """Everything that the page says."""

    target: str
    at: datetime.datetime
    running: tuple[Running, ...]
    waiting: tuple[WaitingSession, ...]
    more_waiting: int
    """Older sessions that could go on, and are not listed."""
    left: tuple[Left, ...]
    gpu: GpuDecision
    sessions: int
    usd: float
    """Cost of all sessions, those that run included."""
    last: str
    """The last session."""
    milestone: Milestone | None
    no_milestone: str = ""
    """Why there is none."""
    wrong: tuple[str, ...] = ()
    """A sentence for each variant that is wrong."""
    unjudged: str = ""
    """Variants and sets that no session judged on these files; empty where every one was."""
    schema_version: int = 2
    """Number of this schema."""


def sections(status: Status) -> Iterator[Section]:
    """What runs, what waits, what is wrong or not judged, what is left over, money, and what comes next."""
    for run in status.running:
        yield Section(f"{run.id} runs{f', at {run.step}' if run.step else ''}", tuple(_running(run)))
    for session in status.waiting:
        yield Section(f"{session.id} waits", (f"{session.status}: {session.why}", f"go on: {session.command}"))
    if not status.running and not status.waiting:
        yield Section("Nothing runs, nothing waits", (f"as of {say.day(status.at)}",))
    if status.milestone is not None:
        lines = (*status.wrong, *([status.unjudged] if status.unjudged else ()))
        title = "Wrong" if status.wrong else "Not judged" if lines else "Nothing is wrong"
        yield Section(title, lines or (ALL_JUDGED,))
    left = [f"{item.what}: {item.command}" for item in status.left]
    if status.more_waiting:
        left.append(f"{say.count(status.more_waiting, 'older session')} could go on, too: loop sessions list")
    yield Section("To look at", tuple(left))
    cost = f"{say.count(status.sessions, 'session')}, {_usd(status.usd)} in all; the last: {status.last}"
    gpu = status.gpu
    decision = gpu.why if gpu.decision == "unknown" else f"{gpu.decision}: {gpu.why}"
    yield Section("Money", (cost, f"GPU: {decision}"))
    next_ = status.milestone
    if next_ is None:
        yield Section("Next", (status.no_milestone,))
    else:
        why = (f"why: {reason}" for reason in next_.why)
        lines = (*why, f"expected: {next_.expected}", f"run it: {next_.command}")
        yield Section(f"Next: {next_.objective}", lines)


def _running(run: Running) -> Iterator[str]:
    if run.since is not None:
        yield f"{run.title}{': ' if run.note else ''}{run.note}"
        yield f"since {say.day(run.since)}: {_against(run.step_s, run.step_budget_s)}"
    yield f"{run.done} of {say.count(run.of, 'step')}; {_usd(run.usd)} so far"
    yield _against(run.seconds, run.budget_s)
    if run.predicted_s is not None:
        middle, low, high = (say.seconds(value) for value in run.predicted_s)
        yield f"predicted {middle} (80 %: {low} to {high})"


def _against(seconds: float, budget_s: float) -> str:
    over = f", {seconds / budget_s:.1f} times its budget" if budget_s and seconds > budget_s else ""
    return f"{say.seconds(seconds)} of {say.seconds(budget_s)}{over}"


def _usd(value: float) -> str:
    return f"${value:.4f}" if value else "nothing billed"
