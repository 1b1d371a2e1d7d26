"""The expression language of `when`, `gate` and formulas. Python parses it, `loop` evaluates it.

It has comparisons, and/or/not/in, constants, names, dotted access, + - * / // %, `a if c else b`
and `is none`. There are no calls or indices. No Python code runs: it walks the checked tree."""

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

from loop.base.documents import clip, did_you_mean, quote
from loop.base.errors import UsageError

MAX_LENGTH = 1000
ARITHMETIC_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
ORDER_OPERATORS: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
ALLOWED_NODES = (
    *(ast.Compare, ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot, *ORDER_OPERATORS),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.IfExp),
    *(ast.Constant, ast.Name, ast.Attribute, ast.Load, ast.Tuple, ast.List, *ARITHMETIC_OPERATORS),
)
LANGUAGE = "comparisons, and/or/not/in, names, numbers, + - * / // %, if-else"
NODE_WORDS = {"Subscript": "an index", "Pow": "a power", "BitOr": "a filter", "Dict": "a mapping"}
"""Name of a Python syntax node outside the language to the words for it in messages."""
EVALUATION_ERRORS: dict[type, tuple[str, str]] = {
    ZeroDivisionError: ("a divisor other than zero", "zero"),
    OverflowError: ("a number that a double can hold", "a larger one"),
    RecursionError: ("fewer levels", "a deeper expression"),
}
"""Python's error in an evaluation to (expected, got) for the message."""
CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
RESERVED_WORDS = frozenset((*CONSTANTS, *keyword.kwlist))  # No value can have such a name.
Values = Mapping[str, object]
T = TypeVar("T")


class ExpressionError(UsageError):
    """An expression cannot be parsed, or has no value for the given names."""

    def __init__(self, expected: str, got: str, column: int = 0, *, expression: str = "") -> None:
        """`column`: position in the text, from 1; 0: none, of a value. `expression`: its text."""
        self.expected, self.got, self.column = expected, got, column
        place = f"column {column}: " if column else ""
        text = f"`{clip(expression)}`: " if expression else ""
        super().__init__(f"{text}{place}expected {expected}, got {got}")


@dataclass(frozen=True)
class Expression:
    """A parsed expression that contains only allowed syntax."""

    text: str
    tree: ast.expr

    @classmethod
    @lru_cache(1000)
    def parse(cls, text: str) -> "Expression":
        """Read an expression (cached). ExpressionError, with a column: the language forbids it."""
        if not text.strip():
            raise ExpressionError("an expression", "nothing")
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"at most {MAX_LENGTH} characters", str(len(text)))
        # Python would read a comment or a line continuation, and its parser refuses NUL.
        if bad_character := re.search(r"[#\\\0]", text):
            expected, column = "a name, number, text or sign", bad_character.start() + 1
            raise ExpressionError(expected, repr(bad_character[0]), column)
        python_text = re.sub(r"\s", " ", text).strip()
        leading_spaces = len(text) - len(text.lstrip())
        try:
            tree = ast.parse(python_text, mode="eval").body
        except SyntaxError as error:
            column = leading_spaces + (error.offset or len(python_text) + 1)
            raise ExpressionError("an expression", f"a mistake: {error.msg}", column) from error
        except (ValueError, RecursionError, MemoryError) as error:
            got = f"one that cannot be read: {type(error).__name__}"
            raise ExpressionError("an expression", got, 1) from error
        located_node = tree  # An operator has no column: then that of the expression around it.
        for node in ast.walk(tree):
            located_node = node if isinstance(node, ast.expr) else located_node
            refusal = _explain_refusal(node)
            if refusal:
                # Python counts columns in bytes; the user counts characters.
                before = python_text.encode()[: located_node.col_offset].decode(errors="ignore")
                raise ExpressionError(*refusal, leading_spaces + len(before) + 1)
        return cls(text, tree)

    @property
    def names(self) -> frozenset[str]:
        """Names that it reads, with their fields: `cpu.ratio` of `cpu.ratio > 1`."""
        names, pending_nodes = set[str](), list[ast.AST]([self.tree])
        while pending_nodes:
            node = pending_nodes.pop()
            dotted_name = _dotted_name(node)
            if dotted_name is None:
                pending_nodes += ast.iter_child_nodes(node)
            elif dotted_name not in CONSTANTS:
                names.add(dotted_name)
        return frozenset(names)

    @property
    def parts(self) -> tuple["Expression", ...]:
        """The conditions joined by `and`, also by nested ones; without it, the expression."""
        if not (isinstance(self.tree, ast.BoolOp) and isinstance(self.tree.op, ast.And)):
            return (self,)
        operands = [Expression(self.text, tree) for tree in self.tree.values]
        return tuple(part for operand in operands for part in operand.parts)

    def evaluate_bool(self, values: Values) -> bool:
        """The expression's boolean. Raises ExpressionError for an unknown name or another type."""
        return self.evaluate(values, _require_bool)

    def evaluate_number(self, values: Values) -> float:
        """The expression's finite number. ExpressionError: an unknown name or another type."""
        number = self.evaluate(values, lambda value: float(_require_number(value)))
        if not math.isfinite(number):
            raise ExpressionError("a finite number", str(number), expression=self.text)
        return number

    def evaluate(self, values: Values, convert: Callable[[object], T]) -> T:
        """The value, checked by `convert`, which may raise ExpressionError, as arithmetic does."""
        try:
            return convert(_evaluate_node(self.tree, values))
        except ExpressionError as error:
            raise ExpressionError(error.expected, error.got, expression=self.text) from error
        except (ZeroDivisionError, OverflowError, RecursionError) as error:
            expected, got = EVALUATION_ERRORS[type(error)]
            raise ExpressionError(expected, got, expression=self.text) from error


def _explain_refusal(node: ast.AST) -> tuple[str, str] | None:
    """(expected, got) for a node outside the language; None for an allowed node."""
    if not isinstance(node, ALLOWED_NODES):
        kind = type(node).__name__
        return LANGUAGE, NODE_WORDS.get(kind, f"a {kind.lower()}")
    if isinstance(node, ast.Attribute):
        root_name = (_dotted_name(node) or "none").partition(".")[0]
        if root_name in CONSTANTS or node.attr.startswith("_"):
            return "a name", repr(ast.unparse(node))
    if isinstance(node, ast.Compare):
        for comparison, operand in zip(node.ops, node.comparators, strict=True):
            if isinstance(comparison, ast.Is | ast.IsNot) and ast.unparse(operand) != "none":
                return "`is none`", f"`is {clip(ast.unparse(operand))}`"
    return None


def _dotted_name(node: ast.AST) -> str | None:
    """`a.b.c` for a name or dotted access; None for any other node."""
    reversed_names: list[str] = []
    while isinstance(node, ast.Attribute):
        reversed_names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(reversed_names)]) if isinstance(node, ast.Name) else None


def _require_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ExpressionError("true or false", _quote_value(value))
    return value


def _require_number(value: object) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ExpressionError("a number", _quote_value(value))
    return value


def _quote_value(value: object) -> str:
    return "a value that is not known" if value is None else quote(value)


def _evaluate_node(node: ast.expr, values: Values) -> Any:
    """Evaluate a checked node; the result has any type. `values`: name to value."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return CONSTANTS[name] if name in CONSTANTS else _read_field(name, node, values)
        case ast.Attribute(value=owner, attr=name):
            return _read_field(name, node, _evaluate_node(owner, values))
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [_evaluate_node(item, values) for item in items]
        case ast.Compare():
            sides = [_evaluate_node(side, values) for side in (node.left, *node.comparators)]
            return all(map(_compare_pair, node.ops, sides, sides[1:]))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_require_bool(_evaluate_node(part, values)) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_require_bool(_evaluate_node(part, values)) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _require_bool(_evaluate_node(operand, values))
        case ast.UnaryOp(operand=operand):
            return -_require_number(_evaluate_node(operand, values))
        case ast.BinOp(left=left, op=sign, right=right):
            numbers = [_require_number(_evaluate_node(side, values)) for side in (left, right)]
            return ARITHMETIC_OPERATORS[type(sign)](*numbers)
        case ast.IfExp(test=test, body=body, orelse=alternative):
            is_true = _require_bool(_evaluate_node(test, values))
            return _evaluate_node(body if is_true else alternative, values)
    raise AssertionError(f"{type(node).__name__} passed the check")


def _read_field(name: str, node: ast.expr, owner: object) -> Any:
    """The value `name` of a mapping or model (a list for a tuple). `node`: its name, for errors."""
    if owner is None and isinstance(node, ast.Attribute):
        expected = f"{_dotted_name(node.value)} to have a field {name!r}"
        raise ExpressionError(expected, _quote_value(owner))
    fields: Mapping[str, Any] = owner if isinstance(owner, Mapping) else {}
    if isinstance(owner, BaseModel):
        fields = {field: getattr(owner, field) for field in type(owner).model_fields}
    if name in fields:
        return list(fields[name]) if isinstance(fields[name], tuple) else fields[name]
    hint = did_you_mean(name, [str(candidate) for candidate in fields])
    raise ExpressionError("a known name", f"{_dotted_name(node)!r}{f' ({hint})' if hint else ''}")


def _compare_pair(comparison: ast.cmpop, left: Any, right: Any) -> bool:
    """Whether one comparison is true. Raises ExpressionError for operands that do not fit it."""
    match comparison:
        case ast.Is() | ast.IsNot():  # Of these, the language only has `is none` and `is not none`.
            return (left is None) is isinstance(comparison, ast.Is)
        case ast.Eq() | ast.NotEq():
            return bool(left == right) is isinstance(comparison, ast.Eq)
        case ast.In() | ast.NotIn():
            if isinstance(right, str) and not isinstance(left, str):
                raise ExpressionError("text to look for in a text", _quote_value(left))
            if not isinstance(right, list | set | frozenset | Mapping | str):
                raise ExpressionError("a list, a mapping or text behind `in`", _quote_value(right))
            is_member = left in right if isinstance(right, str) else left in list(right)
            return is_member is isinstance(comparison, ast.In)
    symbol, compare = ORDER_OPERATORS[type(comparison)]
    if isinstance(left, str) and isinstance(right, str):
        return compare(left, right)
    for operand in (left, right):  # A value that is not known (None, NaN) has no order.
        if not isinstance(operand, int | float) or isinstance(operand, bool) or operand != operand:
            raise ExpressionError(f"a number beside `{symbol}`", _quote_value(operand))
    return compare(left, right)


@dataclass(frozen=True)
class Miss:
    """A part of a condition that is false or has no value."""

    part: str  # The part's text, as in `cpu.ratio >= 1.5`.
    words: str  # Actual values and the required part, as in `cpu.ratio is 1.31, asked: ...`.
