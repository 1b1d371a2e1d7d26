"""Grandchildren that are hard to end, when their session is interrupted."""

import functools
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults import Case, nasty
from tests.faults.world import BUILD, COMMAND, LIMIT_S, World, allow, judge, make_world, write_plan

NAME = "children below children, 20 nasty kinds and more, at SIGTERM of the command"
MUST = "0 left after 5 s; no step ever runs beside its own earlier life"
STEP = (
    "exec 9>>$HOME/lock-1; flock -n 9 || echo 1 >> $HOME/beside; echo $$ >> $HOME/ran-1; "
    "test -e $HOME/again && exec {python} {check} $HOME; exec {python} {nasty} {kind!r} $HOME"
)
CHECK = """
import sys
from pathlib import Path
folder = Path(sys.argv[1])
for path in folder.glob("pid-*"):
    for name in path.read_text().split():
        stat = Path("/proc", name.partition("-")[0], "stat")
        fields = stat.read_text().rpartition(")")[2].split() if stat.exists() else ["X"]
        if fields[0] not in "ZX" and fields[19] == name.partition("-")[2]:
            (folder / "beside").write_text("1")
"""
"""Run by the resumed step: notes in `beside` whether a process of its first run still lives."""


def cases(seed: int) -> Iterator[Case]:
    """One case for each kind; the seed changes nothing."""
    for kind in nasty.KINDS:
        yield kind, functools.partial(orphaned, kind=kind)


def orphaned(folder: Path, *, kind: str) -> str:
    """Send SIGTERM once the kind runs. None of its processes may stay, or run beside the resumed step."""
    world = make_world(folder)
    shell = STEP.format(python=sys.executable, check=folder / "check.py", nasty=nasty.__file__, kind=kind)
    (folder / "check.py").write_text(CHECK)
    write_plan(world.target, "try", [COMMAND.format(1, shell).replace("budget_s: 20", "budget_s: 60"), BUILD])
    allow(world)
    running = world.session()
    if not ready(world):
        return f"the step never began: {running.errors.read_text()[-200:]}"
    (folder / "again").touch()
    running.process.send_signal(signal.SIGTERM)
    running.end()
    return judge(world, running)


def ready(world: World) -> bool:
    """Wait until the kind has been started."""
    end = time.monotonic() + LIMIT_S
    while not (world.folder / "ready").exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
