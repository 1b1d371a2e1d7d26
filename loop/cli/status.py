"""`loop status` and `loop plan next`: running and waiting sessions, cost, GPU advice, next session."""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loop.base.documents import to_json
from loop.base.errors import LoopError
from loop.base.locks import is_locked
from loop.base.places import Project, project
from loop.base.screen import Screen
from loop.learning.next_plan import ALL_JUDGED
from loop.library.rates import rates
from loop.model.base import Printed
from loop.model.change import hosts_of
from loop.model.money import RateCard
from loop.model.record import RESUMABLE, latest_attempts
from loop.money import decisions as keeping
from loop.money.bill import no_price, rate_for_gpu
from loop.money.model import hours_text
from loop.report import format as say
from loop.report.sections import Section, show
from loop.session import closing
from loop.session.bounds import charges_so_far
from loop.session.next_session import NextSession, propose_next
from loop.steps.setting import Setting, read_setting
from loop.store import index, sessions, ticks
from loop.store.index import SessionListing
from loop.store.journal import finished_steps, open_step
from loop.store.sessions import LOCK, SessionFolder

SHOWN = 10
"""Most waiting sessions that are listed, newest first."""
NAMED = 3
"""Most damaged folders that are named; the others are counted."""
OTHERS = 3
"""Most further ideas that are named."""


@dataclass(frozen=True)
class Running:
    """A running session, read from its journal while another process writes to that."""

    id: str
    plan: str
    step: str
    """`pattern/step`; empty between two steps."""
    title: str
    since: datetime.datetime | None
    """When the step began, UTC; None between two steps."""
    step_s: float
    step_budget_s: float
    note: str
    done: int
    of: int
    seconds: float
    budget_s: float
    usd: float
    """The session's cost so far; AI is added only at the session's end."""

    @classmethod
    def read(cls, folder: SessionFolder, card: RateCard, now: datetime.datetime) -> "Running":
        """Read the present state of a running session. `card`: prices."""
        head, lines = folder.head(), folder.lines()
        step, began, plan = open_step(lines), lines[-1].at if lines else None, head.plan
        since_s = (now - began).total_seconds() if began else 0.0
        seconds = sessions.wall_seconds(lines) + max(0.0, since_s)
        notes = [
            tick.note for tick in ticks.read_ticks(folder.path / ticks.NAME) if step and tick.step == step.step
        ]
        done = finished_steps(lines)
        return cls(
            id=head.id,
            plan=plan.plan.name,
            step=f"{step.pattern}/{step.step}" if step else "",
            title=step.title if step else "",
            since=began if step else None,
            step_s=since_s if step else 0.0,
            step_budget_s=step.budget_s if step else 0.0,
            note=notes[-1] if notes else "",
            done=len(latest_attempts(done)),
            of=sum(len(plan.find(name).pattern.steps) for name in plan.plan.patterns),
            seconds=seconds,
            budget_s=plan.plan.budget.minutes * 60,
            usd=charges_so_far(seconds, card, head, hosts=hosts_of(done)).usd,
        )

    @property
    def section(self) -> Section:
        """The running step, its progress and the cost so far."""
        lines = [f"{self.done} of {say.count(self.of, 'step')}; {say.billed_usd(self.usd)} so far"]
        lines.append(_against(self.seconds, self.budget_s))
        if self.since is not None:
            since = f"since {say.day(self.since)}: {_against(self.step_s, self.step_budget_s)}"
            lines = [f"{self.title}{': ' if self.note else ''}{self.note}", since, *lines]
        return Section(f"{self.id} runs{f', at {self.step}' if self.step else ''}", tuple(lines))


@dataclass(frozen=True)
class WaitingSession:
    """A session that can be resumed."""

    id: str
    status: str
    """`paused`, `aborted`, or `open`: its process was killed."""
    why: str
    command: str
    usd: float

    @classmethod
    def read(cls, row: SessionListing, root: Path, card: RateCard) -> "WaitingSession":
        """Read why a session waits. Unreadable files become the reason."""
        folder, status = SessionFolder(root / row.folder), row.status or "open"
        try:
            head, record, lines = folder.head(), folder.record(), folder.lines()
        except LoopError as error:
            return cls(row.folder, status, error.message, "loop sessions list", row.usd or 0.0)
        step, steps = open_step(lines), finished_steps(lines)
        why = f"it ended without a word{f' in {step.pattern}/{step.step}' if step else ''}"
        if record is not None:
            why, usd = record.reason, record.bill.usd
        else:
            usd = charges_so_far(sessions.wall_seconds(lines), card, head, hosts=hosts_of(steps)).usd
        request = closing.waiting_for(steps)
        if request and head.resume_command not in request:  # The resume command is printed anyway.
            why = f"{why}; {request}"
        return cls(row.folder, status, why, head.resume_command, usd)

    @property
    def section(self) -> Section:
        """The reason for waiting, and the resume command."""
        return Section(f"{self.id} waits", (f"{self.status}: {self.why}", f"go on: {self.command}"))


class Status(Printed):
    """What `loop status --json` prints."""

    schema_version: Literal[4] = 4
    target: str
    """The target's name; its folder if its definition is unreadable."""
    at: datetime.datetime
    running: tuple[Running, ...]
    waiting: tuple[WaitingSession, ...]
    """Sessions that can be resumed, newest first."""
    more_waiting: int
    """Number of older sessions that can be resumed and are not listed."""
    left: tuple[str, ...]
    """Problems such as damaged folders, each with a command."""
    gpu: dict[Literal["decision", "why"], str]
    """Whether to keep an idle GPU: `keep`, `stop`, `in use` or `unknown`; and why."""
    sessions: int
    usd: float
    """Cost of all sessions, including running ones."""
    last: str
    milestone: NextSession | None
    no_milestone: str = ""

    def show(self, screen: Screen) -> None:
        """Print sessions, wrong or unjudged variants, problems, money, and the proposed next session."""
        parts = [*(each.section for each in self.running), *(each.section for each in self.waiting)]
        if not parts:
            parts = [Section("Nothing runs, nothing waits", (f"as of {say.day(self.at)}",))]
        if self.milestone is not None:
            parts.append(correctness(self.milestone))
        older = say.count(self.more_waiting, "older session")
        more = (f"{older} could go on, too: loop sessions list",) if self.more_waiting else ()
        parts.append(Section("To look at", (*self.left, *more)))
        cost = f"{say.count(self.sessions, 'session')}, {say.usd(self.usd)} in all; the last: {self.last}"
        decision = "" if self.gpu["decision"] == "unknown" else f"{self.gpu['decision']}: "
        parts.append(Section("Money", (cost, f"GPU: {decision}{self.gpu['why']}")))
        parts.append(next_section(self.milestone) if self.milestone else Section("Next", (self.no_milestone,)))
        show(parts, screen)


def show_next(target: Path | None, screen: Screen, *, as_json: bool) -> None:
    """The proposed next session, and further ideas."""
    setting = read_setting(target)
    proposed = propose_next(setting, ["--target", str(target)] if target else [])
    if as_json:
        screen.data(to_json(proposed))
    else:
        show([correctness(proposed), next_section(proposed)], screen)


def gather(target: Path | None, now: datetime.datetime | None = None) -> Status:
    """Collect the status of a project. A mistake in a definition replaces the proposal of a next session."""
    now = now or datetime.datetime.now(datetime.UTC)
    here = project(target, Path.cwd())
    card = rates(here)
    listed = [row for row in index.listing(here.sessions) if not row.recorded]
    unfinished = [row for row in listed if row.readable and row.status in (None, *RESUMABLE)]
    busy = {row.folder for row in unfinished if is_locked(here.sessions / row.folder / LOCK)}
    running = [Running.read(SessionFolder(here.sessions / name), card, now) for name in sorted(busy)]
    waiting = [row for row in unfinished if row.folder not in busy]
    setting, milestone, no_milestone = None, None, ""
    try:
        setting = read_setting(target)
        milestone = propose_next(setting, ["--target", str(target)] if target else [])
    except LoopError as error:
        no_milestone = error.message
    bad = [row.folder for row in listed if row.problem]
    more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    damaged = f"{say.count(len(bad), 'session folder')} with something wrong ({', '.join(bad[:NAMED])}{more})"
    decision, why = _gpu(setting, here, card, now, running=bool(running))
    return Status(
        target=setting.target.name if setting else str(here.target),
        at=now,
        running=tuple(running),
        waiting=tuple(WaitingSession.read(row, here.sessions, card) for row in reversed(waiting[-SHOWN:])),
        more_waiting=max(0, len(waiting) - SHOWN),
        left=(f"{damaged}: loop sessions list",) if bad else (),
        gpu={"decision": decision, "why": why},
        sessions=sum(row.readable for row in listed),
        usd=sum(row.usd or 0.0 for row in listed) + sum(session.usd for session in running),
        last=listed[-1].folder if listed else "none",
        milestone=milestone,
        no_milestone=no_milestone,
    )


def _gpu(
    setting: Setting | None, here: Project, card: RateCard, now: datetime.datetime, *, running: bool
) -> tuple[str, str]:
    """Advice on an idle GPU (`keep`, `stop`, `in use`, `unknown`) and the reason."""
    name = setting.target.name if setting else None
    rows = [row for row in index.rows(here.sessions, last=index.LOOKED_BACK, target=name) if not row.recorded]
    on_gpu = [(row, row.started) for row in rows if row.device == "cuda" and row.started is not None]
    if not on_gpu:
        return ("unknown", "no session has run on a GPU here")
    last, started = on_gpu[-1]
    if running:
        return ("in use", "a session runs")
    rate, restart = (
        rate_for_gpu(card, last.environment.gpu),
        keeping.restart_of([row for row, _ in on_gpu], "cuda"),
    )
    if rate is None:
        return ("unknown", no_price(card, last.environment.gpu))
    if restart is None:
        why = "no restart was measured: in no session was anything compiled and then timed on a GPU"
        return ("unknown", why)
    try:
        stop = keeping.stop_cost(*restart, rate.usd_per_hour, *keeping.who_waits(card, None))
    except LoopError as error:
        return ("unknown", error.message)
    # Ski rental: stopping when idle cost reaches the stop's cost pays at most twice the optimum.
    even = stop.usd / rate.usd_per_hour
    idle = max(0.0, (now - started).total_seconds() - last.seconds) / 3600
    cost = f"${idle * rate.usd_per_hour:.2f}"
    stood = f"{last.environment.gpu or 'it'} has stood for {hours_text(idle)} ({cost})"
    return ("stop" if idle > even else "keep", f"if it is still held: {stood}. {keeping.advice(even)}")


def correctness(next_: NextSession) -> Section:
    """A section on wrong variants, and on variants that no session judged."""
    lines = (*next_.wrong, *([next_.unjudged] if next_.unjudged else ()))
    title = "Wrong" if next_.wrong else "Not judged" if lines else "Nothing is wrong"
    return Section(title, lines or (ALL_JUDGED,))


def next_section(next_: NextSession) -> Section:
    """The proposed next session, and further ideas."""
    return Section(
        f"Next: {next_.objective}",
        (
            *(f"why: {reason}" for reason in next_.why),
            f"chain: {', '.join(next_.chain)}",
            f"expected: {next_.expected}",
            f"benefit: {next_.benefit}",
            f"run it: {next_.command}",
            *(f"also: {other.objective} (plan {other.plan}): {other.why[0]}" for other in next_.others[:OTHERS]),
        ),
    )


def _against(seconds: float, budget_s: float) -> str:
    """A duration against its budget in words, `3.4 s of 60 s`."""
    over = f", {seconds / budget_s:.1f} times its budget" if budget_s and seconds > budget_s else ""
    return f"{say.seconds(seconds)} of {say.seconds(budget_s)}{over}"
