"""The index: what statistics, costs and predictions need of every session, derived from the session folders."""

import datetime
import hashlib
from collections.abc import Collection
from typing import Literal

from pydantic import Field

from loop.base.stats import times
from loop.model.base import Model
from loop.model.change import KeptChange
from loop.model.dtypes import Device
from loop.model.jobs import HostUse
from loop.model.money import Charge, Saving, Unmeasured
from loop.model.plan import Predicted
from loop.model.profile import GainOutcome, Promised
from loop.model.record import Machine, Status


class Environment(Model):
    """The facts that decide whether what one session showed holds for another. None: not known."""

    processor: str
    gpu: str | None = None
    driver: str | None = None
    cuda: str | None = None
    torch: str | None = None
    compiler: str | None = None

    @classmethod
    def of(cls, machine: Machine, device: Device, torch: str | None = None) -> "Environment":
        """That of a machine; the GPU and its driver count where the session runs on one."""
        gpu = machine.gpus[0] if device == "cuda" and machine.gpus else None
        fields = {"gpu": gpu, "driver": machine.driver if gpu else None, "cuda": machine.nvcc}
        return cls(processor=machine.processor, compiler=machine.compiler, torch=torch, **fields)


class PatternRun(Model):
    """One run of one pattern."""

    pattern: str
    status: Status
    """How it ended: failed before aborted before paused; skipped when every step was."""
    seconds: float
    started: datetime.datetime | None
    """When its first step began, UTC; None where a recorded session does not say."""
    whole: bool
    """Whether every step has a record: the time of one that was left half way predicts nothing."""
    built: bool = False
    """Whether a compiler ran in it; with a warm cache it takes a fraction of that time."""
    found: bool = False
    """Whether a failed run failed because it found something wrong, and not with an error of its own."""
    answered: bool = True
    """Whether a run that passed answered its question: speed that nobody could judge is no answer."""

    @property
    def success(self) -> bool | None:
        """Whether it came to an answer, or found what is wrong; None where it was not let to, or could not."""
        if self.status not in ("passed", "failed") or (self.status == "passed" and not self.answered):
            return None
        return self.status == "passed" or self.found


class StepRun(Model):
    """One step, predicted and judged by itself."""

    pattern: str
    step: str
    status: Status
    seconds: float


class FailureSeen(Model):
    """What failed, in words that are the same the next time; in a row of the index, with the step."""

    text: str
    """The error without paths, addresses and numbers."""
    key: str = ""
    subject: str = ""
    """The variant that failed; empty where the step failed as a whole."""
    pattern: str = ""
    step: str = ""
    message: str = ""
    hint: str = ""
    cured_by: str | None = None
    """The session with which it was gone, and what was done; None while it was not."""

    @classmethod
    def of(cls, text: str, subject: str = "") -> "FailureSeen":
        """What is known by this text."""
        digest = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()
        return cls(text=text, key=digest[:12], subject=subject)


CheckKey = tuple[str, str, int, int, bool, Device]
"""Variant, check, threads, seed, whether it was emulated, and device."""


class Judgement(Model):
    """What the checks of a session say of one build of a variant, on one number of threads."""

    variant: str
    build: str = ""
    threads: int = 0
    """CPU threads of a call; 0 on a GPU."""
    seed: int = 0
    emulated: bool = False
    right: tuple[str, ...] = ()
    """Checks that it passed: a workload, with a layout or another kind of check after a comma."""
    wrong: tuple[str, ...] = ()

    def key(self, check: str, device: Device) -> CheckKey:
        """What has to pass again where a check failed."""
        return self.variant, check, self.threads, self.seed, self.emulated, device


class SessionResults(Model):
    """Which session it is, what became of its variants, and what it cost."""

    id: str
    target: str
    device: Device
    grade: str = ""
    kept: tuple[KeptChange, ...] = ()
    """What its kept changes brought, by variant: its verdicts are on the target with them."""
    regressed: tuple[str, ...] = ()
    incorrect: tuple[str, ...] = ()
    charges: tuple[Charge, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()


class SessionRow(SessionResults):
    """One session in the index."""

    started: datetime.datetime | None
    """When it began, UTC; None for a recorded session, whose rows stand in order and have no clock."""
    plan: str
    status: Status | None
    reason: str = ""
    seconds: float = 0.0
    own_seconds: float = 0.0
    variants: tuple[str, ...] = ()
    emulated: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    threads: int = 1
    ground: str = ""
    harness: str = ""
    """Hash of those that no compiler reads: reference, workloads, tolerance."""
    left: str = ""
    """Hash of the target's files with the kept changes; empty where none was kept."""
    complete: bool = False
    """Whether every pattern that its plan lists was walked to its end."""
    commit: str | None = None
    base: str | None = None
    loop_version: str = ""
    environment: Environment
    attended: bool = False
    hosts: tuple[HostUse, ...] = ()
    savings: tuple[Saving, ...] = ()
    usd: float = 0.0
    notes: tuple[str, ...] = ()
    lasting: dict[str, bool] = Field(default_factory=dict)
    """Hashes of what its own results rest on, to whether all of these were good: a later session may take one
    over."""
    runs: tuple[PatternRun, ...] = ()
    steps: tuple[StepRun, ...] = ()
    ratios: dict[str, float] = Field(default_factory=dict)
    """Geometric mean of a variant's ratios against the baseline, for variants that are right."""
    unsure: tuple[str, ...] = ()
    """Variants with an inconclusive verdict: their mean ratio is nobody's best."""
    right: tuple[str, ...] = ()
    judged: tuple[Judgement, ...] = ()
    blamed: dict[str, str] = Field(default_factory=dict)
    """Variant that is wrong or slower to the one commit that a search named: hash and first line."""
    missed: str = ""
    otherwise: str = ""
    predicted: Predicted | None = None
    builds: dict[str, str] = Field(default_factory=dict)
    speeds: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Ratios against the baseline by variant and workload; those that could not be judged are left out."""
    promises: tuple[Promised, ...] = ()
    gains: tuple[GainOutcome, ...] = ()
    failures: tuple[FailureSeen, ...] = ()
    recorded: bool = False

    @property
    def measured(self) -> str:
        """Hash of the files that its speeds are of: those that it left behind."""
        return self.left or self.ground

    def sources(self, judgement: Judgement) -> tuple[str, str]:
        """What a judgement of this session is about: the build, and the files by which it was judged."""
        return judgement.build, self.harness or self.ground

    def has_build(self, variant: str, builds: Collection[tuple[str, str, str]]) -> bool:
        """Whether it judged one of these builds: variant, build, and the target's files where nothing is built."""
        mine = (j.build for j in self.judged if j.variant == variant)
        return any((variant, build, "" if build else self.ground) in builds for build in mine)

    @property
    def judged_variants(self) -> tuple[str, ...]:
        """Variants that the gate judged; the page of a session lists them."""
        checked = (judgement.variant for judgement in self.judged)
        return tuple(dict.fromkeys((*checked, *self.right, *self.ratios, *self.incorrect, *self.regressed)))

    def verdict_on(self, variant: str) -> Literal["wrong", "right", "not judged"]:
        """What its checks say of a variant: wrong by one of them, else right."""
        mine = [judgement for judgement in self.judged if judgement.variant == variant]
        if variant in self.incorrect or any(judgement.wrong for judgement in mine):
            return "wrong"
        return "right" if variant in self.right or any(judgement.right for judgement in mine) else "not judged"

    @property
    def fastest(self) -> str | None:
        """The variant with the best mean ratio of those that were judged everywhere, as `cpu 1.63x`."""
        sure = [(ratio, name) for name, ratio in self.ratios.items() if name not in self.unsure]
        ratio, best = max(sure, default=(0.0, None))
        return f"{best} {times(ratio)}" if best else None
