"""A section of SCALE.md: jobs on a machine that is reached by ssh, its connections cut at random.

Not a test. `python -m tests.bench.scale_ssh` prints it, with an OpenSSH server on a loopback port. `--cuts`: how
often a line is cut.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import psutil

from loop.jobs import setup, ssh
from loop.jobs.executor import all_done
from loop.jobs.folder import HEARTBEAT, PID, RC, Job, JobFolder, prepare
from loop.jobs.hosts import Host, Listed
from loop.jobs.remote import Connection
from loop.jobs.ssh import Ssh
from loop.jobs.there import There
from tests.jobs.sshd import Server, missing

WARM_STARTS = 15
START_S = 1.5
"""Time in which a job has to begin on a warm connection."""
KILLED = 10
AWAY_S = 20.0
"""How long the closed laptop stands still."""
SPREAD, LOST_S = 24, 5.0
"""Jobs on two machines, and the time after which the one that is away loses its own."""
WORDS = ("patterns", "list", "--json")
HOST = Listed("there", Host(ssh="there", gpus=(0, 1, 2, 3)), Path("hosts.yaml"))


def jobs(name: str, count: int) -> list[JobFolder]:
    """So many jobs that print a page and end."""
    return [prepare(Job(id=f"{name}{number:03}", words=WORDS)) for number in range(count)]


def warm_starts(server: Server) -> Iterator[str]:
    """From `submit` to the first heartbeat of its command there, seen in the file."""
    with Connection(HOST) as connection:
        there = There(connection)
        there.ready()
        took = []
        for job in jobs("warm", WARM_STARTS):
            begun, heart = time.perf_counter(), server.home / setup.HOME / "jobs" / job.id / HEARTBEAT
            there.submit(job, {})
            while not heart.exists():
                time.sleep(0.002)
            took.append(time.perf_counter() - begun)
            there.forget(job.id)
    good = sum(one <= START_S for one in took)
    yield (
        f"- Start of a job on a warm connection, from `submit` to the first heartbeat of its command: median "
        f"{median(took):.2f} s, longest {max(took):.2f} s; {good} of {len(took)} within {START_S} s."
    )


def cuts(server: Server, count: int, seed: int) -> Iterator[str]:
    """Connections cut at random moments until there were so many, while jobs are sent, looked at, brought back."""
    draw, cut, stop = random.Random(seed), [0], threading.Event()
    executor = Ssh([HOST], 4)

    def cutting() -> None:
        while not stop.is_set() and cut[0] < count:
            time.sleep(draw.uniform(0.2, 2.0))
            cut[0] += server.cut()

    thread = threading.Thread(target=cutting, daemon=True)
    thread.start()
    begun, ended, sent = time.perf_counter(), 0, 0
    while cut[0] < count:
        batch = jobs(f"cut{sent:03}x", 8)
        sent += len(batch)
        ended += done_once(executor, batch)
    seconds = time.perf_counter() - begun
    stop.set()
    thread.join()
    executor.close()
    left = server.left()
    yield (
        f"- {cut[0]} connections cut at random within {seconds:.0f} s: {ended} of {sent} jobs ended once, with "
        f"their results; {len(left)} left there."
    )


def done_once(executor: Ssh, batch: Sequence[JobFolder]) -> int:
    """How many of these jobs ended, begun once, with all that they printed."""
    for _ in all_done(executor, batch):
        pass
    return sum(job.state == "done" and "patterns" in job.answer() and job.tries <= 1 for job in batch)


def kills(server: Server, count: int, seed: int) -> Iterator[str]:
    """Whoever runs a job there is killed at a random moment, once a job."""
    draw, executor = random.Random(seed), Ssh([HOST], 4)
    batch, waiting = jobs("killed", count), {f"killed{number:03}": draw.uniform(0, 0.8) for number in range(count)}
    killed = 0
    for _ in all_done(executor, batch):
        for name in tuple(waiting):
            place = server.home / setup.HOME / "jobs" / name
            runs = (place / PID).exists() and not (place / RC).exists()
            if runs and time.time() - (place / PID).stat().st_mtime > waiting[name]:
                killed += kill(place)
                del waiting[name]
    executor.close()
    good = sum(job.state == "done" for job in batch)
    yield (
        f"- {killed} of {count} jobs were killed there with all their processes: {good} of {count} ended with "
        f"their results, begun at most {max(job.tries for job in batch)} times; {len(server.left())} left there."
    )


def kill(place: Path) -> int:
    """Kill whoever runs a job, and its command; 1 where there was one."""
    try:
        runner = psutil.Process(int((place / PID).read_text().split("-")[0]))
        for process in (*runner.children(recursive=True), runner):
            process.kill()
        return 1
    except (OSError, ValueError, psutil.Error):
        return 0


def closed(server: Server) -> Iterator[str]:
    """Nobody looks, and every connection is gone, until long after the jobs have ended."""
    executor, batch = Ssh([HOST], 4), jobs("closed", 4)
    waiting = all_done(executor, batch)
    next(waiting)
    server.stop()
    time.sleep(AWAY_S)
    server.start()
    for _ in waiting:
        pass
    executor.close()
    good = sum(job.state == "done" for job in batch)
    yield (
        f"- The other machine unreachable and nobody looking for {AWAY_S:.0f} s: {good} of {len(batch)} jobs "
        f"ended with their results; {len(server.left())} left there."
    )


def head_share(server: Server) -> Iterator[str]:
    """Processor time that the head takes, with its ssh and rsync."""
    executor, batch, before = Ssh([HOST], 4), jobs("share", SPREAD), os.times()
    for _ in all_done(executor, batch):
        pass
    executor.close()
    used_s = sum(os.times()[:4]) - sum(before[:4])
    good = sum(job.state == "done" for job in batch)
    head_ms = 1e3 * used_s / SPREAD
    yield f"- The head takes {head_ms:.0f} ms of processor time a job, its ssh included ({good} jobs)."


def two_machines(server: Server, folder: Path) -> Iterator[str]:
    """Jobs spread over two machines, one of which is lost half way."""
    with Server(folder / "second") as second:
        second.install()
        config = folder / "two"
        config.write_text(server.called("first") + second.called("second"))
        before, os.environ["LOOP_SSH"] = os.environ["LOOP_SSH"], f"ssh -F {config}"
        hosts = [Listed(name, Host(ssh=name, gpus=(0, 1)), HOST.path) for name in ("first", "second")]
        executor, batch = Ssh(hosts, 4), jobs("two", SPREAD)
        up, ssh.AWAY_S = True, LOST_S
        for _ in all_done(executor, batch):
            if up and sum(job.rc is not None for job in batch) >= SPREAD // 2:
                up = False
                second.stop()
        second.start()
        executor.close()
        ran = [job.where.host for job in batch if job.where]
        left = len(server.left()) + len(second.left())
        os.environ["LOOP_SSH"] = before
    good, again = sum(job.state == "done" for job in batch), sum(job.tries > 1 for job in batch)
    yield (
        f"- Two machines with two jobs at a time each, one of them lost when half were done, given up after "
        f"{LOST_S:.0f} s: {good} of {SPREAD} jobs ended with their results, {ran.count('first')} on the first and "
        f"{ran.count('second')} on the lost one; {again} begun again; {left} left there."
    )


def section(count: int, seed: int) -> Iterator[str]:
    """All of it, as lines of Markdown."""
    yield "## ssh, to an OpenSSH server on a loopback port"
    yield ""
    if why := missing():
        yield f"Not exercised: {why}."
        return
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Server(Path(folder) / "there") as server,
    ):
        server.install()
        os.environ |= {"LOOP_SSH": f"ssh -F {server.client}", "LOOP_STATE": f"{folder}/state", "HOME": folder}
        yield from warm_starts(server)
        yield from head_share(server)
        yield from cuts(server, count, seed)
        yield from kills(server, KILLED, seed)
        yield from closed(server)
        yield from two_machines(server, Path(folder))


def main() -> None:
    """Print the section."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    for line in section(given.cuts, given.seed):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
