"""Keep or stop a rented machine after its last job, whichever costs less."""

import datetime
import os
import time
from pathlib import Path

from loop.base.errors import LoopError, WorkFailed
from loop.base.locks import held
from loop.base.places import project
from loop.base.processes import finish, run
from loop.base.screen import Screen
from loop.jobs import sent as noted
from loop.jobs.folder import LOCK, JobFolder, read_text
from loop.jobs.hosts import Listed
from loop.jobs.sent import Sent
from loop.jobs.there import TERMS, There
from loop.library.hosted import read_terms
from loop.library.rates import rates
from loop.library.trust import is_trusted
from loop.model.dtypes import Device
from loop.money import keep_or_stop as keeping
from loop.money.model import StopCost
from loop.store import index
from loop.store.sessions import SessionFolder

COMMAND_S = 900.0
"""Time for `start:` and `stop:`."""


def leave(folder: JobFolder, sent: Sent, host: Listed, there: There, sessions: list[Path], screen: Screen) -> None:
    """Decide whether the machine is kept, say so with its dollars, and stop it where that was decided.

    Raises WorkFailed, loudly, where `stop:` fails: the machine goes on costing money.
    """
    prices, name = host.host.prices, host.name
    if prices is None and host.host.stop is None:
        return
    away = [job for job, _ in noted.away(name) if job.id != folder.id]
    states = there.look({job.id: (0, 0) for job in away}) if away else {}
    coming = [job.id for job in away if states[job.id].state == "queued" or held(job.path / LOCK)]
    if others := [*there.running(), *coming]:
        screen.say(f"{name} stays: {others[0]} runs there")
        return
    _, terms = read_terms(read_text(folder.path / TERMS))
    rate, used = prices.at(terms) if prices else (0.0, None)
    planned = None  # Until when the machine is needed, and the hours until then.
    if sent.keep_until is not None and sent.keep_until > time.time():
        clock = datetime.datetime.fromtimestamp(sent.keep_until).astimezone()
        planned = f"{clock:%H:%M}", (sent.keep_until - time.time()) / 3600
    decision = "keep" if planned else "stop"
    if rate:
        screen.say(
            f"{name} costs ${rate:.2f} an hour ({(used or 'unknown terms').replace('_', ' ')}) while it runs:"
        )
        stop, gap = _measured(sent, sessions, rate)
        leaving = keeping.leave(rate, stop, gap, planned)
        decision = leaving.decision
        for line in leaving.lines:
            screen.say(f"  {line}")
    if decision == "keep":
        screen.say(f"{name} is kept" + (f"; stop it then: loop hosts stop {name}" if host.host.stop else ""))
    else:
        stop_machine(host, sent.project, screen)


def _measured(sent: Sent, sessions: list[Path], rate: float) -> tuple[StopCost | None, float | None]:
    """Cost of a stop, and hours between sessions, as the sessions here on such a machine measured them."""
    rows = [row for row in index.rows(Path(sent.sessions), last=index.LOOKED_BACK) if not row.recorded]
    device: Device = SessionFolder(sessions[-1]).head().device if sessions else "cuda"
    here = [row for row in rows if row.device == device]
    restart = keeping.restart_of(here, device)
    if restart is None:
        return None, keeping.gap_hours(here)
    card = rates(project(Path(sent.project) if sent.project else None, Path.cwd()))
    return keeping.stop_cost(restart, rate, *keeping.who_waits(card, None)), keeping.gap_hours(here)


def stop_machine(host: Listed, target: str | None, screen: Screen) -> None:
    """Run `stop:`, if it may run. Raises WorkFailed where it fails, or may not."""
    stop = host.host.stop
    if stop is None:
        screen.say(f"{host.name} goes on costing money: {host.path} has no `stop:` for it; stop it yourself")
        return
    if target is not None and host.path.parent == Path(target):
        here = project(Path(target), Path.cwd())
        if not is_trusted(here):
            mend = f"look at it, then: loop trust {target}, and loop hosts stop {host.name}"
            raise WorkFailed(still_costs(host, f"`{stop}` of a project has not been allowed"), mend)
    screen.say(f"stopping {host.name}: {stop}")
    try:
        run_here(stop, host)
    except LoopError as error:
        raise WorkFailed(still_costs(host, error.message), f"stop it yourself: {stop}") from error
    noted.decided(host.name)
    screen.say(f"{host.name} is stopped")


def still_costs(host: Listed, why: str) -> str:
    """The message about a machine that should be stopped and still runs."""
    prices = host.host.prices
    each = f" ${prices.at(None)[0]:.2f} an hour" if prices else " money"
    return f"{host.name} STILL RUNS AND COSTS{each}: {why}"


def run_here(command: str, host: Listed) -> None:
    """Run `start:` or `stop:` of a machine on this one. Raises WorkFailed where it fails."""
    done = finish(run(["sh", "-c", command], limit_s=COMMAND_S, env=dict(os.environ)))
    if not done.ok:
        last = next((line for line in reversed(done.errors.splitlines()) if line.strip()), done.how)
        raise WorkFailed(f"{host.path}: `{command}` failed: {last.strip()[:300]}", hint="run it yourself")
