"""Is a change kept? Pure: what the gate found of it goes in, a decision with its reason comes out."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from loop.base.stats import geometric_mean, times
from loop.model.campaign import Campaign
from loop.model.change import DecisionOutput, Outcome, as_of_target
from loop.model.measurement import Measurement
from loop.model.money import Gains
from loop.model.output import by_run
from loop.model.record import Finished, latest_attempts
from loop.model.verdict import SpeedVerdict, Verdict
from loop.timing.against_known_good import CompareOutput


def decision_on(
    stopped: str | None, verdicts: Sequence[Verdict], least_gain: float
) -> tuple[Outcome, str, float | None]:
    """What becomes of a change, why, and its gain.

    It is kept where it is right, slower nowhere, faster beyond noise somewhere, and by enough in the mean. The
    gain is the geometric mean over workloads of the incumbent's time to the change's; None where it was not timed.
    `stopped`: the step of the gate that it failed, with its words. `verdicts`: against the incumbent.
    `least_gain`: share, as in 0.02 for 2 %.
    """
    speeds = [v for v in verdicts if isinstance(v, SpeedVerdict) and v.against == "known_good"]
    gain = geometric_mean([speed.ratio for speed in speeds]) if speeds else None
    against = stopped or _against(verdicts, speeds, gain, least_gain)
    if against:
        return "reverted", against, gain
    faster = sum(speed.verdict == "faster" for speed in speeds)
    where = f"faster on {faster} of {len(speeds)} workloads"
    return "kept", f"{times(gain or 0.0, 3)} the incumbent's speed, {where}", gain


def _against(
    verdicts: Sequence[Verdict], speeds: Sequence[SpeedVerdict], gain: float | None, least_gain: float
) -> str | None:
    """Why a change that passed the gate may not stand; None when it may."""
    doubt = next((verdict for verdict in verdicts if not isinstance(verdict, SpeedVerdict)), None)
    if doubt is not None:
        return f"{doubt.variant} is {doubt.verdict}: {doubt.reason}"
    if gain is None:
        return "it was not compared with the incumbent"
    slower = [speed for speed in speeds if speed.verdict == "slower"]
    if slower:
        worst = min(slower, key=lambda speed: speed.ratio)
        where = f"slower on {len(slower)} of {len(speeds)} workloads"
        return f"{where}: {times(worst.ratio, 3)} on {worst.workload}"
    if not any(speed.verdict == "faster" for speed in speeds):
        unclear = next((speed for speed in speeds if speed.verdict == "inconclusive"), None)
        why = "no gain beyond noise" if unclear is None else f"not clear that it is faster ({unclear.reason})"
        words = [speed.verdict for speed in speeds]
        counts = ", ".join(f"{word} on {words.count(word)}" for word in dict.fromkeys(words))
        return f"{why}: {times(gain, 3)} the incumbent's speed, {counts}"
    if gain < 1 + least_gain:
        return f"{times(gain, 3)} the incumbent's speed, and {1 + least_gain:.3g}x was asked for"
    return None


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


NONE_YET = ", of which preparing took all: no candidate was proposed"


@dataclass(frozen=True)
class CampaignSpent:
    """What a campaign has come to by now."""

    candidates: int = 0
    """Proposals that ended."""
    without_gain: int = 0
    """Proposals since something was kept."""
    seconds: float = 0.0
    """Wall time of the session."""
    gpu_s: float = 0.0
    """Of which on a GPU."""
    usd: float = 0.0
    """Dollars that are known: of AI and of the machine."""
    tokens: int = 0
    """Tokens that are known."""
    ratio: float = 1.0
    """What the kept changes make of the best variant's speed."""
    done: bool = False
    """Whether the proposer said that it has nothing more."""


def left_s(campaign: Campaign, spent: CampaignSpent, usd_per_hour: float = 0.0) -> float:
    """Seconds of measuring that its budgets leave; endless where none bounds them."""
    bounds = [campaign.minutes * 60 - spent.seconds] if campaign.minutes else []
    bounds += [campaign.gpu_s - spent.gpu_s] if campaign.gpu_s else []
    bounds += [(campaign.usd - spent.usd) / usd_per_hour * 3600] if campaign.usd and usd_per_hour else []
    return max(0.0, min(bounds, default=math.inf))


def why_ended(campaign: Campaign, spent: CampaignSpent) -> str | None:
    """Why no further candidate is asked for; None while one is."""
    bounds = (
        (campaign.candidates, spent.candidates, "its {:g} candidates were proposed"),
        (
            campaign.minutes,
            spent.seconds / 60,
            f"its {{:g}} minutes are over{'' if spent.candidates else NONE_YET}",
        ),
        (campaign.usd, spent.usd, "its {:g} dollars are spent"),
        (campaign.tokens, spent.tokens, "its {:g} tokens are used"),
        (campaign.gpu_s, spent.gpu_s, "its {:g} seconds on the GPU are used"),
        (campaign.target, spent.ratio, "its target of {:g}x is reached"),
        (campaign.stall, spent.without_gain, "nothing was kept in {:g} candidates"),
    )
    if spent.done:
        return "the proposer has nothing more to propose"
    return next((text.format(bound) for bound, now, text in bounds if bound is not None and now >= bound), None)
