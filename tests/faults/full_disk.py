"""A full or read-only disk at some moment of a session: it pauses, names the folder, and resumes to the same end.

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
    """Whether this machine can mount file systems in a namespace of their own."""
    if shutil.which("unshare") is None:
        return False
    child = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return child.returncode == 0


def cases(seed: int) -> Iterator[Case]:
    """Each kind of fault, in each folder, at twenty random moments of a session."""
    rng = random.Random(seed)
    for moment in range(MOMENTS):
        for kind, place in itertools.product(ADVICE, PLACES):
            share = (moment + rng.random()) / MOMENTS
            work = functools.partial(case, kind=kind, place=place, share=share)
            yield f"{kind} {place} at {share:.3f}", work


def case(folder: Path, *, kind: str, place: str, share: float) -> str:
    """Run `broken` in a process with a mount namespace, if this machine allows one."""
    words = ["-m", "tests.faults.full_disk", kind, place, str(share), str(folder)]
    namespace = ["unshare", "-rm"] if mounts() else []
    child = subprocess.run(
        [*namespace, sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return child.stdout.strip() if child.returncode == 0 else child.stderr[-2000:]


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
    """Run a session with a fault at a moment: its exit status and its stderr."""
    log = str(world.folder / "log")
    program = [sys.executable, "-m", "tests.faults.moments", str(moment), *fault.split(), log, "--"]
    disturbed = replace(world, program=program)
    return disturbed.done("run", "session", *words, "--target", str(world.target))


def fault(kind: str, place: Path) -> str:
    """The fault in words of `tests.faults.moments`."""
    if mounts():
        return f"{'fill' if kind == 'full' else 'lock'} {place}"
    return f"fail {place} {errno.ENOSPC if kind == 'full' else errno.EROFS}"


def broken(kind: str, place: str, share: float, folder: Path) -> str:
    """Disturb a session at a share of its moments, then resume it; returns what broke, else ""."""
    world, at = make_disks(folder), folder / place
    fresh = ("try", "--seed", "1")
    run(world, "nothing", 0, *fresh)
    expected = what_matters(world.folders()[0].path)
    moments = (folder / "log").stat().st_size
    for path in (*(folder / "cache").iterdir(), world.folders()[0].path):
        shutil.rmtree(path)
    code, errors = run(world, fault(kind, at), 1 + int(share * moments), *fresh)
    complaint = _complaint(kind, at, code, errors, world, expected)
    if kind == "full":
        (at / FILLER).unlink(missing_ok=True)
    elif mounts() and os.statvfs(at).f_flag & os.ST_RDONLY:  # Otherwise the fault's moment was not reached.
        subprocess.run(["umount", str(at)], capture_output=True, check=False)
    if complaint:
        return complaint
    words = ("--resume", "last") if world.folders() else fresh
    code, later = run(world, "nothing", 0, *words)
    if code != 0:
        return f"it did not go on: exit {code}: {later[-1500:]}\nfirst: {errors[-1500:]}"
    result = what_matters(world.folders()[-1].path)
    return "" if result == expected else f"another result: {result}, not {expected}"


def _complaint(kind: str, at: Path, code: int, errors: str, world: World, expected: Any) -> str:
    """How the end of the disturbed session breaks the promise; "" if it does not."""
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
