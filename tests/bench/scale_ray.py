"""A section of SCALE.md: a Ray cluster of four nodes on this machine, nodes killed at random, and once the head.

Not a test. `python -m tests.bench.scale_ray` prints it. A head is a process of its own: it starts a cluster and
submits the jobs that have no result. `--count`: jobs of the longest row.
"""

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loop.jobs import ray as on_ray
from loop.jobs.folder import RC, JobFolder, every
from loop.machine.machine import machine
from tests.bench.scale import SHARE, SHARE_MS, TABLE, done, row
from tests.jobs.small import maker
from tests.jobs.small_ray import COMMAND, USED, Small

NODES, COUNT = 4, 2000
CASES = ((200, 0, False), (200, 50, True), (COUNT, 200, True))
"""Jobs, after how many of them a node is killed each time (0: never), and whether the head is killed half way."""
VARIABLES = on_ray.variables
LOOK_S = 1.0
TOLD = "told.json"
"""What a head says of itself when all is done."""


@dataclass
class Processes:
    """Processor time of Ray's own processes, as it was last seen of each."""

    seconds: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """See all that runs below this process, but for actors and their commands."""
        for one in psutil.Process().children(recursive=True):
            try:
                name = " ".join(one.cmdline())
                if "ray" in name and "ray::" not in name:
                    times = one.cpu_times()
                    self.seconds[one.pid] = times.user + times.system
            except psutil.Error:
                continue


def head(folder: Path, kill_every: int) -> None:
    """Start a cluster, have done what has no result yet, and note what that took."""
    from ray.cluster_utils import Cluster

    jobs = every(folder / "jobs")
    os.environ |= {"LOOP_STATE": f"{folder}/state"}
    (folder / "state").mkdir(exist_ok=True)
    command = f"{sys.executable} -S -P {folder / 'loop.py'}"
    variables = {**VARIABLES(), COMMAND: command}
    on_ray.Supervisor, on_ray.variables = Small, lambda: variables  # type: ignore[misc]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(NODES):
        cluster.add_node(num_cpus=1)
    os.environ["RAY_ADDRESS"] = cluster.address
    chosen, looked, kills, processes = random.Random(7), [time.monotonic()], [0], Processes()

    def disturb() -> None:
        if time.monotonic() - looked[0] < LOOK_S:
            return
        looked[0] = time.monotonic()
        processes.look()
        if kill_every and sum(job.rc is not None for job in jobs) > kill_every * (kills[0] + 1):
            cluster.remove_node(chosen.choice(sorted(cluster.worker_nodes, key=id)), allow_graceful=False)
            cluster.add_node(num_cpus=1)
            kills[0] += 1

    processes.look()
    before = sum(processes.seconds.values())
    head_s = done(on_ray.opened(NODES), jobs, disturb)
    ray_s = sum(processes.seconds.values()) - before
    (folder / TOLD).write_text(json.dumps({"kills": kills[0], "head_s": head_s, "ray_s": ray_s}))
    import ray

    ray.shutdown()
    cluster.shutdown()


def case(folder: Path, count: int, kill_every: int, *, dies: bool) -> Iterator[str]:
    """A row, and what it took beside."""
    make, _ = maker(folder)
    jobs = [make(f"go {number}") for number in range(count)]
    words = [sys.executable, "-m", "tests.bench.scale_ray", "--head", str(folder), "--kill-every", str(kill_every)]
    kept: dict[JobFolder, float] = {}
    if dies:
        process = subprocess.Popen(words, stdout=sys.stderr)
        while sum(job.rc is not None for job in jobs) < count / 2 and process.poll() is None:
            time.sleep(LOOK_S)
        for one in (*psutil.Process(process.pid).children(recursive=True), process):
            one.kill()
        process.wait()
        kept = {job: (job.path / RC).stat().st_mtime for job in jobs if job.rc is not None}
    subprocess.run(words, check=True, stdout=sys.stderr)
    told = json.loads((folder / TOLD).read_text())
    again = sum((job.path / RC).stat().st_mtime != at for job, at in kept.items())
    timed = [job for job in jobs if job not in kept]
    what = f"{NODES} nodes, {told['kills']} killed{', and the head' if dies else ''}"
    yield row(what, jobs, NODES, told["head_s"], timed)
    used = [float(line) for line in (folder / "state" / USED).read_text().splitlines()]
    actor, rays = 1e3 * sum(used) / len(used), 1e3 * told["ray_s"] / len(timed)
    own = 1e3 * told["head_s"] / len(timed) + actor
    died = (
        f" The head was killed when {len(kept):,} had ended; the next did {again} of these again." if dies else ""
    )
    word = "met" if own <= SHARE_MS else "not met"
    yield (
        f"- {count:,} jobs: {own:.0f} ms of processor time a job, of {SHARE_MS:.0f} asked for: {word}. Its actor "
        f"takes {actor:.0f} of them. Ray's own processes: {rays:.0f} ms. Commands are not counted.{died}"
    )


def section(count: int) -> Iterator[str]:
    """All of it, as lines of Markdown."""
    yield "## ray"
    yield ""
    if importlib.util.find_spec("ray") is None:
        yield "Not exercised: the package `ray` is not installed."
        return
    yield from TABLE
    notes = []
    for number, kill_every, dies in CASES:
        jobs = min(number, count)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            line, note = case(Path(folder), jobs, kill_every, dies=dies)
        yield line
        notes.append(note)
    yield ""
    yield f"{SHARE} Of a run whose head was killed it is that of the second head."
    yield ""
    yield from notes
    if count < COUNT:
        yield f"- {COUNT:,} jobs: not run this time."
    load = os.getloadavg()[2]
    yield f"- The {NODES} nodes share {machine().cores} cores with all that runs here: the load is {load:.0f}."
    yield "- Nodes were killed at random and replaced. Ray with GPUs: not exercised."


def main() -> None:
    """Print the section, or be a head."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--head", type=Path)
    parser.add_argument("--kill-every", type=int, default=0)
    given = parser.parse_args()
    if given.head:
        head(given.head, given.kill_every)
        return
    for line in section(given.count):
        print(line, flush=True)


if __name__ == "__main__":
    main()
