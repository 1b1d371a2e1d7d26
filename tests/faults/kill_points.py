"""Named points in loop's writes, each with every kind of end: a kill, a signal, a failing disk."""

import contextlib
import errno
import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults import Case
from tests.faults.interposing import Point, at_point, failing, let_go, library, reached, stopping
from tests.faults.scenes import SCENES
from tests.faults.world import Running

NAME = "named kill points x SIGKILL, TERM, INT twice, ENOSPC, EIO"
MUST = "nothing acknowledged lost, session readable and resumable, no process left after 5 s: all"
SOON_S = 0.02  # Between the two signals of one Ctrl-C, from the terminal and from the parent.
LATER_S = 1.1  # Before a second Ctrl-C, which ends loop at once.
ATTEMPTS = 3
SESSION = "*/sessions/*-try"
JOURNAL = f"{SESSION}/journal.jsonl"
OPENED, BEGUN, BUILT, ENDED, CLOSED = 1, 2, 5, 7, 10  # Lines of the journal of the session that is disturbed.
SAID = {OPENED: "opened", BEGUN: "started", BUILT: "finished, of the build", ENDED: "finished", CLOSED: "closed"}


def journal_points() -> Iterator[tuple[str, Point]]:
    """Points around each kind of journal line."""
    for number, name in SAID.items():
        yield f"journal: before the line `{name}`", Point("write", JOURNAL, number)
        yield f"journal: half of the line `{name}`", Point("write", JOURNAL, number, "half")
        yield f"journal: before the fsync of `{name}`", Point("fsync", JOURNAL, number)
        yield f"journal: between the line `{name}` and its number", Point("fsync", JOURNAL, number, "after")


def file_points(name: str, folder: str, number: int, file: str) -> Iterator[tuple[str, Point]]:
    """Points around a file that is written as a temporary file and renamed: the `number`-th of its folder."""
    temporary = f"{folder}/.*.tmp"
    yield f"{name}: before it is made", Point("open", temporary, number)
    yield f"{name}: half of it written", Point("write", temporary, number, "half")
    yield f"{name}: before its fsync", Point("fsync", temporary, number)
    yield f"{name}: between write and rename", Point("rename", f"{folder}/{file}")
    yield f"{name}: after its rename", Point("rename", f"{folder}/{file}", 1, "after")


SESSION_POINTS = {
    "folder: before it is made": Point("mkdir", SESSION),
    "folder: made, and empty": Point("mkdir", SESSION, 1, "after"),
    "lock: before it is made": Point("open", f"{SESSION}/lock"),
    "lock: before its holder is written": Point("write", f"{SESSION}/lock"),
    **dict(file_points("head", SESSION, 1, "session.json")),
    **dict(journal_points()),
    "index: before it is made": Point("open", "*/cache/index/.*.tmp"),
    "index: half of it written": Point("write", "*/cache/index/.*.tmp", 1, "half"),
    "index: between write and rename": Point("rename", "*/cache/index/*.jsonl"),
    "index: after its rename": Point("rename", "*/cache/index/*.jsonl", 1, "after"),
    "build: before its folder is made": Point("mkdir", "*/cache/builds/.making-*"),
    "build: half of its record": Point("write", "*/cache/builds/.making-*/build.json", 1, "half"),
    "build: before its log": Point("open", "*/cache/builds/.making-*/log.txt"),
    "build: between record and rename": Point("rename", "*/cache/builds/[0-9a-f]*"),
    "build: after its rename": Point("rename", "*/cache/builds/[0-9a-f]*", 1, "after"),
    **dict(file_points("record", SESSION, 2, "record.json")),
    **dict(file_points("report", SESSION, 3, "report.md")),
}
GRANT_POINTS = {
    "state: before the lock of grants": Point("open", "*/state/trusted.lock"),
    **dict(file_points("state", "*/state", 1, "trusted.json")),
}
SEARCH_POINTS = {
    "worktree: before its folder is made": Point("mkdir", "*/state/worktrees/bisect-*"),
    "worktree: half of git's note of it": Point("write", "*/.git/worktrees/*/gitdir", 1, "half"),
    "worktree: before HEAD is renamed": Point("rename", "*/.git/worktrees/*/HEAD"),
    "worktree: half of a file checked out": Point("write", "*/state/worktrees/*/state", 1, "half"),
    "worktree: before the index of another commit": Point("rename", "*/.git/worktrees/*/index", 3),
    **dict(file_points("memory", "*/state/bisects", 2, "*.jsonl")),
}
CHANGE_POINTS = {
    "samples: half of them": Point("write", f"{SESSION}/samples/.*.tmp", 1, "half"),
    "samples: between write and rename": Point("rename", f"{SESSION}/samples/*.json"),
    "samples: after their rename": Point("rename", f"{SESSION}/samples/*.json", 1, "after"),
    "figures: half of the first": Point("write", f"{SESSION}/figures/.*.tmp", 1, "half"),
    "figures: before it is renamed": Point("rename", f"{SESSION}/figures/*.svg"),
    "worktree: half of the uncommitted edit": Point("write", "*/state/worktrees/*/scale.c", 2, "half"),
    "commit: before its first object": Point("link", "*/.git/objects/*"),
    "commit: before HEAD is written": Point("write", "*/.git/worktrees/*/HEAD.lock", 3),
    "commit: before HEAD is renamed": Point("rename", "*/.git/worktrees/*/HEAD", 2),
    "commit: after HEAD is renamed": Point("rename", "*/.git/worktrees/*/HEAD", 2, "after"),
    "brief: between write and rename": Point("rename", f"{SESSION}/changes/1-brief.json"),
}
POINTS = {"session": SESSION_POINTS, "grant": GRANT_POINTS, "search": SEARCH_POINTS, "change": CHANGE_POINTS}


def kill(running: Running, mark: Path) -> None:
    """SIGKILL for the command, and for the process at the point, which may be git."""
    for pid in {at_point(mark), running.process.pid} - {0}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def terminate(running: Running, mark: Path) -> None:
    running.process.send_signal(signal.SIGTERM)
    time.sleep(SOON_S)
    let_go(mark)


def interrupt_twice(running: Running, mark: Path) -> None:
    """Ctrl-C, sent twice as a terminal and a parent do, and once more later if the command still runs."""
    running.process.send_signal(signal.SIGINT)
    time.sleep(SOON_S)
    let_go(mark)
    time.sleep(SOON_S)
    running.process.send_signal(signal.SIGINT)
    end = time.monotonic() + LATER_S
    while running.process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    running.process.send_signal(signal.SIGINT)


STOPS: dict[str, Callable[[Running, Path], None]] = {
    "SIGKILL": kill,
    "SIGTERM": terminate,
    "SIGINT twice": interrupt_twice,
}
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}


def cases(seed: int) -> Iterator[Case]:
    """Every point with every fault; the seed changes nothing."""
    library()
    for scene, points in POINTS.items():
        for point, spot in points.items():
            for fault in (*STOPS, *ERRORS):
                yield f"{point}: {fault}", functools.partial(faulted, scene=scene, point=spot, fault=fault)


def faulted(folder: Path, *, scene: str, point: Point, fault: str) -> str:
    """Cause a fault at a point, and judge the result; a busy machine gets several tries to reach the point."""
    texts = ""
    for number in range(ATTEMPTS):
        place = folder / str(number)
        place.mkdir()
        world, mark = SCENES[scene].make(place), place / "mark"
        ways = failing(point, mark, ERRORS[fault]) if fault in ERRORS else stopping(point, mark)
        running = SCENES[scene].start(world, **ways)
        if reached(mark, running.process):
            if fault in STOPS:
                STOPS[fault](running, mark)
            running.end()
            return SCENES[scene].judge(world, running)
        running.end()
        texts = (running.stdout.read_text() + running.errors.read_text())[-300:]
    return f"the point was never reached: {texts}"
