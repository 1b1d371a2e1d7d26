"""Work that outlasts a call: a `loop` of its own, whose folder says what it does, whoever asks and whenever.

A job ends by itself, by `job_cancel`, or with the machine; never with the server that began it. What a session
finds is in its session folder; the folder of a job holds what the command printed.
"""

import contextlib
import datetime
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from loop.base.documents import to_json
from loop.base.errors import EXIT_CODES, UsageError
from loop.base.screen import Screen
from loop.jobs import folder as folders
from loop.jobs.folder import JobFolder
from loop.jobs.running import begin as begin_apart
from loop.model.base import Printed
from loop.model.record import RESUMABLE

LONGEST_WAIT_S = 50.0
"""Clients give a call about a minute."""
KEPT = 100
"""Jobs of agents whose folders are kept."""
PREFIX = "mcp-"
"""How the ids of jobs begin that agents start: this room forgets no other."""
ENDS_S = 20.0
"""Time for a job to end once it is told."""
JobId = Annotated[str, Argument(help="An id that a tool returned, or last.")]


class JobState(Printed):
    """What a job does, or what came of it."""

    job: str
    """Its id."""
    state: Literal["running", "ended", "lost"]
    """`lost`: it was killed together with what watched it, as by a restart of the machine."""
    command: str
    """What does the same on a command line."""
    exit_code: int | None = None
    """How the command ended; None while it runs."""
    means: str = ""
    """What that exit code means."""
    seconds: float = 0.0
    """How long it has been running, or ran."""
    doing: str = ""
    """The last that it said."""
    session: str = ""
    """The session that it walks; empty for other work."""
    result: dict[str, Any] | None = None
    """What the command's `--json` prints; None while it runs."""
    next: str = ""
    """What to do now."""


def printed(job: JobFolder) -> list[dict[str, Any]]:
    """The JSON that its command printed, as far as it is there: an object for each event, or one in all."""
    text = folders.read_text(job.path / folders.OUT)
    objects: list[dict[str, Any]] = []
    for part in text.splitlines() if "--events" in job.job.words else [text]:
        with contextlib.suppress(ValueError):  # It is being written.
            objects.append(json.loads(part))
    return objects


def runs(job: JobFolder) -> bool:
    """Whether it is at work, or about to be."""
    return job.state in ("queued", "running")


def status(job: JobFolder) -> JobState:
    """Where it stands."""
    running, objects, code = runs(job), printed(job), job.rc
    session = next((str(event["session"]) for event in objects if event.get("happening") == "SessionBegan"), "")
    last: dict[str, Any] = objects[-1] if objects and not running else {}
    whole = last.get("happening", "SessionEnded") == "SessionEnded"  # Else it was killed between two events.
    result = {name: value for name, value in last.items() if whole and name != "happening"}
    steps = [event for event in objects if event.get("happening") in ("StepBegan", "Ticked", "StepEnded")]
    doing = folders.last_line(job.path / folders.TALK)
    if steps:
        text = steps[-1].get("message") or steps[-1].get("note") or steps[-1].get("title", "")
        doing = f"{steps[-1]['pattern']}/{steps[-1]['step']}: {text}"
    ended = max(folders.modified(job.path / name) for name in (folders.OUT, folders.RC))
    until = time.time() if running else ended
    return JobState(
        job=job.id,
        state="running" if running else "lost" if code is None else "ended",
        command=shlex.join(["loop", *job.job.words]),
        exit_code=code,
        means=EXIT_CODES.get(code, ""),
        seconds=round(max(0.0, until - folders.modified(job.path / folders.WHAT)), 1),
        doing=doing,
        session=session,
        result=result or None,
        next=f"job_wait with job={job.id}" if running else _next(session, code, result),
    )


def _next(session: str, code: int | None, result: Mapping[str, Any]) -> str:
    """What to do after a job."""
    if code is None:
        return f"run_session with resume={session}" if session else "call the same tool again"
    if error := result.get("error"):
        return str(error["next"])
    if result.get("brief"):
        return f"change_brief with session={session}"
    if result.get("status") in RESUMABLE:
        return f"{result['reason']}; run_session with resume={session} goes on"
    return " ".join(str(result.get("proposal", "")).split())


def begin(words: Sequence[str], name: str) -> JobFolder:
    """Start `loop` with these words, apart from this process, and return at once."""
    folders.forget_old(KEPT, PREFIX)
    now = datetime.datetime.now(datetime.UTC)
    name = f"{PREFIX}{now:%Y%m%d-%H%M%S}-{now.microsecond:06}-{name.replace('_', '-')}"
    job = folders.prepare(folders.Job(id=name, words=tuple(words), folder=str(Path.cwd())))
    begin_apart(job)
    return job


def find(name: str) -> JobFolder:
    """A job by its id, or `last`. Raises UsageError for one that is not there."""
    known = {job.id: job for job in folders.every() if job.id.startswith(PREFIX)}
    chosen = max(known, default=name) if name == "last" else name
    if chosen not in known:
        recent = f"the newest: {', '.join(sorted(known)[-3:])}" if known else "a tool that starts work returns one"
        raise UsageError(f"no job {name!r}", hint=recent)
    return known[chosen]


def wait(job: JobFolder, seconds: float) -> JobState:
    """Its status once it has ended, or after so long."""
    end = time.monotonic() + min(seconds, LONGEST_WAIT_S)
    while runs(job) and time.monotonic() < end:
        time.sleep(0.05)
    return status(job)


def job_status(job: JobId = "last", *, screen: Screen) -> None:
    """Say what a job does, or what came of it. Without an id: the last one."""
    screen.data(to_json(status(find(job))))


def job_wait(
    job: JobId = "last",
    wait_s: Annotated[float, Option(help="Seconds to wait.", min=0, max=LONGEST_WAIT_S)] = LONGEST_WAIT_S,
    *,
    screen: Screen,
) -> None:
    """Wait for a job to end, up to 50 s; call it again while the state is `running`."""
    screen.data(to_json(wait(find(job), wait_s)))


def job_cancel(job: JobId = "last", *, screen: Screen) -> None:
    """End a job in good order. A session that is cancelled can be resumed."""
    chosen = find(job)
    chosen.cancel()
    screen.data(to_json(wait(chosen, ENDS_S)))
