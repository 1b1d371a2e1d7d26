"""Rows of the session index: what statistics, costs and predictions use of each session."""

import datetime
import hashlib
from collections.abc import Collection
from typing import Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.change import KeptChange
from loop.model.dtypes import Device
from loop.model.money import Charge, Saving, Unmeasured
from loop.model.plan import Predicted
from loop.model.record import HostUse, Status


class Environment(Model):
    """Hardware and software of a session. Results hold only in an equal one. None: unknown."""

    processor: str
    gpu: str | None = None
    driver: str | None = None
    cuda: str | None = None
    torch: str | None = None
    compiler: str | None = None


class PatternRun(Model):
    """One run of one pattern."""

    pattern: str
    status: Status
    """Worst status of its steps (failed, aborted, paused, passed); skipped if all steps were."""
    seconds: float
    started: datetime.datetime | None
    """Start of the first step, UTC; None for a recorded session without a time."""
    whole: bool
    """Whether all steps ended. Predictions use only the time of whole runs."""
    built: bool = False
    """Whether a compiler ran. With a warm cache the run takes much less time."""


class StepRun(Model):
    """One step of a session, for predictions per step."""

    pattern: str
    step: str
    status: Status
    seconds: float


class FailureSeen(Model):
    """A failure with its fingerprint. Rows of the index also name the step and its message."""

    text: str
    """The fingerprint: the error without paths, addresses and numbers."""
    key: str = ""
    """Hash of the fingerprint, and of the target's files for a finding about them."""
    subject: str = ""
    """The variant that failed; empty if the step failed as a whole."""
    pattern: str = ""
    step: str = ""
    action: str = ""
    message: str = ""
    hint: str = ""
    cured_by: str | None = None
    """The session in which the failure was gone; None if it was not."""

    @classmethod
    def from_fingerprint(cls, text: str, subject: str = "", sources: str = "") -> "FailureSeen":
        """Make a failure of a variant; `sources`: hash of the target's files that identify it."""
        digest = hashlib.sha256(f"{text}{sources}".encode(errors="backslashreplace")).hexdigest()
        return cls(text=text, key=digest[:12], subject=subject)


class Judgement(Model):
    """Passed and failed checks of one build of a variant in one session, with one thread count."""

    variant: str
    build: str = ""
    threads: int = 0
    """CPU threads per call; 0 on a GPU."""
    seed: int = 0
    emulated: bool = False
    right: tuple[str, ...] = ()
    """Passed checks: workload name, and after a comma its layout or kind of check, if special."""
    wrong: tuple[str, ...] = ()


class SessionRow(Model):
    """One session in the index: identity, results and cost."""

    id: str
    target: str
    device: Device
    grade: str = ""
    kept: tuple[KeptChange, ...] = ()
    """Speedup by its kept changes, per variant. The session's verdicts include these changes."""
    regressed: tuple[str, ...] = ()
    incorrect: tuple[str, ...] = ()
    charges: tuple[Charge, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()
    started: datetime.datetime | None
    """Start of the session, UTC; None for a recorded session, whose time is unknown."""
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
    """Hash of the files that are not compiled: reference, workloads, tolerance."""
    left: str = ""
    """Hash of the target's files with the kept changes; empty if no change was kept."""
    complete: bool = False
    """Whether all patterns of its plan ran to their end."""
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
    """Hash of a result's inputs to whether it was good. Later sessions can reuse such results."""
    runs: tuple[PatternRun, ...] = ()
    steps: tuple[StepRun, ...] = ()
    ratios: dict[str, float] = Field(default_factory=dict)
    """Geometric mean of a variant's ratios against the baseline, for variants that are right."""
    inconclusive: tuple[str, ...] = ()
    """Variants whose comparison with the baseline is inconclusive somewhere; never the fastest."""
    right: tuple[str, ...] = ()
    judged: tuple[Judgement, ...] = ()
    blamed: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Wrong or slower variant to bisection's culprit, or commits that hold it: hash and subject."""
    missed: str = ""
    """Parts of the objective that are not true, in words; empty if it was reached, or is none."""
    otherwise: str = ""
    """Pattern or plan that its plan names for a missed objective; empty if it names none."""
    predicted: Predicted | None = None
    speeds: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Variant to workload to ratio against the baseline. Workloads without a ratio are left out."""
    failures: tuple[FailureSeen, ...] = ()
    recorded: bool = False  # Imported, with the figures of a report from before `loop`.

    def has_judged_build(self, variant: str, builds: Collection[tuple[str, str, str]]) -> bool:
        """Whether the session judged a build of `variant` that is in `builds`: (variant, build id,
        ""); for a variant without builds, (variant, "", hash of the target's files)."""
        build_ids = (judgement.build for judgement in self.judged if judgement.variant == variant)
        return any((variant, build, "" if build else self.ground) in builds for build in build_ids)

    @property
    def judged_variants(self) -> tuple[str, ...]:
        """Variants that this session judged, without duplicates, for its page of the site."""
        checked = (judgement.variant for judgement in self.judged)
        compared = (*self.right, *self.ratios, *self.incorrect, *self.regressed)
        return tuple(dict.fromkeys((*checked, *compared)))

    def verdict_on(self, variant: str) -> Literal["wrong", "right", "not judged"]:
        """The session's verdict on a variant: wrong if any check failed, right if one passed."""
        judgements = [judgement for judgement in self.judged if judgement.variant == variant]
        if variant in self.incorrect or any(judgement.wrong for judgement in judgements):
            return "wrong"
        if variant in self.right or any(judgement.right for judgement in judgements):
            return "right"
        return "not judged"

    @property
    def fastest(self) -> tuple[float, str] | None:
        """Best mean ratio against the baseline, and its variant; None if none is conclusive."""
        conclusive = {name: r for name, r in self.ratios.items() if name not in self.inconclusive}
        return max(((r, name) for name, r in conclusive.items()), default=None)
