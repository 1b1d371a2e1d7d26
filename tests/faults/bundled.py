"""Random kills and signals on the target that ships with loop, by its plan `quick`: real builds, real timings."""

import functools
import random
import signal
from collections.abc import Iterator
from pathlib import Path

from loop.base.places import BUNDLED_TARGET, shipped
from tests.faults import Case
from tests.faults.obeying import told
from tests.faults.random_kills import Moment
from tests.faults.world import Running, World, left, lost, not_resumed, traceback_in, unreadable

NAME = "30 random SIGKILLs and 30 random signals on the bundled target"
MUST = "as on the small one"
ASKED_FOR = True
"""Each case is two sessions of half a minute and more, which measure: hours on two cores."""
SIDE_BY_SIDE = 1
LIMIT_S = 1200.0
EACH, LINES, LONGEST_S = 30, 14, 8.0
ENDED_S = 2.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ANY_VERDICT = (0, 1)
"""What a session that has ended may end with: nobody asks here how fast the kernel is."""


def cases(seed: int) -> Iterator[Case]:
    """A kill and a signal, turn about."""
    for number in range(EACH):
        draw = random.Random(f"{seed} bundled {number}")
        for fault in (signal.SIGKILL, draw.choice(SIGNALS)):
            moment = Moment(draw.randint(0, LINES), draw.uniform(0.0, LONGEST_S))
            name = f"{number}: {fault.name}, {moment}"
            yield name, functools.partial(disturbed, fault=fault, moment=moment)


def disturbed(folder: Path, *, fault: signal.Signals, moment: Moment) -> str:
    """Run the plan, let the fault come, and judge what is left."""
    world = World(folder, plan=("quick", "--variant", "cpu"), elsewhere=shipped(BUNDLED_TARGET))
    running = world.session()
    moment.wait(world, running)
    counted = told(running)
    running.process.send_signal(fault)
    late = counted.ended(folder, ENDED_S)
    return late or whole(world, running)


def whole(world: World, running: Running) -> str:
    """What broke; the next command ends what a killed one left."""
    for look in (left, unreadable, lost):
        broken = look(world, running)
        if broken:
            return broken
    return traceback_in(running) or not_resumed(world, ANY_VERDICT) or left(world)
