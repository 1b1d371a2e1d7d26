"""One change to a target: its brief, how the gate judged it, and whether it was kept."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from loop.base.stats import plain_ratio, times
from loop.model.base import Model
from loop.model.campaign import Proposal
from loop.model.jobs import HostUse, JobRun
from loop.model.output import Output, by_run, outputs_of
from loop.model.profile import GainOutcome, Profile
from loop.model.record import Finished, latest_attempts
from loop.model.target import Values, literal
from loop.model.verdict import Interval, SpeedVerdict

ON_CHANGE = "change."
"""Prefix of actions on a change. Actions on the target have the prefix `kernel.`"""
Outcome = Literal["kept", "reverted"]
CLOSE = 0.01
"""A tuning point lost if it is more than this share (1 %) slower than the best point of its search."""


class TriedChange(Model):
    """A change that this session, or an earlier one in the same environment, judged."""

    variant: str
    reason: str
    gain: float | None = None
    """Mean of (time of the incumbent build / time with the change); None if it was not timed."""
    files: tuple[str, ...] = ()
    patch: str = ""
    number: Annotated[int, Field(ge=1)]
    outcome: Outcome
    promised: GainOutcome | None = None
    """Promised and actual gain; None if the brief promised nothing, or if it was not timed."""
    session: str = ""
    digest: str = ""
    """Hash of the patch of an earlier change. `loop` does not judge an equal patch again."""


class Standing(Model):
    """Speed of a variant on one workload before the change."""

    workload: str
    ratio: float
    interval: Interval
    worth: float
    """Share of total time that can be gained on this workload; 0 if no gain is needed."""


class Brief(Model):
    """A task for a person or an agent: make one change. It also states how the gate will judge it."""

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
    language: str = ""
    shared: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Files that must not change, to the variants built from them that this session does not judge."""
    ratios: tuple[Standing, ...] = ()
    """Current speed on each timed workload, largest possible gain first."""
    contract: dict[str, str] = Field(default_factory=dict)
    """Entry, signature, compiler with flags, tolerance and device, in words."""
    check: str = ""
    """Command for a quick check of an edit (seconds)."""
    answer: str = ""
    """File where a proposer can describe its change or state that it has none; empty for a person."""
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
    """Name of the tuning if a search made the change. It is then timed on the tuning's own workloads."""


class TriedPoint(Model):
    """One point of a tuning search and its outcome."""

    tuning: str
    values: Values
    outcome: Literal["incumbent", "refused", "wrong", "timed", "best", "lost"]
    """`incumbent`: current values; `refused`: does not compile; `best`: fastest; `lost`: lost before, skipped."""
    reason: str = ""
    ratio: float | None = None
    """Time of the incumbent / time of this point, geometric mean over workloads; None: not timed."""
    worst: float | None = None

    @property
    def words(self) -> str:
        """The point's values as text: `rows 64, held true`."""
        return ", ".join(f"{name} {literal(value)}" for name, value in self.values.items())


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
    proposals: tuple[Proposal, ...] = ()
    """Proposals that ended since the previous step."""
    jobs: tuple[JobRun, ...] = ()
    """Jobs of the step on an executor: comparisons of candidates, or points of a search."""
    trials: tuple[TriedPoint, ...] = ()
    ground: str = ""
    """Hash of sources, recipe, toolchain and workloads. If it is equal, a lost point loses again."""


def proposals(briefs: Iterable[BriefOutput]) -> tuple[Proposal, ...]:
    """All proposals by number. The last state of each counts, because an edit can conflict later."""
    last = {proposal.number: proposal for brief in briefs for proposal in brief.proposals}
    return tuple(last[number] for number in sorted(last))


class JudgedOutput(Output):
    """Result of one gate step on a change. The step passes even if the change is bad (see `good`)."""

    actions = (
        "change.build", "change.verify", "change.properties", "change.sanitize", "change.measure",
        "change.compare", "change.profile",
    )  # fmt: skip

    good: bool = False
    found: dict[str, Any] | None = None
    """Result that the same step on the target would return; None if the step did not run."""
    touched: tuple[str, ...] = ()
    """Variants whose build differs with the change; set by `change.build`."""
    jobs: tuple[JobRun, ...] = ()


def as_of_target(record: Finished) -> Finished:
    """Convert the record of a `change.*` step to the equal `kernel.*` step. Others stay unchanged."""
    output = record.output.get("found")
    if not record.action.startswith(ON_CHANGE) or not output:
        return record
    action = "kernel." + record.action.removeprefix(ON_CHANGE)
    return record.model_copy(update={"action": action, "output": output})


class DecisionOutput(Output):
    """The decision on a change: kept or reverted."""

    actions = ("change.decide",)

    kept: bool = False
    tried: TriedChange | None = None
    branch: str = ""
    """Branch with the session's kept changes; empty outside git, or without a kept change."""
    taking: str = ""
    """Command that applies all kept changes to the user's files; empty without a kept change."""
    incumbents: dict[str, str] = Field(default_factory=dict)
    """Variant to its incumbent build: the next change is compared with this build."""
    ground: str = ""
    """Hash of the target's files with the kept changes; empty without a kept change."""


class Confirmed(Model):
    """Total speedup by a variant's kept changes, measured against the start after the campaign."""

    variant: str
    ratio: float
    """Time at the start / time with all kept changes, mean over the timed workloads."""
    interval: tuple[float, float]
    workloads: dict[str, tuple[float, float, float]]
    held_out: dict[str, tuple[float, float, float]] = Field(default_factory=dict)
    """Like `workloads`, for held-out workloads that no brief and no verdict used."""

    @property
    def words(self) -> str:
        """As text: `is 1.12x [1.10, 1.14] the start's speed; on 2 workloads held out 1.08x to 1.20x`."""
        low, high = self.interval
        others = [ratio for _, ratio, _ in self.held_out.values()]
        speed = f"is {times(self.ratio, 3)} [{plain_ratio(low, 3)}, {plain_ratio(high, 3)}] the start's speed"
        if not others:
            return f"{speed}; no workload was held out"
        if len(others) == 1:
            return f"{speed}; on 1 workload held out {times(others[0])}"
        span = f"{times(min(others))} to {times(max(others))}"
        return f"{speed}; on {len(others)} workloads held out {span}"


class ConfirmOutput(Output):
    """Result of `change.confirm`: all kept changes measured against the start."""

    actions: ClassVar[tuple[str, ...]] = ("change.confirm",)

    confirmed: tuple[Confirmed, ...] = ()
    seed: int = 0


class KeptChange(Model):
    """Speedup of one variant by all kept changes of a session."""

    variant: str
    tuning: str | None = None
    """Name of the tuning if a search made the changes. The ratio is then on the tuning's workloads."""
    changes: int
    ratio: float
    """Product of the mean ratios of all kept changes, each against the build that it replaced."""
    workloads: dict[str, tuple[float, float, float]] = Field(default_factory=dict)
    """Workload to the products of lower end, ratio and upper end; empty if nothing was timed."""
    branch: str = ""
    patch: str = ""

    @property
    def faster(self) -> tuple[str, ...]:
        """Workloads whose whole interval is above 1."""
        return tuple(name for name, (low, _, _) in self.workloads.items() if low > 1)


def kept_gains(finished: Iterable[Finished]) -> tuple[KeptChange, ...]:
    """Speedups by kept changes, one per variant and tuning.

    The final measurement (`change.confirm`), if any, replaces the product of the single ratios.
    """
    records = latest_attempts(finished)
    tunings = {run: output.brief.tuning for run, output in by_run(records, BriefOutput) if output.brief}
    final = {c.variant: c for output in outputs_of(records, ConfirmOutput) for c in output.confirmed}
    changes: dict[tuple[str, str | None], KeptChange] = {}
    for run, output in by_run(records, DecisionOutput):
        tried = output.tried
        if not output.kept or tried is None or tried.gain is None:
            continue
        key = tried.variant, tunings.get(run)
        start = KeptChange(variant=tried.variant, tuning=tunings.get(run), changes=0, ratio=1.0)
        before = changes.get(key, start)
        workloads = dict(before.workloads)
        for speed in _against_incumbent(records, run, tried.variant):
            low, ratio, high = workloads.get(speed.workload, (1.0, 1.0, 1.0))
            least, most = speed.interval
            workloads[speed.workload] = low * least, ratio * speed.ratio, high * most
        product = {"changes": before.changes + 1, "ratio": before.ratio * tried.gain}
        last = {"branch": output.branch, "patch": tried.patch, "workloads": workloads}
        changes[key] = before.model_copy(update={**product, **last})
    for (variant, tuning), change in changes.items():
        if tuning is None and variant in final:
            confirmed = final[variant].model_dump(include={"ratio", "workloads"})
            changes[variant, tuning] = change.model_copy(update=confirmed)
    return tuple(changes.values())


def _against_incumbent(records: Sequence[Finished], run: int, variant: str) -> Iterator[SpeedVerdict]:
    """Speed verdicts of one run's change against the build that it replaced, one per workload."""
    compared = (r for r in records if r.run == run and r.action == f"{ON_CHANGE}compare")
    for output in outputs_of(map(as_of_target, compared), Output):
        for verdict in output.verdicts:
            of_variant = (verdict.variant, verdict.against) == (variant, "known_good")
            if of_variant and isinstance(verdict, SpeedVerdict):
                yield verdict


def standing_attempts(finished: Iterable[Finished]) -> tuple[Finished, ...]:
    """Last attempts of all steps. Steps on kept changes are converted to steps on the target."""
    records = latest_attempts(finished)
    changes = kept_runs(records)
    return tuple(as_of_target(record) if record.run in changes else record for record in records)


def jobs_of(finished: Iterable[Finished]) -> tuple[JobRun, ...]:
    """Jobs of a session's steps on an executor, each job once."""
    kept = (record.output.get("jobs", ()) for record in latest_attempts(finished))
    jobs = (JobRun.model_validate(job, extra="ignore") for jobs in kept for job in jobs)
    return tuple({job.id: job for job in jobs}.values())


def hosts_of(finished: Iterable[Finished]) -> tuple[HostUse, ...]:
    """Time and cost of the priced hosts that a session's jobs used."""
    return HostUse.of(jobs_of(finished))


def kept_runs(records: Iterable[Finished]) -> frozenset[int]:
    """Numbers of the runs whose change was kept."""
    return frozenset(run for run, output in by_run(records, DecisionOutput) if output.kept)


class PastSearch(Model):
    """A tuning search of an earlier session."""

    session: str
    ground: str
    trials: tuple[TriedPoint, ...]
    taken_back: str = ""
    """Why the gate reverted its best point; empty if it was not reverted."""

    def points(self, tuning: str) -> Iterator[tuple[Values, str]]:
        """Each point tried for a tuning with the reason why it lost; empty if it can still win."""
        mine = [trial for trial in self.trials if trial.tuning == tuning and trial.outcome != "lost"]
        taken_back = [trial for trial in mine if self.taken_back and trial.outcome == "best"]
        leader = max([trial.ratio or 0.0 for trial in mine if trial not in taken_back], default=0.0)
        for trial in mine:
            why = ""
            if trial.outcome in ("refused", "wrong"):
                why = f"{trial.reason or trial.outcome} (session {self.session})"
            elif trial in taken_back:
                why = f"taken back in session {self.session}: {self.taken_back}"
            elif trial.ratio is not None and trial.ratio * (1 + CLOSE) < leader:
                behind = f"{times(trial.ratio, 3)} where the best had {times(leader, 3)}"
                why = f"{behind} (session {self.session})"
            yield trial.values, why
