"""Rules on when a kernel fails, from few cases: kernels are functions here, so nothing runs."""

import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence

import pytest

from loop.debug.rules import ENOUGH_PREDICTIONS, MIN_PREDICTIONS, Case, RuleSearch

WORDS: Case = {"dtype": "float32", "values": "normal", "inputs": "contiguous", "causal": False}
TWO = [(64, 64), (64, 256), (1, 8), (1, 100), (7, 8), (7, 100), (33, 8), (33, 101), (16, 2048)]
Kernel = Callable[[Mapping[str, int]], bool]


def search(wrong: Kernel, sizes: Sequence[tuple[int, int]] = TWO, seed: int = 0) -> RuleSearch:
    """A search that begins with kernels of sizes N and D, with and without `causal`."""
    cases = [
        {**WORDS, "N": n, "D": d, "causal": causal} for (n, d), causal in itertools.product(sizes, (False, True))
    ]
    tried = [(case, wrong(case)) for case in cases]
    most = {"N": 128, "D": 4096}
    return RuleSearch(tried, most, lambda case: True, random.Random(seed))


def run_search(hunt: RuleSearch, wrong: Kernel, most: int = 60) -> int:
    """Let a search try at most `most` cases; returns how many it tried."""
    for number in range(most):
        case = hunt.next_case()
        if case is None:
            return number
        hunt.learn(case, fails=wrong(case))
    return most


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (lambda case: case["D"] % 8 != 0, "D % 8 != 0"),
        (lambda case: case["N"] % 3 == 1, "N % 3 == 1"),
        (lambda case: case["D"] > 512, "D > 512"),
        (lambda case: case["D"] >= 701, "D >= 701"),
        (lambda case: case["N"] != case["D"], "N != D"),
        (lambda case: case["D"] & (case["D"] - 1) != 0, "D is no power of two"),
        (lambda case: case["N"] == 1, "N == 1"),
        (lambda case: case["causal"] and case["N"] != case["D"], "causal is true and N != D"),
        (lambda case: case["D"] % 4 != 0 and case["N"] > 16, "D % 4 != 0 and N > 16"),
        (lambda case: case["D"] % 16 != 0 or case["N"] % 16 != 0, "D % 16 != 0 or N % 16 != 0"),
        (lambda case: True, ""),
        (lambda case: case["N"] == 33 and case["D"] == 101 and case["causal"], ""),
    ],
)
def test_a_rule_is_found_from_few_cases(wrong: Kernel, expected: str) -> None:
    """Multiples, thresholds, relations, attributes and pairs of them are found; no rule where none fits."""
    hunt = search(wrong)
    assert run_search(hunt, wrong) < 60
    rule = hunt.conclusion.text if hunt.conclusion else ""
    assert sorted(re.split(" and | or ", expected)) == sorted(re.split(" and | or ", rule))
    assert (" and " in expected) == (" and " in rule)
    assert not expected or hunt.predicted >= ENOUGH_PREDICTIONS


@pytest.mark.parametrize("seed", range(4))
def test_one_size_is_told_from_a_remainder(seed: int) -> None:
    """N == 31 also fits N % 48 == 31: cases that separate the two are tried."""
    cases = [{"N": size, "D": 64} for size in (1, 7, 31, 33, 64, 127, 129)]
    tried = [(case, case["N"] == 31) for case in cases]
    hunt = RuleSearch(tried, {"N": 256, "D": 256}, lambda case: True, random.Random(seed))
    run_search(hunt, lambda case: case["N"] == 31)
    assert "N == 31" == (hunt.conclusion.text if hunt.conclusion else "")


def test_a_rule_is_said_only_after_it_foresaw_fresh_cases() -> None:
    """Rules that fit the first checks are only reported after enough right predictions."""

    def wrong(case: Mapping[str, int]) -> bool:
        return case["D"] % 8 != 0

    hunt = search(wrong)
    assert hunt.rules
    assert hunt.conclusion is None
    run_search(hunt, wrong, MIN_PREDICTIONS - 1)
    assert hunt.conclusion is None


@pytest.mark.parametrize("seed", range(5))
def test_what_fails_by_chance_has_no_rule(seed: int) -> None:
    """Fresh cases refute a rule that fits by chance."""
    draw = random.Random(seed)
    hunt = search(lambda case: draw.random() < 0.5, seed=seed)
    run_search(hunt, lambda case: draw.random() < 0.5)
    assert hunt.conclusion is None
