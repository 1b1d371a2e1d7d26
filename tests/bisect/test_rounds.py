"""Several commits at a time: equal shares, sequential probes, guesses that count only where they are asked for."""

import functools
import math
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest

from loop.base.processes import finish
from loop.bisect.bisection import next_move
from loop.bisect.hunt import Hunt
from loop.bisect.model import Asked, Broken, Conclusion, Costs, Lost, Noise, Outcome, Problem, Try
from loop.bisect.rounds import LEAST, enough, next_round, side, taken
from loop.bisect.trying import ProbeMemory, side_by_side
from loop.model.bisect import Claim, Stop
from tests.bisect.simulated import History, InRounds, in_rounds, problem, runs_of
from tests.bisect.test_hunt import Simulated, line, subjects

__all__ = ["line"]
STEP = math.log1p(0.05)


def searched(culprit: int, width: int, last: int = 256, sd: float = 0.02, **terms: object) -> InRounds:
    """A search for a step of 5 %, in pairs."""
    history = History(last, {culprit: STEP}, sd, f"rounds {culprit}", paired=True, **terms)  # type: ignore[arg-type]
    return in_rounds(problem(last, Noise()), history.observe, width)


def ends(last: int) -> list[Asked]:
    """Both ends of runs that pass or fail were tried."""
    return [Asked(Try(0, 4, "end"), [1.0] * 4), Asked(Try(last, 4, "end"), [0.0] * 4)]


def commits(made: Sequence[Try] | Conclusion) -> list[int]:
    """Which commits a round looks at, in order."""
    assert not isinstance(made, Conclusion)
    return sorted(one.commit for one in made)


@pytest.mark.parametrize(("width", "parts"), [(1, [32]), (3, [16, 32, 48]), (7, [8, 16, 24, 32, 40, 48, 56])])
def test_a_round_parts_the_posterior_into_equal_shares(width: int, parts: list[int]) -> None:
    """Where every commit is as likely these are as many equal stretches of history."""
    assert parts == commits(next_round(problem(64, metric="correctness"), ends(64), width))


def test_likely_commits_are_closer_together() -> None:
    """The shares are those of the posterior, not of the history."""
    asked = problem(64, metric="correctness")
    heavy = [
        one if number < 33 else type(one)(weight=9.0, name=one.name) for number, one in enumerate(asked.commits)
    ]
    found = commits(next_round(Problem(tuple(heavy), "correctness", asked.costs), ends(64), 7))
    assert 6 <= sum(commit > 32 for commit in found)


def test_the_first_of_a_round_is_what_one_machine_would_try() -> None:
    """So a width of 1 is the search commit by commit."""
    asked = problem(64, metric="correctness")
    one, many = next_move(asked, ends(64)), next_round(asked, ends(64), 5)
    assert isinstance(one, Try)
    assert isinstance(many, tuple)
    assert one.commit == many[0].commit


@pytest.mark.parametrize("culprit", [1, 100, 255])
@pytest.mark.slow
def test_more_devices_need_fewer_rounds(culprit: int) -> None:
    """And name the same commit."""
    one, seven = searched(culprit, 1), searched(culprit, 7)
    assert (culprit,) == one.answer.culprits == seven.answer.culprits
    assert len(one.rounds) >= 2.3 * len(seven.rounds)
    assert all(len(made) == 7 for made in seven.rounds)


@pytest.mark.parametrize("culprit", [3, 50])
def test_failures_are_found_in_rounds_past_commits_that_do_not_build(culprit: int) -> None:
    """Runs that pass or fail, too."""
    found = in_rounds(problem(64, metric="correctness"), runs_of(64, culprit, (0.0, 1.0), f"{culprit}", 0.2), 7)
    blamed = found.answer.range or (*found.answer.culprits, *found.answer.culprits)
    assert blamed[0] <= culprit <= blamed[1]
    assert len(found.rounds) <= 7


def test_nobody_is_blamed_by_rounds_where_nothing_changed() -> None:
    """Seven looks at a time are not seven chances of a false alarm."""
    for seed in range(5):
        history = History(64, {}, 0.02, f"nothing {seed}", paired=True)
        assert () == in_rounds(problem(64, Noise()), history.observe, 7).answer.culprits


def test_a_probe_ends_when_its_side_is_evident() -> None:
    """Clear commits cost few pairs, one in the middle ends as unclear."""
    stop = Stop(step=0.05, sd=0.02)
    rng = random.Random(1)
    draw = functools.partial(rng.gauss, sigma=0.02)
    for level, said in ((0.0, "good"), (0.05, "bad")):
        values: list[float] = []
        while not enough(values, stop):
            values.append(draw(level))
        assert said == side(values, stop)
        assert len(values) <= 8
    assert "unclear" == side([0.025] * 24, stop)
    assert "unclear" == side([0.05], Stop(step=0.05, sd=0.0))  # One pair says nothing of its own noise.
    assert not enough([1.0] * 23, None)


def test_a_confirmation_that_was_guessed_counts_only_where_it_is_asked_for() -> None:
    """Pairs of an innocent commit and its parent, observed in advance, neither fail nor delay the search."""
    asked, told = problem(64, Noise()), [Asked(Try(64, 12, "end"), [0.05, 0.049, 0.051] * 4)]
    claim = Claim(number=1, above=0.01, below=0.02)
    guessed = [Asked(Try(at, 8, "confirm", at - 1, claim=claim), [0.001, -0.001] * 4) for at in (10, 11)]
    search = Asked(Try(32, 8, "tells"), [0.05, 0.049] * 4)
    assert [0] == [number for number, _ in taken(asked, told, [search, *guessed])]


def test_a_confirmation_that_is_asked_for_counts_by_what_is_asked_then() -> None:
    """What it has to show is what the search saw before it looked at these pairs."""
    history = History(64, {20: STEP}, 0.005, "claims", paired=True)
    found = in_rounds(problem(64, Noise()), history.observe, 7)
    told: list[Asked] = []
    for made in found.rounds:
        counted = taken(problem(64, Noise()), told, made)
        for number, one in counted:
            assert made[number].outcome == one.outcome
            if one.asked.claim is not None:
                now = next_move(problem(64, Noise()), told)
                assert isinstance(now, Try)
                assert now.claim == one.asked.claim
            told.append(one)
    assert any(one.asked.claim for one in told)


def test_probes_that_are_lost_together_are_one_loss() -> None:
    """A host that goes away takes a round with it: the search goes on, and gives up after three such rounds."""
    asked = problem(64, Noise())

    def lost(_: Try) -> Outcome:
        return Lost("the host is gone")

    found = in_rounds(asked, lost, 7)
    assert (3, "inconclusive") == (len(found.rounds), found.answer.outcome)
    some = [Asked(Try(64, 4, "end"), [0.05] * 4), Asked(Try(32, 4, "tells"), Lost("gone"))]
    assert [0] == [number for number, _ in taken(asked, [], some)]


def test_where_little_is_left_to_ask_it_is_asked_on_every_device() -> None:
    """The pairs of a confirmation are spread."""
    last = searched(100, 7, last=2048 // 8, sd=0.005).rounds[-1]
    assert len(last) == 7
    assert all(one.asked.batch >= LEAST for one in last)


def test_commits_that_do_not_build_are_expected_where_others_did_not() -> None:
    """Then a round looks elsewhere, too."""
    asked = problem(64, metric="correctness")
    told = [*ends(64), *(Asked(Try(at, 4, "tells"), Broken("does not build")) for at in (32, 31, 33))]
    found = commits(next_round(asked, told, 3))
    assert not {31, 32, 33} & set(found)


def test_a_search_in_rounds_is_kept_and_goes_on(line, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Each with a prober of its own; a search that was cut off asks for no round that it was told of."""

    def hunt(probers: Sequence[Simulated]) -> Hunt:
        memory = ProbeMemory(tmp_path / "m")
        many = side_by_side(probers)
        return Hunt(line, probers[0], memory, "correctness", Costs(), Noise(), many=many, width=len(probers))

    def probers(most: int | None = None) -> list[Simulated]:
        return [Simulated(line, {20: 1.0}, most=most) for _ in range(3)]

    with pytest.raises(KeyboardInterrupt):
        finish(hunt(probers(2)).run())
    kept = len(ProbeMemory(tmp_path / "m").probes())
    rest = probers()
    found = finish(hunt(rest).run())
    assert ["commit 20"] == subjects(found)
    assert kept > 0
    assert len(found.probes) == kept + sum(len(one.tried_so_far) for one in rest)
    assert 0 == fmean(one.seconds < 0 for one in found.probes)
