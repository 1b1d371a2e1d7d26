"""`loop jobs` and `loop job run`: what waits, runs and has ended, where, and at what cost."""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError
from loop.base.places import project
from loop.base.remarks import remark
from loop.base.screen import Screen
from loop.bisect.trying import Probed
from loop.jobs import folder as jobs
from loop.jobs.folder import JobFolder
from loop.jobs.running import run
from loop.library.rates import rates
from loop.model.base import Printed
from loop.model.jobs import JobRun
from loop.model.money import RateCard
from loop.money.bill import rates_of

SHOWN = 40
"""Jobs of a table, the newest."""
LOOK_S = 1.0


class JobAnswer(Printed):
    """One job that was run."""

    job: JobRun
    """What became of it."""


JobOrProbe = JobAnswer | Probed
"""What `loop job run` prints: the second where it tried one commit of a bisection."""


class JobList(Printed):
    """Jobs of this user on this machine, the oldest first."""

    jobs: tuple[JobRun, ...]
    """Each of them."""
    usd: dict[str, float]
    """Id to dollars so far, by the rate card or its host's price; those that cost something."""


def run_job(folder: Path, screen: Screen, *, as_json: bool) -> int:
    """Run the job in a folder; the exit code of its command."""
    job = JobFolder(folder.absolute())
    code = run(job)
    if as_json:
        screen.data(to_json(JobAnswer(job=job.ran)))
    else:
        screen.say(f"job {job.id} {job.state}")
    return code if code >= 0 else 128 - code  # As a shell says it.


def list_jobs(screen: Screen, *, limit: int, watch: bool, as_json: bool) -> int:
    """A table of jobs; with `watch` again whenever it has changed, until all have ended."""
    card, shown = rates(project(None, Path.cwd())), "?"
    while True:
        found = _found(card, limit)
        text = to_json(found) if as_json else "\n".join(map(str, found.jobs))
        if text != shown:
            if as_json:
                screen.data(text)
            else:
                _table(found, screen)
        shown = text
        if not watch or not any(one.state in ("queued", "running") for one in found.jobs):
            return ExitCode.OK
        time.sleep(LOOK_S)


def _found(card: RateCard, limit: int) -> JobList:
    ran = tuple(_read(jobs.every()[-limit:]))
    costs = {one.id: _usd_per_hour(one, card) * _alone_s(one, ran) / 3600 for one in ran}
    return JobList(jobs=ran, usd={id_: usd for id_, usd in costs.items() if usd})


def _read(found: Iterable[JobFolder]) -> Iterator[JobRun]:
    """What became of jobs; one that is damaged, or of another version, is named and left out."""
    for one in found:
        try:
            yield one.ran
        except LoopError as error:
            remark(f"{error.message}; {error.hint}")


def _alone_s(job: JobRun, others: Sequence[JobRun]) -> float:
    """Seconds that a job is charged for: where several shared a host with a price, its share of each second."""
    if job.usd_per_hour is None:
        return job.seconds
    same = [one for one in others if one.host == job.host and one.usd_per_hour is not None]
    end = job.began + job.seconds
    marks = {mark for one in same for mark in (one.began, one.began + one.seconds) if job.began < mark < end}
    seconds = 0.0
    for first, last in itertools.pairwise(sorted({job.began, end, *marks})):
        there = sum(one.began <= first and last <= one.began + one.seconds for one in same)
        seconds += (last - first) / max(1, there)
    return seconds


def _usd_per_hour(job: JobRun, card: RateCard) -> float:
    if job.usd_per_hour is not None:
        return job.usd_per_hour
    found = rates_of(card, "cpu") if job.device == "cpu" else rates_of(card, "cuda", job.device)
    return sum((rate.usd_per_hour for rate in found), 0.0)


def _table(found: JobList, screen: Screen) -> None:
    if not found.jobs:
        screen.say("no jobs: --executor and --on make some")
        return
    rows = [
        (one.id, _state(one), one.title, _place(one), f"{one.seconds:.0f}", _usd(found, one)) for one in found.jobs
    ]
    screen.table(("job", "state", "work", "where", "s", "$"), rows, wrap=2)


def _state(job: JobRun) -> str:
    return f"{job.state}, {job.tries} times" if job.tries > 1 else job.state


def _place(job: JobRun) -> str:
    return job.host if job.device == "cpu" else f"{job.device}, {job.host}"


def _usd(found: JobList, job: JobRun) -> str:
    return f"{found.usd[job.id]:.3f}" if job.id in found.usd else "-"
