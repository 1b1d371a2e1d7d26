"""The language of `when`, `gate` and formulas: Python's parser, an allow-list over its tree, our own evaluator.

It has comparisons, and/or/not/in, constants, names, dotted access, + - * / // %, `a if c else b`, `is defined` and
`is none`. There are no calls or indices. Nothing is executed: the evaluator walks the checked tree.
"""

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel

from loop.base.documents.complaints import QUOTED, clip
from loop.base.errors import UsageError

MAX_LENGTH = 1000
MAX_DEPTH = 40
MAX_NUMBER = 10**300
"""No measured or counted number is larger."""
MOST = 4
"""A message shows at most this many items of a list."""
ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
ORDER: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
ALLOWED = (
    *(ast.Compare, ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot, *ORDER),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, *ARITHMETIC, ast.IfExp),
    *(ast.Constant, ast.Name, ast.Attribute, ast.Load, ast.Tuple, ast.List),
)
LANGUAGE = "comparisons, and/or/not/in, names, numbers, + - * / // %, if-else"
OUTSIDE = {"Call": "a call", "Subscript": "an index", "Pow": "a power", "BitOr": "a filter", "Dict": "a mapping"}
"""What is outside the language, in words."""
CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
WORDS = frozenset((*CONSTANTS, *keyword.kwlist))
"""Nothing that an expression reads can have one of these names."""
Values = Mapping[str, object]
T = TypeVar("T")


class ExpressionError(UsageError):
    """An expression that cannot be read, or has no answer."""

    def __init__(self, expected: str, got: str, column: int | None = None, *, of: str | None = None) -> None:
        """`column`: where in the text, from 1; None for an error of evaluation. `of`: the expression's text."""
        self.expected, self.got, self.column = expected, got, column
        place = f"column {column}: " if column else ""
        text = f"`{clip(of)}`: " if of else ""
        super().__init__(f"{text}{place}expected {expected}, got {got}")


@dataclass(frozen=True)
class Expression:
    """A checked expression."""

    text: str
    tree: ast.expr
    names: frozenset[str]
    """Dotted names it reads, except those it only asks about with `is defined`."""

    @classmethod
    @lru_cache(1000)
    def parse(cls, text: str) -> "Expression":
        """Read and check an expression.

        Raises ExpressionError, with the column, when it holds anything outside the language.
        """
        tree = _read(text)
        return cls(text, tree, frozenset(_names(tree)))

    @property
    def parts(self) -> tuple["Expression", ...]:
        """What `and` joins at the top, one by one; an expression without `and` is its own only part."""

        def flat(tree: ast.expr) -> Iterator[ast.expr]:
            if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
                for part in tree.values:
                    yield from flat(part)
            else:
                yield tree

        return tuple(Expression(self.text, tree, frozenset(_names(tree))) for tree in flat(self.tree))

    def evaluate_bool(self, values: Values) -> bool:
        """Its truth. Raises ExpressionError when a name is unknown or the result is no boolean."""
        return self._answer(lambda: _truth(self.tree, values))

    def evaluate_number(self, values: Values) -> float:
        """Its value, always finite. Raises ExpressionError when a name is unknown or the result is no number."""
        return self._answer(lambda: _finite(self.tree, values))

    def _answer(self, answer: Callable[[], T]) -> T:
        try:
            return answer()
        except ExpressionError as error:
            raise ExpressionError(error.expected, error.got, of=self.text) from error
        except ZeroDivisionError as error:
            raise ExpressionError("a divisor other than zero", "zero", of=self.text) from error
        except OverflowError as error:
            raise ExpressionError("a number that a double can hold", "a larger one", of=self.text) from error


def _read(text: str) -> ast.expr:
    """Python's tree of an expression in which every node is allowed. Raises ExpressionError with the column."""
    if not text.strip():
        raise ExpressionError("an expression", "nothing")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"at most {MAX_LENGTH} characters", str(len(text)))
    if foreign := re.search(r"[#\\\0]", text):  # Comments, escapes, and what Python's parser does not take.
        raise ExpressionError("a name, number, text or sign", repr(foreign[0]), foreign.start() + 1)
    python = re.sub(r"\s", " ", text).strip()
    begin = len(text) - len(text.lstrip())
    try:
        tree = ast.parse(python, mode="eval").body
    except SyntaxError as error:
        column = begin + (error.offset or len(python) + 1)
        raise ExpressionError("an expression", f"a mistake: {error.msg}", column) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError("an expression", f"one that cannot be read: {type(error).__name__}", 1) from error
    waiting: list[tuple[ast.AST, ast.expr, int]] = [(tree, tree, 1)]
    while waiting:
        node, around, depth = waiting.pop()
        place = node if isinstance(node, ast.expr) else around
        if refused := _refused(node, depth):
            column = begin + len(python.encode()[: place.col_offset].decode(errors="ignore")) + 1
            raise ExpressionError(*refused, column)
        if not _is_defined(node):
            waiting += [(child, place, depth + 1) for child in ast.iter_child_nodes(node)]
    return tree


def _refused(node: ast.AST, depth: int) -> tuple[str, str] | None:
    """What is expected and what is there, where a node is outside the language; None for one that is in it."""
    if depth > MAX_DEPTH:
        return f"at most {MAX_DEPTH} levels", "a deeper expression"
    if not isinstance(node, ALLOWED):
        kind = type(node).__name__
        return LANGUAGE, OUTSIDE.get(kind, f"a {kind.lower()}")
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) if name.startswith("_"):
            return "a name", repr(name)
        case ast.Attribute() if (_dotted(node) or "none").partition(".")[0] in CONSTANTS:
            return "a name before the dot", "a value"
        case ast.Constant(value=int() | float() as number) if not -MAX_NUMBER < number < MAX_NUMBER:
            return "a number below 1e300", "a larger one"
        case ast.Constant(value=value) if not isinstance(value, str | int | float | None):
            return "a name, number or text", f"a {type(value).__name__}"
        case ast.Tuple(elts=items) | ast.List(elts=items) if not all(map(_is_constant, items)):
            return "a list of constants", "something to work out"
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Name(id="none" | "defined" as asked)]):
            return None if _dotted(node.left) else (f"a name before `is {asked}`", "a value")
        case ast.Compare(ops=signs) if any(isinstance(sign, ast.Is | ast.IsNot) for sign in signs):
            return "`is defined` or `is none`", f"`is {clip(ast.unparse(node.comparators[0]))}`"
    return None


def _is_constant(item: ast.expr) -> bool:
    value = item.operand if isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.USub) else item
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id in CONSTANTS)


def _is_defined(node: ast.AST) -> bool:
    """Whether a checked node is `a is defined` or `a is not defined`."""
    match node:
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Name(id="defined")]):
            return True
    return False


def _dotted(node: ast.expr) -> str | None:
    """`a.b.c` for a name or dotted access."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _names(node: ast.AST) -> Iterator[str]:
    """Dotted names that the tree reads."""
    whole = _dotted(node) if isinstance(node, ast.expr) else None
    if whole is not None:
        yield from () if whole in CONSTANTS else (whole,)
    elif not _is_defined(node):
        for child in ast.iter_child_nodes(node):
            yield from _names(child)


def _truth(node: ast.expr, values: Values) -> bool:
    """The answer, which has to be true or false: a count or a text is not taken for one."""
    result = _value(node, values)
    if not isinstance(result, bool):
        raise ExpressionError("true or false", _shown(result))
    return result


def _number(node: ast.expr, values: Values) -> Any:
    result = _value(node, values)
    if not _is_number(result):
        raise ExpressionError("a number", _shown(result))
    return result


def _finite(node: ast.expr, values: Values) -> float:
    result = float(_number(node, values))
    if not math.isfinite(result):
        raise ExpressionError("a finite number", _shown(result))
    return result


def _value(node: ast.expr, values: Values) -> Any:
    """The answer, of whatever kind."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return CONSTANTS[name] if name in CONSTANTS else _known(name, node, values)
        case ast.Attribute():
            return _field(node, values)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [_value(item, values) for item in items]
        case ast.Compare():
            return _compare(node, values)
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_truth(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_truth(part, values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _truth(operand, values)
        case ast.UnaryOp(operand=operand):
            return -_number(operand, values)
        case ast.BinOp(left=left, op=sign, right=right):
            return ARITHMETIC[type(sign)](_number(left, values), _number(right, values))
        case ast.IfExp(test=test, body=chosen, orelse=other):
            return _value(chosen if _truth(test, values) else other, values)
    raise AssertionError(f"{type(node).__name__} passed the check")


def _field(node: ast.Attribute, values: Values) -> Any:
    """Keys of a mapping and fields of a model, and nothing else: no attribute of any object is ever read."""
    owner = _value(node.value, values)
    if owner is None:
        raise ExpressionError(f"{_dotted(node.value)} to have a field {node.attr!r}", _shown(owner))
    if isinstance(owner, BaseModel):
        owner = {name: getattr(owner, name) for name in type(owner).model_fields}
    return _known(node.attr, node, owner if isinstance(owner, Mapping) else {})


def _known(name: str, node: ast.expr, known: Values) -> Any:
    if name in known:
        value = known[name]
        return list(value) if isinstance(value, tuple) else value
    close = get_close_matches(name, [str(candidate) for candidate in known], n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ExpressionError("a known name", f"{_dotted(node)!r}{hint}")


def _compare(node: ast.Compare, values: Values) -> bool:
    if _is_defined(node):
        try:
            _value(node.left, values)
        except ExpressionError:
            return isinstance(node.ops[0], ast.IsNot)
        return isinstance(node.ops[0], ast.Is)
    left = _value(node.left, values)
    for sign, operand in zip(node.ops, node.comparators, strict=True):
        right = _value(operand, values)
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
            if isinstance(right, str) and not isinstance(left, str):
                raise ExpressionError("text to look for in a text", _shown(left))
            if not isinstance(right, list | tuple | set | frozenset | Mapping | str):
                raise ExpressionError("a list, a mapping or text behind `in`", _shown(right))
            inside = left in right if isinstance(right, str) else any(bool(left == member) for member in right)
            return inside is isinstance(sign, ast.In)
    shown, holds = ORDER[type(sign)]
    if not (isinstance(left, str) and isinstance(right, str)):
        # Only numbers and texts have an order. What is not known is neither large nor small.
        for side, other in ((left, right), (right, left)):
            if isinstance(side, float) and math.isnan(side):
                raise ExpressionError(f"a number beside `{shown}`", "not-a-number")
            if not _is_number(side) and (not isinstance(side, str) or _is_number(other)):
                raise ExpressionError(f"a number beside `{shown}`", _shown(side))
    return holds(left, right)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """A value as a message shows it."""
    if value is None:
        return "a value that is not known"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return clip(repr(value[: 2 * QUOTED]))
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < MAX_NUMBER):
        return clip(repr(value))
    return f"a {type(value).__name__}"


@dataclass(frozen=True)
class Miss:
    """A part of a condition that does not hold."""

    part: str
    """As it stands in the condition: `cpu.ratio >= 1.5`."""
    words: str
    """What there is: `cpu.ratio is 1.31, 13 % off cpu.ratio >= 1.5`."""
    off: float | None
    """Share of the asked amount by which the value differs; None where no amount is asked."""


def misses(condition: Expression, values: Values) -> tuple[Miss, ...]:
    """The parts of a condition that do not hold for these values. A part without an answer does not hold."""
    missed = []
    for part in condition.parts:
        text, off = ast.unparse(part.tree), None
        got = "; ".join(_stated(name, values) for name in sorted(part.names))
        try:
            if part.evaluate_bool(values):
                continue
            off = _off(part.tree, values)
        except ExpressionError as error:
            got = got or error.message
        share = 100 * (off or 0)
        by = "asked: " if off is None else f"{share:.0f} % off " if share >= 10 else f"{share:.2g} % off "
        missed.append(Miss(text, f"{got}, {by}`{text}`", off))
    return tuple(missed)


def _stated(name: str, values: Values) -> str:
    """`cpu.ratio is 1.31`, `wrong is cpu, eager`, `best.ratio is not known`."""
    try:
        value = _value(Expression.parse(name).tree, values)
    except ExpressionError:
        value = None
    if isinstance(value, list | tuple):
        more = ["..."] if len(value) > MOST else []
        return f"{name} is {', '.join([*map(str, value[:MOST]), *more]) or 'empty'}"
    if isinstance(value, float):
        return f"{name} is {value:.3g}"
    return f"{name} is not known" if value is None else f"{name} is {_shown(value)}"


def _off(tree: ast.expr, values: Values) -> float | None:
    """How far the first two neighbours of a comparison that do not hold lie apart, as a share of what is asked.

    What is asked is the side that reads no name; where both read some, the right one.
    """
    if not isinstance(tree, ast.Compare):
        return None
    sides = (tree.left, *tree.comparators)
    for sign, left, right in zip(tree.ops, sides, sides[1:], strict=False):
        if type(sign) in ORDER and not _truth(ast.Compare(left, [sign], [right]), values):
            asked, quantity = (left, right) if not list(_names(left)) else (right, left)
            limit = _finite(asked, values)
            return abs(_finite(quantity, values) - limit) / abs(limit) if limit else None
    return None
