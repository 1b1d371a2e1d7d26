"""A disk is full, or read-only, at some moment of a session: it pauses, names the folder, goes on to the same end.

Sessions, cache, state and TMPDIR are file systems of their own, in a mount namespace. Where none can be made,
errors are injected into what `loop` itself opens.
"""

import errno
import itertools
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.cloud.test_preemption import what_matters
from tests.conftest import ROOT
from tests.faults.moments import FILLER, mount
from tests.projects import TARGET, add_commands, make_project

NAME = "full disk: ENOSPC and read-only on sessions, cache, state, TMPDIR"
MUST = "resumable, right advice"
PLACES = {"LOOP_SESSIONS": "sessions", "LOOP_CACHE": "cache", "LOOP_STATE": "state", "TMPDIR": "tmp"}
MOMENTS = 20
SIZE = "size=24m"
ADVICE = {"full": "free space on {}", "read-only": "make {} writable again"}
STEPS = """
  - {id: build, title: build, action: kernel.build, budget_s: 20}
  - {id: load, title: load, action: kernel.load, budget_s: 20}
  - {id: own, title: a command, action: command.run, budget_s: 5, with: {run: 'date > $TMPDIR/own && echo done'}}
"""
VARIANTS = """
  theirs: {kind: c_abi, device: cpu, sources: [scale.c], entry: scale, build: {compiler: gcc, flags: [-O2]}}
"""


@cache
def mounts() -> bool:
    """Whether file systems can be mounted here in a namespace of their own."""
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return done.returncode == 0


def cases(seed: int) -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each kind of fault, in each folder, at twenty moments drawn from the whole of a session."""
    rng = random.Random(seed)
    for moment in range(MOMENTS):
        for kind, place in itertools.product(ADVICE, PLACES.values()):
            share = (moment + rng.random()) / MOMENTS
            yield f"{kind} {place} at {share:.3f}", Case(kind, place, share)


class Case:
    """One fault, at one moment: a share of the moments of an undisturbed session."""

    def __init__(self, kind: str, place: str, share: float) -> None:
        self.kind, self.place, self.share = kind, place, share

    def __call__(self, folder: Path) -> str:
        """Empty where the promise held; else what broke."""
        words = [
            sys.executable,
            "-m",
            "tests.faults.full_disk",
            self.kind,
            self.place,
            str(self.share),
            str(folder),
        ]
        before = ["unshare", "-rm"] if mounts() else []
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([*before, *words], capture_output=True, text=True, check=False, timeout=300, env=env)
        return done.stdout.strip() if done.returncode == 0 else done.stderr[-2000:]


class Disks:
    """A trusted project, its four folders, and what is run on them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.places = {name: folder / place for name, place in PLACES.items()}
        for place in self.places.values():
            place.mkdir()
            if mounts():
                mount("none", place, "tmpfs", options=SIZE)
        make_project(folder / "project")
        (folder / "project" / "target.yaml").write_text(TARGET.rstrip() + VARIANTS)
        add_commands(folder / "project", "try", ["true"])
        pattern = folder / "project" / "patterns" / "try.yaml"
        pattern.write_text(pattern.read_text().partition("steps:")[0] + "steps:" + STEPS)
        self.run("nothing", 0, "trust", str(folder / "project"))

    def run(self, fault: str, moment: int, *words: str) -> subprocess.CompletedProcess[str]:
        """The command, with a fault at a moment."""
        env = {**os.environ, **{name: str(place) for name, place in self.places.items()}}
        env |= {"LOOP_WATCH_PREEMPTION": "off", "PYTHONPATH": str(ROOT)}
        run = [
            sys.executable,
            "-m",
            "tests.faults.moments",
            str(moment),
            *fault.split(),
            str(self.log),
            "--",
            *words,
        ]
        return subprocess.run(run, capture_output=True, text=True, check=False, timeout=100, env=env)

    def session(self, fault: str, moment: int) -> subprocess.CompletedProcess[str]:
        """A session of both variants."""
        words = ("run", "session", "try", "--seed", "1", "--target", str(self.folder / "project"))
        return self.run(fault, moment, *words)

    def resume(self) -> subprocess.CompletedProcess[str]:
        """The last session goes on."""
        words = ("run", "session", "--resume", "last", "--target", str(self.folder / "project"))
        return self.run("nothing", 0, *words)

    def sessions(self) -> list[Path]:
        """Folders of all sessions."""
        return sorted(one for one in (self.folder / "sessions").iterdir() if (one / "session.json").is_file())


def fault(kind: str, place: Path) -> str:
    """What happens, for `tests.faults.moments`."""
    if mounts():
        return f"{'fill' if kind == 'full' else 'lock'} {place}"
    return f"fail {place} {errno.ENOSPC if kind == 'full' else errno.EROFS}"


def lift(kind: str, place: Path) -> None:
    """The fault is mended."""
    if kind == "full":
        (place / FILLER).unlink(missing_ok=True)
    elif mounts() and os.statvfs(place).f_flag & os.ST_RDONLY:  # Else its moment never came.
        subprocess.run(["umount", str(place)], capture_output=True, check=False)


def broken(kind: str, place: str, share: float, folder: Path) -> str:
    """What broke of the promise when a fault of a kind came to a place at a share of a session; empty: nothing."""
    disks = Disks(folder)
    disks.session("nothing", 0)
    expected = what_matters(disks.sessions()[0])
    subprocess.run(["rm", "-rf", *map(str, (folder / "cache").iterdir()), str(disks.sessions()[0])], check=True)
    moments = disks.log.stat().st_size
    at = disks.places[next(name for name, one in PLACES.items() if one == place)]
    done = disks.session(fault(kind, at), 1 + int(share * moments))
    paused = _judged(kind, at, done, disks, expected)
    lift(kind, at)
    if paused:
        return paused
    again = disks.resume() if disks.sessions() else disks.session("nothing", 0)
    if again.returncode != 0:
        return f"it did not go on: exit {again.returncode}: {again.stderr[-1500:]}\nfirst: {done.stderr[-1500:]}"
    found = what_matters(disks.sessions()[-1])
    return "" if found == expected else f"another result: {found}, not {expected}"


def _judged(kind: str, at: Path, done: subprocess.CompletedProcess[str], disks: Disks, expected: Any) -> str:
    """What is wrong with how the disturbed session ended."""
    if done.returncode == 0:
        found = what_matters(disks.sessions()[-1])
        return "" if found == expected else f"passed with another result: {found}, not {expected}"
    advice = ADVICE[kind].format(at)
    if done.returncode != 75:
        return f"exit {done.returncode}, not 75: {done.stderr[-1500:]}"
    if advice not in done.stderr:
        return f"no advice {advice!r}: {done.stderr[-1500:]}"
    return "" if "--resume" in done.stderr or not disks.sessions() else f"no word on going on: {done.stderr}"


if __name__ == "__main__":
    words = sys.argv[1:]
    print(broken(words[0], words[1], float(words[2]), Path(words[3])))
