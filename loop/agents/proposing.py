"""`--agent`: a coding agent makes the change that a session waits for, and is charged with what it says of it."""

import contextlib
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from loop.agents import results
from loop.agents.results import read_result
from loop.base.documents import write_atomic
from loop.base.errors import ExitCode, LoopError
from loop.base.interrupts import check, flagged
from loop.base.processes import HEARTBEAT_S, Completed, run
from loop.base.screen import Screen, seconds_text
from loop.model.change import Brief, BriefOutput
from loop.model.money import AiUse
from loop.model.output import read_output
from loop.model.record import latest_attempts
from loop.store.sessions import SessionFolder


@dataclass(frozen=True)
class Agent:
    """A command that makes one change: the brief on its standard input, the worktree its folder."""

    command: str
    changes: int = 1
    """How many it may still make; then the session is ended."""
    limit_s: float = 1800.0
    """What it may take for one."""
    last: int = 0
    """Number of the change that it was asked for last; the same again means that nothing could be judged."""


def go_on(
    agent: Agent | None,
    folder: SessionFolder,
    screen: Screen,
    code: int,
    resume: Callable[[Agent | None, bool], int],
) -> int | None:
    """Have the change made that a session waits for, and resume it; None where there is nothing to be done.

    `resume`: with the agent as it may go on, or with True to end the session without another change.
    """
    asked = waited_for(folder) if agent is not None and code == ExitCode.PAUSED else None
    if agent is None or asked is None:
        return None
    if asked.number == agent.last:
        screen.say("the agent left no change that may be judged")
        return None
    if agent.changes == 0:
        return resume(None, True)
    make_change(agent, asked, folder, screen)
    return resume(replace(agent, changes=agent.changes - 1, last=asked.number), False)


def waited_for(folder: SessionFolder) -> Brief | None:
    """The change that a session waits for, if it is that for which it was paused."""
    last = latest_attempts(folder.finished())[-1:]
    if not last or last[0].status != "paused":
        return None
    output = read_output(last[0], BriefOutput)
    return output.brief if output else None


def make_change(agent: Agent, asked: Brief, folder: SessionFolder, screen: Screen) -> None:
    """Run the command to its end; keep what it printed, and what it used. Raises LoopError when it fails."""
    page = folder.path / "changes" / f"{asked.number}-brief.md"
    screen.say(f"change {asked.number} is asked of: {agent.command}")
    done = _run(agent, asked, page, screen)
    kept = page.with_name(f"{asked.number}-agent.txt")
    write_atomic(kept, done.output)
    results.add(folder, results.AiGiven(results=(use_of(agent, done.output, kept),)))
    if not done.ok:
        said = done.errors.strip().splitlines()[-1:] or [done.how]
        raise LoopError(f"the agent failed: {said[0]} ({kept})", hint=asked.resume, exit_code=ExitCode.PAUSED)


def _run(agent: Agent, asked: Brief, page: Path, screen: Screen) -> Completed:
    """In a shell, as the user would; with all of the user's environment, for it is the user's own command."""
    command = ["sh", "-c", f"{{ {agent.command}\n}} < {shlex.quote(str(page))}"]
    running = run(command, limit_s=agent.limit_s, cwd=Path(asked.folder), env=dict(os.environ))
    begun = told = time.monotonic()
    with flagged(), contextlib.closing(running):
        while True:
            check()
            try:
                next(running)
            except StopIteration as stop:
                found: Completed = stop.value
                return found
            now = time.monotonic()
            screen.status(f"  the agent is at work ({seconds_text(now - begun)})")
            if now - told > HEARTBEAT_S and not screen.live:
                told = now
                screen.say(f"  the agent is still at work ({seconds_text(now - begun)})")


def use_of(agent: Agent, printed: str, kept: Path) -> AiUse:
    """What it says that it used; that it says nothing, which is not nothing, where it does not."""
    try:
        return read_result(printed, str(kept))
    except LoopError:
        name = Path(next(iter(agent.command.split()), "an agent")).name
        return AiUse(
            source="result", agents=(name,), usd=None, unpriced=(name,), notes=(f"{name} printed no result",)
        )
