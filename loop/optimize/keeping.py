"""Is a change kept? Pure: the gate's results go in, a decision with its reason comes out."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from loop.base.stats import geometric_mean, times
from loop.model.campaign import Campaign
from loop.model.change import DecisionOutput, Outcome, as_target_step
from loop.model.money import Gains
from loop.model.output import outputs_by_run
from loop.model.record import Finished, latest_attempts
from loop.model.verdict import SpeedVerdict, Verdict
from loop.timing.against_known_good import CompareOutput


def decide_on_change(
    failed_message: str | None, verdicts: Sequence[Verdict], least_gain: float
) -> tuple[Outcome, str, float | None]:
    """Whether to keep a change, the reason, and its gain.

    It is kept if it is right, nowhere slower, somewhere faster beyond noise, and faster by enough
    in the mean. The gain is the geometric mean over workloads of incumbent time / change time; None
    if not timed. `failed_message`: message of the step of the gate that it failed. `verdicts`: against the
    incumbent. `least_gain`: share, 0.02 is 2 %.
    """
    speeds = [v for v in verdicts if isinstance(v, SpeedVerdict) and v.against == "known_good"]
    gain = geometric_mean([speed.ratio for speed in speeds]) if speeds else None
    untimed = next((verdict for verdict in verdicts if not isinstance(verdict, SpeedVerdict)), None)
    if failed_message is not None:
        return "reverted", failed_message, gain
    if untimed is not None:
        return "reverted", f"{untimed.variant} is {untimed.verdict}: {untimed.reason}", gain
    if gain is None:
        return "reverted", "it was not compared with the incumbent", None
    outcomes, speed = [speed.verdict for speed in speeds], f"{times(gain, 3)} the incumbent's speed"
    slower = [speed for speed in speeds if speed.verdict == "slower"]
    if slower:
        worst = min(slower, key=lambda speed: speed.ratio)
        where = f"slower on {len(slower)} of {len(speeds)} workloads"
        return "reverted", f"{where}: {times(worst.ratio, 3)} on {worst.workload}", gain
    if "faster" not in outcomes:
        unclear = next((speed for speed in speeds if speed.verdict == "inconclusive"), None)
        why = "no gain beyond noise" if unclear is None else f"not clear that it is faster ({unclear.reason})"
        counts = ", ".join(f"{word} on {outcomes.count(word)}" for word in dict.fromkeys(outcomes))
        return "reverted", f"{why}: {speed}, {counts}", gain
    if gain < 1 + least_gain:
        return "reverted", f"{speed}, and {1 + least_gain:.3g}x was asked for", gain
    return "kept", f"{speed}, faster on {outcomes.count('faster')} of {len(speeds)} workloads", gain


def sum_gains(finished: Iterable[Finished]) -> Gains:
    """The kept changes, and the microseconds a call that they save (None if not timed).

    One change saves the incumbent's time less its own: the mean over workloads timed on both.
    Changes build on each other, so their savings add up.
    """
    records = latest_attempts(finished)
    compared = [as_target_step(record) for record in records if record.action == "change.compare"]
    comparisons = dict(outputs_by_run(compared, CompareOutput))
    accepted, saved_us = 0, []
    for run, decision in outputs_by_run(records, DecisionOutput):
        change = decision.tried
        if not decision.kept or change is None:
            continue
        accepted += 1
        differences = []
        for timing in comparisons[run].measurements if run in comparisons else ():
            if (timing.variant, timing.against) == (change.variant, "known_good"):
                differences.append(timing.reference_us - timing.candidate_us)
        saved_us += [fmean(differences)] if differences else []
    return Gains(accepted=accepted, accepted_us=sum(saved_us) if saved_us else None)


NONE_YET = ", of which preparing took all: no candidate was proposed"


@dataclass(frozen=True)
class CampaignSpent:
    """What a campaign has spent and gained so far."""

    candidates: int = 0
    """Finished proposals."""
    since_last_kept: int = 0
    """Proposals since the last kept change."""
    seconds: float = 0.0
    """Wall time of the session."""
    gpu_s: float = 0.0
    """The part of `seconds` that judging took, on a GPU."""
    usd: float = 0.0
    """Known dollars: AI and machine."""
    tokens: int = 0
    """Known tokens."""
    best_speedup: float = 1.0
    """Speedup by the kept changes, for the variant that gained most."""
    is_proposer_done: bool = False
    """Whether the proposer said that it has no more ideas."""

    def remaining_s(self, campaign: Campaign, usd_per_hour: float = 0.0) -> float:
        """Seconds of measuring that the budgets allow; infinite without a budget."""
        bounds = [campaign.minutes * 60 - self.seconds] if campaign.minutes else []
        bounds += [campaign.gpu_s - self.gpu_s] if campaign.gpu_s else []
        bounds += [(campaign.usd - self.usd) / usd_per_hour * 3600] if campaign.usd and usd_per_hour else []
        return max(0.0, min(bounds, default=math.inf))

    def explain_end(self, campaign: Campaign) -> str | None:
        """Why the campaign ends; None if it continues."""
        minutes_text = f"its {{:g}} minutes are over{'' if self.candidates else NONE_YET}"
        limits = (
            (campaign.candidates, self.candidates, "its {:g} candidates were proposed"),
            (campaign.minutes, self.seconds / 60, minutes_text),
            (campaign.usd, self.usd, "its {:g} dollars are spent"),
            (campaign.tokens, self.tokens, "its {:g} tokens are used"),
            (campaign.gpu_s, self.gpu_s, "its {:g} seconds on the GPU are used"),
            (campaign.target, self.best_speedup, "its target of {:g}x is reached"),
            (campaign.stall, self.since_last_kept, "nothing was kept in {:g} candidates"),
        )
        if self.is_proposer_done:
            return "the proposer has nothing more to propose"
        reached = (text.format(limit) for limit, spent, text in limits if limit is not None and spent >= limit)
        return next(reached, None)
