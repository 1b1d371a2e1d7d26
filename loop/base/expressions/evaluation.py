"""A checked expression, and its answer: a walk of our own, so that nothing is ever executed."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel

from loop.base.expressions.grammar import (
    ALWAYS,
    CONDITION,
    FORMULA,
    ExpressionError,
    conjuncts,
    dotted,
    is_defined,
    names,
    read,
    said,
)

Values = Mapping[str, object]
ORDER: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def truth(node: ast.expr, values: Values) -> bool:
    """The answer, which has to be true or false: a count or a text is not taken for one."""
    result = value_of(node, values)
    if not isinstance(result, bool):
        raise ExpressionError("true or false", said(result))
    return result


def finite_number(node: ast.expr, values: Values) -> float:
    """The answer, which has to be a finite number."""
    result = float(_number(node, values))
    if not math.isfinite(result):
        raise ExpressionError("a finite number", said(result))
    return result


def value_of(node: ast.expr, values: Values) -> Any:
    """The answer, of whatever kind."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _known(name, node, values)
        case ast.Attribute():
            return _field(node, values)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [value_of(item, values) for item in items]
        case ast.Compare():
            return _is_known(node, values) if is_defined(node) else _compare(node, values)
    return _worked_out(node, values)


def _worked_out(node: ast.expr, values: Values) -> Any:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(truth(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(truth(part, values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not truth(operand, values)
        case ast.UnaryOp(operand=operand):
            return -_number(operand, values)
        case ast.BinOp(left=left, op=sign, right=right):
            return ARITHMETIC[type(sign)](_number(left, values), _number(right, values))
        case ast.IfExp(test=test, body=chosen, orelse=other):
            return value_of(chosen if truth(test, values) else other, values)
    raise AssertionError(f"{type(node).__name__} passed the check")


def _field(node: ast.Attribute, values: Values) -> Any:
    """Keys of a mapping and fields of a model, and nothing else: no attribute of any object is ever read."""
    owner = value_of(node.value, values)
    if owner is None:
        raise ExpressionError(f"{dotted(node.value)} to have a field {node.attr!r}", said(owner))
    return _known(node.attr, node, _fields(owner))


def _fields(owner: object) -> Mapping[str, object]:
    if isinstance(owner, BaseModel):
        return {name: getattr(owner, name) for name in type(owner).model_fields}
    return owner if isinstance(owner, Mapping) else {}


def _known(name: str, node: ast.expr, known: Mapping[str, object]) -> Any:
    if name in known:
        value = known[name]
        return list(value) if isinstance(value, tuple) else value
    close = get_close_matches(name, [str(each) for each in known], n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ExpressionError("a known name", f"{dotted(node)!r}{hint}")


def _is_known(node: ast.Compare, values: Values) -> bool:
    """`is defined`, or its opposite."""
    try:
        value_of(node.left, values)
    except ExpressionError:
        return isinstance(node.ops[0], ast.IsNot)
    return isinstance(node.ops[0], ast.Is)


def _compare(node: ast.Compare, values: Values) -> bool:
    left = value_of(node.left, values)
    for sign, operand in zip(node.ops, node.comparators, strict=True):
        right = value_of(operand, values)
        if not _holds(sign, left, right):
            return False
        left = right
    return True


def _holds(sign: ast.cmpop, left: Any, right: Any) -> bool:
    match sign:
        case ast.Is() | ast.IsNot():
            return (left is None) is isinstance(sign, ast.Is)
        case ast.Eq() | ast.NotEq():
            return bool(left == right) is isinstance(sign, ast.Eq)
        case ast.In() | ast.NotIn():
            return _within(left, right) is isinstance(sign, ast.In)
    shown, holds = ORDER[type(sign)]
    _refuse_order(shown, left, right)
    return holds(left, right)


def _refuse_order(sign: str, left: Any, right: Any) -> None:
    """Only numbers and texts have an order; what is not known is neither large nor small."""
    for side in (left, right):
        if isinstance(side, float) and math.isnan(side):
            raise ExpressionError(f"a number beside `{sign}`", "not-a-number")
    if isinstance(left, str) and isinstance(right, str):
        return
    for side, other in ((left, right), (right, left)):
        if not _is_number(side) and (not isinstance(side, str) or not isinstance(other, str)):
            raise ExpressionError(f"a number beside `{sign}`", said(side))


def _within(item: Any, group: Any) -> bool:
    if isinstance(group, str):
        if not isinstance(item, str):
            raise ExpressionError("text to look for in a text", said(item))
        return item in group
    if not isinstance(group, list | tuple | set | frozenset | Mapping):
        raise ExpressionError("a list, a mapping or text behind `in`", said(group))
    return any(bool(item == each) for each in group)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(node: ast.expr, values: Values) -> Any:
    result = value_of(node, values)
    if not _is_number(result):
        raise ExpressionError("a number", said(result))
    return result


T = TypeVar("T")


@dataclass(frozen=True)
class Expression:
    """A checked expression."""

    text: str
    tree: ast.expr
    names: frozenset[str]
    """Dotted names it reads, except those it only asks about with `is defined`."""

    @classmethod
    @lru_cache(1000)
    def parse(cls, text: str, *, arithmetic: bool = False, remainders: bool = False) -> "Expression":
        """Read and check an expression; `arithmetic` admits what formulas need, `remainders` also `%`.

        Raises ExpressionError, with the column, when it holds anything outside the language.
        """
        tree = read(text, CONDITION if remainders else FORMULA if arithmetic else ALWAYS)
        return cls(text, tree, frozenset(names(tree)))

    @property
    def parts(self) -> tuple["Expression", ...]:
        """What `and` joins at the top, one by one; an expression without `and` is its own only part."""
        return tuple(Expression(self.text, part, frozenset(names(part))) for part in conjuncts(self.tree))

    def evaluate_bool(self, values: Mapping[str, object]) -> bool:
        """Its truth. Raises ExpressionError when a name is unknown or the result is no boolean."""
        return self._answer(lambda: truth(self.tree, values))

    def evaluate_number(self, values: Mapping[str, object]) -> float:
        """Its value, always finite. Raises ExpressionError when a name is unknown or the result is no number."""
        return self._answer(lambda: finite_number(self.tree, values))

    def _answer(self, answer: Callable[[], T]) -> T:
        try:
            return answer()
        except ExpressionError as error:
            raise ExpressionError(error.expected, error.got, of=self.text) from error
        except ZeroDivisionError as error:
            raise ExpressionError("a divisor other than zero", "zero", of=self.text) from error
        except OverflowError as error:
            raise ExpressionError("a number that a double can hold", "a larger one", of=self.text) from error
        except RecursionError as error:
            raise ExpressionError("a simple expression", "one nested too deeply", of=self.text) from error
