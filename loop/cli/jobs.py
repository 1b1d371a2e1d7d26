"""`loop jobs` and `loop job run`: what waits, runs and has ended, where, and at what cost."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import LoopError
from loop.base.places import project
from loop.base.remarks import remark
from loop.base.screen import Screen
from loop.jobs import folder as jobs
from loop.jobs.folder import JobFolder
from loop.jobs.running import run
from loop.library.rates import rates
from loop.model.base import Printed
from loop.model.jobs import JobRun
from loop.model.money import RateCard
from loop.money.bill import rates_of


class JobAnswer(Printed):
    """One job that was run."""

    job: JobRun
    """What became of it."""


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


def list_jobs(screen: Screen, *, limit: int, as_json: bool) -> None:
    """A table of the newest jobs; one that is damaged, or of another version, is named and left out."""
    card, every = rates(project(None, Path.cwd())), list[JobRun]()
    for folder in jobs.every():
        try:
            every.append(folder.ran)
        except LoopError as error:
            remark(f"{error.message}; {error.hint}")
    ran = tuple(every[-limit:])
    costs = {job.id: _usd_per_hour(job, card) * _charged_s(job, every) / 3600 for job in ran}
    listed = JobList(jobs=ran, usd={job_id: usd for job_id, usd in costs.items() if usd})
    if as_json:
        screen.data(to_json(listed))
        return
    if not ran:
        screen.say("no jobs: --executor and --on make some")
        return
    rows = []
    for job in ran:
        state = f"{job.state}, {job.tries} times" if job.tries > 1 else job.state
        place = job.host if job.device == "cpu" else f"{job.device}, {job.host}"
        usd = f"{listed.usd[job.id]:.3f}" if job.id in listed.usd else "-"
        rows.append((job.id, state, job.title, place, f"{job.seconds:.0f}", usd))
    screen.table(("job", "state", "work", "where", "s", "$"), rows, wrap=2)


def _charged_s(job: JobRun, others: Sequence[JobRun]) -> float:
    """Seconds that a job is charged for: where several shared a host with a price, its share of each second."""
    if job.usd_per_hour is None:
        return job.seconds
    spans = [
        (other.began, other.began + other.seconds)
        for other in others
        if other.host == job.host and other.usd_per_hour is not None
    ]
    end = job.began + job.seconds
    marks = {mark for span in spans for mark in span if job.began < mark < end}
    seconds = 0.0
    for first, last in itertools.pairwise(sorted({job.began, end, *marks})):
        sharing = sum(began <= first and last <= ended for began, ended in spans)
        seconds += (last - first) / max(1, sharing)
    return seconds


def _usd_per_hour(job: JobRun, card: RateCard) -> float:
    """The host's price, else that of its device by the rate card."""
    if job.usd_per_hour is not None:
        return job.usd_per_hour
    charged = rates_of(card, "cpu") if job.device == "cpu" else rates_of(card, "cuda", job.device)
    return sum((rate.usd_per_hour for rate in charged), 0.0)
