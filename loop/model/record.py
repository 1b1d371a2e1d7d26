"""Records: facts that a session stores and never edits; where and when its jobs ran."""

import datetime
import shlex
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.campaign import Campaign
from loop.model.dtypes import Device
from loop.model.measurement import Verdict
from loop.model.money import Bill
from loop.model.plan import Predicted, Reached, ResolvedPlan
from loop.model.target import Role

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
        """Device and software versions as text. Ratios are averaged only within equal groups."""
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


Status = Literal["passed", "failed", "skipped", "aborted", "paused"]
RESUMABLE: tuple[Status, ...] = ("aborted", "paused")
"""Statuses of sessions that can be resumed. Sessions without a status (killed) can be, too."""


class StepKey(Model):
    """Identifies a step: number of the pattern run, pattern name and step id."""

    run: Annotated[int, Field(ge=1)]
    """Number of the pattern run within the session, from 1."""
    pattern: str
    step: str

    @property
    def key(self) -> tuple[int, str, str]:
        return self.run, self.pattern, self.step

    @property
    def label(self) -> str:
        """`pattern/step`, for messages."""
        return f"{self.pattern}/{self.step}"


class Started(StepKey):
    """Journal event before a step begins. After a kill it shows which step was running."""

    event: Literal["started"] = "started"
    attempt: Annotated[int, Field(ge=1)] = 1
    title: str
    index: int
    of: int
    budget_s: float


class EndedStep(StepKey):
    """The end of one attempt at a step."""

    attempt: Annotated[int, Field(ge=1)] = 1
    action: str
    status: Status
    seconds: float
    budget_s: float
    message: str

    @property
    def is_over_budget(self) -> bool:
        """Whether the step took longer than it was meant to."""
        return self.seconds > self.budget_s


class Finished(EndedStep):
    """Journal event after a step has ended, with its full result."""

    event: Literal["finished"] = "finished"
    hint: str | None = None
    output: dict[str, Any] = Field(default_factory=dict)
    skipped_because: str = ""
    """Why the step was skipped, as in `only when verify.right != []`; empty if it was not."""
    killed: bool = False
    longest_silence_s: float = 0.0
    artifacts: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, started: Started, action: str, status: Status, message: str, **fields: Any
    ) -> "Finished":
        """The record of the end of a step that began. `fields`: further fields by name."""
        step_fields = started.model_dump(include={"run", "pattern", "step", "attempt", "budget_s"})
        return cls(**step_fields, action=action, status=status, message=message, **fields)


def latest_attempts(finished: Iterable[Finished]) -> tuple[Finished, ...]:
    """The last record of each step of each run, in the order of the first attempts."""
    return tuple({record.key: record for record in finished}.values())


class Opened(Model):
    """Journal event when a session begins or is resumed."""

    event: Literal["opened"] = "opened"
    resumed: bool = False
    fresh: bool = False
    """True if the target's files had changed: earlier steps then no longer count."""
    pid: int


class Closed(Model):
    """Journal event when a session finishes, pauses or is interrupted."""

    event: Literal["closed"] = "closed"
    status: Status
    reason: str = ""


Event = Annotated[Started | Finished | Opened | Closed, Field(discriminator="event")]


class Line(Model):
    """One line of the journal. On disk, the event's fields are at the same level as these."""

    format: Literal[1] = 1
    seq: Annotated[int, Field(ge=1)]
    """Line number, from 1, without gaps."""
    at: datetime.datetime
    event: Event


class Revision(Model):
    """State of the user's repository when the session began."""

    commit: str | None
    branch: str | None = None
    dirty: bool = False
    changed: tuple[str, ...] = ()


class KnownGood(Model):
    """The known-good build of a variant: the last with which all gates passed on such a device."""

    session: str
    build_id: str
    commit: str | None
    branch: str | None = None


class Machine(Model):
    """Machine, driver and toolchain of a session."""

    name: str
    system: str
    processor: str
    cores: int
    memory_gb: float
    python: str
    torch: str | None = None
    compiler: str | None
    nvcc: str | None
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    capability: str | None = None

    @property
    def gpus_text(self) -> str:
        """The GPU in use, the other visible GPUs and the driver, as text; empty without a GPU."""
        if not self.gpus:
            return ""
        first, *others = self.gpus
        parts = [first]
        if others:
            rest = f"(then {', '.join(others)})"
            parts.append(f"the first of {len(self.gpus)} that CUDA shows {rest}")
        if self.driver:
            parts.append(f"driver {self.driver}")
        return ", ".join(parts)


class SessionFacts(Model):
    """Identity of a session and the machine it ran on."""

    id: str
    started: datetime.datetime
    target: str
    device: Device
    baseline: str = "the baseline"
    variants: tuple[str, ...]
    roles: dict[str, Role] = Field(default_factory=dict)
    """Variant to its role, for variants whose role is not `main`."""
    seed: int
    revision: Revision
    machine: Machine
    loop_version: str

    @property
    def gpu(self) -> str | None:
        """Name of the GPU in use; None for a session on the CPU."""
        return self.machine.gpus[0] if self.device == "cuda" and self.machine.gpus else None

    @property
    def device_text(self) -> str:
        """Where the session ran: `cpu`, or `cuda (NVIDIA H200)`."""
        return f"{self.device} ({self.gpu})" if self.gpu else self.device


class SessionHead(SessionFacts):
    """Facts stored when a session begins: all that a resume needs."""

    format: Literal[1] = 1
    plan: ResolvedPlan
    predicted: Predicted | None = None
    target_folder: str
    """Folder of the target's manifest; `bundled` for the target that ships with `loop`."""
    emulated: tuple[str, ...] = ()
    threads: int
    attended: bool = False
    hypothesis: str = ""
    ground: str = ""
    """Hash of the target's files. If it differs at a resume, all steps are repeated."""
    harness: str = ""
    """Hash of the files that are not compiled: reference, workloads, tolerance."""
    files: dict[str, str] = Field(default_factory=dict)
    """Each file of the target, to the beginning of its hash: what differs between two sessions."""
    host: str = ""
    """Name in hosts.yaml of the machine it runs on; empty: the machine where it was started."""
    campaign: Campaign = Field(default_factory=Campaign)

    def repeat_command(self) -> str:
        """The command that runs this session again."""
        plan = self.plan.plan
        names = (*self.variants, *self.emulated)
        options = [word for name in names for word in ("--variant", name)]
        options += [*self.target_options, "--device", self.device, "--threads", str(self.threads)]
        if plan.patterns == (plan.name,):  # The session of `loop run pattern`, which takes no seed.
            return shlex.join(["loop", "run", "pattern", plan.name, *options])
        options += [*self.host_options, "--seed", str(self.seed)]
        return shlex.join(["loop", "run", "session", plan.name, *options])

    @property
    def resume_command(self) -> str:
        options = [*self.target_options, *self.host_options]
        return shlex.join(["loop", "run", "session", "--resume", self.id, *options])

    @property
    def report_command(self) -> str:
        return shlex.join(["loop", "report", self.id, *self.target_options])

    @property
    def host_options(self) -> list[str]:
        """`--on HOST` for commands of this session; empty if it runs on the local machine."""
        return ["--on", self.host] if self.host else []

    @property
    def target_options(self) -> list[str]:
        """`--target FOLDER` for commands of this session; empty for the bundled target."""
        return [] if self.target_folder == "bundled" else ["--target", self.target_folder]


class Conclusion(Model):
    """How a session ended, with verdicts, grade and proposal."""

    status: Status
    reason: str
    verdicts: tuple[Verdict, ...]
    grade: str
    grade_reason: str
    seconds: float
    objective: Reached | None = None
    not_exercised: tuple[str, ...]
    learnings: tuple[str, ...]
    proposal: str


class SessionRecord(Conclusion):
    """The final record of a session: results, cost and proposal for the next one."""

    format: Literal[1] = 1
    head: SessionHead
    own_seconds: float
    bill: Bill
    lines: int = 0
