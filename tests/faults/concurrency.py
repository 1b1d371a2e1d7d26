"""Many processes run sessions in one repository at once, and grant trust while they do."""

import functools
import itertools
import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from loop.store import index
from tests.faults import Case
from tests.faults.world import Running, World, make_world, traceback_in
from tests.projects import make_project
from tests.repository.test_reading import put_under_git

NAME = "8 processes x 50 sessions in one repository: x 2, x 8, x 40"
MUST = "nothing lost, no grant lost"
SIDE_BY_SIDE = 1
PROCESSES = 8
SIZES = (2, 8, 40)  # Sessions of each process, case by case: fifty in all, most of them in one repository.
LIMIT_S = 1800.0


def cases(seed: int) -> Iterator[Case]:
    """A few sessions, more, and as many as a busy week has."""
    for each in SIZES:
        yield f"{PROCESSES} x {each} sessions", functools.partial(together, seed=f"{seed} {each}", each=each)


def together(folder: Path, *, seed: str, each: int, processes: int = PROCESSES) -> str:
    """Run them all; every session and every grant is there, whole, and in the index."""
    world = make_world(folder, pauses=(0.0, 0.0))
    put_under_git(world.target, "first")
    others = [make_project(folder / f"other-{number}") for number in range(processes)]
    numbers = itertools.count()
    with ThreadPoolExecutor(processes) as pool:
        ended = list(pool.map(functools.partial(_one, world, seed, each, numbers), others))
    for running in itertools.chain(*ended):
        said = running.errors.read_text(errors="replace")
        if running.process.returncode or traceback_in(running):
            return f"a command ended with {running.process.returncode}: {said[-300:]}"
    return missing(world, processes * each) or ungranted(world, others)


def _one(world: World, seed: str, each: int, numbers: Iterator[int], other: Path) -> list[Running]:
    """What one of the processes does: its sessions, one after another, and a grant somewhere between."""
    mine = World(world.folder, {"LOOP_THREADS": "1"})
    grant_at = random.Random(f"{seed} {other.name}").randrange(each)
    done = []
    for turn in range(each):
        for words in (["trust", str(other)],) if turn == grant_at else ():
            done.append(_ended(mine, numbers, *words))
        done.append(_ended(mine, numbers, "run", "session", "try", "--events", "--target", str(world.target)))
    return done


def _ended(world: World, numbers: Iterator[int], *words: str) -> Running:
    world.count = next(numbers) * 10
    running = world.start(*words)
    running.end()
    return running


def missing(world: World, count: int) -> str:
    """What is lost: by the folders, and by the index, which all of them wrote."""
    folders = world.folders()
    if len(folders) != count:
        return f"{count} sessions were run, {len(folders)} are there"
    for one in folders:
        record = one.record()
        if record is None or record.status != "passed":
            return f"{one.id} has no passed record"
    with mock.patch.dict(os.environ, world.env):
        rows = index.rows(world.sessions)
    listed = {row.id for row in rows if row.status == "passed"}
    return "" if listed == {one.id for one in folders} else f"the index has {len(listed)} of {count} sessions"


def ungranted(world: World, others: list[Path]) -> str:
    """A grant that was given and is not kept."""
    kept = json.loads((world.folder / "state" / "trusted.json").read_text())
    lost = [other.name for other in (*others, world.target) if str(other.resolve()) not in kept]
    return f"lost: the grants of {', '.join(lost)}" if lost else ""
