"""A resume repeats no more of a walk than it must."""

from dataclasses import replace

import pytest

from loop.session.walk import StepEnded
from loop.steps.context import Context
from tests.makers import make_finished
from tests.session.walks import Behaviour, Walked, at_once, found, make_step, pattern, walking


def three_steps(context: Context) -> Walked:
    """A walk over a, b and c in two patterns."""
    return walking(
        context, pattern("one", make_step("a", "a"), make_step("b", "b")), pattern("two", make_step("c", "c"))
    )


@pytest.fixture
def steady(behave: dict[str, Behaviour]) -> dict[str, Behaviour]:
    """Steps a, b and c that pass and have no dependencies."""
    behave |= {name: at_once(found()) for name in "abc"}
    return behave


@pytest.mark.parametrize("step", ["a", "b", "c"])
def test_a_resume_repeats_the_open_step_and_nothing_before_it(
    step: str, context: Context, steady: dict[str, Behaviour]
) -> None:
    """Ended steps are replayed, the open step is attempt two, later steps are new."""
    killed = three_steps(context).until(step)
    resumed = killed.resumed().to_its_end()
    expected = [f"{name} {2 if name == step else 1}" for name in "abc" if name >= step]
    assert expected == resumed.done
    assert ["a passed", "b passed", "c passed"] == resumed.steps
    replayed = [e.finished.step for e in resumed.events if isinstance(e, StepEnded) and e.replayed]
    assert [name for name in "abc" if name < step] == replayed


def test_a_step_that_stands_on_something_is_repeated(context: Context, steady: dict[str, Behaviour]) -> None:
    """A build is repeated; if its result is the same, later steps are replayed."""
    steady["a"] = at_once(found(identity="sources 1"))
    resumed = three_steps(context).until("c").resumed().to_its_end()
    assert ["a 2", "c 2"] == resumed.done


def change(steady: dict[str, Behaviour], identity: str) -> None:
    """Change the dependency hash of step a."""
    steady["a"] = at_once(found(identity=identity))


def test_a_change_discards_what_stood_on_it(context: Context, steady: dict[str, Behaviour]) -> None:
    """Sources that were edited between the walks: everything after the build is done again."""
    change(steady, "sources 1")
    killed = three_steps(context).until("c")
    change(steady, "sources 2")
    assert ["a 2", "b 2", "c 2"] == killed.resumed().to_its_end().done


def test_a_change_is_not_forgotten_by_the_next_resume(context: Context, steady: dict[str, Behaviour]) -> None:
    """Killed again right after the change: the old records stay discarded."""
    change(steady, "sources 1")
    first = three_steps(context).until("c")
    change(steady, "sources 2")
    second = first.resumed().until("b")
    assert ["a 3", "b 3", "c 2"] == second.resumed().to_its_end().done


def test_a_change_seen_by_an_aborted_step_still_counts(context: Context, steady: dict[str, Behaviour]) -> None:
    """A resume compares with the dependencies before the aborted build."""
    change(steady, "sources 1")
    first = three_steps(context).until("c")
    second = first.resumed().until("a").resumed()
    fields = {"run": 1, "pattern": "one", "action": "command.run", "status": "aborted"}
    second.walk = replace(
        second.walk, earlier_records=[*second.walk.earlier_records, make_finished("a", **fields)]
    )
    change(steady, "sources 2")
    assert ["a 3", "b 2", "c 2"] == second.to_its_end().done
