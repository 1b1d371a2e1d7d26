"""A disk is full, or read-only, at some moment of a session: it pauses, names the folder, goes on to the same end.

Sessions, cache, state and TMPDIR are file systems of their own, in a mount namespace. Where none can be made,
errors are injected into what `loop` itself opens.
"""

import errno
import functools
import itertools
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.cloud.test_preemption import what_matters
from tests.conftest import ROOT
from tests.faults import Case
from tests.faults.moments import FILLER, mount
from tests.faults.world import BUILD, COMMAND, World, write_project

NAME = "full disk: ENOSPC and read-only on sessions, cache, state, TMPDIR"
MUST = "resumable, right advice"
PLACES = ("sessions", "cache", "state", "tmp")
MOMENTS = 20
SIZE = "size=24m,mode=700"
ADVICE = {"full": "free space on {}", "read-only": "make {} writable again"}
PAUSED = 75
OWN = "date > $TMPDIR/own && echo done"
LOAD = "  - {id: load, title: load, action: kernel.load, budget_s: 20}"
STEPS = [BUILD, LOAD, COMMAND.format("own", OWN)]


@cache
def mounts() -> bool:
    """Whether file systems can be mounted here in a namespace of their own."""
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return done.returncode == 0


def cases(seed: int) -> Iterator[Case]:
    """Each kind of fault, in each folder, at twenty moments drawn from the whole of a session."""
    rng = random.Random(seed)
    for moment in range(MOMENTS):
        for kind, place in itertools.product(ADVICE, PLACES):
            share = (moment + rng.random()) / MOMENTS
            does = functools.partial(case, kind=kind, place=place, share=share)
            yield f"{kind} {place} at {share:.3f}", does


def case(folder: Path, *, kind: str, place: str, share: float) -> str:
    """One fault at a share of the moments of a session, where file systems can be mounted."""
    words = ["-m", "tests.faults.full_disk", kind, place, str(share), str(folder)]
    namespace = ["unshare", "-rm"] if mounts() else []
    done = subprocess.run(
        [*namespace, sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr[-2000:]


def make_disks(folder: Path) -> World:
    """A trusted project; its four folders are file systems of their own where that is allowed."""
    world = World(folder, {"TMPDIR": str(folder / "tmp")})
    for place in PLACES:
        (folder / place).mkdir()
        if mounts():
            mount("none", folder / place, "tmpfs", options=SIZE)
    write_project(world, STEPS)
    return world


def run(world: World, fault: str, moment: int, *words: str) -> tuple[int, str]:
    """A session with a fault at a moment: its exit status, and what it said on stderr."""
    log = str(world.folder / "log")
    program = [sys.executable, "-m", "tests.faults.moments", str(moment), *fault.split(), log, "--"]
    disturbed = replace(world, program=program)
    return disturbed.done("run", "session", *words, "--target", str(world.target))


def fault(kind: str, place: Path) -> str:
    """What happens, for `tests.faults.moments`."""
    if mounts():
        return f"{'fill' if kind == 'full' else 'lock'} {place}"
    return f"fail {place} {errno.ENOSPC if kind == 'full' else errno.EROFS}"


def broken(kind: str, place: str, share: float, folder: Path) -> str:
    """What broke of the promise when a fault of a kind came to a place at a share of a session; empty: nothing."""
    world, at = make_disks(folder), folder / place
    new = ("try", "--seed", "1")
    run(world, "nothing", 0, *new)
    expected = what_matters(world.folders()[0].path)
    moments = (folder / "log").stat().st_size
    for path in (*(folder / "cache").iterdir(), world.folders()[0].path):
        shutil.rmtree(path)
    code, errors = run(world, fault(kind, at), 1 + int(share * moments), *new)
    complaint = _judged(kind, at, code, errors, world, expected)
    if kind == "full":
        (at / FILLER).unlink(missing_ok=True)
    elif mounts() and os.statvfs(at).f_flag & os.ST_RDONLY:  # Else its moment never came.
        subprocess.run(["umount", str(at)], capture_output=True, check=False)
    if complaint:
        return complaint
    words = ("--resume", "last") if world.folders() else new
    code, later = run(world, "nothing", 0, *words)
    if code != 0:
        return f"it did not go on: exit {code}: {later[-1500:]}\nfirst: {errors[-1500:]}"
    result = what_matters(world.folders()[-1].path)
    return "" if result == expected else f"another result: {result}, not {expected}"


def _judged(kind: str, at: Path, code: int, errors: str, world: World, expected: Any) -> str:
    """What is wrong with how the disturbed session ended."""
    if code == 0:
        result = what_matters(world.folders()[-1].path)
        return "" if result == expected else f"passed with another result: {result}, not {expected}"
    advice = ADVICE[kind].format(at)
    if code != PAUSED:
        return f"exit {code}, not {PAUSED}: {errors[-1500:]}"
    if advice not in errors:
        return f"no advice {advice!r}: {errors[-1500:]}"
    return "" if "--resume" in errors or not world.folders() else f"no word on going on: {errors}"


if __name__ == "__main__":
    words = sys.argv[1:]
    print(broken(words[0], words[1], float(words[2]), Path(words[3])))
