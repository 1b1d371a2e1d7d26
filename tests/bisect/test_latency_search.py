"""The search for a slower commit: the right one, few builds, and no wrong name under any noise."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from loop.bisect.model import Commit, Conclusion, Noise, Outcome, Try
from tests.bisect.simulated import STEP, History, done, heavy, latency, named, problem, with_outliers


@pytest.mark.parametrize("last", [1, 2, 3, 9, 64, 1000])
def test_a_clear_step_is_found(last: int) -> None:
    """Wherever it is, with few more builds than bisection needs."""
    for culprit in sorted({1, last // 2 + 1, last}):
        found = latency(last, culprit)
        assert ("culprit", (culprit,)) == named(found)
        assert math.ceil(math.log2(last)) + 6 >= found.builds
        assert STEP == pytest.approx(found.answer.found[0].step, abs=0.05)
        assert 100 <= found.answer.found[0].evidence


def test_the_posterior_is_that_of_each_commit() -> None:
    """It sums to one, nothing for the good end, nearly all for the culprit."""
    answer = latency(20, 13).answer
    assert 21 == len(answer.posterior)
    assert 1.0 == pytest.approx(math.fsum(answer.posterior))
    assert 0.0 == answer.posterior[0]
    assert 0.95 <= answer.posterior[13]


@pytest.mark.slow
@pytest.mark.parametrize(("sd", "step", "last"), [(0.02, 0.3, 64), (0.05, 0.1, 64), (0.02, 0.03, 24)])
def test_sixty_searches_and_no_wrong_name(sd: float, step: float, last: int) -> None:
    """Noise of all sizes: as good as always right, and never another commit."""
    rng = random.Random(f"{sd} {step}")
    words = Counter[bool]()
    for _ in range(60 if last > 24 else 20):
        culprit = rng.randrange(1, last + 1)
        answer = latency(last, culprit, sd, math.log1p(step)).answer
        assert answer.culprits in ((), (culprit,)), answer.outcome
        words[answer.culprits == (culprit,)] += 1
        assert answer.range is None or answer.range[0] <= culprit <= answer.range[1]
    assert 3 >= words[False]


def test_without_any_noise_nothing_divides_by_it() -> None:
    """Instruction counts are the same each time."""
    for noise in (Noise(False), Noise(), Noise(relinks=4)):
        history = History(64, {40: STEP}, 0.0, "quiet", paired=noise.paired)
        found = done(problem(64, noise), history.observe)
        assert ("culprit", (40,)) == named(found)
    assert "no_regression" == named(latency(64, 9, sd=0.0, step=0.0))[0]


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
    assert [6, 2] == [nothing.builds, turned.builds], "commits beside the ends stand for them, too"
    assert "not reproduced" in nothing.answer.why
    assert [False, True] == [nothing.answer.swapped, turned.answer.swapped]
    assert "swapped" in turned.answer.why


def test_what_noise_may_hide_is_not_called_nothing() -> None:
    """A step far below the noise is left open."""
    found = latency(16, 9, sd=0.3, step=0.05)
    assert "inconclusive" == found.answer.outcome
    assert "too noisy" in found.answer.why


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
    found = done(problem(64, Noise(relinks=8)), history.observe)
    assert found.answer.culprits in ((), (culprit,))
    searched = {one.asked.relink for one in found.journal if not one.asked.claim}
    confirmed = {one.asked.relink for one in found.journal if one.asked.claim}
    if found.answer.culprits:
        assert 2 <= len(confirmed)
        assert 0 not in confirmed
    assert 0 in searched


def laid(
    number: int, slowdown: float = 0.03, places: tuple[int, ...] = (), **terms: object
) -> tuple[Conclusion, int]:
    """A search where builds differ by 1 % on their own and nobody says so; and the culprit."""
    seed = f"laid {slowdown} {places} {sorted(terms)} {number}"
    culprit = random.Random(seed).choice(places or range(3, 62))
    steps = {culprit: math.log1p(slowdown)} if slowdown else {}
    history = History(64, steps, 0.004, seed, layout_sd=0.01, **terms)  # type: ignore[arg-type]
    asked = problem(64)
    if history.alike > 1:
        groups = [Commit(group=str(history.kernel(at))) for at in range(65)]
        asked = replace(asked, commits=tuple(groups))
    return done(asked, history.observe).answer, culprit


def held(answer: Conclusion, culprit: int) -> bool:
    """Whether a range, or a name, is right."""
    first, last = answer.range or (answer.culprits * 2)
    return first <= culprit <= last


@pytest.mark.slow
def test_noise_between_builds_makes_a_range_of_a_name() -> None:
    """It is three times smaller than the step: an answer nearly always, right nearly always, and short."""
    found = [laid(number) for number in range(24)]
    answers = [(answer, culprit) for answer, culprit in found if answer.found]
    assert 23 <= len(answers)
    assert 23 <= sum(held(*one) for one in answers)
    sizes = [answer.range[1] - answer.range[0] + 1 for answer, _ in answers if answer.range]
    assert 12 <= len(sizes)
    assert 4 >= math.fsum(sizes) / len(sizes)
    assert all("no single one stands out" in answer.why for answer, _ in answers if answer.range)


def test_a_step_far_above_the_noise_between_builds_is_named() -> None:
    """A tenth against a hundredth."""
    for number in range(6):
        answer, culprit = laid(number, 0.1)
        assert (culprit,) == answer.culprits


@pytest.mark.slow
@pytest.mark.parametrize(
    "terms",
    [{"layout": heavy}, {"broken": 0.2}, {"alike": 4, "places": tuple(range(4, 61, 4))}],
    ids=["heavy tails", "broken builds", "equal builds"],
)
def test_other_noise_between_builds_blames_nobody_else(terms: dict[str, object]) -> None:
    """Heavy tails, a fifth of broken builds, commits that change nothing."""
    found = [laid(number, **terms) for number in range(8)]  # type: ignore[arg-type]
    assert 7 <= sum(not answer.found or held(answer, culprit) for answer, culprit in found)
    assert 6 <= sum(bool(answer.found) for answer, _ in found)


@pytest.mark.slow
def test_a_step_next_to_an_end_is_not_put_elsewhere() -> None:
    """One or two builds on a side may be slow by themselves: no answer, or the right one."""
    found = [laid(number, places=(1, 2, 63, 64)) for number in range(8)]
    assert 7 <= sum(not answer.found or held(answer, culprit) for answer, culprit in found)


@pytest.mark.slow
def test_scatter_without_a_step_is_no_regression() -> None:
    """The ends differ, as any two builds do."""
    outcomes = [laid(number, 0.0)[0] for number in range(5)]
    assert 4 <= sum(not answer.found for answer in outcomes)
    assert any("no step stands out" in answer.why for answer in outcomes)


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
