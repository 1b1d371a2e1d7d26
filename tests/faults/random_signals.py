"""Random SIGINT, SIGTERM and SIGHUP at any moment of a session on a busy machine, also while it forks."""

import functools
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults import Case
from tests.faults.obeying import told
from tests.faults.random_kills import Moment, drawn
from tests.faults.world import Running, World, judged, make_world

NAME = "random SIGINT, SIGTERM, SIGHUP under load 8, also during forks"
MUST = "as for kills; every signal obeyed within 2 s"
COUNT = 500
SIDE_BY_SIDE = 8  # Sessions at a time: the load under which the others are disturbed.
OBEYED_S = 2.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FORKS = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (exec true) & done; wait; echo >> $HOME/forked"
"""A step in which shell and command fork and reap most of the time."""


def cases(seed: int) -> Iterator[Case]:
    """A signal and a moment a case; one in four sends a second one at its heels, half of the steps fork."""
    for number in range(COUNT):
        draw = random.Random(f"{seed} signal {number}")
        sent = draw.sample(SIGNALS, 2 if draw.random() < 1 / 4 else 1)
        moment, apart_s, forking = drawn(draw), draw.uniform(0.0, 0.3), draw.random() < 1 / 2
        names = " then ".join(one.name for one in sent)
        does = functools.partial(signalled, sent=tuple(sent), moment=moment, apart_s=apart_s, forking=forking)
        yield f"{number}: {names}, {moment}{', while it forks' if forking else ''}", does


def signalled(
    folder: Path, *, sent: tuple[signal.Signals, ...], moment: Moment, apart_s: float, forking: bool
) -> str:
    """Send them, see how quickly they are obeyed, and judge what is left."""
    world = make_world(folder, also=[FORKS] * 3 if forking else [])
    running = world.session()
    moment.wait(world, running)
    counted = told(running)
    for number in sent:
        running.process.send_signal(number)
        if number is not sent[-1]:
            time.sleep(apart_s)
    late = counted.ended(folder, OBEYED_S)
    return late or wrong_status(world, running) or judged(world, running)


def wrong_status(world: World, running: Running) -> str:
    """130, or 0 where the session was over; before there is one a signal may end the command, or Python."""
    status, begun = running.process.returncode, bool(world.folders())
    unborn = status == 1 and "Failed to import the site module" in running.errors.read_text(errors="replace")
    if status in (0, 130) or ((status < 0 or unborn) and not begun):
        return ""
    return f"ended with {status}"
