"""The search rule for a commit: several culprits, broken commits, equal programs, interruptions."""

import math
import random
import re
from collections import Counter

import pytest

from loop.bisect.search import LOST_MOST, ProbeRequest, SearchEnd, SearchProblem, next_move
from tests.bisect.simulated import STEP, History, Outcome, hunt, outcome_of, probe_of, problem, runs_of


@pytest.mark.parametrize("steps", [{20: 0.15, 50: 0.15}, {20: 0.2, 21: 0.2}, {9: 0.1, 30: 0.1, 55: 0.1}])
def test_several_culprits_are_named(steps: dict[int, float]) -> None:
    """No step explains the whole difference, so both sides are searched; a third culprit may stay unnamed."""
    history = History(64, {at: math.log1p(step) for at, step in steps.items()}, 0.02, str(steps))
    search = hunt(problem(64), history.observe)
    outcome, culprits = outcome_of(search)
    assert "several" == outcome
    assert len(culprits) >= 2
    assert {*steps} >= {*culprits}
    assert all(0.3 > item.step > 0.05 for item in search.answer.confirmed)


@pytest.mark.parametrize("metric", ["latency", "correctness"])
def test_commits_that_do_not_build_leave_a_range(metric: str) -> None:
    """The range holds the culprit; each broken commit was tried once."""
    broken, culprit = set(range(20, 26)), 23

    def observe(query: ProbeRequest) -> Outcome:
        if query.commit in broken:
            return "no headers"
        if metric == "correctness":
            return [float(query.commit < culprit)] * query.count
        apart = STEP * ((query.commit >= culprit) - (query.claim is not None and query.against >= culprit))
        return [apart + rng.gauss(0, 0.01) for _ in range(query.count)]

    rng = random.Random(1)
    search = hunt(problem(64, metric=metric), observe)
    assert ("range", (20, 26)) == (search.answer.outcome, search.answer.range)
    tried = Counter(probe.commit for probe in search.probes if probe.status == "broken")
    assert {1} == set(tried.values())


def test_the_search_jumps_away_from_broken_commits() -> None:
    """If half of the history does not build, at most eight broken commits are tried."""
    search = hunt(
        problem(1000, metric="correctness"),
        lambda query: "no" if 300 < query.commit < 800 else [float(query.commit < 900)] * query.count,
    )
    assert ("culprit", (900,)) == outcome_of(search)
    assert 8 >= sum(probe.status == "broken" for probe in search.probes)


def test_the_probes_of_another_bad_end_do_not_stand_for_this_one() -> None:
    """A later commit mended it: the search measures the new bad end, and blames nobody."""
    saved = hunt(problem(8), History(8, {3: STEP}, 0.01, "saved").observe)
    assert ("culprit", (3,)) == outcome_of(saved)
    mended = History(12, {3: STEP, 10: -STEP}, 0.01, "mended")
    search = hunt(problem(12), mended.observe, saved.probes)
    assert ("no_regression", ()) == outcome_of(search)
    still_slow = hunt(problem(12), History(12, {3: STEP}, 0.01, "slow").observe, saved.probes)
    assert ("culprit", (3,)) == outcome_of(still_slow)


def test_a_confirmation_of_two_commits_waits_until_both_are_known_to_differ() -> None:
    """Which files builds read is learned from builds: before that, suspect and parent may count as one program."""
    saved = hunt(problem(8), History(8, {5: STEP}, 0.01, "saved").observe)
    programs = ("0", "1", "2", "3", "4", "4", "6", "7", "8")  # Nobody has built 4 and 5 again yet.
    known = SearchProblem(tuple(map(str, range(9))), programs)
    assert isinstance(next_move(known, saved.probes), ProbeRequest | SearchEnd)


@pytest.mark.parametrize(("last", "hint"), [(1, "1 is the only other build"), (2, "likeliest after 0, up to 1")])
def test_a_step_within_the_noise_of_builds_says_how_large_it_would_have_to_be(last: int, hint: str) -> None:
    """The reason names the step and the noise, and calls no commit certain."""
    rng = random.Random(1)

    def observe(query: ProbeRequest) -> Outcome:
        return [0.045 * (query.commit > 0) + rng.gauss(0, 0.01) for _ in range(query.count)]

    answer = hunt(problem(last), observe).answer
    assert "inconclusive" == answer.outcome
    assert re.match(
        r"a step of \+4\.\d% is too small to blame a commit: builds of one source differ by up", answer.why
    )
    assert hint in answer.why
    assert "100%" not in answer.why


@pytest.mark.parametrize("seed", range(20))
def test_a_fifth_of_broken_builds_never_names_a_wrong_one(seed: int) -> None:
    """The culprit, or a range that holds it."""
    history = History(64, {1 + 3 * seed: STEP}, 0.02, f"broken {seed}", broken=0.2)
    answer = hunt(problem(64), history.observe).answer
    first, last = answer.range or (answer.culprits * 2)
    assert first <= 1 + 3 * seed <= last
    assert (first == last) == (answer.outcome == "culprit")


def test_lost_tries_are_made_again_but_not_for_ever() -> None:
    """A lost try says nothing about a commit, and is repeated a limited number of times."""
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
    """A group of equal programs is tried once, and its first commit is blamed; equal ends end the search."""
    names = tuple(map(str, range(100)))
    grouped = SearchProblem(names, tuple(str(index // 10) for index in range(100)), "correctness")
    search = hunt(grouped, lambda query: [float(query.commit < 70)] * query.count)
    assert ("culprit", (70,)) == outcome_of(search)
    assert 6 >= search.builds
    assert {0, 99} >= {int(probe.commit) for probe in search.probes if int(probe.commit) % 10}
    names = tuple(map(str, range(9)))
    answer = next_move(SearchProblem(names, (*names[:8], "0")), ())
    assert isinstance(answer, SearchEnd)
    assert ("no_regression", "not in the code") == (answer.outcome, answer.why.partition(":")[0])


@pytest.mark.parametrize("metric", ["latency", "correctness"])
def test_an_interrupted_search_goes_on_where_it_ended(metric: str) -> None:
    """Resumed after any number of probes, the search makes the same further probes and gives the same answer."""
    history = History(32, {21: STEP}, 0.03, "interrupted")
    observe = history.observe if metric == "latency" else runs_of(32, 21, (0.0, 0.6), "interrupted")
    whole = hunt(problem(32, metric=metric), observe)
    probes = whole.probes
    assert ("culprit", (21,)) == outcome_of(whole)
    for length in range(len(probes) + 1):
        rest = iter(probes[length:])
        resumed = hunt(problem(32, metric=metric), lambda _, replies=rest: next(replies).values, probes[:length])  # type: ignore[misc]
        assert probes == resumed.probes
        assert whole.answer == resumed.answer
