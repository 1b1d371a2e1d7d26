"""The search for a commit: several, broken, merged, cached, interrupted; whatever is observed."""

import math
import random
import re
from collections import Counter

import pytest

from loop.bisect.search import LOST_MOST, ProbeRequest, SearchEnd, SearchProblem, next_move
from tests.bisect.simulated import STEP, History, Outcome, done, named, probe_of, problem, runs_of


@pytest.mark.parametrize("steps", [{20: 0.15, 50: 0.15}, {20: 0.2, 21: 0.2}, {9: 0.1, 30: 0.1, 55: 0.1}])
def test_several_culprits_are_named(steps: dict[int, float]) -> None:
    """None explains enough of the whole, so both sides are searched. A third one may stay unnamed."""
    history = History(64, {at: math.log1p(step) for at, step in steps.items()}, 0.02, str(steps))
    found = done(problem(64), history.observe)
    outcome, culprits = named(found)
    assert "several" == outcome
    assert len(culprits) >= 2
    assert {*steps} >= {*culprits}
    assert all(0.3 > one.step > 0.05 for one in found.answer.confirmed)


@pytest.mark.parametrize("metric", ["latency", "correctness"])
def test_commits_that_do_not_build_leave_a_range(metric: str) -> None:
    """The culprit among them cannot be told; the range holds it, and each was tried once at most."""
    broken, culprit = set(range(20, 26)), 23

    def observe(asked: ProbeRequest) -> Outcome:
        if asked.commit in broken:
            return "no headers"
        if metric == "correctness":
            return [float(asked.commit < culprit)] * asked.count
        apart = STEP * ((asked.commit >= culprit) - (asked.claim is not None and asked.against >= culprit))
        return [apart + rng.gauss(0, 0.01) for _ in range(asked.count)]

    rng = random.Random(1)
    found = done(problem(64, metric=metric), observe)
    assert ("range", (20, 26)) == (found.answer.outcome, found.answer.range)
    tried = Counter(probe.commit for probe in found.probes if probe.status == "broken")
    assert {1} == set(tried.values())


def test_the_search_jumps_away_from_broken_commits() -> None:
    """Half of history does not build: not commit by commit through it."""
    found = done(
        problem(1000, metric="correctness"),
        lambda asked: "no" if 300 < asked.commit < 800 else [float(asked.commit < 900)] * asked.count,
    )
    assert ("culprit", (900,)) == named(found)
    assert 8 >= sum(probe.status == "broken" for probe in found.probes)


@pytest.mark.parametrize(("last", "said"), [(1, "1 is the only other build"), (2, "likeliest after 0, up to 1")])
def test_a_step_within_the_noise_of_builds_says_how_large_it_would_have_to_be(last: int, said: str) -> None:
    """And claims nothing that the outcome takes back: no commit is certain in an answer that is open."""
    rng = random.Random(1)

    def observe(asked: ProbeRequest) -> Outcome:
        return [0.045 * (asked.commit > 0) + rng.gauss(0, 0.01) for _ in range(asked.count)]

    answer = done(problem(last), observe).answer
    assert "inconclusive" == answer.outcome
    assert re.match(
        r"a step of \+4\.\d% is too small to blame a commit: builds of one source differ by up", answer.why
    )
    assert said in answer.why
    assert "100%" not in answer.why


@pytest.mark.parametrize("seed", range(20))
def test_a_fifth_of_broken_builds_never_names_a_wrong_one(seed: int) -> None:
    """The culprit, or a range that holds it."""
    history = History(64, {1 + 3 * seed: STEP}, 0.02, f"broken {seed}", broken=0.2)
    answer = done(problem(64), history.observe).answer
    first, last = answer.range or (answer.culprits * 2)
    assert first <= 1 + 3 * seed <= last
    assert (first == last) == (answer.outcome == "culprit")


def test_lost_tries_are_made_again_but_not_for_ever() -> None:
    """They say nothing of a commit."""
    first = problem(9, metric="correctness")
    wanted = next_move(first, [])
    assert isinstance(wanted, ProbeRequest)
    lost = probe_of(wanted, "no machine", "lost")
    assert wanted == next_move(first, [lost])
    answer = next_move(first, [lost] * LOST_MOST)
    assert isinstance(answer, SearchEnd)
    assert "inconclusive" == answer.outcome
    assert "no machine" in answer.why


def test_commits_of_one_program_are_searched_as_one() -> None:
    """Four builds and the ends; the first of a group is blamed; equal ends are no search."""
    names = tuple(map(str, range(100)))
    asked = SearchProblem(names, tuple(str(index // 10) for index in range(100)), "correctness")
    found = done(asked, lambda one: [float(one.commit < 70)] * one.count)
    assert ("culprit", (70,)) == named(found)
    assert 6 >= found.builds
    assert {0, 99} >= {int(probe.commit) for probe in found.probes if int(probe.commit) % 10}
    names = tuple(map(str, range(9)))
    answer = next_move(SearchProblem(names, (*names[:8], "0")), ())
    assert isinstance(answer, SearchEnd)
    assert ("no_regression", "not in the code") == (answer.outcome, answer.why.partition(":")[0])


@pytest.mark.parametrize("metric", ["latency", "correctness"])
def test_an_interrupted_search_goes_on_where_it_ended(metric: str) -> None:
    """After every line of the journal the rest is what it was, asked by asked."""
    history = History(32, {21: STEP}, 0.03, "interrupted")
    observe = history.observe if metric == "latency" else runs_of(32, 21, (0.0, 0.6), "interrupted")
    whole = done(problem(32, metric=metric), observe)
    probes = whole.probes
    assert ("culprit", (21,)) == named(whole)
    for length in range(len(probes) + 1):
        rest = iter(probes[length:])
        resumed = done(problem(32, metric=metric), lambda _, left=rest: next(left).values, probes[:length])  # type: ignore[misc]
        assert probes == resumed.probes
        assert whole.answer == resumed.answer
