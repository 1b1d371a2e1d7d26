"""What a session asks a proposer for, and what comes back: briefs, edits, points of a search."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.campaign import Proposal
from loop.model.change import Confirmed, TriedChange
from loop.model.measurement import Interval
from loop.model.output import Output
from loop.model.profile import Profile
from loop.model.record import JobRun
from loop.model.target import Values
from loop.report.format import count, plain_ratio, speedup_text


class Standing(Model):
    """Speed of a variant on one workload before the change."""

    workload: str
    ratio: float
    interval: Interval
    worth: float
    """Share of its time, by the workload's weight, that it has to save to be 1.5 times as fast as
    the baseline; 0 if it is. A change may gain more."""


class Brief(Model):
    """A task for a person or an agent: make one change. It says how the gate will judge it."""

    schema_version: int = 1
    number: Annotated[int, Field(ge=1)]
    variant: str
    title: str
    workload: str
    profile: Profile | None
    folder: str
    """The target's folder in the worktree. Edit only there."""
    files: tuple[str, ...]
    """Files that may change, relative to that folder. New files next to them are allowed."""
    shared: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Files that must not change, to the variants that use them and are not judged here."""
    ratios: tuple[Standing, ...] = ()
    """Current speed on each timed workload, largest possible gain first."""
    contract: dict[str, str] = Field(default_factory=dict)
    """Entry, signature, compiler with flags, tolerance and device, in words."""
    check: str = ""
    """Command for a quick check of an edit (seconds)."""
    answer: str = ""
    """File where a proposer describes its change or states that it has none; empty for a person."""
    rule: str
    timed: tuple[str, ...]
    checks: tuple[str, ...] = ()
    tried: tuple[TriedChange, ...] = ()
    fell: tuple[str, ...] = ()
    """How the most recent candidates ended that could not be judged."""
    lost: tuple[TriedChange, ...] = ()
    """Changes to this variant that earlier sessions in the same environment reverted."""
    resume: str
    """Command that lets the gate judge the edit."""
    decline: str
    """Command that ends the session without another change."""
    tuning: str | None = None
    """Name of the tuning if a search made the change: it is timed on the tuning's workloads."""


class TriedPoint(Model):
    """One point of a tuning search and its outcome."""

    tuning: str
    values: Values
    outcome: Literal["incumbent", "refused", "wrong", "timed", "best"]
    """`incumbent`: current values; `refused`: does not compile; `best`: fastest."""
    reason: str = ""
    ratio: float | None = None
    """Time of the incumbent / of this point, geometric mean over workloads; None: not timed."""
    worst: float | None = None


class BriefOutput(Output):
    """Result of a step that requests a change: the edit, or that it was declined."""

    actions: ClassVar[tuple[str, ...]] = ("change.brief", "change.tune")

    brief: Brief | None = None
    edited: bool = False
    declined: bool = False
    files: tuple[str, ...] = ()
    lines: int = 0
    base: str = ""
    """Commit of the worktree that the edit is based on."""
    patch: str = ""
    digest: str = ""
    """Hash of the patch. The gate checks that it judges exactly this edit."""
    candidate: int | None = None
    """Number of the campaign's candidate; None for a change by a person or a search."""
    not_faster: bool = False
    """A job has shown already that the candidate loses: the gate skips its other steps."""
    proposals: tuple[Proposal, ...] = ()
    """Proposals that ended since the previous step."""
    jobs: tuple[JobRun, ...] = ()
    """Jobs of the step on an executor: comparisons of candidates, or points of a search."""
    trials: tuple[TriedPoint, ...] = ()


def confirmed_text(figure: Confirmed) -> str:
    """`cpu is 1.12x [1.10, 1.14] the start's speed; on 2 workloads held out 1.08x to 1.20x`."""
    low, high = (plain_ratio(end, 3) for end in figure.interval)
    speed = f"{figure.variant} is {speedup_text(figure.ratio, 3)} [{low}, {high}] the start's speed"
    ratios = [ratio for _low, ratio, _high in figure.held_out.values()]
    if not ratios:
        return f"{speed}; no workload was held out"
    span = " to ".join(dict.fromkeys(map(speedup_text, (min(ratios), max(ratios)))))
    return f"{speed}; on {count(len(ratios), 'workload')} held out {span}"
