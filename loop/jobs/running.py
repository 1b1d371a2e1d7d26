"""One job run to its end, wherever its folder lies: in a thread of an executor, or as `loop job run DIR`.

Who runs it holds its lock, lets its heart beat, ends the command at its limit or when `cancel` appears, and writes
`rc` last. If the runner is ended itself, it ends the command and writes no `rc`: the job is lost, and run again.
"""

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from loop.base.documents import to_json, write_atomic
from loop.base.documents.sums import write_sealed
from loop.base.errors import ExitCode
from loop.base.locks import locked
from loop.base.processes import python_path
from loop.base.screen import TALKS
from loop.jobs.folder import (
    HEARTBEAT,
    LOCK,
    MADE,
    MANIFEST,
    MOST_TRIES,
    OUT,
    RC,
    SESSIONS,
    SRC,
    TALK,
    TRIES,
    WHERE,
    Job,
    JobFolder,
    hashes,
    write_runner,
)
from loop.jobs.groups import devices
from loop.model.jobs import Where

LOOP = (sys.executable, "-P", "-c", "from loop.cli import main; main()")
TIED = (
    *LOOP[:-1],
    f"from loop.base.linux import die_with_parent; die_with_parent({int(signal.SIGTERM)}); {LOOP[-1]}",
)
"""The same, ended in good order with who runs it. It says so itself: between fork and exec that may
deadlock, for an executor has threads."""
LOOK_S = 0.05
"""Between two looks at a command that runs."""
BEAT_S = 1.0
ENDS_S = 30.0
"""Time for a command to end in good order once it is told; then its group is killed."""
LEAST_BYTES = 64 << 20
"""Room on the disk without which no job begins."""


def run(folder: JobFolder, env: Mapping[str, str] | None = None, where: Where | None = None) -> int:
    """The exit code of a job's command, which has run now or before; negative for a signal.

    `env` stands on top of this process's environment; `where` is what it runs on, where that is known. What this
    machine cannot do, as with a full disk, is exit code 75, and the reason is in `stderr`. Raises Held where it is
    run by somebody else, UsageError where there is no job.
    """
    job = folder.job
    with locked(folder.path / LOCK):
        if (code := folder.rc) is not None:
            return code
        write_runner(folder, os.getpid())
        tries = folder.tries + 1
        write_atomic(folder.path / TRIES, str(tries))
        known = where or devices(gpu=job.needs_gpu)[0]
        began, clock = time.time(), time.monotonic()
        if why := _why_not(folder, job, tries):
            write_sealed(folder.path / WHERE, known.model_copy(update={"began": began}))
            return refuse(folder, why, ExitCode.CANNOT_TELL if tries > MOST_TRIES else ExitCode.PAUSED)
        code = _run(folder, job, {**os.environ, **(env or {})})
        facts = {"began": began, "seconds": time.monotonic() - clock, "timed": job.times}
        write_sealed(folder.path / WHERE, known.model_copy(update=facts))
        return _ended(folder, code)


def refuse(folder: JobFolder, why: str, code: int = ExitCode.PAUSED) -> int:
    """Note that a job was not done, and why; the exit code, which says that the machine failed."""
    (folder.path / TALK).write_text(f"{why}\n")
    return _ended(folder, code)


def _ended(folder: JobFolder, code: int) -> int:
    """Note what was made, then how it ended."""
    write_atomic(folder.path / MANIFEST, to_json(hashes(folder.path / MADE)), lasting=False)
    write_atomic(folder.path / RC, str(int(code)))
    return int(code)


def begin(folder: JobFolder) -> None:
    """Run a job apart from this process, and return at once; it goes on when this process ends."""
    with (folder.path / TALK).open("wb") as talk:
        process = subprocess.Popen(
            [*LOOP, "job", "run", str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=talk,
            env={**os.environ, "PYTHONPATH": python_path()},
            start_new_session=True,
        )
        write_runner(folder, process.pid)  # It runs from its first moment on, however long it takes to start.
    threading.Thread(target=process.wait, daemon=True).start()  # Else it would stay as a zombie.


def _why_not(folder: JobFolder, job: Job, tries: int) -> str:
    """Why a job is not begun here; empty where it can be."""
    if tries > MOST_TRIES:
        return f"begun {MOST_TRIES} times, and never brought to an end: it is not begun again"
    digests = hashes(folder.path / SRC)
    wrong = sorted(name for name in job.files if digests.get(name) != job.files[name])
    if wrong:
        why = "a copy was torn, or the folder is not shared"
        return f"{folder.path / SRC / wrong[0]} is not what was submitted: {why}"
    if missing := [program for program in job.programs if shutil.which(program) is None]:
        return f"no {missing[0]} on {platform.node()}"
    free = shutil.disk_usage(folder.path).free
    return f"{folder.path}: {free >> 20} MiB left on {platform.node()}" if free < LEAST_BYTES else ""


def _run(folder: JobFolder, job: Job, env: dict[str, str]) -> int:
    """Run a job's command, whose heart beats each second; its exit code, 124 where it ran into its limit."""
    (folder.path / SESSIONS).mkdir(parents=True, exist_ok=True)
    own = {} if job.folder else {"LOOP_SESSIONS": str(folder.path / SESSIONS)}
    with (folder.path / OUT).open("wb") as out, (folder.path / TALK).open("wb") as talk:
        command = subprocess.Popen(
            [*TIED, *job.words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=talk,
            cwd=job.folder or folder.path / SRC,
            env={**env, **own, TALKS: "1", "PYTHONPATH": python_path()},
            start_new_session=True,
        )
    begun, beats = time.monotonic(), -1
    try:
        while (code := command.poll()) is None:
            seconds = time.monotonic() - begun
            if seconds // BEAT_S > beats:
                beats = int(seconds // BEAT_S)
                (folder.path / HEARTBEAT).write_text(str(beats))
            if job.ttl_s is not None and seconds > job.ttl_s:
                return ExitCode.OVER_BUDGET
            if folder.cancelled:
                _end(command)
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(LOOK_S)
        return code
    finally:
        _end(command)


def _end(command: "subprocess.Popen[bytes]") -> None:
    """End a command in good order; kill its group where it does not."""
    if command.poll() is not None:
        return
    for number, seconds in ((signal.SIGTERM, ENDS_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(seconds)
            return
