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

from loop.store import sessions
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
    """One case for each size."""
    for each in SIZES:
        yield f"{PROCESSES} x {each} sessions", functools.partial(together, seed=f"{seed} {each}", each=each)


def together(folder: Path, *, seed: str, each: int, processes: int = PROCESSES) -> str:
    """Run all sessions at once. Every session, grant and index row must be there."""
    world = make_world(folder, pauses=(0.0, 0.0))
    put_under_git(world.target, "first")
    projects = [make_project(folder / f"other-{number}") for number in range(processes)]
    numbers = itertools.count()
    with ThreadPoolExecutor(processes) as pool:
        ended = list(pool.map(functools.partial(_run_process, world, seed, each, numbers), projects))
    for running in itertools.chain(*ended):
        errors = running.errors.read_text(errors="replace")
        if running.process.returncode or traceback_in(running):
            return f"a command ended with {running.process.returncode}: {errors[-300:]}"
    return missing(world, processes * each) or ungranted(world, projects)


def _run_process(world: World, seed: str, each: int, numbers: Iterator[int], project: Path) -> list[Running]:
    """Run the sessions of one process in a row, with one grant before a random session."""
    home = World(world.folder, {"LOOP_THREADS": "1"})
    grant_at = random.Random(f"{seed} {project.name}").randrange(each)
    ended = []
    for turn in range(each):
        for words in (["trust", str(project)],) if turn == grant_at else ():
            ended.append(_finish(home, numbers, *words))
        ended.append(_finish(home, numbers, "run", "session", "try", "--events", "--target", str(world.target)))
    return ended


def _finish(world: World, numbers: Iterator[int], *words: str) -> Running:
    world.count = next(numbers) * 10
    running = world.start(*words)
    running.end()
    return running


def missing(world: World, count: int) -> str:
    """Sessions that are missing in the folders or in the index; "" if none is."""
    folders = world.folders()
    if len(folders) != count:
        return f"{count} sessions were run, {len(folders)} are there"
    for session in folders:
        record = session.record()
        if record is None or record.status != "passed":
            return f"{session.id} has no passed record"
    with mock.patch.dict(os.environ, world.env):
        rows = sessions.rows(world.sessions)
    listed = {row.id for row in rows if row.status == "passed"}
    same = listed == {session.id for session in folders}
    return "" if same else f"the index has {len(listed)} of {count} sessions"


def ungranted(world: World, projects: list[Path]) -> str:
    """Grants that were given and are not stored; "" if none is missing."""
    grants = json.loads((world.folder / "state" / "trusted.json").read_text())
    absent = [project.name for project in (*projects, world.target) if str(project.resolve()) not in grants]
    return f"lost: the grants of {', '.join(absent)}" if absent else ""
