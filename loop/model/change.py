"""One change to a target: its brief, how the gate judged it, and whether it was kept."""

import itertools
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.measurement import SpeedVerdict
from loop.model.output import Output, outputs_by_run, outputs_of, read_output
from loop.model.record import Finished, HostUse, JobRun, latest_attempts

ON_CHANGE = "change."  # Prefix of actions on a change; those on the target have `kernel.`
Outcome = Literal["kept", "reverted"]


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
    session: str = ""
    digest: str = ""
    """Hash of the patch of an earlier change. `loop` does not judge an equal patch again."""


class JudgedOutput(Output):
    """Result of one gate step on a change. It passes even if the change is bad (see `good`)."""

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


def as_target_step(record: Finished) -> Finished:
    """A `change.*` step that ran, as the equal `kernel.*` step; of others `record` itself."""
    judged_output = read_output(record, JudgedOutput)
    if judged_output is None or not judged_output.found:
        return record
    action = "kernel." + record.action.removeprefix(ON_CHANGE)
    return record.model_copy(update={"action": action, "output": judged_output.found})


class DecisionOutput(Output):
    """The decision on a change: kept or reverted."""

    actions = ("change.decide",)

    kept: bool = False
    tried: TriedChange | None = None
    tuning: str | None = None
    """Name of the tuning if a search made the change."""
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


class ConfirmOutput(Output):
    """Result of `change.confirm`: all kept changes measured against the start."""

    actions: ClassVar[tuple[str, ...]] = ("change.confirm",)

    confirmed: tuple[Confirmed, ...] = ()
    seed: int = 0


class KeptChange(Model):
    """Speedup of one variant by all kept changes of a session."""

    variant: str
    tuning: str | None = None
    """Name of the tuning if a search made the changes. The ratio is then on its workloads."""
    changes: int
    ratio: float
    """Product of the mean ratios of all kept changes, each against the build that it replaced."""
    workloads: dict[str, tuple[float, float, float]] = Field(default_factory=dict)
    """Workload to the products of lower end, ratio and upper end; empty if nothing was timed."""
    branch: str = ""
    patch: str = ""


def kept_gains(finished: Iterable[Finished]) -> tuple[KeptChange, ...]:
    """Speedups by kept changes, per variant and tuning: as confirmed, else products of ratios."""
    records = latest_attempts(finished)
    total_by_key: dict[tuple[str, str | None], KeptChange] = {}
    for run, decision in outputs_by_run(records, DecisionOutput):
        change = decision.tried
        if not decision.kept or change is None or change.gain is None:
            continue
        key = change.variant, decision.tuning
        start = KeptChange(variant=change.variant, tuning=decision.tuning, changes=0, ratio=1.0)
        total = total_by_key.get(key, start)
        workloads = dict(total.workloads)
        in_run = [step for step in records if step.run == run]
        comparisons = [step for step in in_run if step.action == f"{ON_CHANGE}compare"]
        outputs = outputs_of(map(as_target_step, comparisons), Output)
        for speed in itertools.chain.from_iterable(output.verdicts for output in outputs):
            # Here, `known_good` is the build that the change replaced.
            is_on_change = (speed.variant, speed.against) == (change.variant, "known_good")
            if not is_on_change or not isinstance(speed, SpeedVerdict):
                continue
            low, ratio, high = workloads.get(speed.workload, (1.0, 1.0, 1.0))
            change_low, change_high = speed.interval
            workloads[speed.workload] = low * change_low, ratio * speed.ratio, high * change_high
        update: dict[str, Any] = {"ratio": total.ratio * change.gain, "workloads": workloads}
        update |= {"changes": total.changes + 1}
        update |= {"branch": decision.branch, "patch": change.patch}  # Of the latest change.
        total_by_key[key] = total.model_copy(update=update)
    for output in outputs_of(records, ConfirmOutput):
        for confirmed in output.confirmed:
            key = confirmed.variant, None  # Changes that are no tuning.
            if key in total_by_key:
                confirmed_fields = {"ratio": confirmed.ratio, "workloads": confirmed.workloads}
                total_by_key[key] = total_by_key[key].model_copy(update=confirmed_fields)
    return tuple(total_by_key.values())


def latest_target_attempts(finished: Iterable[Finished]) -> tuple[Finished, ...]:
    """Last attempts of all steps. Steps on kept changes are converted to steps on the target."""
    records = latest_attempts(finished)
    runs = kept_runs(records)
    return tuple(as_target_step(record) if record.run in runs else record for record in records)


def jobs_of(finished: Iterable[Finished]) -> tuple[JobRun, ...]:
    """Jobs of a session's steps on an executor, each job once: steps can share a job's result."""
    outputs = [record.output for record in latest_attempts(finished)]
    jobs = [JobRun.model_validate(job) for output in outputs for job in output.get("jobs", ())]
    return tuple({job.id: job for job in jobs}.values())


def hosts_of(finished: Iterable[Finished]) -> tuple[HostUse, ...]:
    """Time and cost of the hosts with a price that ran jobs; parallel jobs count once."""
    use_by_host: dict[str, HostUse] = {}
    end_by_host: dict[str, float] = {}  # End of the time that is already charged.
    for job in sorted(jobs_of(finished), key=lambda job: job.began):
        if job.usd_per_hour is None:
            continue
        begin = max(job.began, end_by_host.get(job.host, 0.0))
        charged_s = max(0.0, job.began + job.seconds - begin)
        end_by_host[job.host] = begin + charged_s
        use = use_by_host.get(job.host, HostUse(host=job.host, seconds=0.0, usd=0.0))
        usd = use.usd + charged_s / 3600 * job.usd_per_hour
        use_by_host[job.host] = HostUse(host=job.host, seconds=use.seconds + charged_s, usd=usd)
    return tuple(use_by_host.values())


def kept_runs(records: Iterable[Finished]) -> frozenset[int]:
    """Numbers of the runs whose change was kept."""
    return frozenset(run for run, output in outputs_by_run(records, DecisionOutput) if output.kept)
