"""What keeps a condition from being true: the parts that `and` joins, each with the values it reads."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from loop.base.expressions.evaluation import Expression, finite_number, truth, value_of
from loop.base.expressions.grammar import ExpressionError, names, said

MOST = 4
"""Items of a list that are told."""


@dataclass(frozen=True)
class Miss:
    """A part of a condition that does not hold."""

    part: str
    """As it stands in the condition: `cpu.ratio >= 1.5`."""
    got: str
    """What there is: `cpu.ratio is 1.31`."""
    off: float | None
    """By which share of what is asked it falls short or goes beyond; None where it asks for no amount."""

    @property
    def words(self) -> str:
        """`cpu.ratio is 1.31, 13 % off cpu.ratio >= 1.5`."""
        share = 0.0 if self.off is None else 100 * self.off
        by = "" if self.off is None else f"{share:.0f} % off " if share >= 10 else f"{share:.2g} % off "
        return f"{self.got}, {by or 'asked: '}`{self.part}`"


def misses(condition: Expression, values: Mapping[str, object]) -> tuple[Miss, ...]:
    """The parts that do not hold for these values; one that has no answer does not hold, and says why."""
    return tuple(one for part in condition.parts if (one := _miss(part, values)) is not None)


def _miss(part: Expression, values: Mapping[str, object]) -> Miss | None:
    text, got = ast.unparse(part.tree), "; ".join(told(name, values) for name in sorted(part.names))
    try:
        return None if part.evaluate_bool(values) else Miss(text, got, _off(part.tree, values))
    except ExpressionError as error:
        return Miss(text, got or error.message, None)


def told(name: str, values: Mapping[str, object]) -> str:
    """`cpu.ratio is 1.31`, `wrong is cpu, eager`, `best.ratio is not known`."""
    try:
        value = value_of(Expression.parse(name).tree, values)
    except ExpressionError:
        return f"{name} is not known"
    if isinstance(value, list | tuple):
        more = ["..."] if len(value) > MOST else []
        return f"{name} is {', '.join([*map(str, value[:MOST]), *more]) or 'empty'}"
    if isinstance(value, float):
        return f"{name} is {value:.3g}"
    return f"{name} is not known" if value is None else f"{name} is {said(value)}"


def _off(tree: ast.expr, values: Mapping[str, object]) -> float | None:
    """How far the first two neighbours of a comparison that do not hold lie apart, as a share of what is asked.

    What is asked is the side that reads no name; where both read some, the right one.
    """
    if not isinstance(tree, ast.Compare):
        return None
    sides = (tree.left, *tree.comparators)
    for sign, left, right in zip(tree.ops, sides, sides[1:], strict=False):
        pair = ast.Compare(left, [sign], [right])
        try:
            if not isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE) or truth(pair, values):
                continue
            asked, got = (left, right) if not list(names(left)) else (right, left)
            wanted = finite_number(asked, values)
            return abs(finite_number(got, values) - wanted) / abs(wanted) if wanted else None
        except ExpressionError:
            return None
    return None
