"""Where a project stands: lines for a terminal, and a page of Markdown for a repository or its wiki."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.report import format as say
from loop.report.markdown import block, code, escape, filled, paragraph, prose, table
from loop.report.markdown import columns as heads
from loop.report.plain import one_line


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
class Waiting:
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
class Gpu:
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
    waiting: tuple[Waiting, ...]
    more_waiting: int
    """Older sessions that could go on, and are not listed."""
    left: tuple[Left, ...]
    gpu: Gpu
    sessions: int
    usd: float
    """Cost of all sessions, those that run included."""
    last: str
    """The last session."""
    milestone: Milestone | None
    no_milestone: str = ""
    """Why there is none."""


def lines(status: Status) -> Iterator[str]:
    """For a terminal."""
    for run in status.running:
        yield from _running_lines(run)
    for one in status.waiting:
        yield f"{one_line(one.id)} waits: {one_line(one.command)}"
        yield f"  {one.status}: {one_line(one.why)}"
    if status.more_waiting:
        yield f"{say.count(status.more_waiting, 'older session')} could go on, too: loop sessions list"
    if not status.running and not status.waiting:
        yield "nothing runs, nothing waits"
    for left in status.left:
        yield f"{one_line(left.what)}: {left.command}"
    yield f"GPU: {_gpu(status.gpu)}"
    yield f"{say.count(status.sessions, 'session')}, {_usd(status.usd)} in all; the last: {one_line(status.last)}"
    yield from _milestone_lines(status)


def _running_lines(run: Running) -> Iterator[str]:
    at = f", at {one_line(run.step)}" if run.step else ""
    yield f"{one_line(run.id)} runs{at}"
    if run.since is not None:
        yield f"  {one_line(run.title)}{': ' if run.note else ''}{one_line(run.note)}"
        yield f"  since {say.day(run.since)}: {_against(run.step_s, run.step_budget_s)}"
    yield f"  {run.done} of {say.count(run.of, 'step')}; {_usd(run.usd)} so far"
    yield from (f"  {part}" for part in _budget(run))


def _milestone_lines(status: Status) -> Iterator[str]:
    if status.milestone is None:
        yield f"next: {one_line(status.no_milestone)}"
        return
    yield f"next: {one_line(status.milestone.objective)}"
    yield from (f"  why: {one_line(why)}" for why in status.milestone.why)
    yield f"  expected: {one_line(status.milestone.expected)}"
    yield f"  run it: {one_line(status.milestone.command)}"


def _against(seconds: float, budget_s: float) -> str:
    over = f", {seconds / budget_s:.1f} times its budget" if budget_s and seconds > budget_s else ""
    return f"{say.seconds(seconds)} of {say.seconds(budget_s)}{over}"


def _budget(run: Running) -> Iterator[str]:
    """Its time against what its plan is meant to take, and against what was expected."""
    yield _against(run.seconds, run.budget_s)
    if run.predicted_s is not None:
        middle, low, high = (say.seconds(value) for value in run.predicted_s)
        yield f"predicted {middle} (80 %: {low} to {high})"


def _usd(value: float) -> str:
    return f"${value:.4f}"


def markdown(status: Status) -> str:
    """A page of Markdown that says when it was made, for it ages."""
    parts = [
        f"## Status of {escape(status.target)}",
        f"As of {say.day(status.at)}, by `loop status --md`.",
        *_running_page(status.running),
        *_waiting_page(status),
        "### Money",
        "\n".join(_money(status)),
        "### Next",
        *_next_page(status),
    ]
    return "\n\n".join(parts) + "\n"


def _money(status: Status) -> Iterator[str]:
    cost = f"{say.count(status.sessions, 'session')} cost {say.usd(status.usd)} in all"
    yield f"- {cost}; the last is {code(one_line(status.last))}." if status.sessions else "- No session yet."
    yield f"- GPU: {prose(_gpu(status.gpu))}"


def _gpu(gpu: Gpu) -> str:
    """Where nothing can be decided, only why."""
    return one_line(gpu.why if gpu.decision == "unknown" else f"{gpu.decision}: {gpu.why}")


def _running_page(running: Sequence[Running]) -> Iterator[str]:
    yield "### Running"
    rows = (
        (
            one_line(run.id),
            one_line(f"{run.step}: {run.title}" if run.step else "between two steps"),
            say.day(run.since) if run.since else "-",
            f"{run.done} of {run.of}",
            "; ".join(_budget(run)),
            _usd(run.usd),
        )
        for run in running
    )
    made = filled(heads("Session", "Step", "Since", ">Steps", "Time against budget", ">Cost so far"), rows)
    yield table(made) if made else "Nothing runs."


def _waiting_page(status: Status) -> Iterator[str]:
    yield "### Waiting for a person"
    if not status.waiting and not status.left:
        yield "Nothing waits."
    for one in status.waiting:
        said = f"{paragraph(one_line(one.id))} is {one.status}: {prose(one_line(one.why))}"
        yield f"{said}\n\n{block([one_line(one.command)])}"
    if status.more_waiting:
        yield f"{say.count(status.more_waiting, 'older session')} could go on, too: `loop sessions list`."
    if status.left:
        yield "\n".join(f"- {prose(one_line(left.what))}: {code(left.command)}" for left in status.left)


def _next_page(status: Status) -> Iterator[str]:
    one = status.milestone
    if one is None:
        yield paragraph(one_line(status.no_milestone))
        return
    yield f"**{escape(one_line(one.objective))}**"
    reasons = [f"- {prose(one_line(why))}" for why in one.why]
    yield "\n".join([*reasons, f"- expected: {prose(one_line(one.expected))}"])
    yield block([one_line(one.command)])
