"""When a campaign ends: its budgets, a stall, its target. Pure."""

import math
from dataclasses import dataclass

from loop.model.campaign import Campaign

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
