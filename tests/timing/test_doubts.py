"""Doubts: what was noticed beside the samples becomes a reason, and noise does not."""

import pytest

from loop.model.measurement import BASELINE
from loop.timing import doubts
from loop.timing.doubts import explain_cached_results, verdicts_on_wrong_outputs
from loop.timing.samples import MemoryProbe, Timings
from tests.makers import make_check

US = 1e-6


@pytest.mark.parametrize(
    "probes",
    [
        [],
        [(20 * US, 19 * US)],
        [(20 * US, 10.1 * US)],
        [(5 * US, 2.1 * US)],
        [(2 * US, 0.1 * US)],
        [(900 * US, 20 * US), (20 * US, 19 * US)],
        [(19 * US, 20 * US)],
    ],
    ids=["nothing", "alike", "not twice", "below the clock", "too short", "one of two", "slower"],
)
def test_what_the_cache_and_noise_explain_is_no_memory(probes: list[tuple[float, float]]) -> None:
    """Twice as quick and microseconds less, in most processes: else nothing is said."""
    assert "" == explain_cached_results([MemoryProbe(*times) for times in probes])


def test_a_variant_that_is_quicker_on_what_it_has_seen_remembers() -> None:
    """The lesser difference of two processes is told."""
    said = explain_cached_results([MemoryProbe(900 * US, 20 * US), MemoryProbe(50 * US, 10 * US)])
    assert "it remembers results: 50.0 us on values it had not seen, 10.0 us on the same again" == said


@pytest.mark.parametrize(
    "others", [[], [MemoryProbe(20 * US, 19 * US, is_undisturbed=False)]], ids=["alone", "one as quick"]
)
def test_processes_that_waited_accuse_only_together(others: list[MemoryProbe]) -> None:
    """Where every process waited for a core, each has to show it."""
    waited = [MemoryProbe(1880 * US, 624 * US, is_undisturbed=False)] * 2
    assert bool(others) != bool(explain_cached_results([*waited, *others]))


def test_a_variant_is_not_accused_of_what_its_baseline_shows_too() -> None:
    """Then the machine is the cause, or the baseline; neither is the variant's."""
    quick = [MemoryProbe(900 * US, 20 * US)] * 3
    timings = Timings(memory_probes={(BASELINE, "w"): quick, ("new", "w"): quick, ("new", "other"): quick})
    found = doubts._doubts_of_sides(timings, "baseline", {"new": "new"}, {})
    assert [("new", "other")] == [(one.variant, one.workload) for one in found]


def test_a_timed_output_that_is_wrong_is_a_verdict_on_its_variant() -> None:
    """Under the variant's name, whatever the side was called; what was tampered with is invalid."""
    found = [
        ("cpu again", make_check("w", right=False, cause="NaN")),
        ("other", make_check("v", status="tampered", message="replaced time.time")),
    ]
    verdicts = list(verdicts_on_wrong_outputs(found, "known_good", {"cpu again": "cpu"}))
    assert [("cpu", "w", "incorrect"), ("other", "v", "invalid")] == [
        (one.variant, one.workload, one.verdict) for one in verdicts
    ]
    assert {"known_good"} == {one.against for one in verdicts}
    assert ("NaN", "while it was timed: 3 of 4096 elements wrong on w") == (verdicts[0].cause, verdicts[0].reason)
