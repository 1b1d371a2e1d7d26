"""Find a rule for when a variant fails, on sizes, attributes, types, values and layouts.

The caller runs the cases. `RuleSearch` keeps every rule that explains all cases so far. It proposes
the untried case on which likely rules differ most: so it bisects a threshold.
"""

import operator
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import prod

from loop.model.target import Scalar

Case = Mapping[str, Scalar]  # Sizes, attributes, `dtype`, `values`, `inputs` (layout).
BLOCK_SIZES = (*range(2, 17), 20, 24, 32, 48, 64, 96, 100, 128, 192, 256, 512, 1024)
"""Block sizes of the rules on multiples, as in `W % 8 != 0`."""
MAX_RULES = 40  # Most rules that are compared; the simplest are kept.
MIN_DOUBT = 0.02  # Smallest share of likelihood on both sides of a case worth a try.
SIZES = (  # Sizes at which kernels often fail; random sizes are added.
    *(1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65),
    *(100, 128, 129, 256, 257, 384, 512, 640),
)
DRAWN_CASES = 6  # Random cases drawn around each tried case.
ENOUGH_PREDICTIONS, MIN_PREDICTIONS = 12, 6  # Fresh cases predicted in a row; fewest without time.
COMPARISONS = {("!=", "=="): operator.ne, (">", "<="): operator.gt, ("<", ">="): operator.lt}
"""Sign of a comparison of two sizes, and its opposite, to the function."""
JOINING_COST = 2.0  # Of two rules by `and`, besides their own; `or` costs a little more.
MAX_COST = 9.0  # Highest cost of a reported rule, because a more complex rule may fit by chance.


@dataclass(frozen=True)
class Rule:
    """A condition on a case; the variant is expected to fail where `holds` is true."""

    text: str
    opposite: str  # The negated condition, in words.
    cost: float  # Complexity in bits: the prior probability of the rule is 2 ** -cost.
    holds: Callable[..., bool]  # Takes a case.
    limits: tuple[tuple[str, int], ...] = ()  # Names and limits of sizes to try near.

    @property
    def negated(self) -> "Rule":
        """The opposite rule, which counts as slightly less simple."""
        swapped = replace(self, text=self.opposite, opposite=self.text, cost=self.cost + 0.1)
        return replace(swapped, holds=lambda case: not self.holds(case))


class RuleSearch:
    """Searches a rule. The caller runs `next_case` and tells `learn` whether it fails."""

    def __init__(
        self,
        tried_cases: Iterable[tuple[Case, bool]],
        sizes: Mapping[str, int],
        may_try: Callable[[Case], bool],
        random_source: random.Random,
    ) -> None:
        """`tried_cases`: with whether each fails; `sizes`: dimension to its largest size."""
        self.sizes, self.may_try, self.random = sizes, may_try, random_source
        tried = list(tried_cases)
        self.failing: list[Case] = [case for case, fails in tried if fails]
        self.passing: list[Case] = [case for case, fails in tried if not fails]
        self.seen = {frozenset(case.items()) for case in (*self.failing, *self.passing)}
        self.untried: list[Case] = []  # Cases that wait to be tried.
        self._queue_cases(self._propose_cases([*self.failing[:3], *self.passing[-2:]]))
        self.rules = self._find_rules()  # Rules that explain every case, the simplest first.
        self.predicted = 0  # Fresh cases in a row that the leading rule has predicted.

    def next_case(self) -> Case | None:
        """The next case to try: one on which the likely rules differ; if there is none, one that
        tests the leading rule. None at the end of the search."""
        if not self.rules:
            return None
        leading = self.rules[0]
        self._queue_cases(self._cases_at_limits(leading))
        likelihoods = [(rule, 2.0**-rule.cost) for rule in self.rules]

        def doubt(case: Case) -> float:
            """The smaller likelihood: of rules that expect a failure, or of the others."""
            by_outcome = {True: 0.0, False: 0.0}
            for rule, likelihood in likelihoods:
                by_outcome[rule.holds(case)] += likelihood
            return round(min(by_outcome.values()), 6)  # Rounding must not decide between equals.

        case = max(self.untried, key=doubt, default=None)
        total = sum(likelihood for _, likelihood in likelihoods)
        if case is not None and doubt(case) <= MIN_DOUBT * total:
            is_enough = self.predicted >= ENOUGH_PREDICTIONS
            has_both = min(len(self.failing), len(self.passing)) > 1  # Several of each.
            should_fail = self.predicted % 2 == 0  # In turn; at the end one of the rarer kind.
            if is_enough:
                should_fail = len(self.failing) < len(self.passing)
            expected = [case for case in self.untried if leading.holds(case) == should_fail]
            if is_enough and (has_both or not expected):
                return None
            case = self.random.choice(expected or self.untried)
        if case is not None:
            self.untried.remove(case)
        return case

    def learn(self, case: Case, *, fails: bool) -> None:
        """Drop rules that a case contradicts; count the leading rule's predictions in a row."""
        leading = self.rules[0]
        (self.failing if fails else self.passing).append(case)
        self.rules = self._find_rules()
        still_leads = bool(self.rules) and self.rules[0].text == leading.text
        self.predicted = self.predicted + 1 if still_leads else 0

    @property
    def conclusion(self) -> Rule | None:
        """The leading rule if it is simple, predicted enough fresh cases, and tells wrong cases
        from right ones, several of each; else None."""
        has_both = min(len(self.failing), len(self.passing)) > 1
        is_tested = has_both and self.predicted >= MIN_PREDICTIONS
        leading = self.rules[0] if self.rules and is_tested else None
        return leading if leading and leading.cost <= MAX_COST else None

    def _queue_cases(self, cases: Iterable[Case]) -> None:
        """Queue new cases that may be tried, small ones first, because they are quick."""
        for case in cases:
            if frozenset(case.items()) not in self.seen and self.may_try(case):
                self.seen.add(frozenset(case.items()))
                self.untried.append(case)
        self.untried.sort(key=lambda case: prod(int(case[name]) for name in self.sizes))

    def _propose_cases(self, around: Sequence[Case]) -> Iterator[Case]:
        """Cases near these: one feature changed, two sizes made equal, or several sizes drawn."""
        for case in around:
            for name, max_size in self.sizes.items():
                size = int(case[name])
                near = range(size - 2, size + 3)
                sizes = {*SIZES, *near, 2 * size, size // 2, 3 * size, 5 * size}
                for step in BLOCK_SIZES:  # Tells `M == 31` from `M % 48 == 31`.
                    sizes |= {size - step, size + step}
                sizes |= {int(case[other]) for other in self.sizes}
                yield from ({**case, name: size} for size in sizes if 0 < size <= max_size)
            for name in (name for name in case if name not in self.sizes):
                values = dict.fromkeys(tried[name] for tried in (*self.failing, *self.passing))
                yield from ({**case, name: value} for value in values)
            choose = self.random.choice
            for _ in range(DRAWN_CASES if self.sizes else 0):
                count = self.random.randint(1, len(self.sizes))
                names = self.random.sample(list(self.sizes), count)
                drawn = {name: choose(SIZES) * choose((1, 8)) for name in names}
                yield {**case, **{name: min(drawn[name], self.sizes[name]) for name in names}}

    def _cases_at_limits(self, rule: Rule) -> Iterator[Case]:
        """Cases on both sides of a rule's limits, and halfway between the nearest tried sizes; also
        with all sizes that are equal changed together."""
        for name, limit in rule.limits:
            tried_sizes = [int(case[name]) for case in (*self.failing, *self.passing)]
            below = max((size for size in tried_sizes if size < limit), default=0)
            above = min((size for size in tried_sizes if size >= limit), default=limit)
            for case in (*self.failing[:2], *self.passing[-2:]):
                equal = [other for other in self.sizes if case[other] == case[name]]
                for size in {limit, limit - 1, (below + above) // 2}:
                    if 0 < size <= self.sizes[name]:
                        yield from ({**case, name: size}, {**case, **dict.fromkeys(equal, size)})

    def _find_rules(self) -> list[Rule]:
        """Rules that explain every case, simplest first, with pairs joined by `and` or `or`. A rule
        explains all if it holds in every failing and in no passing case."""
        conditions = [sense for rule in self._conditions() for sense in (rule, rule.negated)]
        # Broad rules hold in all failing cases, perhaps in passing ones; strict ones in no passing.
        broad = [rule for rule in conditions if all(map(rule.holds, self.failing))]
        strict = [rule for rule in conditions if not any(map(rule.holds, self.passing))]
        rules = [rule for rule in strict if all(map(rule.holds, self.failing))]
        if not self.passing:
            rules.append(Rule("always", "never", 0.5, lambda case: True))
        else:
            rules += _pairs(broad, self.passing)
            negated = [rule.negated for rule in strict]
            rules += [rule.negated for rule in _pairs(negated, self.failing)]
        rule_by_text = {rule.text: rule for rule in rules}
        return sorted(rule_by_text.values(), key=lambda rule: rule.cost)[:MAX_RULES]

    def _conditions(self) -> Iterator[Rule]:
        """Rules of one condition, simple ones cheaper: on a size that differs (multiple, remainder,
        power of two, equality, threshold), two sizes, attributes, type, values, layout."""
        cases = [*self.failing, *self.passing]
        values = {name: list(dict.fromkeys(case[name] for case in cases)) for name in cases[0]}
        differing = [name for name in values if len(values[name]) > 1]
        sizes = [name for name in differing if name in self.sizes]
        for name in sizes:
            failing_sizes = sorted({int(case[name]) for case in self.failing})
            for step in BLOCK_SIZES:
                is_power = step & (step - 1) == 0
                texts = (f"{name} % {step} != 0", f"{name} % {step} == 0")
                cost = (1.0 if is_power else 3.0) + (step > 64)
                yield Rule(*texts, cost, lambda case, n=name, s=step: int(case[n]) % s != 0)
                remainders = {size % step for size in failing_sizes} - {0}
                for rest in sorted(remainders) if step <= 64 else ():
                    texts = (f"{name} % {step} == {rest}", f"{name} % {step} != {rest}")
                    terms = (*texts, 2.5 if is_power else 3.5)
                    yield Rule(*terms, lambda case, n=name, s=step, r=rest: int(case[n]) % s == r)
            texts = (f"{name} is no power of two", f"{name} is a power of two")
            yield Rule(*texts, 3.0, lambda case, n=name: int(case[n]).bit_count() != 1)
            for size in sorted({0, 1, *failing_sizes}):
                cost = 1.5 if size < 2 else 3.0 if _is_round(size) else 4.0
                texts = (f"{name} == {size}", f"{name} != {size}")
                yield Rule(*texts, cost, lambda case, n=name, s=size: case[n] == s)
            limits: set[int] = set()  # Thresholds between tried sizes.
            for low, high in pairwise(sorted(int(size) for size in values[name])):
                powers = [1 << bit for bit in range(low.bit_length(), high.bit_length() + 1)][-3:]
                candidates = {low + 1, (low + high + 1) // 2, high, *powers}
                candidates.update(power + 1 for power in powers)
                limits |= {limit for limit in candidates if low < limit <= high}
            for edge in sorted(limits):
                is_rounder = _is_round(edge - 1)  # As `D > 512`.
                texts = (f"{name} >= {edge}", f"{name} < {edge}")
                if is_rounder:
                    texts = (f"{name} > {edge - 1}", f"{name} <= {edge - 1}")
                terms = (*texts, 1.5 if _is_round(edge) or is_rounder else 3.0)
                yield Rule(*terms, lambda case, n=name, m=edge: int(case[n]) >= m, ((name, edge),))
        for first, second in combinations(sizes, 2):
            for (sign, opposite), test in COMPARISONS.items():
                texts = (f"{first} {sign} {second}", f"{first} {opposite} {second}")
                yield Rule(*texts, 2.0, lambda case, a=first, b=second, c=test: c(case[a], case[b]))
        for name in differing:
            for choice in values[name] if name not in self.sizes else ():
                word = str(choice).lower() if isinstance(choice, bool) else str(choice)
                verb = "are" if name in ("inputs", "values") else "is"
                texts = (f"{name} {verb} {word}", f"{name} {verb} not {word}")
                yield Rule(*texts, 1.0, lambda case, n=name, c=choice: case[n] == c)


def _pairs(rules: Iterable[Rule], cases: Sequence[Case]) -> Iterator[Rule]:
    """Pairs of rules, joined by `and`, that hold together in none of these cases. Of rules that
    hold in the same cases only the simplest is joined."""
    rule_by_mask: dict[int, Rule] = {}  # Bit n of a mask: whether the rule holds in case n.
    for rule in sorted(rules, key=lambda rule: rule.cost):
        mask = sum(1 << n for n, case in enumerate(cases) if rule.holds(case))
        rule_by_mask.setdefault(mask, rule)
    simplest = [*rule_by_mask.items()][: 4 * MAX_RULES]
    for (mask, first), (other_mask, second) in combinations(simplest, 2):
        if not mask & other_mask:
            texts = f"{first.text} and {second.text}", f"{first.opposite} or {second.opposite}"
            terms = (*texts, first.cost + second.cost + JOINING_COST)
            joined = Rule(*terms, lambda case, a=first, b=second: a.holds(case) and b.holds(case))
            yield replace(joined, limits=(*first.limits, *second.limits))


def _is_round(size: int) -> bool:
    """Whether a size is a power of two above 1 or a multiple of 64."""
    return size > 1 and (size.bit_count() == 1 or size % 64 == 0)
