"""Who else keeps the cores busy, asked of the kernel before a measurement, and said in words.

proc(5): `stat`, `<pid>/stat`.
"""

import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loop.base.processes import Tick

PROC = Path("/proc")
LOOK_S = 0.3
"""How long it is looked at: thirty of the kernel's ticks of 10 ms."""
STEAL = 7
"""Place of the stolen time among the numbers of the first line of `stat`."""
BUSY = 0.15
"""Share of a core from which on a program counts; what a desktop does at rest stays below."""
MUCH = 0.1
"""Share of all cores from which on it is said."""
COST = 2.0
"""Further times that a verdict takes per program and core: one to wait for it, one for the noise it makes."""
NAMED = 3
LOOKS, LOOK_EVERY_S = 10, 0.02
"""How often the length of the queue for the cores is read: a program that waits for a disk is not always in it."""


def load(cores: int, proc: Path = PROC, sleep: Callable[[float], None] = time.sleep) -> float | None:
    """Programs that run or wait for a core now, but for this one, for each core; None where nobody tells."""
    waiting = []
    for _ in range(LOOKS):
        try:
            waiting.append(int((proc / "loadavg").read_text().split()[3].partition("/")[0]) - 1)
        except (OSError, IndexError, ValueError):
            return None
        sleep(LOOK_EVERY_S)
    return max(0.0, sum(waiting) / len(waiting)) / cores


@dataclass(frozen=True)
class BusyProgram:
    """A process that is not ours."""

    name: str
    cores: float
    """Cores that it kept busy, as in 0.5."""


@dataclass(frozen=True)
class Crowd:
    """What else ran for a moment."""

    programs: tuple[BusyProgram, ...] = ()
    stolen: float = 0.0
    """Cores that the host took from this virtual machine."""


@dataclass(frozen=True)
class ProcessTicks:
    """One process at one moment."""

    name: str
    parent: int
    ticks: int
    """Time on a core since it began, user and system."""


def crowd(
    proc: Path | None = None, clock: Callable[[], float] = time.monotonic, us: int | None = None
) -> Generator[Tick, None, Crowd]:
    """What other programs take of the cores now; nothing where nobody tells.

    `us`: the process whose descendants are ours.
    """
    root = proc or PROC
    begun, before, stolen = clock(), _processes(root), _stolen(root)
    if not before:
        return Crowd()
    while clock() - begun < LOOK_S:
        yield Tick("looking for other programs")
        time.sleep(0.05)
    seconds, after = max(clock() - begun, 1e-3), _processes(root)
    processes, tick_s = _descendants(after, us or os.getpid()), 1 / os.sysconf("SC_CLK_TCK")
    programs = tuple(
        BusyProgram(process.name, (process.ticks - before[pid].ticks) * tick_s / seconds)
        for pid, process in after.items()
        if pid in before and pid not in processes and not _apart(pid)
    )
    return Crowd(programs, (_stolen(root) - stolen) * tick_s / seconds)


def _processes(root: Path) -> dict[int, ProcessTicks]:
    """Every process by its number."""
    processes = {}
    for folder in root.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # It has ended meanwhile.
        name, rest = text[text.find("(") + 1 : text.rfind(")")], text[text.rfind(")") + 2 :].split()
        processes[int(folder.name)] = ProcessTicks(name, int(rest[1]), int(rest[11]) + int(rest[12]))
    return processes


def _descendants(processes: Mapping[int, ProcessTicks], us: int) -> set[int]:
    """We, and all that descends from us."""
    own = {us}
    while more := {pid for pid, process in processes.items() if process.parent in own} - own:
        own |= more
    return own


def _apart(pid: int) -> bool:
    """Whether a process is bound to cores none of which we may use, as a session beside ours can be."""
    try:
        return not os.sched_getaffinity(pid) & os.sched_getaffinity(0)
    except (AttributeError, OSError):
        return False


def _stolen(root: Path) -> int:
    """Ticks that the host took from all cores of this machine."""
    try:
        return int((root / "stat").read_text().split("\n", 1)[0].split()[1 + STEAL])
    except (OSError, IndexError, ValueError):
        return 0


def warning(cores: int, crowd: Crowd) -> str:
    """That others keep so many cores busy, and what it will cost; empty when they hardly do."""
    busy = sorted(
        (program for program in crowd.programs if program.cores >= BUSY), key=lambda program: -program.cores
    )
    total, texts, many = sum(program.cores for program in busy), [], 0
    if total >= MUCH * cores:
        many = len(busy)
        names = ", ".join(dict.fromkeys(program.name for program in busy[:NAMED]))
        which = "1 other program keeps" if many == 1 else f"{many} other programs keep"
        texts.append(f"{which} {min(total, cores):.1f} of {cores} cores busy ({names})")
    if crowd.stolen >= MUCH * cores:
        texts.append(f"the host takes {crowd.stolen:.1f} of {cores} cores")
    if not texts:
        return ""
    times = 1 + COST * (max(total, many) + crowd.stolen) / cores
    cost = f"verdicts take about {times:.0f} times as long" if times >= 1.5 else "verdicts take longer"
    return f"{', '.join(texts)}: {cost}; end what else runs, or allow more time"
