"""The smallest failing workload, by itself: what is asked for, in which order, and what is never taken."""

import random
from collections.abc import Callable

import pytest

from loop.debug.shrinking import Entry, Failing, failing, kind_of, shrink
from loop.model.measurement import Fault, VariantChecks
from loop.model.signature import Signature
from loop.model.tuning import Scalar
from tests.makers import make_check, make_workload

SIGNATURE = Signature.model_validate(
    {
        "inputs": {"q": "B Sq D", "k": "B Sk D"},
        "outputs": {"output": "B Sq D"},
        "attributes": {"causal": {"kind": "flag"}, "scale": {"kind": "number"}},
        "shorthand": {"S": ("Sq", "Sk")},
    }
)
START: dict[str, Scalar] = {
    "B": 2,
    "S": 96,
    "D": 64,
    "causal": True,
    "scale": 0.5,
    "values": "sharp",
    "dtype": "float32",
}
Fails = Callable[[Entry], bool]


def shrunk(fails: Fails, start: Entry = START) -> tuple[Entry, list[Entry]]:
    """What a search comes to, and everything that it asked for."""
    best, asked = start, []
    search = shrink(start, SIGNATURE)
    try:
        entry = next(search)
        while True:
            asked.append(entry)
            if fails(entry):
                best = entry
            entry = search.send(fails(entry))
    except StopIteration:
        return best, asked


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        (lambda one: True, {"B": 1, "D": 1, "Sq": 1, "Sk": 1}),
        (lambda one: int(one["Sk"]) >= 65, {"B": 1, "D": 1, "Sq": 1, "Sk": 65}),
        (lambda one: int(one["Sq"]) > 64 and int(one["B"]) == 2, {"B": 2, "D": 1, "Sq": 65, "Sk": 1}),
        (lambda one: one.get("causal") is True, {"B": 1, "D": 1, "Sq": 1, "Sk": 1, "causal": True}),
        (lambda one: one.get("values") == "sharp", {"B": 1, "D": 1, "Sq": 1, "Sk": 1, "values": "sharp"}),
        (lambda one: int(one["D"]) % 8 == 0 and int(one["Sk"]) > 2, {"B": 1, "D": 8, "Sq": 1, "Sk": 3}),
        (lambda one: one["Sq"] == one["Sk"] and int(one["Sq"]) > 9, {"B": 1, "D": 1, "Sq": 10, "Sk": 10}),
    ],
)
def test_everything_that_does_not_matter_goes(fails: Fails, expected: dict[str, Scalar]) -> None:
    """Flags, kinds of values and sizes; the type stays."""
    assert {**expected, "dtype": "float32"} == shrunk(fails)[0]


@pytest.mark.parametrize("seed", range(200))
def test_what_is_found_fails_and_is_minimal(seed: int) -> None:
    """Whatever fails: never a workload that passes, none asked for that is larger, and one less passes."""
    draw = random.Random(seed)
    least = {name: draw.choice([1, 1, 2, 3, 17, 64]) for name in ("Sq", "Sk", "D")} | {"B": draw.choice([1, 2])}
    flags = draw.sample(["causal", "scale", "values"], draw.randrange(4))

    def fails(one: Entry) -> bool:
        return all(int(one[n]) >= size for n, size in least.items()) and all(f in one for f in flags)

    best, asked = shrunk(fails)
    assert fails(best) or best is START
    assert least == {name: best[name] for name in least}
    assert set(flags) == set(best) & {"causal", "scale", "values"}
    largest = {"B": 2, "Sq": 96, "Sk": 96, "D": 64}
    assert all(int(one[name]) <= size for one in asked for name, size in largest.items())


@pytest.mark.parametrize("seed", range(100))
def test_a_failure_without_any_order_still_ends_at_one_that_fails(seed: int) -> None:
    """Odd sizes, single sizes, chance: the search ends, and what it found fails."""

    def fails(one: Entry) -> bool:
        return one == START or random.Random(f"{seed} {sorted(one.items(), key=str)}").random() < 0.3

    best, asked = shrunk(fails)
    assert fails(best)
    assert len(asked) < 500


def test_small_sizes_are_tried_first() -> None:
    """They are the quick ones."""
    plain = {"B": 1, "S": 96, "D": 1, "dtype": "float32"}
    asked = [one["Sq"] for one in shrunk(lambda one: int(one["Sk"]) >= 65, plain)[1]]
    assert [1, 2, 4, 8, 16, 32, 64, 80, 72, 68, 66, 65] == asked[:12]


def test_kinds_of_failure() -> None:
    """What is declined with an error is another thing than a wrong answer; errors are told apart by number."""
    refused = Fault(text="error 3: no such shape: D=7", code="error 3")
    assert "" == kind_of(make_check())
    assert "wrong" == kind_of(make_check(right=False))
    assert "inexact" == kind_of(make_check(right=False, wrong=0))
    assert "crashed" == kind_of(make_check(right=False, status="crashed", message="crashed on w"))
    assert "crashed: outside" == kind_of(make_check(right=False, status="crashed", cause="outside"))
    assert "refused: error 3" == kind_of(
        make_check(right=False, status="refused", cause="declined", fault=refused)
    )


def checked(*checks: object) -> Failing | None:
    """What is looked into of these checks."""
    made = VariantChecks.model_validate({"variant": "cpu", "build_id": "b", "checks": checks, "emulated": True})
    return failing(made, SIGNATURE)


def wrong_on(**sizes: int) -> object:
    """A check that is wrong on a workload of these sizes."""
    workload = make_workload(str(sizes), sizes={"B": 1, "Sq": 8, "Sk": 8, "D": 8, **sizes})
    return make_check(right=False).model_copy(update={"workload": workload})


def test_nothing_wrong_is_nothing_to_look_into() -> None:
    """Not even what was declined in another layout."""
    assert checked(make_check(), make_check(status="unsupported", inputs="strided")) is None


def test_the_kind_that_most_show_is_looked_into() -> None:
    """From the smallest of them on."""
    crash = make_check(right=False, status="crashed", message="crashed with SIGSEGV on w")
    found = checked(crash, wrong_on(D=64), wrong_on(Sq=16, Sk=16), wrong_on(Sq=4, Sk=5))
    assert found is not None
    assert ("wrong", "cpu", "b") == (found.kind, found.variant, found.build_id)
    assert {"B": 1, "Sq": 16, "Sk": 16, "D": 8} == found.start.workload.sizes, "equal sizes before unequal ones"


def test_a_pattern_shows_best_where_half_is_wrong() -> None:
    """All wrong says nothing of the place, a single element little."""
    half = make_check(right=False, wrong=2048)
    found = checked(make_check(right=False, wrong=4096), half, make_check(right=False, wrong=1))
    assert found is not None
    assert half == found.telling
