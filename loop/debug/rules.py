"""Find a rule for when a variant fails, on sizes, attributes, types, values and layouts.

The caller runs the cases. `RuleSearch` keeps every rule that explains all cases so far. It proposes
the untried case on which likely rules differ most: so it bisects a threshold.
"""

import operator
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import prod

from loop.model.target import Scalar

Case = Mapping[str, Scalar]
"""Features of a call: sizes, attributes, `dtype`, `values`, `inputs` (layout)."""
BLOCK_SIZES = (*range(2, 17), 20, 24, 32, 48, 64, 96, 100, 128, 192, 256, 512, 1024)
"""Block sizes of the rules on multiples, as in `W % 8 != 0`."""
MAX_RULES = 40  # Most rules that are compared; the simplest are kept.
MIN_DOUBT = 0.02
"""Smallest share of likelihood on both sides of a case that makes the case worth a try."""
SIZES = (
    *(1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65),
    *(100, 128, 129, 256, 257, 384, 512, 640),
)
"""Sizes at which kernels often fail; random sizes are added."""
DRAWN_CASES = 6  # Random cases drawn around each tried case.
ENOUGH_PREDICTIONS, MIN_PREDICTIONS = 12, 6
"""Fresh cases in a row that a rule has to predict; the fewest if the budget ends the search."""
COMPARISONS = {("!=", "=="): operator.ne, (">", "<="): operator.gt, ("<", ">="): operator.lt}
"""Sign of a comparison of two sizes, and its opposite, to the function."""
JOINING_COST = 2.0
"""Cost of joining two rules by `and`, besides their own; `or` costs a little more."""
MAX_COST = 9.0  # Highest cost of a reported rule, because a more complex rule may fit by chance.


@dataclass(frozen=True)
class Rule:
    """A condition on a case; the variant is expected to fail where `holds` is true."""

    text: str
    opposite: str  # The negated condition, in words.
    cost: float  # Complexity in bits: the prior probability of the rule is 2 ** -cost.
    holds: Callable[..., bool]  # Takes a case.
    limits: tuple[tuple[str, int], ...] = ()
    """Thresholds: name of a size and its limit; cases near them are tried."""

    @property
    def negated(self) -> "Rule":
        """The opposite rule, which counts as slightly less simple."""
        return Rule(
            self.opposite,
            self.text,
            self.cost + 0.1,
            lambda case: not self.holds(case),
            self.limits,
        )


class RuleSearch:
    """Searches a rule. The caller runs `next_case` and tells `learn` whether it fails."""

    def __init__(
        self,
        tried_cases: Iterable[tuple[Case, bool]],
        sizes: Mapping[str, int],
        may_try: Callable[[Case], bool],
        random_source: random.Random,
    ) -> None:
        """`tried_cases`: cases, and whether each fails; `sizes`: dimension to its largest size;
        `may_try`: whether a case may be tried."""
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
            return round(
                min(by_outcome.values()), 6
            )  # Rounding errors must not decide between equal cases.

        case = max(self.untried, key=doubt, default=None)
        if case is not None and doubt(case) <= MIN_DOUBT * sum(
            likelihood for _, likelihood in likelihoods
        ):
            is_enough = self.predicted >= ENOUGH_PREDICTIONS
            has_both = min(len(self.failing), len(self.passing)) > 1  # Several of each.
            # Predicted failures and passes in turn; at the end one more of the rarer kind.
            should_fail = (
                len(self.failing) < len(self.passing) if is_enough else self.predicted % 2 == 0
            )
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
        return (
            self.rules[0] if self.rules and is_tested and self.rules[0].cost <= MAX_COST else None
        )

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
                sizes = {
                    *SIZES,
                    *range(size - 2, size + 3),
                    2 * size,
                    size // 2,
                    3 * size,
                    5 * size,
                }
                for step in BLOCK_SIZES:  # Tells `M == 31` from `M % 48 == 31`.
                    sizes |= {size - step, size + step}
                sizes |= {int(case[other]) for other in self.sizes}
                yield from ({**case, name: size} for size in sizes if 0 < size <= max_size)
            for name in (name for name in case if name not in self.sizes):
                values = dict.fromkeys(tried[name] for tried in (*self.failing, *self.passing))
                yield from ({**case, name: value} for value in values)
            for _ in range(DRAWN_CASES if self.sizes else 0):
                names = self.random.sample(
                    list(self.sizes), self.random.randint(1, len(self.sizes))
                )
                drawn = {
                    name: self.random.choice(SIZES) * self.random.choice((1, 8)) for name in names
                }
                yield {
                    **case,
                    **{name: min(size, self.sizes[name]) for name, size in drawn.items()},
                }

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
        # Broad rules hold in all failing cases, perhaps in passing ones; strict ones in no passing case.
        broad = [rule for rule in conditions if all(map(rule.holds, self.failing))]
        strict = [rule for rule in conditions if not any(map(rule.holds, self.passing))]
        rules = [rule for rule in strict if all(map(rule.holds, self.failing))]
        if not self.passing:
            rules.append(Rule("always", "never", 0.5, lambda case: True))
        else:
            rules += _pairs(broad, self.passing)
            rules += [
                rule.negated for rule in _pairs([rule.negated for rule in strict], self.failing)
            ]
        return sorted({rule.text: rule for rule in rules}.values(), key=lambda rule: rule.cost)[
            :MAX_RULES
        ]

    def _conditions(self) -> Iterator[Rule]:
        """Rules of one condition: on a size that differs between cases (multiples, remainders,
        powers of two, equality, thresholds), on two sizes, and on attributes, type, values and
        layout. Simple ones cost less."""
        cases = [*self.failing, *self.passing]
        values_by_name = {
            name: list(dict.fromkeys(case[name] for case in cases)) for name in cases[0]
        }
        differing = [name for name, values in values_by_name.items() if len(values) > 1]
        sizes = [name for name in differing if name in self.sizes]
        for name in sizes:
            failing_sizes = sorted({int(case[name]) for case in self.failing})
            for step in BLOCK_SIZES:
                is_power = step & (step - 1) == 0
                texts = (f"{name} % {step} != 0", f"{name} % {step} == 0")
                cost = (1.0 if is_power else 3.0) + (step > 64)
                yield Rule(*texts, cost, lambda case, n=name, s=step: int(case[n]) % s != 0)
                remainders = {size % step for size in failing_sizes} - {0}
                for remainder in sorted(remainders) if step <= 64 else ():
                    texts = (f"{name} % {step} == {remainder}", f"{name} % {step} != {remainder}")
                    cost = 2.5 if is_power else 3.5
                    yield Rule(
                        *texts,
                        cost,
                        lambda case, n=name, s=step, r=remainder: int(case[n]) % s == r,
                    )
            texts = (f"{name} is no power of two", f"{name} is a power of two")
            yield Rule(*texts, 3.0, lambda case, n=name: int(case[n]).bit_count() != 1)
            for size in sorted({0, 1, *failing_sizes}):
                cost = 1.5 if size < 2 else 3.0 if _is_round(size) else 4.0
                texts = (f"{name} == {size}", f"{name} != {size}")
                yield Rule(*texts, cost, lambda case, n=name, s=size: case[n] == s)
            limits: set[int] = set()  # Thresholds between tried sizes.
            for low, high in pairwise(sorted(int(size) for size in values_by_name[name])):
                powers = [1 << bit for bit in range(low.bit_length(), high.bit_length() + 1)][-3:]
                candidates = (
                    low + 1,
                    (low + high + 1) // 2,
                    high,
                    *powers,
                    *(power + 1 for power in powers),
                )
                limits |= {limit for limit in candidates if low < limit <= high}
            for limit in sorted(limits):
                is_rounder, texts = (
                    _is_round(limit - 1),
                    (f"{name} >= {limit}", f"{name} < {limit}"),
                )
                if is_rounder:  # As `D > 512`.
                    texts = (f"{name} > {limit - 1}", f"{name} <= {limit - 1}")
                cost = 1.5 if _is_round(limit) or is_rounder else 3.0
                yield Rule(
                    *texts, cost, lambda case, n=name, m=limit: int(case[n]) >= m, ((name, limit),)
                )
        for first, second in combinations(sizes, 2):
            for (sign, opposite), compare in COMPARISONS.items():
                texts = (f"{first} {sign} {second}", f"{first} {opposite} {second}")
                yield Rule(
                    *texts, 2.0, lambda case, a=first, b=second, c=compare: c(case[a], case[b])
                )
        for name in differing:
            for choice in values_by_name[name] if name not in self.sizes else ():
                word = str(choice).lower() if isinstance(choice, bool) else str(choice)
                verb = "are" if name in ("inputs", "values") else "is"
                texts = (f"{name} {verb} {word}", f"{name} {verb} not {word}")
                yield Rule(*texts, 1.0, lambda case, n=name, c=choice: case[n] == c)


def _pairs(rules: Iterable[Rule], cases: Sequence[Case]) -> Iterator[Rule]:
    """Pairs of rules, joined by `and`, that hold together in none of these cases. Of rules that
    hold in the same cases only the simplest is joined."""
    rule_by_mask: dict[int, Rule] = {}  # Bit n of a mask: whether the rule holds in case n.
    for rule in sorted(rules, key=lambda rule: rule.cost):
        rule_by_mask.setdefault(
            sum(1 << n for n, case in enumerate(cases) if rule.holds(case)), rule
        )
    for (mask, first), (other_mask, second) in combinations(
        [*rule_by_mask.items()][: 4 * MAX_RULES], 2
    ):
        if not mask & other_mask:
            texts = f"{first.text} and {second.text}", f"{first.opposite} or {second.opposite}"
            cost, limits = first.cost + second.cost + JOINING_COST, (*first.limits, *second.limits)
            yield Rule(
                *texts,
                cost,
                lambda case, a=first, b=second: a.holds(case) and b.holds(case),
                limits,
            )


def _is_round(size: int) -> bool:
    """Whether a size is a power of two above 1 or a multiple of 64."""
    return size > 1 and (size.bit_count() == 1 or size % 64 == 0)
