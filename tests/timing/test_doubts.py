"""Doubts: what was noticed beside the samples becomes a reason, and noise does not."""

import pytest

from loop.model.measurement import BASELINE
from loop.timing import doubts
from loop.timing.doubts import clock_lies, remembers, wrong_while_timed
from loop.timing.samples import MemoryProbe, Timings
from loop.timing.verdicts import invalid
from tests.makers import make_check

US, MS = 1e-6, 1e-3


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
    ids=[
        "nothing",
        "alike",
        "not twice",
        "less than the clock tells",
        "too short",
        "one of two was not quicker",
        "slower",
    ],
)
def test_what_the_cache_and_noise_explain_is_no_memory(probes: list[tuple[float, float]]) -> None:
    """Twice as quick and microseconds less, in most processes: else nothing is said."""
    assert "" == remembers([MemoryProbe(*times) for times in probes])


def test_a_variant_that_is_quicker_on_what_it_has_seen_remembers() -> None:
    """The lesser difference of two processes is told."""
    said = remembers([MemoryProbe(900 * US, 20 * US), MemoryProbe(50 * US, 10 * US)])
    assert "it remembers results: 50.0 us on values it had not seen, 10.0 us on the same again" == said


def test_a_process_that_was_interrupted_hides_no_memory() -> None:
    """Two of three show it: the one in which the second call took longer is no excuse."""
    said = remembers(
        [MemoryProbe(900 * US, 20 * US), MemoryProbe(4564 * US, 7931 * US), MemoryProbe(50 * US, 10 * US)]
    )
    assert said.startswith("it remembers results: 50.0 us")


@pytest.mark.parametrize(
    "others", [[], [MemoryProbe(20 * US, 19 * US, clean=False)]], ids=["alone", "one as quick"]
)
def test_processes_that_waited_accuse_only_together(others: list[MemoryProbe]) -> None:
    """Where every process waited for a core, each has to show it."""
    waited = [MemoryProbe(1880 * US, 624 * US, clean=False)] * 2
    assert bool(others) != bool(remembers([*waited, *others]))


def test_a_variant_is_not_accused_of_what_its_baseline_shows_too() -> None:
    """Then the machine is the cause, or the baseline; neither is the variant's."""
    quick = [MemoryProbe(900 * US, 20 * US)] * 3
    timings = Timings(probes={(BASELINE, "w"): quick, ("new", "w"): quick, ("new", "other"): quick})
    found = doubts._noticed(timings, "baseline", {"new": "new"}, {})
    assert [("new", "other")] == [(one.variant, one.workload) for one in found]


def test_a_clock_that_runs_slowly_is_told_by_ours() -> None:
    """Both figures are given, in the middle of all samples."""
    said = clock_lies([(2.0 * MS, 1.6 * MS), (2.2 * MS, 1.7 * MS), (2.1 * MS, 1.7 * MS)])
    assert said.startswith(
        "its clock was changed, or it works on another stream: samples took 2.10 ms, and 1.70 ms"
    )


def test_a_timing_that_cannot_be_trusted_has_no_speed() -> None:
    """Neither ratio nor interval."""
    one = invalid("cpu", "w", "self", "clock", "so")
    assert ("cpu", "w", "self", "invalid", "clock", "so") == (
        one.variant,
        one.workload,
        one.against,
        one.verdict,
        one.cause,
        one.reason,
    )
    assert (None, None) == (one.ratio, one.interval)


def test_a_timed_output_that_is_wrong_is_a_verdict_on_its_variant() -> None:
    """Under the variant's name, whatever the side was called; what was tampered with is invalid."""
    found = [
        ("cpu again", make_check("w", right=False, cause="NaN")),
        ("other", make_check("v", status="tampered", message="replaced time.time")),
    ]
    verdicts = list(wrong_while_timed(found, "known_good", {"cpu again": "cpu"}))
    assert [("cpu", "w", "incorrect"), ("other", "v", "invalid")] == [
        (one.variant, one.workload, one.verdict) for one in verdicts
    ]
    assert {"known_good"} == {one.against for one in verdicts}
    assert ("NaN", "while it was timed: 3 of 4096 elements wrong on w") == (verdicts[0].cause, verdicts[0].reason)


def test_a_side_that_takes_long_to_make_calls_ready_computes_then() -> None:
    """Longer than others take, and longer than its calls; a quick side has more calls in a sample."""
    usual = [(60e-6, 1)] * 5
    assert "" == doubts.foresees([], [usual], [1e-3])
    assert "" == doubts.foresees(usual, [usual, []], [1e-3])
    assert "" == doubts.foresees([(1e-3, 250)] * 5, [usual], [0.4e-6]), "many quick calls"
    assert "" == doubts.foresees([(400e-6, 1)] * 5, [[(450e-6, 4)] * 5], [100e-6]), "one slow call"
    assert "" == doubts.foresees([(1.1e-3, 1)] * 5, [usual], [1e-3]), "no longer than a call"
    busy = [(10e-3, 10)] * 7 + [(200e-6, 10)] * 4
    assert "" == doubts.foresees(busy, [usual], [20e-6]), "the machine left no core for seven of eleven"
    said = doubts.foresees([(10e-3, 10)] * 5, [usual], [20e-6])
    assert said.startswith(
        "it computes before it is timed: 1000.0 us to make a call ready, 60.0 us for another side"
    )
