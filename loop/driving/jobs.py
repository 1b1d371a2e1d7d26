"""Work that outlasts a call: a `loop` of its own, whose folder says what it does, whoever asks and whenever.

A job ends by itself, by `job_cancel`, or with the machine; never with the server that began it. What a session
finds is in its session folder; the folder of a job holds what the command printed.
"""

import contextlib
import datetime
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from loop.base.documents import to_json, write_atomic
from loop.base.errors import EXIT_CODES, UsageError
from loop.base.locks import held, locked
from loop.base.places import state_folder
from loop.base.screen import Screen
from loop.driving.running import CODE, LOCK, OUT, PID, TALK, WHAT
from loop.model.base import Model
from loop.model.record import RESUMABLE

LONGEST_WAIT_S = 50.0
"""Clients give a call about a minute."""
KEPT = 100
"""Jobs whose folders are kept."""
STARTED = re.compile(r"(\d+) (\d+\.\d+)")
"""The process of a command and when it began, in seconds since 1970."""
SAME_S = 1.0
"""Clocks may be set meanwhile, by less than it takes until a number is given again."""
ENDS_S = 20.0
"""Time for a job to begin its command, and to end once it is told."""


class Job(Model):
    """What a job does, or what came of it."""

    schema_version: Literal[1] = 1
    """Number of this schema."""
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


@dataclass(frozen=True)
class JobFolder:
    """One job on disk."""

    path: Path

    @property
    def words(self) -> list[str]:
        """Its command, after `loop`."""
        return [str(word) for word in json.loads((self.path / WHAT).read_text())["words"]]

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return held(self.path / LOCK)

    @property
    def events(self) -> bool:
        """Whether it prints an object for each event, and not one in all."""
        return "--events" in self.words

    def printed(self) -> list[dict[str, Any]]:
        """The JSON that it printed, as far as it is there."""
        text = _text(self.path / OUT)
        found: list[dict[str, Any]] = []
        for part in text.splitlines() if self.events else [text]:
            with contextlib.suppress(ValueError):  # It is being written.
                found.append(json.loads(part))
        return found

    def status(self) -> Job:
        """Where it stands."""
        runs, printed, code = self.runs, self.printed(), _number(self.path / CODE)
        session = next((str(one["session"]) for one in printed if one.get("happening") == "SessionBegan"), "")
        result = {} if runs else _result(printed)
        until = time.time() if runs else max(_modified(self.path / name) for name in (OUT, CODE))
        return Job(
            job=self.path.name,
            state="running" if runs else "lost" if code is None else "ended",
            command=shlex.join(["loop", *self.words]),
            exit_code=code,
            means=EXIT_CODES.get(code, ""),
            seconds=round(max(0.0, until - _modified(self.path / WHAT)), 1),
            doing=_doing(printed) or _last_line(self.path / TALK),
            session=session,
            result=result or None,
            next=f"job_wait with job={self.path.name}" if runs else _next(session, code, result),
        )


def _result(printed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a command that has ended found: nothing where it was killed between two events."""
    last = printed[-1] if printed else {}
    if last.get("happening", "SessionEnded") != "SessionEnded":
        return {}
    return {name: value for name, value in last.items() if name != "happening"}


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
    return f"the report is the resource loop://report/{session}" if session else ""


def _doing(printed: Sequence[dict[str, Any]]) -> str:
    """The step of a session that is under way."""
    for one in reversed(printed):
        if one.get("happening") in ("StepBegan", "Ticked", "StepEnded"):
            return (
                f"{one['pattern']}/{one['step']}: {one.get('message') or one.get('note') or one.get('title', '')}"
            )
    return ""


def jobs_folder() -> Path:
    """Where jobs are kept, the user's own."""
    return state_folder() / "jobs"


def begin(words: Sequence[str], name: str) -> JobFolder:
    """Start `loop` with these words, apart from this process, and return at once."""
    _forget_old()
    now = datetime.datetime.now(datetime.UTC)
    folder = jobs_folder() / f"{now:%Y%m%d-%H%M%S}-{now.microsecond:06}-{name.replace('_', '-')}"
    folder.mkdir(parents=True)
    with locked(folder / LOCK) as lock, (folder / TALK).open("wb") as talk:
        write_atomic(folder / WHAT, to_json({"words": list(words), "cwd": str(Path.cwd())}))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "loop.driving.running", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=talk,
            start_new_session=True,
            pass_fds=[lock],  # It holds the lock from its first moment on, however long it takes to start.
        )
    threading.Thread(target=process.wait, daemon=True).start()  # Else it would stay as a zombie.
    return JobFolder(folder)


def find(name: str) -> JobFolder:
    """A job by its id, or `last`. Raises UsageError for one that is not there."""
    known = sorted(path.name for path in jobs_folder().glob("*") if (path / WHAT).is_file())
    chosen = known[-1] if name == "last" and known else name
    if chosen not in known:
        recent = f"the newest: {', '.join(known[-3:])}" if known else "a tool that starts work returns one"
        raise UsageError(f"no job {name!r}", hint=recent)
    return JobFolder(jobs_folder() / chosen)


def wait(job: JobFolder, seconds: float) -> Job:
    """Its status once it has ended, or after so long."""
    end = time.monotonic() + min(seconds, LONGEST_WAIT_S)
    while job.runs and time.monotonic() < end:
        time.sleep(0.05)
    return job.status()


def show(job: str, screen: Screen, *, wait_s: float = 0.0, as_json: bool = True) -> int:
    """Print the status of a job, after waiting for its end where that is asked."""
    screen.data(to_json(wait(find(job), wait_s)))
    return 0


def cancel(job: str, screen: Screen, *, as_json: bool = True) -> int:
    """Ask a job to end, as Ctrl-C does, and print what came of it."""
    found, end = find(job), time.monotonic() + ENDS_S
    while found.runs and not _told_to_end(found.path) and time.monotonic() < end:
        time.sleep(0.05)
    screen.data(to_json(wait(found, ENDS_S)))
    return 0


def _told_to_end(folder: Path) -> bool:
    """Whether the command of a job was told, or has ended; False while there is none yet."""
    began = STARTED.fullmatch(_text(folder / PID))
    if began is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(began[1]))
        if abs(process.create_time() - float(began[2])) < SAME_S:  # Else the number is somebody else's by now.
            process.send_signal(signal.SIGTERM)
    return True


def _forget_old() -> None:
    ended = [path for path in sorted(jobs_folder().glob("*")) if not held(path / LOCK)]
    for path in ended[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _last_line(path: Path) -> str:
    return next((line.strip()[:300] for line in reversed(_text(path).splitlines()) if line.strip()), "")


def _modified(path: Path) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
