"""The search for a commit: the right one, few builds, no wrong name, and the same however often interrupted."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from loop.rules.bisection import LOST_MOST, decide, search
from loop.rules.suspects import (
    TOUCHED,
    Answer,
    Asked,
    Broken,
    Commit,
    Lost,
    Noise,
    Outcome,
    Problem,
    Same,
    Try,
)
from tests.rules.simulated import Done, History, done, problem, runs_of, with_outliers

STEP = math.log1p(0.1)


def latency(
    last: int, culprit: int, sd: float = 0.02, step: float = STEP, noise: Noise | None = None, **terms: object
) -> Done:
    """A search through a history with one culprit."""
    history = History(last, {culprit: step}, sd, f"{last} {culprit} {sd} {step}", **terms)  # type: ignore[arg-type]
    return done(problem(last, noise or Noise(paired=history.paired)), history.observe)


def correctness(last: int, culprit: int, rates: tuple[float, float] = (0.0, 1.0), seed: str = "") -> Done:
    """The same of runs."""
    return done(problem(last, metric="correctness"), runs_of(last, culprit, rates, f"{last} {culprit} {seed}"))


def named(found: Done) -> tuple[str, tuple[int, ...]]:
    """What is said, and who is blamed."""
    return found.answer.outcome, found.answer.culprits


# Runs that pass or fail


@pytest.mark.parametrize("last", [1, 2, 3, 7, 8, 64, 100, 1024])
def test_a_test_that_always_fails_is_plain_bisection(last: int) -> None:
    """A spread of culprits, in log2 N builds and the two ends; suspect and parent are looked at once more."""
    for culprit in sorted({1, 2, last // 3 + 1, last // 2 + 1, last - 1, last} & set(range(1, last + 1))):
        found = correctness(last, culprit)
        assert ("culprit", (culprit,)) == named(found)
        assert math.ceil(math.log2(last)) + 2 >= found.builds
        assert found.builds + 2 >= len(found.journal)
        assert 0 == found.confirm


@pytest.mark.parametrize("rate", [0.9, 0.5, 0.2])
def test_a_flaky_test_names_its_commit(rate: float) -> None:
    """After a fresh confirmation, in about as many builds, by more runs of each."""
    found = [correctness(64, culprit, (0.0, rate), f"{rate}") for culprit in (1, 17, 32, 50, 64)]
    assert [("culprit", (culprit,)) for culprit in (1, 17, 32, 50, 64)] == [named(one) for one in found]
    assert 11 >= max(one.builds for one in found)


def test_a_test_that_was_flaky_before_is_searched_all_the_same() -> None:
    """The good end fails at times as well, only more seldom."""
    assert ("culprit", (23,)) == named(correctness(64, 23, (0.05, 0.7)))


@pytest.mark.parametrize(
    ("rates", "swapped", "said"),
    [
        ((0.0, 0.0), False, "the bad end passed"),
        ((1.0, 1.0), False, "the good end fails as well"),
        ((1.0, 0.0), True, "swapped"),
        ((0.9, 0.1), True, "swapped"),
    ],
)
def test_runs_that_do_not_show_it_today(rates: tuple[float, float], swapped: bool, said: str) -> None:
    """Nothing is searched where the ends are alike, or the wrong way round."""
    found = correctness(16, 9, rates)
    assert ("no_regression", ()) == named(found)
    assert swapped == found.answer.swapped
    assert said in found.answer.why
    assert 2 == found.builds


# Latency


@pytest.mark.parametrize("last", [1, 2, 3, 9, 64, 1000])
def test_a_clear_step_is_found(last: int) -> None:
    """Wherever it is, with no more builds than bisection needs."""
    for culprit in sorted({1, last // 2 + 1, last}):
        found = latency(last, culprit)
        assert ("culprit", (culprit,)) == named(found)
        assert math.ceil(math.log2(last)) + 2 >= found.builds
        assert STEP == pytest.approx(found.answer.found[0].step, abs=0.05)
        assert 100 <= found.answer.found[0].evidence


def test_the_posterior_is_that_of_each_commit() -> None:
    """It sums to one, nothing for the good end, nearly all for the culprit."""
    answer = latency(20, 13).answer
    assert 21 == len(answer.posterior)
    assert 1.0 == pytest.approx(math.fsum(answer.posterior))
    assert 0.0 == answer.posterior[0]
    assert 0.95 <= answer.posterior[13]


@pytest.mark.parametrize(("sd", "step", "last"), [(0.02, 0.3, 64), (0.05, 0.1, 64), (0.02, 0.03, 24)])
def test_sixty_searches_and_no_wrong_name(sd: float, step: float, last: int) -> None:
    """Noise of all sizes: as good as always right, and never another commit."""
    rng = random.Random(f"{sd} {step}")
    words = Counter[bool]()
    for _ in range(60 if last > 24 else 30):
        culprit = rng.randrange(1, last + 1)
        outcome, blamed = named(latency(last, culprit, sd, math.log1p(step)))
        assert blamed in ((), (culprit,)), outcome
        words[blamed == (culprit,)] += 1
    assert 1 >= words[False]


def test_pairs_with_the_good_end_find_it_through_drift() -> None:
    """A machine whose speed wanders by more than the step: pairs do not see that."""
    for culprit in (5, 30, 64):
        found = latency(64, culprit, 0.01, paired=True, drift_sd=0.05)
        assert ("culprit", (culprit,)) == named(found)


def test_the_good_end_is_not_observed_where_its_level_is_known() -> None:
    """Ratios to its own binary need no second look at it."""
    found = latency(64, 30, paired=True)
    assert 0 not in {one.asked.commit for one in found.journal}


def test_without_a_step_nothing_is_searched() -> None:
    """Not reproduced; and a good end that is slower means that they are swapped."""
    nothing, turned = latency(64, 9, step=0.0), latency(64, 9, step=-0.2)
    assert [("no_regression", ())] * 2 == [named(nothing), named(turned)]
    assert [2, 2] == [nothing.builds, turned.builds]
    assert "not reproduced" in nothing.answer.why
    assert [False, True] == [nothing.answer.swapped, turned.answer.swapped]
    assert "swapped" in turned.answer.why


def test_what_noise_may_hide_is_not_called_nothing() -> None:
    """A step far below the noise is left open."""
    found = latency(16, 9, sd=0.3, step=0.05)
    assert "inconclusive" == found.answer.outcome
    assert "too noisy" in found.answer.why


def test_a_pilot_saves_observations() -> None:
    """Who knows the noise from a null control needs fewer to tell the ends apart."""
    plain = [latency(64, culprit, noise=Noise(False)) for culprit in range(1, 65, 9)]
    known = [
        latency(64, culprit, noise=Noise(False, pilot_sd=0.02, pilot_freedom=19)) for culprit in range(1, 65, 9)
    ]
    assert sum(one.search for one in known) < sum(one.search for one in plain)


# Several, broken, merged


@pytest.mark.parametrize("steps", [{20: 0.15, 50: 0.15}, {20: 0.2, 21: 0.2}, {9: 0.1, 30: 0.1, 55: 0.1}])
def test_several_culprits_are_all_named(steps: dict[int, float]) -> None:
    """None explains enough of the whole, so both halves are searched."""
    history = History(64, {at: math.log1p(step) for at, step in steps.items()}, 0.02, str(steps))
    found = done(problem(64), history.observe)
    assert ("several", tuple(steps)) == named(found)
    assert [0.3 > one.step > 0.05 for one in found.answer.found] == [True] * len(steps)


def test_a_small_second_step_leaves_one_culprit() -> None:
    """It explains more than 70 % of the whole."""
    history = History(64, {20: 0.3, 50: 0.04}, 0.01, "small")
    assert ("culprit", (20,)) == named(done(problem(64), history.observe))


def test_a_detour_does_not_mislead() -> None:
    """Faster for a while, then slower than ever: the slowdown is blamed."""
    history = History(64, {20: -0.2, 45: 0.35}, 0.02, "detour")
    assert ("culprit", (45,)) == named(done(problem(64), history.observe))


@pytest.mark.parametrize("metric", ["latency", "correctness"])
def test_commits_that_do_not_build_leave_a_range(metric: str) -> None:
    """The culprit among them cannot be told; the range holds it, and each was tried once at most."""
    broken, culprit = set(range(20, 26)), 23

    def observe(asked: Try) -> Outcome:
        if asked.commit in broken:
            return Broken("no headers")
        if metric == "correctness":
            return [asked.commit < culprit] * asked.batch
        apart = STEP * ((asked.commit >= culprit) - (asked.claim is not None and asked.against >= culprit))
        return [apart + rng.gauss(0, 0.01) for _ in range(asked.batch)]

    rng = random.Random(1)
    found = done(problem(64, metric=metric), observe)
    assert ("range", (20, 26)) == (found.answer.outcome, found.answer.range)
    tried = Counter(one.asked.commit for one in found.journal if isinstance(one.outcome, Broken))
    assert {1} == set(tried.values())
    assert 1.0 == pytest.approx(sum(found.answer.posterior[20:27]), abs=0.05)


def test_the_search_jumps_away_from_broken_commits() -> None:
    """Half of history does not build: not commit by commit through it."""
    found = done(
        problem(1000, metric="correctness"),
        lambda asked: (
            Broken("no") if 300 < asked.commit < 800 else [asked.commit < 900] * asked.batch  # type: ignore[list-item]
        ),
    )
    assert ("culprit", (900,)) == named(found)
    assert 8 >= sum(isinstance(one.outcome, Broken) for one in found.journal)


@pytest.mark.parametrize("seed", range(20))
def test_a_fifth_of_broken_builds_never_names_a_wrong_one(seed: int) -> None:
    """The culprit, or a range that holds it."""
    history = History(64, {1 + 3 * seed: STEP}, 0.02, f"broken {seed}", broken=0.2)
    answer = done(problem(64), history.observe).answer
    first, last = answer.range or (answer.culprits * 2)
    assert first <= 1 + 3 * seed <= last
    assert (first == last) == (answer.outcome == "culprit")


def test_an_end_that_does_not_build_is_said() -> None:
    """Nothing can be searched."""
    found = done(problem(9), lambda asked: Broken("oops") if asked.commit == 9 else [0.0, 0.1, 0.2])
    assert "inconclusive" == found.answer.outcome
    assert "the bad end cannot be tested: oops" == found.answer.why


def test_lost_tries_are_made_again_but_not_for_ever() -> None:
    """They say nothing of a commit; a resumed search asks once more."""
    first = problem(9, metric="correctness")
    going = search(first)
    wanted = next(going)
    assert wanted == going.send(Lost("no machine"))
    found = done(first, lambda asked: Lost("no machine"))
    assert ("inconclusive", LOST_MOST) == (found.answer.outcome, len(found.journal))
    assert "no machine" in found.answer.why
    again = search(first, found.journal)
    assert wanted == next(again)


def test_commits_of_one_group_are_searched_as_one() -> None:
    """Ten programs in a hundred commits: four builds and the ends at most, and the first of a group is blamed."""
    commits = tuple(Commit(group=str(index // 10)) for index in range(100))
    asked = Problem(commits, metric="correctness")
    found = done(asked, lambda one: [one.commit < 70] * one.batch)
    assert ("culprit", (70,)) == named(found)
    assert 6 >= found.builds
    assert {0, 99} >= {one.asked.commit for one in found.journal if one.asked.commit % 10}


def test_builds_that_turn_out_the_same_are_not_observed() -> None:
    """The device code of 30 to 60 is that of the good end: nothing there can be the culprit."""

    def observe(asked: Try) -> Outcome:
        return Same(0) if 30 <= asked.commit <= 60 else [asked.commit < 62] * asked.batch

    found = done(problem(64, metric="correctness"), observe)
    assert ("culprit", (62,)) == named(found)
    assert 0.0 == sum(found.answer.posterior[:61])


def test_ends_of_the_same_program_are_nothing_to_search() -> None:
    """It is not in the code."""
    same = tuple(Commit(group="a" if index in (0, 8) else str(index)) for index in range(9))
    answer = decide(Problem(same), ())
    assert isinstance(answer, Answer)
    assert ("no_regression", "not in the code") == (answer.outcome, answer.why.partition(":")[0])


def test_the_prior_decides_where_to_look_first() -> None:
    """A commit that touches the kernel's files is found in fewer builds; a wrong prior only costs some."""
    weights = [TOUCHED if index in (11, 12, 40) else 1.0 for index in range(65)]
    asked = Problem(tuple(Commit(weight) for weight in weights), metric="correctness")
    for culprit, most in ((12, 6), (40, 7), (41, 9)):
        found = done(asked, lambda one, at=culprit: [one.commit < at] * one.batch)  # type: ignore[misc]
        assert ("culprit", (culprit,)) == named(found)
        assert most >= found.builds


def test_cached_builds_are_looked_at_first() -> None:
    """They cost nothing: with every fourth commit there, two builds of its own are left."""
    cached = tuple(Commit(built=index % 4 == 0) for index in range(65))
    found = done(Problem(cached, metric="correctness"), lambda one: [one.commit < 38] * one.batch)
    assert ("culprit", (38,)) == named(found)
    assert 3 >= found.builds


# Outliers, layouts, confirmations


@pytest.mark.parametrize("seed", range(12))
def test_outliers_name_nobody_else(seed: int) -> None:
    """One in ten is ten times as far away: inconclusive at times, never wrong."""
    culprit = 5 * seed + 3
    outcome, blamed = named(latency(64, culprit, noise=Noise(False)))
    assert ("culprit", (culprit,)) == (outcome, blamed)
    history = History(64, {culprit: STEP}, 0.02, f"outliers {seed}", with_outliers)
    assert done(problem(64), history.observe).answer.culprits in ((), (culprit,))


@pytest.mark.parametrize("seed", range(6))
def test_layouts_are_told_from_steps_by_relinking(seed: int) -> None:
    """Builds differ by a fifth of the step: fresh layouts of suspect and parent before anyone is blamed."""
    culprit = 10 * seed + 4
    history = History(64, {culprit: 0.05}, 0.01, f"layout {seed}", layout_sd=0.01, paired=True)
    found = done(problem(64, Noise(layout_sd=0.01, relinks=8)), history.observe)
    assert found.answer.culprits in ((), (culprit,))
    searched = {one.asked.relink for one in found.journal if not one.asked.claim}
    confirmed = {one.asked.relink for one in found.journal if one.asked.claim}
    if found.answer.culprits:
        assert 2 <= len(confirmed)
        assert 0 not in confirmed
    assert 0 in searched


def test_layouts_that_cannot_be_relinked_leave_small_steps_open() -> None:
    """A wrong name would be as likely as the right one."""
    history = History(64, {30: 0.02}, 0.005, "fixed", layout_sd=0.01, paired=True)
    found = done(problem(64, Noise(layout_sd=0.01)), history.observe)
    assert "inconclusive" == found.answer.outcome
    assert "builds of the same source differ" in found.answer.why


def test_a_suspect_that_is_not_confirmed_is_let_go() -> None:
    """One commit was misread: the fresh pairs say so, it is looked at again, and the culprit is found."""
    rng, misread = random.Random(3), [True] * 4

    def observe(asked: Try) -> Outcome:
        if asked.commit == 32 and not asked.claim and misread:
            return [STEP + rng.gauss(0, 0.002) for _ in range(min(len(misread), asked.batch)) if misread.pop()]
        level = (asked.commit >= 40) - (asked.claim is not None and asked.against >= 40)
        return [STEP * level + rng.gauss(0, 0.005) for _ in range(asked.batch)]

    found = done(problem(64), observe)
    assert ("culprit", (40,)) == named(found)
    assert {32, 40} == {one.asked.commit for one in found.journal if one.asked.claim}


def test_three_suspects_that_are_not_confirmed_end_the_search() -> None:
    """Fresh pairs never show the step: nobody is blamed."""
    history = History(16, {9: STEP}, 0.02, "denied")

    def observe(asked: Try) -> Outcome:
        return history.observe(replace(asked, commit=asked.against) if asked.claim else asked)

    found = done(problem(16), observe)
    assert ("inconclusive", ()) == named(found)
    assert "not confirmed" in found.answer.why
    assert [1, 2, 3] == sorted({one.asked.claim.number for one in found.journal if one.asked.claim})


# Interrupted


@pytest.mark.parametrize("metric", ["latency", "correctness"])
def test_an_interrupted_search_goes_on_where_it_ended(metric: str) -> None:
    """After every line of the journal the rest is what it was, asked by asked."""
    history = History(32, {21: STEP}, 0.03, "interrupted")
    observe = history.observe if metric == "latency" else runs_of(32, 21, (0.0, 0.6), "interrupted")
    whole = done(problem(32, metric=metric), observe)
    journal = whole.journal
    assert ("culprit", (21,)) == named(whole)
    for length in range(len(journal) + 1):
        rest = iter(journal[length:])
        resumed = done(problem(32, metric=metric), lambda asked, left=rest: next(left).outcome, journal[:length])
        assert journal == resumed.journal
        assert whole.answer == resumed.answer


def test_a_second_search_is_nearly_free() -> None:
    """With other ends: what was observed of their commits is not asked again."""
    history = History(64, {21: STEP}, 0.02, "second")
    first = done(problem(64), history.observe)
    known = [one for one in first.journal if one.asked.commit <= 40 or one.asked.claim]
    second = done(problem(40), history.observe, known)
    assert ("culprit", (21,)) == named(second)
    assert 15 >= len(second.journal) - len(known)


def test_fewer_observations_than_asked_for_are_enough_to_go_on() -> None:
    """The rest is asked for where it is needed."""
    history = History(32, {9: STEP}, 0.02, "few")
    found = done(problem(32), lambda asked: history.observe(replace(asked, batch=1)))
    assert ("culprit", (9,)) == named(found)


def test_the_search_gives_up_at_its_limit() -> None:
    """With what it has."""
    found = latency(64, 30, sd=0.2, step=0.1)
    assert "inconclusive" == found.answer.outcome
    history = History(64, {30: STEP}, 0.02, "limit")
    short = done(problem(64, limit=10), history.observe)
    assert "inconclusive" == short.answer.outcome
    assert "no answer after" in short.answer.why
    assert 12 >= short.search


def test_every_try_says_why() -> None:
    """For the table of probes."""
    found = latency(64, 30)
    assert all(one.asked.why for one in found.journal)
    assert all(one.asked.batch >= 1 for one in found.journal)
    kinds = {one.asked.why.split()[0] for one in found.journal}
    assert {"end:", "tells", "confirm:"} <= kinds
    assert isinstance(found.journal[0], Asked)
