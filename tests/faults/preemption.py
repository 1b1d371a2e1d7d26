"""A cloud takes the machine away at a random moment: the session pauses, and resumes to the same record."""

import functools
import random
import time
from collections.abc import Iterator
from pathlib import Path

from loop.cloud.clouds import CLOUDS
from tests.cloud.test_preemption import what_matters
from tests.fake_cloud import fake_cloud, servers
from tests.faults import Case
from tests.faults.obeying import begin_ending
from tests.faults.random_kills import begun
from tests.faults.world import World, left, make_world, traceback_in

NAME = "preemption, 3 clouds x 50"
MUST = "saved within 5 s, resumed to an identical record"
SIDE_BY_SIDE = 4  # Sessions of this class wait most of the time.
MOMENTS = 50
PAUSES = (0.3, 0.5, 2.0)
LATEST_S = 1.5
"""Moments are drawn from the first part of a session of three seconds and more: a notice is seen within one."""
SAVED_S = 5.0
PAUSED = 75


def cases(seed: int) -> Iterator[Case]:
    """Fifty moments on each cloud, turn about."""
    for number in range(MOMENTS):
        for cloud in CLOUDS:
            after_s = random.Random(f"{seed} {cloud} {number}").uniform(0.0, LATEST_S)
            yield (
                f"{cloud} {number}: after {after_s:.3f} s",
                functools.partial(preempted, cloud=cloud, after_s=after_s),
            )


def preempted(folder: Path, *, cloud: str, after_s: float) -> str:
    """Announce a preemption, resume, and compare the record with that of an undisturbed session."""
    flag = folder / "notice"
    with fake_cloud(cloud, flag=flag) as fake:
        world = make_world(folder, pauses=PAUSES, LOOP_WATCH_PREEMPTION="auto", **servers(fake))
        running = world.session()
        begun(world, running)
        time.sleep(after_s)
        flag.touch()
        late = begin_ending(running).ended(folder, SAVED_S)
        code = running.process.returncode
        broken = left(world) or traceback_in(running) or late
        if broken or code != PAUSED:
            return broken or f"ended with {code}, not {PAUSED}: {running.errors.read_text()[-300:]}"
        flag.unlink()
        return another(world)


def another(world: World) -> str:
    """How the resumed session differs from an undisturbed one; "" if it does not."""
    (session,) = world.folders()
    for words in (["--resume", session.id], ["try"]):
        running = world.session(*words)
        if running.end():
            errors = running.errors.read_text()[-300:]
            return f"`run session {' '.join(words)}` ended with {running.process.returncode}: {errors}"
    resumed, whole = (what_matters(folder.path) for folder in world.folders())
    differ = [name for name in resumed if resumed[name] != whole[name]]
    return f"another record: {differ[0]}: {resumed[differ[0]]} and {whole[differ[0]]}"[:400] if differ else ""
