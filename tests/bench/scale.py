"""`make bench-scale`: many jobs on many machines, with machines killed; writes tests/bench/SCALE.md.

Not a test. Each section is a program of its own, so that a single one can be made anew: `--only ray`. Jobs are
small commands, so that what is measured is the executor. What could not be exercised is said in its section.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from loop.base.documents import write_atomic
from loop.jobs import executor, running, slurm
from loop.jobs.folder import JobFolder
from loop.jobs.local import Local, Slot
from loop.machine.machine import machine
from loop.model.jobs import Where
from tests.jobs import test_slurm
from tests.jobs.small import maker

PAGE = Path(__file__).with_name("SCALE.md")
LOCAL_JOBS, SLURM_JOBS = 200, 40
SHARE_MS = 50.0
"""The executor's own processor time of a job, at most; its child is not counted."""
GPU_S = 30.0
"""What a job for a GPU takes, about: a paired comparison."""
HEAD = """# Many jobs, many machines

`make bench-scale` writes this page. Jobs are small commands in the place of `loop`: the page is about executors.
"""


def done(
    runner: executor.Executor, jobs: Sequence[JobFolder], disturb: Callable[[], None] = lambda: None
) -> float:
    """Have all done; seconds of processor time of this process, which is the head."""
    used = time.process_time()
    try:
        for _ in executor.all_done(runner, jobs):
            disturb()
    finally:
        runner.close()
    return time.process_time() - used


def row(what: str, jobs: Sequence[JobFolder], slots: int, head_s: float, timed: Sequence[JobFolder] = ()) -> str:
    """A line of the table: what became of the jobs, and the executor's share of time.

    `timed`: those that this head had done, where that is not all.
    """
    right = sum(job.state == "done" and job.answer()["said"] == job.job.words[0] for job in jobs)
    ran = [job.where for job in timed or jobs if job.where]
    wall_s = max(one.began + one.seconds for one in ran) - min(one.began for one in ran)
    share_ms = 1e3 * (wall_s * slots - sum(one.seconds for one in ran)) / len(ran)
    again, head_ms = sum(job.tries > 1 for job in jobs), 1e3 * head_s / len(ran)
    return f"| {what} | {len(jobs):,} | {right:,} | {again} | {wall_s:.1f} | {share_ms:.0f} | {head_ms:.0f} |"


TABLE = (
    "| Jobs | Number | Done once, with their own answer | Begun again | Wall s | Own share ms | Head ms |",
    "|:--|--:|--:|--:|--:|--:|--:|",
)
SHARE = (
    "`Wall s` is from the first job's begin to the last one's end. The own share is a slot's part of it less its "
    "commands, a job: it holds what processors and disk lacked, too. `Head ms` is the head's processor time a job."
)


def on_local() -> Iterator[str]:
    """The local executor with slots of one processor."""
    yield "## local"
    yield ""
    yield from TABLE
    with tempfile.TemporaryDirectory() as folder:
        make, running.TIED = maker(Path(folder))
        for slots in (1, 2):
            jobs = [make(f"go {slots} {number}") for number in range(LOCAL_JOBS)]
            runner = Local([Slot(Where(host="here"), {}) for _ in range(slots)], Path(folder))
            head_s = done(runner, jobs)
            yield row(f"slots: {slots}", jobs, slots, head_s)
    yield ""
    yield SHARE
    yield "Not exercised: several GPUs of one host. Slots were processors."


def with_slurm() -> Iterator[str]:
    """A cluster of this machine alone."""
    yield "## slurm"
    yield ""
    if test_slurm.MISSING or os.geteuid():
        yield "Not exercised: it needs root, and Debian's slurm-wlm and munge."
        return
    yield from TABLE
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        place.chmod(0o755)
        make, command = maker(place)
        os.environ |= {"LOOP_STATE": f"{folder}/state", "SLURM_CONF": f"{folder}/slurm/slurm.conf"}
        script = ["sh", test_slurm.SCRIPT]
        subprocess.run([*script, "start", f"{folder}/slurm"], check=True)
        try:
            slurm.RUN = test_slurm.runs(command)
            jobs = [make(f"go {number}") for number in range(SLURM_JOBS)]
            head_s = done(slurm.opened(2), jobs)
            yield row("one node, an array", jobs, 2, head_s)
        finally:
            subprocess.run([*script, "stop", f"{folder}/slurm"], check=True)
    yield ""
    yield f"{SHARE} Slurm looks for work about once a second, and each task starts a Python."
    yield "Limits, requeues, cancels and killed tasks are tests: tests/jobs/test_slurm.py. GPUs: not exercised."


def limits() -> Iterator[str]:
    """Where each executor breaks first, by arithmetic on the sections above."""
    yield "## Where each breaks first"
    yield ""
    yield f"By arithmetic, for jobs of {GPU_S:.0f} s. A share of t ms lets one head begin 1000 / t jobs a second."
    yield ""
    yield "| Executor | Jobs a second, at most | GPUs, by the head alone | What breaks first |"
    yield "|:--|--:|--:|:--|"
    shares = {name: _share(name) for name in ("local", "ssh", "ray", "slurm")}
    why = {
        "ssh": "the head, which starts an ssh or an rsync for each step of a job",
        "local": "the GPUs of one host; its cores, for each job needs some for its processes",
        "ray": "the head, which packs and unpacks each job in one thread",
        "slurm": "Slurm's own scheduler, and the disk that all nodes share",
    }
    for name, share_ms in shares.items():
        if share_ms is not None:
            rate = 1e3 / share_ms
            yield f"| {name} | {rate:.0f} | {rate * GPU_S:.0f} | {why[name]} |"


def _share(name: str) -> float | None:
    """The own share in ms that the page says, of the last row of a section."""
    rows = re.findall(r"^\|.*\| (\d+) \|$|^- The head takes (\d+) ms", _sections().get(name, ""), re.MULTILINE)
    return max(1.0, float("".join(rows[-1]))) if rows else None


def elsewhere(module: str) -> Callable[[], Iterator[str]]:
    """A section that another program prints."""

    def printed() -> Iterator[str]:
        program = [sys.executable, "-m", module]
        yield subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    return printed


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "local": on_local,
    "ray": elsewhere("tests.bench.scale_ray"),
    "slurm": with_slurm,
    "ssh": elsewhere("tests.bench.scale_ssh"),
    "limits": limits,
    "heads": elsewhere("tests.bench.scale_limits"),
}


def _sections() -> dict[str, str]:
    """The page's sections by name."""
    text = PAGE.read_text() if PAGE.is_file() else ""
    parts = re.split(r"^<!-- (\w+): (.*) -->$", text, flags=re.MULTILINE)
    return {
        name: f"<!-- {name}: {on} -->{body}".rstrip()
        for name, on, body in zip(*[iter(parts[1:])] * 3, strict=True)
    }


def main() -> None:
    """Make the sections anew, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale")
    parser.add_argument("--only", choices=[*SECTIONS], action="append", help="only this section; may be repeated")
    for name in parser.parse_args().only or SECTIONS:
        here = machine()
        made = "\n".join(SECTIONS[name]())
        found = {**_sections(), name: f"<!-- {name}: {here.cores} cores, {here.processor} -->\n{made}"}
        body = "\n\n".join(found[one] for one in SECTIONS if one in found)
        write_atomic(PAGE, f"{HEAD}\n{body}\n")


if __name__ == "__main__":
    main()
