"""Answers of a checked tree: a walk of our own, so that nothing of Jinja's is ever executed."""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from loop.base.expressions.grammar import dotted
from loop.base.expressions.wording import ExpressionError, said

Values = Mapping[str, object]
ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
}
SIGNS = {"lt": "<", "lteq": "<=", "gt": ">", "gteq": ">=", "in": "in", "notin": "not in"}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Div": operator.truediv,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
}


def truth(node: Any, values: Values) -> bool:
    """The answer, which has to be true or false: a count or a text is not taken for one."""
    result = _value(node, values)
    if not isinstance(result, bool):
        raise ExpressionError("true or false", said(result))
    return result


def finite_number(node: Any, values: Values) -> float:
    """The answer, which has to be a finite number."""
    result = float(_number(node, values))
    if not math.isfinite(result):
        raise ExpressionError("a finite number", said(result))
    return result


def _value(node: Any, values: Values) -> Any:
    return EVALUATE[type(node).__name__](node, values)


def _name(node: Any, values: Values) -> Any:
    return _known(node.name, node, values)


def _field(node: Any, values: Values) -> Any:
    """Keys of a mapping and fields of a model, and nothing else: no attribute of any object is ever read."""
    owner = _value(node.node, values)
    if owner is None:
        raise ExpressionError(f"{dotted(node.node)} to have a field {node.attr!r}", said(owner))
    return _known(node.attr, node, _fields(owner))


def _fields(owner: object) -> Mapping[str, object]:
    if isinstance(owner, BaseModel):
        return {name: getattr(owner, name) for name in type(owner).model_fields}
    return owner if isinstance(owner, Mapping) else {}


def _known(name: str, node: Any, known: Mapping[str, object]) -> Any:
    if name in known:
        return known[name]
    close = get_close_matches(name, [str(each) for each in known], n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ExpressionError("a known name", f"{dotted(node)!r}{hint}")


def _compare(node: Any, values: Values) -> bool:
    left = _value(node.expr, values)
    for operand in node.ops:
        right = _value(operand.expr, values)
        if not _holds(operand.op, left, right):
            return False
        left = right
    return True


def _holds(sign: str, left: Any, right: Any) -> bool:
    if sign in ("eq", "ne"):
        return bool(left == right) is (sign == "eq")
    if sign in ("in", "notin"):
        return _within(left, right) is (sign == "in")
    _refuse_order(sign, left, right)
    return ORDER[sign](left, right)


def _refuse_order(sign: str, left: Any, right: Any) -> None:
    """Only numbers and texts have an order; what is not known is neither large nor small."""
    for side in (left, right):
        if isinstance(side, float) and math.isnan(side):
            raise ExpressionError(f"a number beside `{SIGNS[sign]}`", "not-a-number")
    if isinstance(left, str) and isinstance(right, str):
        return
    for side, other in ((left, right), (right, left)):
        if not _is_number(side) and (not isinstance(side, str) or not isinstance(other, str)):
            raise ExpressionError(f"a number beside `{SIGNS[sign]}`", said(side))


def _within(item: Any, group: Any) -> bool:
    if isinstance(group, str):
        if not isinstance(item, str):
            raise ExpressionError("text to look for in a text", said(item))
        return item in group
    if isinstance(group, Mapping):
        group = list(group)
    if not isinstance(group, Iterable) or not isinstance(group, list | tuple | set | frozenset):
        raise ExpressionError("a list, a mapping or text behind `in`", said(group))
    return any(bool(item == each) for each in group)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(node: Any, values: Values) -> Any:
    result = _value(node, values)
    if not _is_number(result):
        raise ExpressionError("a number", said(result))
    return result


def _test(node: Any, values: Values) -> bool:
    if node.name == "none":
        return _value(node.node, values) is None
    try:
        _value(node.node, values)
    except ExpressionError:
        return False
    return True


def _choice(node: Any, values: Values) -> Any:
    return _value(node.expr1 if truth(node.test, values) else node.expr2, values)


def _arithmetic(node: Any, values: Values) -> Any:
    return ARITHMETIC[type(node).__name__](_number(node.left, values), _number(node.right, values))


def _items(node: Any, values: Values) -> Any:
    return [_value(item, values) for item in node.items]


EVALUATE: dict[str, Callable[[Any, Values], Any]] = {
    "Const": lambda node, values: node.value,
    "Tuple": _items,
    "List": _items,
    "Name": _name,
    "Getattr": _field,
    "Compare": _compare,
    "And": lambda node, values: truth(node.left, values) and truth(node.right, values),
    "Or": lambda node, values: truth(node.left, values) or truth(node.right, values),
    "Not": lambda node, values: not truth(node.node, values),
    "Neg": lambda node, values: -_number(node.node, values),
    "Test": _test,
    "CondExpr": _choice,
    **dict.fromkeys(ARITHMETIC, _arithmetic),
}
