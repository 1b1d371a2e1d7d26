"""Who did what when: what a job ran on, as its folder and the record of a session keep it."""

from collections.abc import Iterable
from typing import Literal

from loop.model.base import Model

State = Literal["queued", "running", "done", "failed", "lost", "cancelled"]


class Where(Model):
    """What a job ran on, and when. Empty for what nobody told."""

    host: str
    device: str = "cpu"
    """Name of the GPU, or `cpu`."""
    uuid: str = ""
    """Of the GPU; of a processor what names it (`processor_identity`)."""
    driver: str = ""
    cuda: str = ""
    torch: str = ""
    loop: str = ""
    """Version of `loop`."""
    power_limit_w: float | None = None
    clock_mhz: int | None = None
    """Highest clock of the multiprocessors."""
    began: float = 0.0
    """Seconds since 1970, by the clock of whoever submitted it where that is known."""
    seconds: float = 0.0
    """How long it ran."""
    usd_per_hour: float | None = None
    """What an hour there costs, where its host says."""
    anchor_us: tuple[float, ...] = ()
    """Time of the anchor before and after; empty where none was taken."""


class JobRun(Where):
    """One job of a step."""

    id: str
    """Its id."""
    title: str
    """What it did, in a few words."""
    state: State
    """How it ended."""
    tries: int
    """How often it was begun."""
    host: str = ""


def usd_of(jobs: Iterable[JobRun]) -> float:
    """Dollars of the hosts with a price that jobs ran on: a second is paid once, however many jobs share it."""
    usd, paid = 0.0, dict[str, float]()
    for job in sorted(jobs, key=lambda one: one.began):
        begin, end = max(job.began, paid.get(job.host, 0.0)), job.began + job.seconds
        usd += max(0.0, end - begin) / 3600 * (job.usd_per_hour or 0.0)
        paid[job.host] = max(begin, end)
    return usd
