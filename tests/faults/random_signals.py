"""Random SIGINT, SIGTERM and SIGHUP at any moment of a session on a busy machine, also while it forks."""

import functools
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults import Case
from tests.faults.obeying import begin_ending
from tests.faults.random_kills import Moment, drawn
from tests.faults.world import Running, World, judge, make_world

NAME = "random SIGINT, SIGTERM, SIGHUP under load 8, also during forks"
MUST = "as for kills; every signal obeyed within 2 s"
COUNT = 500
SIDE_BY_SIDE = 8  # Sessions at a time: the load under which the others are disturbed.
OBEYED_S = 2.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FORKS = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (exec true) & done; wait; echo >> $HOME/forked"
"""A step in which shell and command fork and reap most of the time."""


def cases(seed: int) -> Iterator[Case]:
    """A signal and a moment for each case; one in four sends a second signal, half of the steps fork."""
    for number in range(COUNT):
        draw = random.Random(f"{seed} signal {number}")
        signals = tuple(draw.sample(SIGNALS, 2 if draw.random() < 1 / 4 else 1))
        moment, apart_s, forking = drawn(draw), draw.uniform(0.0, 0.3), draw.random() < 1 / 2
        names = " then ".join(sent_one.name for sent_one in signals)
        work = functools.partial(signalled, signals=signals, moment=moment, apart_s=apart_s, forking=forking)
        yield f"{number}: {names}, {moment}{', while it forks' if forking else ''}", work


def signalled(
    folder: Path, *, signals: tuple[signal.Signals, ...], moment: Moment, apart_s: float, forking: bool
) -> str:
    """Send the signals, time how quickly the command ends, and judge the result."""
    world = make_world(folder, also=[FORKS] * 3 if forking else [])
    running = world.session()
    moment.wait(world, running)
    ending = begin_ending(running)
    for number in signals:
        running.process.send_signal(number)
        if number is not signals[-1]:
            time.sleep(apart_s)
    late = ending.ended(folder, OBEYED_S)
    return late or wrong_status(world, running) or judge(world, running)


def wrong_status(world: World, running: Running) -> str:
    """An exit status other than 130, or 0 after the session's end; before a session exists others are allowed."""
    status, begun = running.process.returncode, bool(world.folders())
    unborn = status == 1 and "Failed to import the site module" in running.errors.read_text(errors="replace")
    if status in (0, 130) or ((status < 0 or unborn) and not begun):
        return ""
    return f"ended with {status}"
