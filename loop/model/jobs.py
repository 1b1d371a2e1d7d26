"""Who did what when: what a job ran on, as its folder and the record of a session keep it."""

from collections.abc import Iterable
from typing import Literal

from loop.model.base import Model

State = Literal["queued", "running", "done", "failed", "lost", "cancelled"]


class Where(Model):
    """What a job ran on, and when. Empty for what nobody told."""

    host: str
    device: str = "cpu"
    uuid: str = ""
    """Of the GPU; of a processor what names it (`processor_identity`)."""
    driver: str = ""
    cuda: str = ""
    torch: str = ""
    loop: str = ""
    began: float = 0.0
    """Seconds since 1970, by the clock of whoever submitted it where that is known."""
    seconds: float = 0.0
    usd_per_hour: float | None = None
    timed: bool = False
    """Whether it timed something: then it counts on which devices."""

    @property
    def group(self) -> str:
        """What a device has to share with another for their ratios to stand in one mean, in words."""
        named = {"driver": self.driver, "CUDA": self.cuda, "torch": self.torch}
        parts = [self.device, *(f"{name} {value}" for name, value in named.items() if value)]
        return ", ".join(parts if self.device != "cpu" else [*parts, f"processor {self.uuid}"])


class JobRun(Where):
    """One job of a step."""

    id: str
    title: str
    state: State
    tries: int
    host: str = ""


class HostUse(Model):
    """A host with a price, for as long as jobs ran on it."""

    host: str
    seconds: float
    """A second counts once, however many jobs shared it."""
    usd: float

    @classmethod
    def of(cls, jobs: Iterable[JobRun]) -> tuple["HostUse", ...]:
        """What jobs used of hosts with a price."""
        used, until = dict[str, HostUse](), dict[str, float]()
        for job in sorted(jobs, key=lambda job: job.began):
            if job.usd_per_hour is None:
                continue
            before = used.get(job.host, cls(host=job.host, seconds=0.0, usd=0.0))
            begin, end = max(job.began, until.get(job.host, 0.0)), job.began + job.seconds
            seconds, until[job.host] = max(0.0, end - begin), max(begin, end)
            usd = before.usd + seconds / 3600 * job.usd_per_hour
            used[job.host] = cls(host=job.host, seconds=before.seconds + seconds, usd=usd)
        return tuple(used.values())


def usd_of(jobs: Iterable[JobRun]) -> float:
    """Dollars of the hosts with a price that jobs ran on."""
    return sum(use.usd for use in HostUse.of(jobs))
