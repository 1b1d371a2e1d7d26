"""One change to a target: what it was to mend, how the gate judged it, and what became of it."""

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
"""How the names of actions on a change begin; those on the target begin with `kernel.`"""
Outcome = Literal["kept", "reverted"]
CLOSE = 0.01
"""Share by which a point has to be behind the leader of its search to have lost: closer ones may win yet."""


class TriedChange(Model):
    """A change that a session judged: this one, or an earlier one in the same environment."""

    variant: str
    reason: str
    gain: float | None = None
    """Mean ratio of the incumbent's time to its own; None where it was not timed."""
    files: tuple[str, ...] = ()
    patch: str = ""
    number: Annotated[int, Field(ge=1)]
    outcome: Outcome
    promised: GainOutcome | None = None
    """What its brief promised, and what it came to; None where nothing was promised, or it was not timed there."""
    session: str = ""
    digest: str = ""
    """Hash of the patch of an earlier one: the very same change is not judged again."""


class Standing(Model):
    """How a variant stands on one workload before the change."""

    workload: str
    ratio: float
    interval: Interval
    worth: float
    """Share of the time that is to be gained there; 0 where it may be left alone."""


class Brief(Model):
    """What a person or an agent is asked to do: one change, and how it will be judged."""

    schema_version: int = 1
    number: Annotated[int, Field(ge=1)]
    variant: str
    title: str
    workload: str
    profile: Profile | None
    folder: str
    """The target's folder in the worktree: the only place to edit."""
    files: tuple[str, ...]
    """Files that may change, from that folder; new ones beside them may be added."""
    language: str = ""
    shared: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Files that may not, for variants are built from them that this session does not judge: these."""
    ratios: tuple[Standing, ...] = ()
    """How it stands on each timed workload, where most is to be gained first."""
    contract: dict[str, str] = Field(default_factory=dict)
    """Entry, signature, compiler with flags, tolerance and device, in words."""
    check: str = ""
    """The command that checks an edit in seconds."""
    answer: str = ""
    """Where a proposer may write what it changed, or that it has nothing more; empty for a person."""
    rule: str
    timed: tuple[str, ...]
    checks: tuple[str, ...] = ()
    tried: tuple[TriedChange, ...] = ()
    fell: tuple[str, ...] = ()
    """How candidates ended that could not be judged, the last ones."""
    lost: tuple[TriedChange, ...] = ()
    """Changes to it that earlier sessions took back, in the same environment."""
    resume: str
    """The command that has the edit judged."""
    decline: str
    """The command that ends it without another change."""
    tuning: str | None = None
    """What was tuned, where the change is that of a search: it is timed on that tuning's own workloads."""


class TriedPoint(Model):
    """One point of a search, and what became of it."""

    tuning: str
    values: Values
    outcome: Literal["incumbent", "refused", "wrong", "timed", "best", "lost"]
    """What runs now; not compiled; not right; timed; the fastest of those; lost before, and not tried again."""
    reason: str = ""
    ratio: float | None = None
    """Geometric mean over the workloads of the incumbent's time to its own; None where it was not timed."""
    worst: float | None = None

    @property
    def words(self) -> str:
        """Its values as people are shown them: `rows 64, held true`."""
        return ", ".join(f"{name} {literal(value)}" for name, value in self.values.items())


class BriefOutput(Output):
    """A change was asked for, and made or declined."""

    actions: ClassVar[tuple[str, ...]] = ("change.brief", "change.tune")

    brief: Brief | None = None
    edited: bool = False
    declined: bool = False
    files: tuple[str, ...] = ()
    lines: int = 0
    base: str = ""
    """Commit of the worktree that the edit stands on."""
    patch: str = ""
    digest: str = ""
    """Hash of the patch: what is judged has to be what was handed back."""
    candidate: int | None = None
    """Which candidate of the campaign it is; None for a person's change and a search's."""
    proposals: tuple[Proposal, ...] = ()
    """Candidates that ended since the step before this one."""
    jobs: tuple[JobRun, ...] = ()
    """What became of its parts, where an executor ran them: comparisons of candidates, points of a search."""
    trials: tuple[TriedPoint, ...] = ()
    ground: str = ""
    """Hash of sources, recipe, toolchain and workloads: on the same ground a point that lost loses again."""


def proposals(briefs: Iterable[BriefOutput]) -> tuple[Proposal, ...]:
    """What proposers came to, in the order of their numbers: of each the last, for an edit may conflict later."""
    last = {proposal.number: proposal for brief in briefs for proposal in brief.proposals}
    return tuple(last[number] for number in sorted(last))


class JudgedOutput(Output):
    """What one step of the gate says of a change. A bad change is not a bad session: the step itself passes."""

    actions = (
        "change.build", "change.verify", "change.properties", "change.sanitize", "change.measure",
        "change.compare", "change.profile",
    )  # fmt: skip

    good: bool = False
    found: dict[str, Any] | None = None
    """What the same step on the target gives back; None where it was not done."""
    touched: tuple[str, ...] = ()
    """Variants whose build the change makes another; said by the step that builds."""
    jobs: tuple[JobRun, ...] = ()


def as_of_target(record: Finished) -> Finished:
    """A step on the change, as the same step on the target would be recorded."""
    output = record.output.get("found")
    if not record.action.startswith(ON_CHANGE) or not output:
        return record
    action = "kernel." + record.action.removeprefix(ON_CHANGE)
    return record.model_copy(update={"action": action, "output": output})


class DecisionOutput(Output):
    """What became of the change."""

    actions = ("change.decide",)

    kept: bool = False
    tried: TriedChange | None = None
    branch: str = ""
    """Branch on which the kept changes of this session stand; empty outside git, or where none was kept."""
    taking: str = ""
    """The command that brings all that was kept into the user's files; empty where nothing was."""
    incumbents: dict[str, str] = Field(default_factory=dict)
    """Variant to the build that the next change is held against."""
    ground: str = ""
    """Hash of the target's files with what was kept; empty where nothing was."""


class Confirmed(Model):
    """What a variant's kept changes come to against the start, measured when the campaign was over."""

    variant: str
    ratio: float
    """Mean over the timed workloads of the start's time / its own."""
    interval: tuple[float, float]
    workloads: dict[str, tuple[float, float, float]]
    held_out: dict[str, tuple[float, float, float]] = Field(default_factory=dict)
    """The same of workloads that no brief and no verdict was about."""

    @property
    def words(self) -> str:
        """`is 1.12x [1.10, 1.14] the start's speed; on 2 workloads held out 1.08x to 1.20x`."""
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
    """What was kept, measured against the start once more."""

    actions: ClassVar[tuple[str, ...]] = ("change.confirm",)

    confirmed: tuple[Confirmed, ...] = ()
    seed: int = 0


class KeptChange(Model):
    """What the kept changes of a session make of one variant's speed, against what they replaced."""

    variant: str
    tuning: str | None = None
    """What was searched, where they are a search's: its workloads are what the ratio is of."""
    changes: int
    ratio: float
    """Each one's mean ratio against what it replaced, multiplied."""
    workloads: dict[str, tuple[float, float, float]] = Field(default_factory=dict)
    """Workload to lower end, ratio and upper end, multiplied likewise; empty where none was timed."""
    branch: str = ""
    patch: str = ""

    @property
    def faster(self) -> tuple[str, ...]:
        """Workloads that are faster by the whole interval."""
        return tuple(name for name, (low, _, _) in self.workloads.items() if low > 1)


def kept_gains(finished: Iterable[Finished]) -> tuple[KeptChange, ...]:
    """What was gained by the changes that were kept, by variant and what they were timed on.

    What was measured at the end replaces the product of what was measured on the way.
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
    """How the change of a run came out beside what it replaced, workload by workload."""
    compared = (r for r in records if r.run == run and r.action == f"{ON_CHANGE}compare")
    for output in outputs_of(map(as_of_target, compared), Output):
        for verdict in output.verdicts:
            of_variant = (verdict.variant, verdict.against) == (variant, "known_good")
            if of_variant and isinstance(verdict, SpeedVerdict):
                yield verdict


def standing_attempts(finished: Iterable[Finished]) -> tuple[Finished, ...]:
    """The last attempts, each step of a kept change as if it had been a step on the target."""
    records = latest_attempts(finished)
    changes = kept_runs(records)
    return tuple(as_of_target(record) if record.run in changes else record for record in records)


def jobs_of(finished: Iterable[Finished]) -> tuple[JobRun, ...]:
    """What an executor ran for the steps of a session, each job once."""
    kept = (record.output.get("jobs", ()) for record in latest_attempts(finished))
    jobs = (JobRun.model_validate(job, extra="ignore") for jobs in kept for job in jobs)
    return tuple({job.id: job for job in jobs}.values())


def hosts_of(finished: Iterable[Finished]) -> tuple[HostUse, ...]:
    """What the jobs of a session used of hosts with a price."""
    return HostUse.of(jobs_of(finished))


def kept_runs(records: Iterable[Finished]) -> frozenset[int]:
    """The runs whose change was kept."""
    return frozenset(run for run, output in by_run(records, DecisionOutput) if output.kept)


class PastSearch(Model):
    """A search of an earlier session."""

    session: str
    ground: str
    trials: tuple[TriedPoint, ...]
    taken_back: str = ""
    """Why the gate took its best point back; empty where it did not."""

    def points(self, tuning: str) -> Iterator[tuple[Values, str]]:
        """Each point that it tried of a tuning, and why it lost; empty for one that may win yet."""
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
