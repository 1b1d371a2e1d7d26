"""Records: the stored facts of a session, never edited."""

import datetime
import json
import shlex
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.campaign import Campaign
from loop.model.dtypes import Device
from loop.model.money import Bill
from loop.model.plan import Predicted, Reached, ResolvedPlan
from loop.model.target import Role
from loop.model.verdict import Verdict

Status = Literal["passed", "failed", "skipped", "aborted", "paused"]
RESUMABLE: tuple[Status, ...] = ("aborted", "paused")
"""How a session ended that can go on; one without an end can, too."""


class StepKey(Model):
    """Which step of which run: the run counts the patterns walked so far."""

    run: Annotated[int, Field(ge=1)]
    """Number of the run within the session, from 1."""
    pattern: str
    step: str

    @property
    def key(self) -> tuple[int, str, str]:
        """Run, pattern and step."""
        return self.run, self.pattern, self.step


class Started(StepKey):
    """Written before a step begins, so that a kill leaves at most one step open."""

    event: Literal["started"] = "started"
    attempt: Annotated[int, Field(ge=1)] = 1
    title: str
    index: int
    of: int
    budget_s: float


class EndedStep(StepKey):
    """How one attempt at a step ended."""

    attempt: Annotated[int, Field(ge=1)] = 1
    action: str
    status: Status
    seconds: float
    budget_s: float
    message: str

    @property
    def over_budget(self) -> bool:
        """Whether it took longer than it was meant to."""
        return self.seconds > self.budget_s


class Finished(EndedStep):
    """Written when a step has ended, with everything it found."""

    event: Literal["finished"] = "finished"
    hint: str | None = None
    output: dict[str, Any] = Field(default_factory=dict)
    skipped_because: str = ""
    """Why it was skipped, as in `only when verify.right != []`; empty for any other step."""
    killed: bool = False
    longest_silence_s: float = 0.0
    artifacts: tuple[str, ...] = ()


def latest_attempts(finished: Iterable[Finished]) -> tuple[Finished, ...]:
    """The last record of each step of each run, in the order in which the steps were first ended."""
    last: dict[tuple[int, str, str], Finished] = {}
    for record in finished:
        last[record.key] = record
    return tuple(last.values())


class Opened(Model):
    """First line of a journal, and of every resumption."""

    event: Literal["opened"] = "opened"
    resumed: bool = False
    fresh: bool = False
    """True when the target's files had changed by then: nothing written before it stands any more."""
    pid: int


class Closed(Model):
    """Last line of a finished or interrupted walk."""

    event: Literal["closed"] = "closed"
    status: Status
    reason: str = ""

    @property
    def can_resume(self) -> bool:
        """Whether the session can go on."""
        return self.status in RESUMABLE


Event = Annotated[Started | Finished | Opened | Closed, Field(discriminator="event")]


class Line(Model):
    """One line of the journal; on disk its event's own fields stand beside these three."""

    format: Literal[1] = 1
    seq: Annotated[int, Field(ge=1)]
    """Number of the line, without gaps."""
    at: datetime.datetime
    event: Event

    def text(self) -> str:
        """It without its checksum and line end."""
        outer = self.model_dump(mode="json", exclude={"event"})
        return json.dumps({**outer, **self.event.model_dump(mode="json")}, ensure_ascii=False)


class Revision(Model):
    """Which sources the session saw."""

    commit: str | None
    branch: str | None = None
    dirty: bool = False
    changed: tuple[str, ...] = ()

    @property
    def committed(self) -> str | None:
        """The commit; None where files were not committed."""
        return None if self.dirty else self.commit


class KnownGood(Model):
    """What a variant was the last time all gates passed, on this device and these workloads."""

    session: str
    build_id: str
    commit: str | None
    branch: str | None = None


class Machine(Model):
    """Machine, driver and toolchain facts beside every number."""

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
    load: float | None = None
    """Other programs that ran or waited for a core when the session began, for each core; None: nobody told."""

    @property
    def gpus_text(self) -> str:
        """The GPU that everything runs on, and the others that a CUDA program sees; empty without any."""
        parts = list(self.gpus[:1])
        if others := ", ".join(self.gpus[1:]):
            parts.append(f"the first of {len(self.gpus)} that CUDA shows (then {others})")
        parts += [f"driver {self.driver}"] if parts and self.driver else []
        return ", ".join(parts)


class SessionFacts(Model):
    """Which session it is, and what it ran on."""

    id: str
    started: datetime.datetime
    target: str
    device: Device
    baseline: str = "the baseline"
    variants: tuple[str, ...]
    roles: dict[str, Role] = Field(default_factory=dict)
    """Variants that are not `main`, with what they are there for."""
    seed: int
    revision: Revision
    machine: Machine
    loop_version: str

    @property
    def gpu(self) -> str | None:
        """The GPU it runs on; None on a processor."""
        return self.machine.gpus[0] if self.device == "cuda" and self.machine.gpus else None


class SessionHead(SessionFacts):
    """What is known when a session begins; everything needed to resume it."""

    format: Literal[1] = 1
    plan: ResolvedPlan
    predicted: Predicted | None = None
    target_folder: str
    """Where the target's manifest is; `bundled` for the one that ships with loop."""
    emulated: tuple[str, ...] = ()
    threads: int
    attended: bool = False
    hypothesis: str = ""
    ground: str = ""
    """Hash of the target's files; when it differs at a resume, no earlier step stands."""
    harness: str = ""
    """Hash of those that no compiler reads: reference, workloads, tolerance."""
    host: str = ""
    """Machine of hosts.yaml on which it runs; empty for one that runs where it was begun."""
    campaign: Campaign = Field(default_factory=Campaign)

    def command(self, *variants: str) -> str:
        """The command that runs this session again, on all its variants or on those named."""
        plan = self.plan.plan
        kind, end = "session", [*self.on_words, "--seed", str(self.seed)]
        if plan.patterns == (plan.name,):
            kind, end = "pattern", []
        names = variants or (*self.variants, *self.emulated)
        chosen = [word for name in names for word in ("--variant", name)]
        where = [*self.target_words, "--device", self.device, "--threads", str(self.threads)]
        return shlex.join(["loop", "run", kind, plan.name, *chosen, *where, *end])

    def verify_command(self, variant: str, workload: str = "", seed: int | None = None) -> str:
        """The command that verifies one variant alone, on all workloads or on one: `B=1 S=65 D=64`.

        It names no number of threads: verification uses every core.
        """
        chosen = ["--workloads", workload] if workload else []
        seeded = ["--seed", str(self.seed if seed is None else seed)]
        where = [*self.target_words, "--device", self.device]
        return shlex.join(["loop", "kernels", "verify", variant, *chosen, *where, *seeded])

    @property
    def resume_command(self) -> str:
        """The command that goes on with this session."""
        return shlex.join(["loop", "run", "session", "--resume", self.id, *self.target_words, *self.on_words])

    @property
    def report_command(self) -> str:
        """The command that renders this session's report again."""
        return shlex.join(["loop", "report", self.id, *self.target_words])

    @property
    def on_words(self) -> list[str]:
        """How a command that sessions take names the machine; empty for the one where it was typed."""
        return ["--on", self.host] if self.host else []

    @property
    def target_words(self) -> list[str]:
        """How a command names the target; empty for the bundled one."""
        return [] if self.target_folder == "bundled" else ["--target", self.target_folder]


class Conclusion(Model):
    """How a session ended, and what that means."""

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

    @property
    def can_resume(self) -> bool:
        """Whether the session can go on."""
        return self.status in RESUMABLE


class SessionRecord(Conclusion):
    """The final record: what a session found, cost and proposes."""

    format: Literal[1] = 1
    head: SessionHead
    own_seconds: float
    bill: Bill
    lines: int = 0


class StepTick(StepKey):
    """What a step said it was doing, and when. Nothing rests on it: a session without it is whole."""

    format: Literal[1] = 1
    attempt: Annotated[int, Field(ge=1)] = 1
    seconds: Annotated[float, Field(ge=0)]
    note: str
    heartbeat: bool = False
    """Whether it was said because nothing had been shown for a while."""

    def of(self, other: "StepTick | Finished") -> bool:
        """Whether it is of the same attempt at the same step."""
        mine = (self.run, self.pattern, self.step, self.attempt)
        return mine == (other.run, other.pattern, other.step, other.attempt)
