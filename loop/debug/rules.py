"""Find a rule for when a variant fails, on sizes, attributes, types, values and layouts.

The caller runs the cases. `RuleSearch` keeps every rule that explains all cases so far. It proposes the untried
case on which the likely rules differ most. So it bisects a threshold, or tells "no multiple of 8" from "odd".
"""

import operator
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import prod
from typing import Literal

from loop.model.target import Scalar

Case = Mapping[str, Scalar]
"""Features of a call: sizes, attributes, `dtype`, `values`, their `scale`, `inputs` (layout)."""
BLOCK_SIZES = (*range(2, 17), 20, 24, 32, 48, 64, 96, 100, 128, 192, 256, 512, 1024)
"""Block sizes of the rules on multiples, as in `W % 8 != 0`."""
MAX_RULES = 40
"""Most rules that are compared; the simplest are kept."""
MIN_DOUBT = 0.02
"""Smallest share of likelihood on both sides of a case that makes the case worth a try."""
ALWAYS = "always"
SCALES = (0.001, 4.0, 16.0, 64.0, 256.0)
"""Standard deviations of input values that are tried, besides 1."""
SIZES = (
    *(1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65),
    *(100, 128, 129, 256, 257, 384, 512, 640),
)
"""Sizes at which kernels often fail; random sizes are added."""
DRAWN_CASES = 6
"""Random cases drawn around each tried case."""
ENOUGH_PREDICTIONS, MIN_PREDICTIONS = 12, 6
"""Fresh cases in a row that a rule has to predict; the fewest if the budget ends the search."""
COMPARISONS = {("!=", "=="): operator.ne, (">", "<="): operator.gt, ("<", ">="): operator.lt}
"""Sign of a comparison of two sizes, and its opposite, to the function."""
MAX_COST = 9.0
"""Highest cost of a reported rule, because a more complex rule may fit by chance."""


@dataclass(frozen=True)
class Rule:
    """A condition on a case; the variant is expected to fail where `holds` is true."""

    text: str
    opposite: str
    """The negated condition, in words."""
    cost: float
    """Complexity in bits: the prior probability of the rule is 2 ** -cost."""
    holds: Callable[..., bool]
    """Takes a case."""
    limits: tuple[tuple[tuple[str, ...], float], ...] = ()
    """Pairs for rules with a threshold: names of sizes, and the limit of their product."""

    @property
    def sentence(self) -> str:
        """The rule in words, as in `wrong where W % 8 != 0, right where W % 8 == 0`."""
        if self.text == ALWAYS:
            return "wrong at every size that was tried"
        return f"wrong where {self.text}, right where {self.opposite}"


class RuleSearch:
    """Searches a rule. The caller runs each case from `next` and passes the result to `learn`."""

    def __init__(
        self,
        tried_cases: Iterable[tuple[Case, bool]],
        sizes: Mapping[str, int],
        choices: Mapping[str, Sequence[Scalar]],
        may_try: Callable[[Case], bool],
        random_source: random.Random,
    ) -> None:
        """`tried_cases`: cases, and whether each fails; `sizes`: dimension to its largest size; `choices`: other
        feature to its values; `may_try`: whether a case may be tried."""
        self.sizes, self.choices, self.may_try, self.random = sizes, choices, may_try, random_source
        self.failing: list[Case] = []
        self.passing: list[Case] = []
        """Cases that passed; `failing` above has those that failed."""
        cases = list(tried_cases)
        self.differing = [name for name in sizes if len({case[name] for case, _ in cases}) > 1]
        products: list[tuple[str, ...]] = [*combinations(self.differing, 2)]
        if len(self.differing) > 2:
            products.append(tuple(self.differing))
        self.quantities = (*self.differing, *("*".join(names) for names in products))
        """Dimensions whose sizes differ between cases, and products of two or all of them."""
        cases = [(self._with_products(case), fails) for case, fails in cases]
        for case, fails in cases:
            (self.failing if fails else self.passing).append(case)
        rules = [*self._size_rules(), *self._choice_rules([case for case, _ in cases])]
        self.conditions = [*rules, *(_opposite(rule, rule.cost + 0.1) for rule in rules)]
        """Rules of one condition without a threshold that may still be the rule or a part of it."""
        self.seen_keys = {tuple(sorted(case.items())) for case, _ in cases}
        self.untried: list[Case] = []
        """Cases that wait to be tried."""
        self._queue_cases(self._propose_cases([*self.failing[:3], *self.passing[-2:]]))
        self.rules = self._find_rules()
        """Rules that explain every case, the simplest first."""
        self.predicted = 0
        """Fresh cases in a row that the leading rule has predicted."""

    def next_case(self) -> Case | None:
        """The next case to try; None at the end of the search. It decides between rules, or tests the first."""
        if not self.rules:
            return None
        leading = self.rules[0]
        self._queue_cases(self._cases_at_limits(leading))
        case = self._most_decisive()
        if case is None and self.predicted < ENOUGH_PREDICTIONS and self.untried:
            should_fail = self.predicted % 2 == 0  # Alternate predicted failures and passes.
            predicted = [case for case in self.untried if leading.holds(case) == should_fail]
            case = self.random.choice(predicted or self.untried)
        if case is not None:
            self.untried.remove(case)
        return case

    def learn(self, case: Case, fails: bool) -> None:
        """Drop the rules that a result contradicts; count results that the leading rule predicted."""
        leading = self.rules[0]
        (self.failing if fails else self.passing).append(case)
        self.rules = self._find_rules()
        still_leads = bool(self.rules) and self.rules[0].text == leading.text
        self.predicted = self.predicted + 1 if still_leads else 0

    @property
    def conclusion(self) -> Rule | None:
        """The leading rule if it is simple and predicted enough fresh cases; else None."""
        if not self.rules or self.predicted < MIN_PREDICTIONS or self.rules[0].cost > MAX_COST:
            return None
        return self.rules[0]

    def _with_products(self, case: Case) -> dict[str, Scalar]:
        """The case, extended by the products of its sizes."""
        products = {name: prod(int(case[factor]) for factor in name.split("*")) for name in self.quantities}
        return {**case, **products}

    def _queue_cases(self, cases: Iterable[Case]) -> None:
        """Queue new cases that may be tried, small ones first, because they are quick."""
        for case in map(self._with_products, cases):
            key = tuple(sorted(case.items()))
            if key not in self.seen_keys and self.may_try(case):
                self.seen_keys.add(key)
                self.untried.append(case)
        self.untried.sort(key=lambda case: prod(int(case[name]) for name in self.sizes))

    def _propose_cases(self, around: Sequence[Case]) -> Iterator[Case]:
        """Cases near these: one feature changed, two sizes made equal, or several sizes drawn."""
        for case in around:
            for name, max_size in self.sizes.items():
                size = int(case[name])
                sizes = {*SIZES, *range(size - 2, size + 3), 2 * size, size // 2, 3 * size, 5 * size}
                for bit in range(2, 8):
                    sizes |= {size - (1 << bit), size + (1 << bit)}
                sizes |= {int(case[other]) for other in self.sizes}
                yield from ({**case, name: size} for size in sizes if 0 < size <= max_size)
            for name, values in self.choices.items():
                yield from ({**case, name: value} for value in values)
            for _ in range(DRAWN_CASES if self.sizes else 0):
                names = self.random.sample(list(self.sizes), self.random.randint(1, len(self.sizes)))
                yield {**case, **{name: _draw_size(self.sizes[name], self.random) for name in names}}

    def _most_decisive(self) -> Case | None:
        """The fresh case on which likely rules differ most; None where they agree on all."""
        likelihoods = [2.0**-rule.cost for rule in self.rules]
        total, most_decisive, most_doubt = sum(likelihoods), None, MIN_DOUBT
        for case in self.untried:
            weighted = zip(self.rules, likelihoods, strict=True)
            fails = sum(likelihood for rule, likelihood in weighted if rule.holds(case)) / total
            doubt = min(fails, 1 - fails)
            if doubt > most_doubt * 1.001:  # The margin: rounding must not decide between equal cases.
                most_decisive, most_doubt = case, doubt
        return most_decisive

    def _cases_at_limits(self, rule: Rule) -> Iterator[Case]:
        """Cases on both sides of a rule's limits, and halfway between the nearest tried sizes. Of a
        product of sizes the last one varies; also all sizes that equal it in the case together."""
        for names, limit in rule.limits:
            *other_names, varied = names
            tried_products = [int(case["*".join(names)]) for case in (*self.failing, *self.passing)]
            nearest_below = max((value for value in tried_products if value < limit), default=0)
            nearest_above = min((value for value in tried_products if value >= limit), default=limit)
            for case in (*self.failing[:2], *self.passing[-2:]):
                factor = prod(int(case[name]) for name in other_names)
                for product in {limit, limit - 1, (nearest_below + nearest_above) // 2} if factor else ():
                    size = int(product) // factor
                    if product == limit:  # Round up: the product has to reach the limit.
                        size = max(1, -(-int(product) // factor))
                    if size <= self.sizes[varied]:
                        equal = [name for name in self.sizes if case[name] == case[varied]]
                        yield from ({**case, varied: size}, {**case, **dict.fromkeys(equal, size)})

    def _find_rules(self) -> list[Rule]:
        """Rules that explain every case, simplest first, with pairs joined by `and` or `or`. A rule
        explains all if it holds in every failing and in no passing case. Masks have a bit per case."""
        candidates = [*self.conditions, *self._threshold_rules()]
        # Broad rules hold in all failing cases, perhaps in passing ones; strict ones in no passing case.
        broad = [rule for rule in candidates if all(map(rule.holds, self.failing))]
        strict = [rule for rule in candidates if not any(map(rule.holds, self.passing))]
        possible = {*broad, *strict}
        self.conditions = [rule for rule in self.conditions if rule in possible]
        broad_masks, strict_masks = _with_masks(broad, self.passing), _with_masks(strict, self.failing)
        all_failing = (1 << len(self.failing)) - 1
        rules = [rule for rule, passing in broad_masks if not passing]
        if not self.passing:
            rules.append(Rule(ALWAYS, "", 0.5, lambda case: True))
        else:
            for (a, mask_a), (b, mask_b) in _pair_up(broad_masks):
                if not mask_a & mask_b:
                    rules.append(_join("and", a, b))
            for (a, mask_a), (b, mask_b) in _pair_up(strict_masks):
                if mask_a | mask_b == all_failing:
                    rules.append(_join("or", a, b))
        if not rules:  # No single rule or pair fits: try three conditions joined by `and`.
            for (a, mask_a), (b, mask_b), (c, mask_c) in combinations(broad_masks[:MAX_RULES], 3):
                if not mask_a & mask_b & mask_c:
                    rules.append(_join("and", _join("and", a, b), c))
        return sorted({rule.text: rule for rule in rules}.values(), key=lambda rule: rule.cost)[:MAX_RULES]

    def _threshold_rules(self) -> Iterator[Rule]:
        """Rules with a threshold between tried sizes, products or scales, and their opposites."""
        for name in (*self.quantities, "scale"):
            tried_values = {float(case[name]) for case in (*self.failing, *self.passing)}
            for limit in SCALES if name == "scale" else _limits_between(tried_values):
                if min(tried_values) < limit <= max(tried_values):
                    rule = _threshold(name, limit)
                    yield from (rule, _opposite(rule, rule.cost))

    def _size_rules(self) -> Iterator[Rule]:
        """Rules on sizes and products: multiples, remainders, powers of two, equality and order. Simple
        rules cost less: on one size rather than a product, on powers of two, on small blocks."""
        for name in self.quantities:
            is_size = name in self.differing
            for step in BLOCK_SIZES:
                is_power = step & (step - 1) == 0
                if is_power or is_size:
                    texts = (f"{name} % {step} != 0", f"{name} % {step} == 0")
                    cost = (0.0 if is_size else 2.0) + (1.0 if is_power else 3.0) + (step > 64)
                    yield Rule(*texts, cost, lambda case, n=name, s=step: int(case[n]) % s != 0)
                remainders = {int(case[name]) % step for case in self.failing} - {0}
                for remainder in sorted(remainders) if is_size and step <= 64 else ():
                    texts = (f"{name} % {step} == {remainder}", f"{name} % {step} != {remainder}")
                    cost = 2.5 if is_power else 3.5
                    yield Rule(*texts, cost, lambda case, n=name, s=step, r=remainder: int(case[n]) % s == r)
            if is_size:
                texts = (f"{name} is no power of two", f"{name} is a power of two")
                yield Rule(*texts, 3.0, lambda case, n=name: int(case[n]).bit_count() != 1)
                for size in sorted({0, 1, *(int(case[name]) for case in self.failing)}):
                    texts = (f"{name} == {size}", f"{name} != {size}")
                    cost = 1.5 if size < 2 else 3.0 if _is_round(size) else 4.0
                    yield Rule(*texts, cost, lambda case, n=name, s=size: case[n] == s)
        for a, b in combinations(self.differing, 2):
            for (sign, opposite), compare in COMPARISONS.items():
                texts = (f"{a} {sign} {b}", f"{a} {opposite} {b}")
                yield Rule(*texts, 2.0, lambda case, a=a, b=b, c=compare: c(case[a], case[b]))

    def _choice_rules(self, cases: Sequence[Case]) -> Iterator[Rule]:
        """Rules on attributes, type, values and layout, where these differ between cases."""
        for name in cases[0]:
            choices = dict.fromkeys(case[name] for case in cases)
            if name in (*self.quantities, "scale") or len(choices) < 2:
                continue
            for choice in choices:
                word = str(choice).lower() if isinstance(choice, bool) else str(choice)
                verb = "are" if name in ("inputs", "values") else "is"
                texts = (f"{name} {verb} {word}", f"{name} {verb} not {word}")
                yield Rule(*texts, 1.0, lambda case, n=name, c=choice: case[n] == c)


def _opposite(rule: Rule, cost: float) -> Rule:
    """The rule that holds where `rule` does not; it changes at the same limits. `cost`: its own."""
    texts = {"text": rule.opposite, "opposite": rule.text}
    return replace(rule, **texts, cost=cost, holds=lambda case: not rule.holds(case))  # type: ignore[arg-type]


def _threshold(name: str, limit: float) -> Rule:
    """The rule `name >= limit` for a size, product or scale; as `D > 512` if that is rounder."""
    is_size = name != "scale"
    subject = name if is_size else "the values' standard deviation"
    is_rounder = is_size and _is_round(limit - 1)
    text, opposite = f"{subject} >= {limit:g}", f"{subject} < {limit:g}"
    if is_rounder:
        text, opposite = f"{subject} > {limit - 1:g}", f"{subject} <= {limit - 1:g}"
    cost = 2.0 * ("*" in name) + (1.5 if _is_round(limit) or is_rounder else 3)
    limits = ((tuple(name.split("*")), limit),) if is_size else ()
    return Rule(text, opposite, cost, lambda case: float(case[name]) >= limit, limits)


def _join(word: Literal["and", "or"], a: Rule, b: Rule) -> Rule:
    """The rule that holds where both hold (`and`), or where one of the two holds (`or`)."""
    other_word, extra_cost, combine = ("or", 2, all) if word == "and" else ("and", 3, any)
    text, opposite = f"{a.text} {word} {b.text}", f"{a.opposite} {other_word} {b.opposite}"
    cost, limits = a.cost + b.cost + extra_cost, (*a.limits, *b.limits)
    return Rule(text, opposite, cost, lambda case: combine((a.holds(case), b.holds(case))), limits)


def _with_masks(rules: Iterable[Rule], cases: Sequence[Case]) -> list[tuple[Rule, int]]:
    """Rules, the simplest first, each with a bit mask of the cases in which it holds."""
    masked_rules = []
    for rule in sorted(rules, key=lambda rule: rule.cost):
        mask = sum(1 << n for n, case in enumerate(cases) if rule.holds(case))
        masked_rules.append((rule, mask))
    return masked_rules


def _pair_up(simplest_first: Sequence[tuple[Rule, int]]) -> Iterator[Sequence[tuple[Rule, int]]]:
    """Pairs of rules, each with its mask, that hold in different cases: of equal masks the simplest."""
    # The simplest comes last, and stays.
    pair_by_mask = {mask: (rule, mask) for rule, mask in reversed(simplest_first)}
    pairs = sorted(pair_by_mask.values(), key=lambda pair: pair[0].cost)
    return combinations(pairs[: 4 * MAX_RULES], 2)


def _limits_between(sizes: set[float]) -> set[float]:
    """Candidate thresholds between tried sizes: size, size + 1, midpoints and powers of two."""
    limits: set[float] = set()
    for low, high in pairwise(sorted(sizes)):
        powers = [1 << bit for bit in range(int(low).bit_length(), int(high).bit_length() + 1)][-3:]
        candidates = (low + 1, (low + high + 1) // 2, high, *powers, *(power + 1 for power in powers))
        limits |= {limit for limit in candidates if low < limit <= high}
    return limits


def _is_round(size: float) -> bool:
    """Whether a size is a power of two above 1 or a multiple of 64."""
    return size > 1 and (int(size).bit_count() == 1 or size % 64 == 0)


def _draw_size(max_size: int, source: random.Random) -> int:
    """A random size up to `max_size`, log-uniform; about half are multiples of 8."""
    size = int(2 ** source.uniform(0, max(max_size, 1).bit_length()))
    if source.random() < 0.5 and size >= 8:
        size = size // 8 * 8
    return max(1, min(max_size, size))
