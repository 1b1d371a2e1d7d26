"""Debugging by itself: variants that are wrong in known ways, a real compiler and real processes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.actions import ACTIONS
from loop.base.errors import LoopError
from loop.base.processes import finish
from loop.gate.order import values_key
from loop.model.debugging import BoundaryOutput, ComponentsOutput, MapOutput, SmallestOutput
from loop.model.output import Output
from loop.model.record import Finished
from loop.model.workloads import base_seed, read_words, single
from loop.steps.context import Context
from loop.workers.bench import Bench
from tests.makers import make_finished
from tests.targets import make_context
from tests.two_stage import open_two_stage

CHECKS = ("wide", "masked")
STEPS = ("kernel.verify", "debug.components", "debug.smallest", "debug.boundary", "debug.map")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for the target in two stages."""
    with open_two_stage(tmp_path_factory.mktemp("two-stage"), build_cache) as made:
        yield made


def run(context: Context, action: str, **terms: Any) -> Output:
    """What an action finds."""
    done = ACTIONS[action]
    return finish(done.run(context, done.arguments.model_validate(terms))).output


def debugged(bench: Bench, *names: str, steps: Sequence[str] = STEPS, budget_s: float = 20.0) -> dict[str, Any]:
    """What each step finds, each with those before it."""
    context = make_context(bench, *names, checks=CHECKS, budget_s=budget_s)
    done: list[Finished] = []
    found: dict[str, Any] = {}
    for step in steps:
        found[step] = run(replace(context, finished=tuple(done)), step)
        done.append(make_finished(step, action=step, output=found[step]))
    return found


def boundary(found: dict[str, Any], dimension: str) -> str:
    """What is said of a dimension."""
    output: BoundaryOutput = found["debug.boundary"]
    return next((one.text for one in output.boundaries if one.dimension == dimension), "")


def smallest(found: dict[str, Any]) -> str:
    """The smallest failing workload, as a command line gives it."""
    output: SmallestOutput = found["debug.smallest"]
    (one,) = output.smallest
    assert not one.check.passed, "what is found fails"
    return one.words.removesuffix(" dtype=float32")


@pytest.mark.slow
def test_a_row_sum_counted_twice_is_traced_to_its_stage(bench: Bench) -> None:
    """What cost the recorded history twelve sessions: the reduction is wrong, the partial sums are right."""
    found = debugged(bench, "sum_twice")
    components: ComponentsOutput = found["debug.components"]
    assert ("sum_twice_reduce",) == components.wrong
    assert [False, True] == [one.checks.first_failure is not None for one in components.components]
    assert components.message.startswith("sum_twice_reduce of sum_twice is wrong: ")
    assert "B=1 Sq=1 D=1 Sk=2" == smallest(found)
    assert boundary(found, "S").startswith("passes up to S=1, fails from S=2 on (tried from 1 to ")
    assert boundary(found, "D").startswith("fails at every D tried, 1, 2, 4, ")


@pytest.mark.slow
def test_right_stages_that_are_put_together_wrongly_are_told_apart(bench: Bench) -> None:
    """Each passes by itself: then the fault lies between them."""
    found = debugged(bench, "last_split", steps=STEPS[:3])
    components: ComponentsOutput = found["debug.components"]
    assert () == components.wrong
    assert components.message.endswith("so the fault lies in how they are put together")
    assert "causal=true" in smallest(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected", "dimension", "text"),
    [
        ("long_keys", "B=1 Sq=1 D=1 Sk=65", "S", "passes up to S=64, fails from S=65 on (tried from 1 to 140)"),
        ("late_rows", "B=1 Sq=65 D=1 Sk=1", "S", "passes up to S=64, fails from S=65 on (tried from 1 to 140)"),
        ("wide", "B=1 S=1 D=128", "D", "fails at D=128 alone, passes at 127 and 129 (tried from 1 to 256)"),
        ("crash", "B=1 Sq=1 D=1 Sk=33", "S", "passes up to S=32, fails from S=33 on (tried from 1 to 140)"),
        (
            "half_weights",
            "B=1 Sq=1 D=1 Sk=42",
            "S",
            "passes up to S=41, fails from S=42 on (tried from 1 to 140); it depends on the values: "
            "S=42 fails with 4 of 8 sets of values",
        ),
        ("declines", "B=1 Sq=1 D=8 Sk=65", "S", "passes up to S=64, fails from S=65 on (tried from 1 to 140)"),
    ],
)
def test_the_smallest_workload_and_the_boundary(
    name: str, expected: str, dimension: str, text: str, bench: Bench
) -> None:
    """A size that is declined with an error is no smaller form of a wrong answer."""
    found = debugged(bench, name)
    assert expected == smallest(found)
    assert text == boundary(found, dimension)


@pytest.mark.slow
def test_what_fails_on_odd_sizes_has_no_boundary(bench: Bench) -> None:
    """Doublings alone would have found one."""
    found = debugged(bench, "odd")
    assert boundary(found, "S").startswith("fails where S is no multiple of 2: fails at 1, 3, 5")


@pytest.mark.slow
def test_a_tail_that_is_wrong_shows_as_multiples(bench: Bench) -> None:
    """Only whole tiles are right."""
    found = debugged(bench, "no_tail")
    assert "fails where S is no multiple of 16: " in boundary(found, "S")


@pytest.mark.slow
def test_what_depends_on_the_values_is_not_sold_as_a_size(bench: Bench) -> None:
    """A large logit spoils its row: larger shapes have more of them, and no size is a boundary for all values."""
    texts = [one.text for one in debugged(bench, "loud", steps=STEPS[:4])["debug.boundary"].boundaries]
    assert any("; it depends on the values: " in text for text in texts), texts


@pytest.mark.slow
def test_a_nan_on_rows_that_see_no_key(bench: Bench) -> None:
    """Where there are more queries than keys: the rows, and both boundaries."""
    found = debugged(bench, "nan_row")
    assert "B=1 Sq=2 D=1 Sk=1 causal=true" == smallest(found)
    assert "passes up to Sq=4, fails from Sq=5 on (tried from 1 to 64)" == boundary(found, "Sq")
    places: MapOutput = found["debug.map"]
    assert "query rows 0 to 4 of 9, all of B, all features" == places.places[0].text


@pytest.mark.slow
def test_wrong_rows_and_the_growth_of_their_error_are_named(bench: Bench) -> None:
    """To the row, on the workload where right and wrong are most evenly divided."""
    places: MapOutput = debugged(bench, "late_rows")["debug.map"]
    first, second = places.places
    assert first.workload.startswith("B2 S96 D8")
    assert first.text.startswith(
        "query rows 64 to 95 of 96, all of B, all features; the error grows along Sq, from "
    )
    assert "query rows 64 alone, of 65" == second.text


@pytest.mark.slow
def test_a_crash_leaves_no_map_and_its_own_words(bench: Bench) -> None:
    """What it said is quoted."""
    places: MapOutput = debugged(bench, "crash")["debug.map"]
    assert () == places.places
    assert places.message.startswith("crash gives no output to look at: crashed with SIGSEGV on ")


@pytest.mark.slow
def test_what_fails_at_times_is_not_blamed_on_a_size(bench: Bench) -> None:
    """The smallest is seen to fail in a fresh process; where it does not, the first failure stands."""
    found = debugged(bench, "sometimes", steps=STEPS[:4])
    output: SmallestOutput = found["debug.smallest"]
    (one,) = output.smallest
    assert (False, one.began) == (one.minimal, one.check.workload.name)
    assert "smaller ones fail at times, or only after other calls" == one.note
    assert () == found["debug.boundary"].boundaries
    assert "sometimes does not fail every time: no boundary can be found" == found["debug.boundary"].message


@pytest.mark.slow
def test_a_workload_is_repeated_by_its_words_and_seed(bench: Bench) -> None:
    """The same values, so that the command that is printed shows the same failure."""
    output: SmallestOutput = debugged(bench, "long_keys", steps=STEPS[:3])["debug.smallest"]
    (one,) = output.smallest
    again = single(bench.target, read_words(one.words), "float64", one.seed)
    assert one.check.workload == again
    assert base_seed(again) == one.seed


@pytest.mark.slow
def test_the_boundary_asks_nothing_twice(bench: Bench) -> None:
    """What the search for the smallest found is known to it, and no values come twice."""
    found = debugged(bench, "long_keys", steps=STEPS[:4])
    before, after = ([values_key(one.workload) for one in found[step].probes] for step in STEPS[2:4])
    assert len(set(after)) == len(after)
    assert set() == set(before) & set(after)


@pytest.mark.slow
def test_a_budget_ends_a_search_with_what_it_has(bench: Bench) -> None:
    """Ten workloads are not enough: what is found still fails, and is not called the smallest."""
    context = make_context(bench, "long_keys", checks=CHECKS, budget_s=20.0)
    done = make_finished("verify", action="kernel.verify", output=run(context, "kernel.verify"))
    output = run(replace(context, finished=(done,)), "debug.smallest", probes=10)
    assert isinstance(output, SmallestOutput)
    (one,) = output.smallest
    assert (False, False) == (one.minimal, one.check.passed)
    assert output.message.endswith("workloads tried, the budget ended the search)")


@pytest.mark.slow
def test_several_wrong_variants_share_the_budget(bench: Bench) -> None:
    """Each is looked into; what is right is left alone."""
    found = debugged(bench, "wide", "right", "odd")
    assert ["wide", "odd"] == [one.variant for one in found["debug.smallest"].smallest]
    expected = ("components of wide: target.yaml names none", "components of odd: target.yaml names none")
    assert expected == found["debug.components"].not_exercised


@pytest.mark.slow
def test_where_nothing_is_wrong_nothing_is_looked_for(bench: Bench) -> None:
    """Each step says so and passes."""
    found = debugged(bench, "right")
    assert {"no variant failed a check: no cause to look for"} == {found[step].message for step in STEPS[1:]}
    assert all(found[step].ok for step in STEPS)


@pytest.mark.slow
def test_a_source_that_was_edited_meanwhile_is_not_looked_into(bench: Bench) -> None:
    """The build that failed is another than the one at hand."""
    context = make_context(bench, "odd", checks=CHECKS)
    output = run(context, "kernel.verify")
    stale = output.model_dump(mode="json")
    stale["variants"][0]["build_id"] = "another"
    done = make_finished("verify", action="kernel.verify", output=stale)
    with pytest.raises(LoopError, match="odd was edited after it was checked"):
        run(replace(context, finished=(done,)), "debug.smallest")
