"""History as positions, and the journal as a state: groups, merged builds, what counts and what does not."""

import math

import pytest

from loop.bisect.journal import Observations, read
from loop.bisect.model import Asked, Broken, Commit, Lost, Noise, Outcome, Positions, Problem, Try
from tests.bisect.simulated import claim


def commits(*groups: str) -> tuple[Commit, ...]:
    """One commit a group; `-` is unlike any other."""
    return tuple(Commit(group="" if group == "-" else group) for group in groups)


def positions(*commits: Commit) -> Positions:
    """The history as positions."""
    return Problem(commits).positions


def looked(commit: int, *values: float, **fields: object) -> Asked:
    """A look of the search, and what came."""
    return Asked(Try(commit, len(values), "", **fields), list(values))  # type: ignore[arg-type]


def seen(*journal: Asked, count: int = 9, noise: Noise | None = None) -> Observations:
    """The state after a journal."""
    return read(Problem(commits(*"-" * count), noise=noise or Noise()), journal)


def test_each_commit_is_a_position_of_its_own() -> None:
    """Unless it is said to be like another."""
    found = positions(*commits(*"----"))
    assert ((0, 1, 2, 3), (0, 1, 2, 3)) == (found.place, found.first)
    assert (0.0, 1 / 3, 1 / 3, 1 / 3) == pytest.approx(found.prior)


def test_commits_of_one_group_share_a_position() -> None:
    """The prior between them is zero, and the first of a group is the suspect."""
    found = positions(*commits("a", "b", "b", "b", "c", "c"))
    assert ((0, 1, 1, 1, 2, 2), (0, 1, 4)) == (found.place, found.first)
    assert [0, 1, 5] == [found.shown(position) for position in range(3)], "an end is itself"
    assert (0.0, 0.5, 0.5) == found.prior


def test_what_lies_between_two_that_are_alike_changed_nothing() -> None:
    """A change that was taken back cannot be what made the bad end slower."""
    assert (0, 1, 1, 1, 1, 2) == positions(*commits("a", "b", "x", "y", "b", "c")).place


def test_ends_that_are_alike_leave_one_position() -> None:
    """There is nothing to search."""
    assert 0 == positions(*commits("a", "b", "a")).last


def test_weights_become_a_prior() -> None:
    """Commits that touch the kernel's files weigh ten times as much; without any weight all are alike."""
    touched = (Commit(), Commit(1.0), Commit(10.0), Commit(0.0))
    assert (0.0, 1 / 11, 10 / 11, 0.0) == pytest.approx(positions(*touched).prior)
    assert (0.0, 0.5, 0.5) == positions(Commit(), Commit(0.0), Commit(0.0)).prior


def test_observations_are_kept_by_position_and_relink() -> None:
    """In the order in which they came."""
    found = seen(looked(3, 0.1, 0.2), looked(8, 0.5), looked(3, 0.3, relink=1), looked(3, 0.4))
    assert {3: {0: [0.1, 0.2, 0.4], 1: [0.3]}, 8: {0: [0.5]}} == found.values
    assert (4, 5) == (found.count(3), found.observations)
    assert {(0, 0), (3, 0), (3, 1), (8, 0)} == found.built


def test_confirmations_are_kept_apart() -> None:
    """Fresh observations are for the claim alone; the search's later ones are counted."""
    asked = Try(4, 2, "", against=3, claim=claim(above=0.1))
    found = seen(looked(3, 0.1), Asked(asked, [0.2, 0.3]), looked(3, 0.1, 0.1))
    made = found.confirmations[4, 3, 1]
    assert {4: {0: [0.2, 0.3]}} == made.values
    assert {3: 2} == made.later
    assert {3: {0: [0.1, 0.1, 0.1]}} == found.values


def test_ratios_to_another_commit_come_from_another_search() -> None:
    """They say nothing of this one; single measurements are to no commit."""
    assert {} == seen(looked(5, 0.1, against=2)).values
    assert {5: {0: [0.1]}} == seen(looked(5, 0.1, against=2), noise=Noise(paired=False)).values


def test_broken_commits_are_known_with_their_reason() -> None:
    """A relinked build that fails ends relinking only."""
    first = Asked(Try(4, 1, ""), Broken("no headers"))
    other = Asked(Try(6, 1, "", against=5, claim=claim()), Broken("oops"))
    assert {4: "no headers", 6: "oops"} == seen(first, other).broken
    found = seen(Asked(Try(4, 1, "", relink=2), Broken("unknown order")))
    assert ({}, True) == (found.broken, found.unlinked)


@pytest.mark.parametrize("outcome", [Lost("no machine"), [], [math.nan], [math.inf]])
def test_what_is_lost_says_nothing(outcome: Outcome) -> None:
    """Neither does an observation that is no number."""
    lost = Asked(Try(4, 1, ""), outcome)
    found = seen(lost, lost)
    assert ({}, set(), 2) == (found.values, found.built, found.lost)
    assert 0 == seen(lost, looked(4, 0.1)).lost
