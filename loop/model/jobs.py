"""Where and when jobs ran, as job folders and session records store it."""

from typing import Literal

from loop.model.base import Model

State = Literal["queued", "running", "done", "failed", "lost", "cancelled"]


class Where(Model):
    """The machine and the time of a job. Empty fields are unknown."""

    host: str
    device: str = "cpu"
    uuid: str = ""
    """UUID of the GPU; on a CPU the identity of the processor (`processor_identity`)."""
    driver: str = ""
    cuda: str = ""
    torch: str = ""
    loop: str = ""
    began: float = 0.0
    """Seconds since 1970, by the submitting machine's clock if that is known."""
    seconds: float = 0.0
    usd_per_hour: float | None = None
    timed: bool = False
    """Whether the job timed something. Only then does the device matter."""

    @property
    def group(self) -> str:
        """Device and software versions as text. Ratios are averaged only among jobs of equal groups."""
        versions = {"driver": self.driver, "CUDA": self.cuda, "torch": self.torch}
        parts = [self.device, *(f"{name} {value}" for name, value in versions.items() if value)]
        if self.device == "cpu":
            parts.append(f"processor {self.uuid}")
        return ", ".join(parts)


class JobRun(Where):
    """One job of a step, with its state."""

    id: str
    title: str
    state: State
    tries: int
    host: str = ""


class HostUse(Model):
    """Time and cost of one host with a price."""

    host: str
    seconds: float
    """Seconds in which at least one job ran. Parallel jobs count once."""
    usd: float
