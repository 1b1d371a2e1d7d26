"""When a campaign ends: each bound by itself, and what waits is judged first."""

import math

import pytest

from loop.model.campaign import Campaign
from loop.optimize.campaign import CampaignSpent


@pytest.mark.parametrize(
    ("campaign", "spent", "why"),
    [
        (Campaign(candidates=4), CampaignSpent(candidates=4), "its 4 candidates were proposed"),
        (Campaign(minutes=1.5), CampaignSpent(seconds=90, candidates=1), "its 1.5 minutes are over"),
        (
            Campaign(minutes=1.5),
            CampaignSpent(seconds=90),
            "its 1.5 minutes are over, of which preparing took all: no candidate was proposed",
        ),
        (Campaign(usd=0.5), CampaignSpent(usd=0.51), "its 0.5 dollars are spent"),
        (Campaign(tokens=1000), CampaignSpent(tokens=1000), "its 1000 tokens are used"),
        (Campaign(gpu_s=30), CampaignSpent(gpu_s=31), "its 30 seconds on the GPU are used"),
        (Campaign(target=1.5), CampaignSpent(best_speedup=1.52), "its target of 1.5x is reached"),
        (Campaign(stall=3), CampaignSpent(since_last_kept=3), "nothing was kept in 3 candidates"),
        (Campaign(), CampaignSpent(is_proposer_done=True), "the proposer has nothing more to propose"),
    ],
)
def test_each_bound_ends_it_and_nothing_before(campaign: Campaign, spent: CampaignSpent, why: str) -> None:
    """With what it has come to; a campaign that has just begun goes on."""
    assert why == spent.explain_end(campaign)
    assert CampaignSpent().explain_end(campaign) is None


def test_what_is_not_clear_is_measured_further_within_the_budgets() -> None:
    """Wall time, time on the GPU and dollars of the machine, whichever ends first; else without end."""
    spent = CampaignSpent(seconds=60, gpu_s=20, usd=1.0)
    assert math.inf == spent.remaining_s(Campaign(), 2.0)
    assert 60 == spent.remaining_s(Campaign(minutes=2))
    assert 10 == spent.remaining_s(Campaign(minutes=2, gpu_s=30))
    assert 1800 == spent.remaining_s(Campaign(usd=2.0), 2.0)
    assert 0 == spent.remaining_s(Campaign(minutes=0.5))
