"""Random SIGKILLs at any moment of a session."""

import functools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loop.store import journal
from tests.faults import Case
from tests.faults.world import Running, World, judge, make_world

NAME = "random SIGKILLs"
MUST = "nothing acknowledged lost, readable, resumable, nothing left by the next command, no step beside its own"
COUNT = 1000
LINES = 10
"""Lines of a whole journal. A moment is drawn as some time after one of them, so that load does not shift it."""
LONGEST_S = 0.25  # After that line; or, for some, four times as long after the very start.


@dataclass(frozen=True)
class Moment:
    """When a fault comes."""

    lines: int | None
    """After so many lines of the journal; None: after the start of the command."""
    after_s: float

    def __str__(self) -> str:
        event = "the start" if self.lines is None else f"line {self.lines}"
        return f"{self.after_s:.3f} s after {event}"

    def wait(self, world: World, running: Running) -> None:
        """Wait for the moment."""
        if self.lines is not None:
            begun(world, running, self.lines)
        time.sleep(self.after_s)


def drawn(draw: random.Random) -> Moment:
    """A random moment of a session; one in eight while it starts."""
    if draw.random() < 1 / 8:
        return Moment(None, draw.uniform(0.0, 4 * LONGEST_S))
    return Moment(draw.randint(0, LINES), draw.uniform(0.0, LONGEST_S))


def cases(seed: int) -> Iterator[Case]:
    """One random moment for each case."""
    for number in range(COUNT):
        draw = random.Random(f"{seed} kill {number}")
        moment = drawn(draw)
        yield f"{number}: {moment}", functools.partial(killed, moment=moment)


def killed(folder: Path, *, moment: Moment) -> str:
    """Kill a session at a moment, and judge the result."""
    world = make_world(folder)
    running = world.session()
    moment.wait(world, running)
    running.process.kill()
    running.end()
    return judge(world, running)


def begun(world: World, running: Running, lines: int = 0) -> None:
    """Wait until the session has a folder, and so many lines in its journal, or has ended."""
    while running.process.poll() is None:
        if any(written(session.path / journal.NAME) >= lines for session in world.folders()):
            return
        time.sleep(0.003)


def written(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
