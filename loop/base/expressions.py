"""The expression language of `when`, `gate` and formulas. Python parses it; `loop` checks and evaluates it.

It has comparisons, and/or/not/in, constants, names, dotted access, + - * / // %, `a if c else b` and
`is none`. There are no calls or indices. No Python code runs: the evaluator walks the checked tree.
"""

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel

from loop.base.documents.complaints import clip, did_you_mean, quote
from loop.base.errors import UsageError

MAX_LENGTH = 1000
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
OUTSIDE = {"Subscript": "an index", "Pow": "a power", "BitOr": "a filter", "Dict": "a mapping"}
"""Name of a Python syntax node to the words for it in messages; all are outside the language."""
CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
WORDS = frozenset((*CONSTANTS, *keyword.kwlist))
"""Reserved words: no value in an expression can have such a name."""
Values = Mapping[str, object]
T = TypeVar("T")


class ExpressionError(UsageError):
    """An expression cannot be parsed, or has no value for the given names."""

    def __init__(self, expected: str, got: str, column: int | None = None, *, of: str = "") -> None:
        """`column`: position in the text, from 1; None for evaluation errors. `of`: the expression."""
        self.expected, self.got, self.column = expected, got, column
        place = f"column {column}: " if column else ""
        text = f"`{clip(of)}`: " if of else ""
        super().__init__(f"{text}{place}expected {expected}, got {got}")


@dataclass(frozen=True)
class Expression:
    """A parsed expression that contains only allowed syntax."""

    text: str
    tree: ast.expr

    @classmethod
    @lru_cache(1000)
    def parse(cls, text: str) -> "Expression":
        """Read and check an expression.

        Raises ExpressionError, with the column, when it holds anything outside the language.
        """
        return cls(text, _read(text))

    @property
    def names(self) -> frozenset[str]:
        """Dotted names it reads."""
        names, waiting = set[str](), list[ast.AST]([self.tree])
        while waiting:
            node = waiting.pop()
            whole = _dotted(node) if isinstance(node, ast.expr) else None
            if whole is None:
                waiting += ast.iter_child_nodes(node)
            elif whole not in CONSTANTS:
                names.add(whole)
        return frozenset(names)

    @property
    def parts(self) -> tuple["Expression", ...]:
        """The operands of the top-level `and`; the expression itself if there is none."""
        if not (isinstance(self.tree, ast.BoolOp) and isinstance(self.tree.op, ast.And)):
            return (self,)
        return tuple(part for tree in self.tree.values for part in Expression(self.text, tree).parts)

    def evaluate_bool(self, values: Values) -> bool:
        """The expression's boolean value. Raises ExpressionError for unknown names or other types."""
        return self._answer(values, _truth)

    def evaluate_number(self, values: Values) -> float:
        """The expression's finite number. Raises ExpressionError for unknown names or other types."""
        return self._answer(values, _finite)

    def _answer(self, values: Values, fitting: Callable[[object], T]) -> T:
        """Evaluate, check the type with `fitting`, and turn arithmetic errors into ExpressionError."""
        try:
            return fitting(_value(self.tree, values))
        except ExpressionError as error:
            raise ExpressionError(error.expected, error.got, of=self.text) from error
        except ZeroDivisionError as error:
            raise ExpressionError("a divisor other than zero", "zero", of=self.text) from error
        except OverflowError as error:
            raise ExpressionError("a number that a double can hold", "a larger one", of=self.text) from error
        except RecursionError as error:
            raise ExpressionError("fewer levels", "a deeper expression", of=self.text) from error


def _read(text: str) -> ast.expr:
    """Parse text into a syntax tree of allowed nodes. Raises ExpressionError with the column."""
    if not text.strip():
        raise ExpressionError("an expression", "nothing")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"at most {MAX_LENGTH} characters", str(len(text)))
    if foreign := re.search(r"[#\\\0]", text):  # Comments, escapes, and NUL, which the parser refuses.
        raise ExpressionError("a name, number, text or sign", repr(foreign[0]), foreign.start() + 1)
    python = re.sub(r"\s", " ", text).strip()
    begin = len(text) - len(text.lstrip())
    try:
        tree = ast.parse(python, mode="eval").body
    except SyntaxError as error:
        column = begin + (error.offset or len(python) + 1)
        raise ExpressionError("an expression", f"a mistake: {error.msg}", column) from error
    except (ValueError, RecursionError, MemoryError) as error:
        got = f"one that cannot be read: {type(error).__name__}"
        raise ExpressionError("an expression", got, 1) from error
    place = tree
    for node in ast.walk(tree):
        place = node if isinstance(node, ast.expr) else place
        refused = _refused(node)
        if refused:
            before = python.encode()[: place.col_offset].decode(errors="ignore")
            raise ExpressionError(*refused, begin + len(before) + 1)
    return tree


def _refused(node: ast.AST) -> tuple[str, str] | None:
    """(expected, got) for a node outside the language; None for an allowed node."""
    if not isinstance(node, ALLOWED):
        kind = type(node).__name__
        return LANGUAGE, OUTSIDE.get(kind, f"a {kind.lower()}")
    if isinstance(node, ast.Attribute):
        owner = (_dotted(node) or "none").partition(".")[0]
        if owner in CONSTANTS or node.attr.startswith("_"):
            return "a name", repr(ast.unparse(node))
    if isinstance(node, ast.Compare):
        for sign, side in zip(node.ops, node.comparators, strict=True):
            if isinstance(sign, ast.Is | ast.IsNot) and ast.unparse(side) != "none":
                return "`is none`", f"`is {clip(ast.unparse(side))}`"
    return None


def _dotted(node: ast.expr) -> str | None:
    """`a.b.c` for a name or dotted access; None for any other node."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _truth(value: object) -> bool:
    """Return a boolean. Raises ExpressionError for other types, also for numbers and text."""
    if not isinstance(value, bool):
        raise ExpressionError("true or false", _shown(value))
    return value


def _number(value: object) -> Any:
    """Return a number. Raises ExpressionError for other types, also for booleans."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ExpressionError("a number", _shown(value))
    return value


def _finite(value: object) -> float:
    number = float(_number(value))
    if not math.isfinite(number):
        raise ExpressionError("a finite number", str(number))
    return number


def _shown(value: object) -> str:
    return "a value that is not known" if value is None else quote(value)


def _value(node: ast.expr, values: Values) -> Any:
    """Evaluate a checked node; the result has any type. `values`: name to value."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return CONSTANTS[name] if name in CONSTANTS else _known(name, node, values)
        case ast.Attribute(value=owner, attr=name):
            return _known(name, node, _value(owner, values))
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [_value(item, values) for item in items]
        case ast.Compare():
            return _compare(node, values)
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_truth(_value(part, values)) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_truth(_value(part, values)) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _truth(_value(operand, values))
        case ast.UnaryOp(operand=operand):
            return -_number(_value(operand, values))
        case ast.BinOp(left=left, op=sign, right=right):
            sides = _number(_value(left, values)), _number(_value(right, values))
            return ARITHMETIC[type(sign)](*sides)
        case ast.IfExp(test=test, body=chosen, orelse=other):
            return _value(chosen if _truth(_value(test, values)) else other, values)
    raise AssertionError(f"{type(node).__name__} passed the check")


def _known(name: str, node: ast.expr, owner: object) -> Any:
    """Read a mapping's key or a model's field. For safety, no other attribute is ever read."""
    if owner is None and isinstance(node, ast.Attribute):
        raise ExpressionError(f"{_dotted(node.value)} to have a field {name!r}", _shown(owner))
    known: Mapping[str, Any] = owner if isinstance(owner, Mapping) else {}
    if isinstance(owner, BaseModel):
        known = {field: getattr(owner, field) for field in type(owner).model_fields}
    if name in known:
        return list(known[name]) if isinstance(known[name], tuple) else known[name]
    hint = did_you_mean(name, [str(candidate) for candidate in known])
    raise ExpressionError("a known name", f"{_dotted(node)!r}{f' ({hint})' if hint else ''}")


def _compare(node: ast.Compare, values: Values) -> bool:
    left = _value(node.left, values)
    for sign, operand in zip(node.ops, node.comparators, strict=True):
        right = _value(operand, values)
        if not _holds(sign, left, right):
            return False
        left = right
    return True


def _holds(sign: ast.cmpop, left: Any, right: Any) -> bool:
    """Whether one comparison is true. Raises ExpressionError for operands without an order."""
    match sign:
        case ast.Is() | ast.IsNot():
            return (left is None) is isinstance(sign, ast.Is)
        case ast.Eq() | ast.NotEq():
            return bool(left == right) is isinstance(sign, ast.Eq)
        case ast.In() | ast.NotIn():
            if isinstance(right, str) and not isinstance(left, str):
                raise ExpressionError("text to look for in a text", _shown(left))
            if not isinstance(right, list | set | frozenset | Mapping | str):
                raise ExpressionError("a list, a mapping or text behind `in`", _shown(right))
            inside = left in right if isinstance(right, str) else left in list(right)
            return inside is isinstance(sign, ast.In)
    shown, holds = ORDER[type(sign)]
    for side in () if isinstance(left, str) and isinstance(right, str) else (left, right):
        # Only numbers and texts have an order. An unknown value (None, NaN) has none.
        if not isinstance(side, int | float) or isinstance(side, bool) or side != side:
            raise ExpressionError(f"a number beside `{shown}`", _shown(side))
    return holds(left, right)


@dataclass(frozen=True)
class Miss:
    """A part of a condition that is false or has no value."""

    part: str
    """The part's text, as in `cpu.ratio >= 1.5`."""
    words: str
    """Actual values and the required part, as in `cpu.ratio is 1.31, asked: ...`."""


def failing_parts(condition: Expression, values: Values) -> tuple[Miss, ...]:
    """The parts of a condition (joined by `and`) that are false or have no value."""
    missed = []
    for part in condition.parts:
        got = "; ".join(_stated(name, values) for name in sorted(part.names))
        try:
            if part.evaluate_bool(values):
                continue
        except ExpressionError as error:
            got = got or error.message
        text = ast.unparse(part.tree)
        missed.append(Miss(text, f"{got}, asked: `{text}`"))
    return tuple(missed)


def _stated(name: str, values: Values) -> str:
    """A name with its value in words: `cpu.ratio is 1.31`, `best.ratio is not known`."""
    try:
        value = _value(Expression.parse(name).tree, values)
    except ExpressionError:
        value = None
    if value is None:
        return f"{name} is not known"
    if isinstance(value, list):
        more = ["..."] if len(value) > MOST else []
        return f"{name} is {', '.join([*map(str, value[:MOST]), *more]) or 'empty'}"
    return f"{name} is {value:.3g}" if isinstance(value, float) else f"{name} is {quote(value)}"
