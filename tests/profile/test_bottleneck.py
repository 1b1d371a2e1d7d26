"""The roofline, and the walk down a tree in which an unknown fact is never zero."""

import pytest

from loop.model.profile import FACTS, Fact, SeverityRule, TreeRule
from loop.profile.actions import Notes, first_match, make_profile
from loop.profile.profile import PeakRates
from tests.makers import make_measurement

REACH = PeakRates(flops_per_s=100e9, bytes_per_s=10e9)


def leaf(when: str, bottleneck: str = "it") -> TreeRule:
    return TreeRule(when=when, bottleneck=bottleneck, fix="mend it", gain="much")


def facts(**fields: Fact) -> dict[str, Fact]:
    """All facts, unknown but for these."""
    return {**dict.fromkeys(FACTS), **fields}


@pytest.mark.parametrize(
    ("flops", "moved", "reach", "unknown"),
    [
        (None, 1.0, REACH, {"flops", "intensity", "flops_share", "roof"}),
        (1.0, None, REACH, {"bytes", "intensity", "bandwidth_share", "roof"}),
        (1.0, 0.0, REACH, {"intensity", "roof"}),
        (1.0, 1.0, PeakRates(None, 1.0), {"flops_share", "roof"}),
        (1.0, 1.0, PeakRates(1.0, None), {"bandwidth_share", "roof"}),
    ],
)
def test_what_rests_on_something_unknown_is_unknown(
    flops: float | None, moved: float | None, reach: PeakRates, unknown: set[str]
) -> None:
    """It is not zero, because a rule would take zero for a small share."""
    shares, _ = reach.facts(flops, moved, 1.0)
    assert unknown == {name for name, value in shares.items() if value is None}


@pytest.mark.parametrize(
    "when", ["dram > 0.7", "dram < 0.7", "not dram > 0.7", "dram == 0", "dram != 0", "dram is none"]
)
def test_an_unknown_fact_matches_nothing_and_is_named(when: str) -> None:
    """The history's script read a missing counter as a memory bottleneck."""
    rules = [leaf(when, "memory"), leaf("true", "mixed")]
    assert (rules[1], {0: ("dram",)}) == first_match(rules, facts())


def test_a_profile_says_what_it_rests_on() -> None:
    """All facts, and why some are unknown; an `and` ends at its first false part."""
    rules = [leaf("device == 'cuda' and dram > 0.7"), leaf("true", "mixed")]
    assert {} == first_match(rules, facts(device="cpu"))[1]
    notes = Notes({"ratio": 0.4, "flops_share": 0.9}, {"flops_share": "measured"}, {"stall": "no counters"})
    tree = [leaf("stall == 'x' or warps_active > 5", "stalls"), leaf("flops_share > 0.7", "compute")]
    urgency = SeverityRule(when="ratio < 0.5", severity="critical", tool="a profiler")
    profile = make_profile(make_measurement("w", 0.4), notes, tree, [urgency])
    assert ("critical", "compute", "flops_share > 0.7") == (profile.severity, profile.bottleneck, profile.when)
    assert ("stalls: stall and warps_active unknown",) == profile.undecided
    assert set(FACTS) == set(profile.facts)
    assert ("no counters", "not told") == (profile.unknown["stall"], profile.unknown["dram"])


@pytest.mark.parametrize(
    ("seconds", "unknown", "reason"),
    [
        (20e-6, set(), ""),
        (15e-6, {"bandwidth_share", "roof"}, "1.33 of the bandwidth roof"),
        (5e-6, {"flops_share", "bandwidth_share", "roof"}, "2 of the arithmetic roof and 4 of the bandwidth roof"),
    ],
)
def test_nothing_is_above_its_roof(seconds: float, unknown: set[str], reason: str) -> None:
    """A share above a device's roof is unknown."""
    shares, exceeded = REACH.facts(1e6, 0.2e6, seconds)
    assert unknown == {name for name, value in shares.items() if value is None}
    assert reason == exceeded
