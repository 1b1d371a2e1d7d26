"""`loop status`: what runs, what waits for a person, what it costs, keep or stop the GPU, and what comes next."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError
from loop.base.locks import held
from loop.base.places import Project, project
from loop.base.screen import Screen
from loop.cli import clean
from loop.cli.next_plan import where_of
from loop.cli.status_page import Gpu, Left, Milestone, Running, Status, Waiting, sections
from loop.learning.predicting import expected, predicted_cost
from loop.library.rates import rates
from loop.model.change import hosts_of
from loop.model.index import SessionRow
from loop.model.money import RateCard
from loop.model.record import RESUMABLE, Line, SessionHead, latest_attempts
from loop.money import keep_or_stop as keeping
from loop.money.bill import gpu_rate, no_price
from loop.money.model import hours_text
from loop.report import format as say
from loop.report.sections import print_page
from loop.session import closing
from loop.session.bounds import charged
from loop.session.next_session import Proposal, propose
from loop.steps.setting import Setting, read_setting
from loop.store import index, sessions, ticks
from loop.store.index import SessionListing
from loop.store.journal import finished, open_step
from loop.store.sessions import LOCK, SessionFolder

SHOWN = 10
"""Sessions that wait, the newest; the list of sessions has all."""
NAMED = 3
"""Drafts and worktrees that are named; the others are counted."""


def show_status(target: Path | None, screen: Screen, *, as_json: bool = False, as_markdown: bool = False) -> int:
    """Everything, in one of three forms."""
    status = gather(target, datetime.datetime.now(datetime.UTC))
    if as_json:
        screen.data(to_json(asdict(status)))
    else:
        title = f"Status of {status.target}, {say.day(status.at)}"
        print_page(title, sections(status), screen, as_markdown=as_markdown)
    return ExitCode.OK


def gather(target: Path | None, now: datetime.datetime) -> Status:
    """Where a project stands. A definition with a mistake leaves out what needs definitions, and is named."""
    here = project(target, Path.cwd())
    card = rates(here)
    listed = [one for one in index.listing(here.sessions) if not one.recorded and not one.copy_of]
    running, waiting = _open(listed, here, card, now)
    setting, problem = _setting(target)
    first, no_milestone = _first(setting, target, problem)
    return Status(
        target=setting.target.name if setting else str(here.target),
        at=now,
        running=tuple(running),
        waiting=tuple(_waiting(one, here.sessions, card) for one in reversed(waiting[-SHOWN:])),
        more_waiting=max(0, len(waiting) - SHOWN),
        left=tuple(_left(here, listed)),
        gpu=_gpu(setting, here, card, now, running=bool(running)),
        sessions=sum(one.readable for one in listed),
        usd=sum(one.usd or 0.0 for one in listed) + sum(one.usd for one in running),
        last=listed[-1].folder if listed else "none",
        wrong=first.wrong if first else (),
        unjudged=first.unjudged if first else "",
        milestone=_milestone(first, card) if first else None,
        no_milestone=no_milestone,
    )


def _open(
    listed: Sequence[SessionListing], here: Project, card: RateCard, now: datetime.datetime
) -> tuple[list[Running], list[SessionListing]]:
    """Sessions that run, and those that could go on."""
    can = [one for one in listed if one.readable and one.status in (None, *RESUMABLE)]
    busy = {one.folder for one in can if held(here.sessions / one.folder / LOCK)}
    running = [_running(SessionFolder(here.sessions / name), card, now) for name in sorted(busy)]
    return running, [one for one in can if one.folder not in busy]


def _setting(target: Path | None) -> tuple[Setting | None, str]:
    try:
        return read_setting(target), ""
    except LoopError as error:
        return None, error.message


def _running(folder: SessionFolder, card: RateCard, now: datetime.datetime) -> Running:
    """A session by its journal, which its own process goes on writing."""
    head, walked = folder.head(), folder.lines()
    step, began = open_step(walked), walked[-1].at if walked else None
    seconds = _so_far(walked, now)
    said = [one.note for one in ticks.read(folder.path / ticks.NAME) if step and one.step == step.step]
    return Running(
        id=head.id,
        plan=head.plan.plan.name,
        step=f"{step.pattern}/{step.step}" if step else "",
        title=step.title if step else "",
        since=began if step else None,
        step_s=(now - began).total_seconds() if step and began else 0.0,
        step_budget_s=step.budget_s if step else 0.0,
        note=said[-1] if said else "",
        done=len(latest_attempts(finished(walked))),
        of=sum(len(head.plan.find(name).pattern.steps) for name in head.plan.plan.patterns),
        seconds=seconds,
        budget_s=head.plan.plan.budget.minutes * 60,
        predicted_s=_predicted(head),
        usd=charged(seconds, card, head, hosts=hosts_of(finished(walked))).usd,
    )


def _so_far(walked: Sequence[Line], now: datetime.datetime) -> float:
    """Seconds of all its walks, up to now."""
    since = (now - walked[-1].at).total_seconds() if walked else 0.0
    return sessions.wall_seconds(walked) + max(0.0, since)


def _predicted(head: SessionHead) -> tuple[float, float, float] | None:
    known = head.predicted
    return (known.seconds, known.low_s, known.high_s) if known else None


def _waiting(one: SessionListing, root: Path, card: RateCard) -> Waiting:
    """A session that can go on; what is wrong with its files where they cannot be read."""
    folder = SessionFolder(root / one.folder)
    status = one.status or "open"
    try:
        head, record, walked = folder.head(), folder.record(), folder.lines()
    except LoopError as error:
        return Waiting(one.folder, status, error.message, "loop sessions list", one.usd or 0.0)
    asked = closing.waiting_for(finished(walked))
    asked = "" if head.resume_command in asked else asked  # It is said anyway.
    step = open_step(walked)
    killed = f"it ended without a word{f' in {step.pattern}/{step.step}' if step else ''}"
    why = "; ".join(filter(None, (record.reason if record else killed, asked)))
    hosts = hosts_of(finished(walked))
    usd = record.bill.usd if record else charged(sessions.wall_seconds(walked), card, head, hosts=hosts).usd
    return Waiting(one.folder, status, why, head.resume_command, usd)


def _left(here: Project, listed: Sequence[SessionListing]) -> Iterator[Left]:
    """Worktrees and damaged folders."""
    trees = clean.left_over(here.sessions)
    if trees:
        names = _some([one.name for one in trees], "worktree")
        yield Left(f"{names} left over, edits: {_edits(trees)}", clean.COMMAND)
    bad = [one.folder for one in listed if one.problem]
    if bad:
        yield Left(f"{_some(bad, 'session folder')} with something wrong", "loop sessions list")


def _some(names: Sequence[str], noun: str) -> str:
    """`2 worktrees (one, other)`."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} {noun}{'s' * (len(names) != 1)} ({', '.join(names[:NAMED])}{more})"


def _edits(trees: Sequence[clean.Found]) -> str:
    edited = sum(bool(one.loses) for one in trees)
    return f"in {edited}, which stay until they are looked at" if edited else "none"


def _gpu(setting: Setting | None, here: Project, card: RateCard, now: datetime.datetime, *, running: bool) -> Gpu:
    """Whether the GPU of the last session on one is worth its idle hours."""
    name = setting.target.name if setting else None
    rows = [row for row in index.rows(here.sessions, last=index.LOOKED_BACK, target=name) if not row.recorded]
    on_gpu = [row for row in rows if row.device == "cuda" and row.started is not None]
    if not on_gpu:
        return Gpu("unknown", "no session has run on a GPU here")
    last = on_gpu[-1]
    rate = gpu_rate(card, last.environment.gpu)
    if running:
        return Gpu("in use", "a session runs")
    if rate is None:
        return Gpu("unknown", no_price(card, last.environment.gpu))
    restart = keeping.restart_of(on_gpu, "cuda")
    if restart is None:
        why = "no restart was measured: in no session was anything compiled and then timed on a GPU"
        return Gpu("unknown", why)
    try:
        stop = keeping.stop_cost(restart, rate.usd_per_hour, *keeping.who_waits(card, None))
    except LoopError as error:
        return Gpu("unknown", error.message)
    even = stop.low_usd / rate.usd_per_hour, stop.high_usd / rate.usd_per_hour
    return _weighed(last, rate.usd_per_hour, even, now)


def _weighed(last: SessionRow, usd_per_hour: float, even: tuple[float, float], now: datetime.datetime) -> Gpu:
    """By how long it has stood: whoever stops at the break-even pays at most twice what foresight would."""
    assert last.started is not None
    idle = max(0.0, (now - last.started).total_seconds() - last.seconds) / 3600
    stood = f"{last.environment.gpu or 'it'} has stood for {hours_text(idle)} (${idle * usd_per_hour:.2f})"
    decision = "stop" if idle > even[1] else "keep"
    return Gpu(decision, f"if it is still held: {stood}. {keeping.advice(even)}")


def _first(setting: Setting | None, target: Path | None, problem: str) -> tuple[Proposal | None, str]:
    """What `loop plan next` says; else why there is nothing."""
    if setting is None:
        return None, problem
    try:
        return propose(setting, where_of(target))[0], ""
    except LoopError as error:
        return None, error.message


def _milestone(first: Proposal, card: RateCard) -> Milestone:
    takes = ", ".join(filter(None, (expected(first.head), predicted_cost(card, first.head))))
    return Milestone(first.idea.objective, first.idea.why, takes, first.command)
