"""Is a change kept? Pure: what the gate found of it goes in, a decision with its reason comes out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from loop.base.ratios import times
from loop.base.stats import geometric_mean
from loop.model.change import DecisionOutput, Outcome, as_of_target
from loop.model.measurement import Measurement
from loop.model.money import Gains
from loop.model.output import by_run
from loop.model.record import Finished, latest_attempts
from loop.model.verdict import SpeedVerdict, Verdict
from loop.timing.model import CompareOutput


@dataclass(frozen=True)
class Judged:
    """What each step of the gate found; None for a step that did not run."""

    stopped: str | None
    """The step that it failed, with its words; None when it passed all that ran."""
    verdicts: Sequence[Verdict] = ()
    """Against the incumbent."""
    measured: bool = False
    """Whether it was compared with the incumbent at all."""


@dataclass(frozen=True)
class ChangeDecision:
    """What becomes of a change, and why."""

    outcome: Outcome
    reason: str
    gain: float | None
    """Geometric mean over workloads of the incumbent's time to the change's; None where it was not timed."""

    @property
    def kept(self) -> bool:
        """Whether it stands."""
        return self.outcome == "kept"


def decision_on(judged: Judged, least_gain: float) -> ChangeDecision:
    """Kept where it is right, slower nowhere, faster beyond noise somewhere, and by so much in the mean.

    `least_gain`: share, as in 0.02 for 2 %.
    """
    speeds = [
        verdict
        for verdict in judged.verdicts
        if isinstance(verdict, SpeedVerdict) and verdict.against == "known_good"
    ]
    gain = geometric_mean([speed.ratio for speed in speeds]) if speeds else None
    against = _against(judged, speeds, gain, least_gain)
    if against is not None:
        return ChangeDecision("reverted", against, gain)
    faster = [speed for speed in speeds if speed.verdict == "faster"]
    return ChangeDecision("kept", f"{_times(gain)} the incumbent's speed, faster on {_of(faster, speeds)}", gain)


def _against(judged: Judged, speeds: Sequence[SpeedVerdict], gain: float | None, least_gain: float) -> str | None:
    """Why it may not stand; None when it may."""
    if judged.stopped is not None:
        return judged.stopped
    doubt = next((verdict for verdict in judged.verdicts if not isinstance(verdict, SpeedVerdict)), None)
    if doubt is not None:
        return f"{doubt.variant} is {doubt.verdict}: {doubt.reason}"
    if not judged.measured or gain is None:
        return "it was not compared with the incumbent"
    slower = [speed for speed in speeds if speed.verdict == "slower"]
    if slower:
        worst = min(slower, key=lambda speed: speed.ratio)
        return f"slower on {_of(slower, speeds)}: {_times(worst.ratio)} on {worst.workload}"
    return _too_little(speeds, gain, least_gain)


def _too_little(speeds: Sequence[SpeedVerdict], gain: float, least_gain: float) -> str | None:
    """Why a change gains too little; None where it gains enough. `gain`: a ratio, `least_gain`: a share."""
    if not any(speed.verdict == "faster" for speed in speeds):
        unclear = next((speed for speed in speeds if speed.verdict == "inconclusive"), None)
        why = "no gain beyond noise" if unclear is None else f"not clear that it is faster ({unclear.reason})"
        words = [speed.verdict for speed in speeds]
        counts = ", ".join(f"{word} on {words.count(word)}" for word in dict.fromkeys(words))
        return f"{why}: {_times(gain)} the incumbent's speed, {counts}"
    if gain < 1 + least_gain:
        return f"{_times(gain)} the incumbent's speed, and {1 + least_gain:.3g}x was asked for"
    return None


def _times(ratio: float | None) -> str:
    return "" if ratio is None else times(ratio, 3)


def _of(some: Sequence[SpeedVerdict], all_of_them: Sequence[SpeedVerdict]) -> str:
    return f"{len(some)} of {len(all_of_them)} workloads"


def gains(finished: Iterable[Finished]) -> Gains:
    """The changes that were kept, and the microseconds that they save.

    What a change saves: the incumbent's time less its own, the mean over the workloads on which both were timed
    side by side. Changes build upon each other, so what they save is added up.
    """
    records = latest_attempts(finished)
    changes = [as_of_target(record) for record in records if record.action == "change.compare"]
    compared = {run: output.measurements for run, output in by_run(changes, CompareOutput)}
    decisions = [
        (run, decision.tried)
        for run, decision in by_run(records, DecisionOutput)
        if decision.kept and decision.tried
    ]
    saved = [saved_us(compared.get(run, ()), change.variant) for run, change in decisions]
    known = [us for us in saved if us is not None]
    return Gains(accepted=len(decisions), accepted_us=sum(known) if known else None)


def saved_us(measurements: Sequence[Measurement], variant: str) -> float | None:
    """Microseconds a call by which a change is faster than the incumbent; None where they were not compared."""
    mine = [
        measurement
        for measurement in measurements
        if (measurement.variant, measurement.against) == (variant, "known_good")
    ]
    return fmean(measurement.reference_us - measurement.candidate_us for measurement in mine) if mine else None
