"""Find a rule for when a variant fails, on sizes, attributes, types, values and layouts.

The caller runs the cases. `RuleSearch` keeps every rule that explains all cases so far. It proposes the untried
case on which the likely rules differ most. So it bisects a threshold, or tells "no multiple of 8" from "odd".
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import prod

from loop.model.target import Scalar

Case = Mapping[str, Scalar]
"""Features of a call: sizes, attributes, `dtype`, `values`, their `scale`, `inputs` (layout)."""
STEPS = (*range(2, 17), 20, 24, 32, 48, 64, 96, 100, 128, 192, 256, 512, 1024)
"""Block sizes of the rules on multiples, as in `W % 8 != 0`."""
KEPT = 40
"""Most rules that are compared; the simplest are kept."""
DOUBT = 0.02
"""Smallest share of likelihood on both sides of a case that makes the case worth a try."""
ALWAYS = "always"
SCALES = (0.001, 4.0, 16.0, 64.0, 256.0)
"""Standard deviations of input values that are tried, besides 1."""
SIZES = (
    *(1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65),
    *(100, 128, 129, 256, 257, 384, 512, 640),
)
"""Sizes at which kernels often fail; random sizes are added."""
SPREAD = 6
"""Random cases drawn around each tried case."""
FRESH, LEAST = 12, 6
"""Fresh cases in a row that a rule has to predict; the fewest if the budget ends the search."""
MOST_COST = 9.0
"""Highest cost of a reported rule, because a more complex rule may fit by chance."""


@dataclass(frozen=True)
class Rule:
    """A condition on a case; the variant is expected to fail where `holds` is true."""

    text: str
    opposite: str
    """The negated condition, in words."""
    cost: float
    """Complexity in bits: the prior probability of the rule is 2 ** -cost."""
    holds: Callable[[Case], bool]
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
        tried: Iterable[tuple[Case, bool]],
        sizes: Mapping[str, int],
        choices: Mapping[str, Sequence[Scalar]],
        fits: Callable[[Case], bool],
        draw: random.Random,
    ) -> None:
        """`tried`: cases, and whether each fails; `sizes`: dimension to its largest size; `choices`: other
        feature to its values; `fits`: whether a case may be tried."""
        self.sizes, self.fits, self.draw = sizes, fits, draw
        self.failing: list[Case] = []
        self.passing: list[Case] = []
        """Cases that passed; `failing` above has those that failed."""
        cases = list(tried)
        self.differing = [name for name in sizes if len({case[name] for case, _ in cases}) > 1]
        pairs, every = combinations(self.differing, 2), [tuple(self.differing)]
        groups = [*pairs, *(every if len(self.differing) > 2 else [])]
        self.quantities = (*self.differing, *("*".join(names) for names in groups))
        """Dimensions whose sizes differ between cases, and products of two or all of them."""
        cases = [(self._with_products(case), fails) for case, fails in cases]
        for case, fails in cases:
            (self.failing if fails else self.passing).append(case)
        fixed = [*self._of_sizes(), *self._of_words([case for case, _ in cases])]
        self._wide = [rule for rule in fixed if all(rule.holds(case) for case in self.failing)]
        self._narrow = [rule for rule in fixed if not any(rule.holds(case) for case in self.passing)]
        self.known = {tuple(sorted(case.items())) for case, _ in cases}
        self.fresh: list[Case] = []
        self._offer(neighbours([*self.failing[:3], *self.passing[-2:]], sizes, choices, draw))
        self.rules = self._rules()
        """Rules that explain every case, the simplest first."""
        self.held = 0
        """Fresh cases in a row that the leading rule has predicted."""

    def next(self) -> Case | None:
        """The next case to try; None at the end of the search."""
        if not self.rules:
            return None
        self._offer(self._at_limits(self.rules[0]))
        case = self._telling()
        if case is None and self.held < FRESH and self.fresh:
            expected = self.held % 2 == 0  # Alternate predicted failures and passes.
            alike = [case for case in self.fresh if self.rules[0].holds(case) == expected] or self.fresh
            case = self.draw.choice(alike)
        if case is not None:
            self.fresh.remove(case)
        return case

    def learn(self, case: Case, fails: bool) -> None:
        """Drop the rules that a result contradicts; count results that the leading rule predicted."""
        before = self.rules[0]
        if fails:
            self.failing.append(case)
            self._wide = [rule for rule in self._wide if rule.holds(case)]
        else:
            self.passing.append(case)
            self._narrow = [rule for rule in self._narrow if not rule.holds(case)]
        self.rules = self._rules()
        same = bool(self.rules) and self.rules[0].text == before.text
        self.held = self.held + 1 if same else 0

    @property
    def found(self) -> Rule | None:
        """The leading rule if it is simple and predicted enough fresh cases; else None."""
        rule = self.rules[0] if self.rules and self.held >= LEAST else None
        return rule if rule and rule.cost <= MOST_COST else None

    def _with_products(self, case: Case) -> dict[str, Scalar]:
        """The case, extended by the products of its sizes."""
        products = {name: prod(int(case[factor]) for factor in name.split("*")) for name in self.quantities}
        return {**case, **products}

    def _offer(self, cases: Iterable[Case]) -> None:
        """Queue new cases that may be tried, small ones first, because they are quick."""
        for case in map(self._with_products, cases):
            key = tuple(sorted(case.items()))
            if key not in self.known and self.fits(case):
                self.known.add(key)
                self.fresh.append(case)
        self.fresh.sort(key=lambda case: prod(int(case[name]) for name in self.sizes))

    def _telling(self) -> Case | None:
        """The fresh case on which likely rules differ most; None where they agree on all."""
        shares = [2.0**-rule.cost for rule in self.rules]
        whole = sum(shares)
        best, most = None, DOUBT
        for case in self.fresh:
            fails = sum(share for rule, share in zip(self.rules, shares, strict=True) if rule.holds(case)) / whole
            if min(fails, 1 - fails) > most * 1.001:
                best, most = case, min(fails, 1 - fails)
        return best

    def _at_limits(self, rule: Rule) -> Iterator[Case]:
        """Cases on both sides of a rule's limits, and halfway between the nearest tried sizes."""
        for names, limit in rule.limits:
            values = [int(case["*".join(names)]) for case in (*self.failing, *self.passing)]
            low = max((value for value in values if value < limit), default=0)
            high = min((value for value in values if value >= limit), default=limit)
            for case in (*self.failing[:2], *self.passing[-2:]):
                others = prod(int(case[name]) for name in names[:-1])
                for wanted in {limit, limit - 1, (low + high) // 2} if others else ():
                    size = max(1, -(-int(wanted) // others) if wanted == limit else int(wanted) // others)
                    if size <= self.sizes[names[-1]]:
                        alike = [name for name in self.sizes if case[name] == case[names[-1]]]
                        yield from ({**case, names[-1]: size}, {**case, **dict.fromkeys(alike, size)})

    def _rules(self) -> list[Rule]:
        """Rules that explain every case, simplest first, with pairs joined by `and` or `or`."""
        limits = list(self._limits())
        wide = _with_bits([*self._wide, *(rule for rule, is_wide in limits if is_wide)], self.passing)
        narrow = _with_bits([*self._narrow, *(rule for rule, is_wide in limits if not is_wide)], self.failing)
        every = (1 << len(self.failing)) - 1
        rules = [rule for rule, passes in wide if not passes]
        if not self.passing:
            rules.append(Rule(ALWAYS, "", 0.5, lambda case: True))
        else:
            rules += [_both(a, b) for (a, x), (b, y) in _pairs(wide) if not x & y]
            rules += [_either(a, b) for (a, x), (b, y) in _pairs(narrow) if x | y == every]
        if not rules:  # No single rule or pair fits: try three conditions joined by `and`.
            triples = combinations(wide[:KEPT], 3)
            rules = [_both(_both(a, b), c) for (a, x), (b, y), (c, z) in triples if not x & y & z]
        return sorted({rule.text: rule for rule in rules}.values(), key=lambda rule: rule.cost)[:KEPT]

    def _limits(self) -> Iterator[tuple[Rule, bool]]:
        """Threshold rules, each with True: holds in all failing cases; False: in no passing case."""
        for name in (*self.quantities, "scale"):
            fails, passes = ([float(case[name]) for case in cases] for cases in (self.failing, self.passing))
            least, most = min(passes, default=math.inf), max(passes, default=-math.inf)
            for limit in _between({*fails, *passes}) if name != "scale" else SCALES:
                above = _threshold(name, limit)
                below = _opposite(above, above.cost)
                fit = (
                    (above, True, least < limit <= min(fails)),
                    (below, True, max(fails) < limit <= most),
                    (above, False, most < limit <= max(fails)),
                    (below, False, min(fails) < limit <= least),
                )
                yield from ((rule, is_wide) for rule, is_wide, fits in fit if fits)

    def _of_sizes(self) -> Iterator[Rule]:
        """Rules on sizes and products: multiples, remainders, powers of two, equality and order."""
        for name in self.quantities:
            single = name in self.differing
            for step in STEPS:
                power = step & (step - 1) == 0
                if power or single:
                    texts = (f"{name} % {step} != 0", f"{name} % {step} == 0")
                    cost = (0.0 if single else 2.0) + (1.0 if power else 3.0) + (step > 64)
                    yield from _pair(*texts, cost, lambda case, n=name, s=step: int(case[n]) % s != 0)
                rests = {int(case[name]) % step for case in self.failing} if single and step <= 64 else set()
                for rest in sorted(rests - {0}):
                    texts = (f"{name} % {step} == {rest}", f"{name} % {step} != {rest}")
                    cost = 2.5 if power else 3.5
                    yield from _pair(*texts, cost, lambda case, n=name, s=step, r=rest: int(case[n]) % s == r)
            if single:
                texts = (f"{name} is no power of two", f"{name} is a power of two")
                yield from _pair(*texts, 3.0, lambda case, n=name: int(case[n]).bit_count() != 1)
                for size in sorted({0, 1, *(int(case[name]) for case in self.failing)}):
                    texts = (f"{name} == {size}", f"{name} != {size}")
                    cost = 1.5 if size < 2 else 3.0 if _is_round(size) else 4.0
                    yield from _pair(*texts, cost, lambda case, n=name, s=size: case[n] == s)
        for a, b in combinations(self.differing, 2):
            yield from _pair(f"{a} != {b}", f"{a} == {b}", 2.0, lambda case, a=a, b=b: case[a] != case[b])
            yield from _pair(f"{a} > {b}", f"{a} <= {b}", 2.0, lambda case, a=a, b=b: int(case[a]) > int(case[b]))
            yield from _pair(f"{a} < {b}", f"{a} >= {b}", 2.0, lambda case, a=a, b=b: int(case[a]) < int(case[b]))

    def _of_words(self, cases: Sequence[Case]) -> Iterator[Rule]:
        """Rules on attributes, type, values and layout, where these differ between cases."""
        for name in cases[0]:
            choices = dict.fromkeys(case[name] for case in cases)
            if name in (*self.quantities, "scale") or len(choices) < 2:
                continue
            for choice in choices:
                word = str(choice).lower() if isinstance(choice, bool) else str(choice)
                verb = "are" if name in ("inputs", "values") else "is"
                texts = (f"{name} {verb} {word}", f"{name} {verb} not {word}")
                yield from _pair(*texts, 1.0, lambda case, n=name, c=choice: case[n] == c)


def _pair(text: str, opposite: str, cost: float, holds: Callable[..., bool]) -> Iterator[Rule]:
    rule = Rule(text, opposite, cost, holds)
    yield from (rule, _opposite(rule, cost + 0.1))


def _opposite(rule: Rule, cost: float) -> Rule:
    """The negated rule, with the same limits."""
    return Rule(rule.opposite, rule.text, cost, lambda case: not rule.holds(case), rule.limits)


def _threshold(name: str, limit: float) -> Rule:
    """The rule `name >= limit` for a size, product or scale; as `D > 512` if that is rounder."""
    words, names = ("the values' standard deviation", ()) if name == "scale" else (name, tuple(name.split("*")))
    after = bool(names) and _is_round(limit - 1)
    texts = (f"{words} > {limit - 1:g}", f"{words} <= {limit - 1:g}") if after else ()
    text, opposite = texts or (f"{words} >= {limit:g}", f"{words} < {limit:g}")
    cost = 2.0 * (len(names) > 1) + (1.5 if _is_round(limit) or after else 3)
    return Rule(text, opposite, cost, lambda case: float(case[name]) >= limit, ((names, limit),) if names else ())


def _both(a: Rule, b: Rule) -> Rule:
    text, opposite = f"{a.text} and {b.text}", f"{a.opposite} or {b.opposite}"
    cost, limits = a.cost + b.cost + 2, (*a.limits, *b.limits)
    return Rule(text, opposite, cost, lambda case: a.holds(case) and b.holds(case), limits)


def _either(a: Rule, b: Rule) -> Rule:
    text, opposite = f"{a.text} or {b.text}", f"{a.opposite} and {b.opposite}"
    cost, limits = a.cost + b.cost + 3, (*a.limits, *b.limits)
    return Rule(text, opposite, cost, lambda case: a.holds(case) or b.holds(case), limits)


def _with_bits(rules: Iterable[Rule], cases: Sequence[Case]) -> list[tuple[Rule, int]]:
    """Rules, the simplest first, each with a bit mask of the cases in which it holds."""
    simple = sorted(rules, key=lambda rule: rule.cost)
    return [(rule, sum(1 << n for n, case in enumerate(cases) if rule.holds(case))) for rule in simple]


def _pairs(rules: Sequence[tuple[Rule, int]]) -> list[tuple[tuple[Rule, int], tuple[Rule, int]]]:
    """Pairs of rules that hold in different cases; of rules with equal masks only the simplest."""
    alone = list({bits: (rule, bits) for rule, bits in reversed(rules)}.values())
    return list(combinations(sorted(alone, key=lambda pair: pair[0].cost)[: 4 * KEPT], 2))


def _between(sizes: set[float]) -> set[float]:
    """Candidate thresholds between tried sizes: size, size + 1, midpoints and powers of two."""
    limits: set[float] = set()
    for low, high in pairwise(sorted(sizes)):
        powers = [1 << bit for bit in range(int(low).bit_length(), int(high).bit_length() + 1)][-3:]
        some = (low + 1, (low + high + 1) // 2, high, *powers, *(power + 1 for power in powers))
        limits |= {limit for limit in some if low < limit <= high}
    return limits


def _is_round(size: float) -> bool:
    """Whether a size is a power of two above 1 or a multiple of 64."""
    return size > 1 and (int(size).bit_count() == 1 or size % 64 == 0)


def neighbours(
    around: Sequence[Case], sizes: Mapping[str, int], choices: Mapping[str, Sequence[Scalar]], draw: random.Random
) -> list[Case]:
    """Cases near tried ones: one feature changed, two sizes made equal, or several sizes drawn. `sizes`: dimension
    to its largest size; `choices`: other feature to its values."""
    cases: list[Case] = []
    for case in around:
        for name, most in sizes.items():
            size = int(case[name])
            near = {*SIZES, *range(size - 2, size + 3), 2 * size, size // 2, *(n * size for n in (3, 5))}
            near |= {size + sign * (1 << bit) for bit in range(2, 8) for sign in (-1, 1)}
            cases += [{**case, name: near_size} for near_size in near if 0 < near_size <= most]
            cases += [{**case, name: case[other]} for other in sizes if 0 < int(case[other]) <= most]
        for name, words in choices.items():
            cases += [{**case, name: word} for word in words]
        for _ in range(SPREAD):
            some = draw.sample(list(sizes), draw.randint(1, len(sizes))) if sizes else []
            cases.append({**case, **{name: _drawn(sizes[name], draw) for name in some}})
    return list({tuple(case.items()): case for case in cases}.values())


def _drawn(most: int, draw: random.Random) -> int:
    """A random size up to `most`, log-uniform; about half are multiples of 8."""
    size = int(2 ** draw.uniform(0, max(most, 1).bit_length()))
    return max(1, min(most, size // 8 * 8 if draw.random() < 0.5 and size >= 8 else size))
