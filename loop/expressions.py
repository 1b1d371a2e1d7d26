"""The language of `when`, `gate` and formulas: Jinja2's parser, an allow-list over its tree, our own evaluator.

Compare, and/or/not/in, constants, names, dotted access, + - /, `is defined` and `is none`; formulas also
have `*` and `a if c else b`. No calls, filters, indices or powers: the full Jinja sandbox hangs on 9**(9**9).
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from loop.errors import LoopError

MAX_LENGTH = 1000
MAX_NODES = 200
MAX_DIGITS = 30
MAX_NESTING = 40


class ExpressionError(LoopError):
    """An expression that cannot be read, or has no answer."""


COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Div": operator.truediv,
    "Mul": operator.mul,
}
ALWAYS = {"Compare", "Operand", "And", "Or", "Not", "Const", "Name", "Getattr", "Neg", "Add", "Sub", "Div"}
ALWAYS |= {"Test", "Tuple", "List"}
FORMULA = {"Mul", "CondExpr"}
TESTS = ("defined", "none")


@dataclass(frozen=True)
class Expression:
    """A checked expression."""

    text: str
    tree: Any
    names: frozenset[str]
    """Dotted names it reads, except those it only asks about with `is defined`."""

    @classmethod
    def parse(cls, text: str, *, arithmetic: bool = False) -> "Expression":
        """Read and check an expression; `arithmetic` admits what formulas need.

        Raises ExpressionError when it holds anything outside the language.
        """
        _refuse_monsters(text)
        tree = _parse(text)
        _check(tree, ALWAYS | FORMULA if arithmetic else ALWAYS)
        return cls(text, tree, frozenset(_names(tree)))

    def evaluate_bool(self, values: Mapping[str, object]) -> bool:
        """Its truth. Raises ExpressionError when a name is unknown or the result is no boolean."""
        result = self._evaluate(values)
        if not isinstance(result, bool):
            raise ExpressionError(f"`{self.text}`: expected true or false, got {result!r}")
        return result

    def evaluate_number(self, values: Mapping[str, object]) -> float:
        """Its value. Raises ExpressionError when a name is unknown or the result is no number."""
        result = self._evaluate(values)
        if isinstance(result, bool) or not isinstance(result, int | float):
            raise ExpressionError(f"`{self.text}`: expected a number, got {result!r}")
        return float(result)

    def _evaluate(self, values: Mapping[str, object]) -> Any:
        try:
            return _value(self.tree, values)
        except ExpressionError as error:
            raise ExpressionError(f"`{self.text}`: {error.message}") from error
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise ExpressionError(f"`{self.text}`: {error}") from error


def _refuse_monsters(text: str) -> None:
    """What would cost the parser more than it is worth."""
    if not text.strip():
        raise ExpressionError("expected an expression, got nothing")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expected at most {MAX_LENGTH} characters, got {len(text)}")
    depth = deepest = digits = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
        digits = digits + 1 if character.isalnum() and (digits or character.isdigit()) else 0
        if digits > MAX_DIGITS or (digits and not character.isascii()):
            raise ExpressionError(f"expected numbers of at most {MAX_DIGITS} digits")
    if deepest > MAX_NESTING or text.split().count("not") > MAX_NESTING or "---" in text.replace(" ", ""):
        raise ExpressionError("expected an expression, got one that is nested too deeply")
    for braces in ("{{", "}}", "{%", "%}", "{#", "#}"):
        if braces in text:
            raise ExpressionError(f"expected an expression without braces, got {braces}")


def _parse(text: str) -> Any:
    from jinja2 import Environment, TemplateSyntaxError
    from jinja2.parser import Parser

    try:
        parser = Parser(Environment(autoescape=False), text, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            found = parser.stream.current
            raise ExpressionError(f"expected the end of the expression, got {str(found.value)[:40]!r}")
    except TemplateSyntaxError as error:
        raise ExpressionError(f"expected an expression: {error.message}") from error
    except (ValueError, RecursionError, OverflowError, MemoryError, AttributeError) as error:
        raise ExpressionError(f"expected an expression: {type(error).__name__}") from error
    return tree


def _kind(node: Any) -> str:
    return type(node).__name__


def _check(tree: Any, allowed: set[str]) -> None:
    """Raise unless every node of the tree is in the language."""
    waiting, seen = [tree], 0
    while waiting:
        node = waiting.pop()
        seen += 1
        if seen > MAX_NODES:
            raise ExpressionError(f"expected at most {MAX_NODES} parts")
        if _kind(node) not in allowed:
            raise ExpressionError(f"expected {_language(allowed)}, got {WORDS.get(_kind(node), _kind(node))}")
        _check_node(node)
        waiting += node.iter_child_nodes()


WORDS = {
    "Call": "a call",
    "Filter": "a filter",
    "Getitem": "an index",
    "Pow": "a power",
    "Mul": "a product",
    "Mod": "a remainder",
    "FloorDiv": "a floor division",
    "Concat": "a concatenation",
    "CondExpr": "an if-else",
    "Dict": "a mapping",
    "Pos": "a plus sign",
    "TemplateData": "template text",
}


def _language(allowed: set[str]) -> str:
    return "comparisons, and/or/not/in, names, numbers, + - /" + (" *, if-else" if "Mul" in allowed else "")


def _check_node(node: Any) -> None:
    kind = _kind(node)
    if kind == "Getattr" and node.attr.startswith("_"):
        raise ExpressionError(f"expected a field, got {node.attr!r}")
    if kind == "Getattr" and _kind(node.node) not in ("Name", "Getattr"):
        raise ExpressionError(f"expected a name before .{node.attr}")
    if kind == "Name" and node.name.startswith("_"):
        raise ExpressionError(f"expected a name, got {node.name!r}")
    if kind == "Test" and (node.name not in TESTS or node.args or node.kwargs or node.dyn_args or node.dyn_kwargs):
        raise ExpressionError(f"expected `is defined` or `is none`, got `is {node.name}`")
    if kind in ("Tuple", "List") and any(_kind(item) != "Const" for item in node.items):
        raise ExpressionError("expected a list of constants")


def _dotted(node: Any) -> str | None:
    """`a.b.c` for a name or dotted access."""
    parts: list[str] = []
    while _kind(node) == "Getattr":
        parts.append(node.attr)
        node = node.node
    return ".".join([node.name, *reversed(parts)]) if _kind(node) == "Name" else None


def _names(node: Any) -> list[str]:
    if _kind(node) == "Test" and node.name == "defined":
        return []
    dotted = _dotted(node)
    if dotted is not None:
        return [dotted]
    return [name for child in node.iter_child_nodes() for name in _names(child)]


def _value(node: Any, values: Mapping[str, object]) -> Any:
    return EVALUATE.get(_kind(node), _arithmetic)(node, values)


def _name(node: Any, values: Mapping[str, object]) -> Any:
    if node.name not in values:
        close = get_close_matches(node.name, list(values), n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ExpressionError(f"unknown name {node.name!r}{hint}")
    return values[node.name]


def _field(node: Any, values: Mapping[str, object]) -> Any:
    """Keys of a mapping, and nothing else: no attribute of any object is ever read."""
    owner = _value(node.node, values)
    known = owner if isinstance(owner, Mapping) else {}
    if node.attr not in known:
        close = get_close_matches(node.attr, [str(name) for name in known], n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ExpressionError(f"{_dotted(node)} is unknown{hint}")
    return known[node.attr]


def _compare(node: Any, values: Mapping[str, object]) -> bool:
    left = _value(node.expr, values)
    for operand in node.ops:
        right = _value(operand.expr, values)
        if operand.op not in ("eq", "ne", "in", "notin") and (left is None or right is None):
            raise ExpressionError("a value is not known")
        if not COMPARE[operand.op](left, right):
            return False
        left = right
    return True


def _truth(node: Any, values: Mapping[str, object]) -> bool:
    result = _value(node, values)
    if not isinstance(result, bool):
        raise ExpressionError(f"expected true or false, got {result!r}")
    return result


def _test(node: Any, values: Mapping[str, object]) -> bool:
    if node.name == "none":
        return _value(node.node, values) is None
    try:
        _value(node.node, values)
    except ExpressionError:
        return False
    return True


def _choice(node: Any, values: Mapping[str, object]) -> Any:
    if node.expr2 is None:
        raise ExpressionError("expected an `else`")
    return _value(node.expr1 if _truth(node.test, values) else node.expr2, values)


def _number(node: Any, values: Mapping[str, object]) -> Any:
    result = _value(node, values)
    if isinstance(result, bool) or not isinstance(result, int | float):
        raise ExpressionError(f"expected a number, got {result!r}")
    return result


def _arithmetic(node: Any, values: Mapping[str, object]) -> Any:
    return ARITHMETIC[_kind(node)](_number(node.left, values), _number(node.right, values))


EVALUATE: dict[str, Callable[[Any, Mapping[str, object]], Any]] = {
    "Const": lambda node, values: node.value,
    "Tuple": lambda node, values: tuple(item.value for item in node.items),
    "List": lambda node, values: [item.value for item in node.items],
    "Name": _name,
    "Getattr": _field,
    "Compare": _compare,
    "And": lambda node, values: _truth(node.left, values) and _truth(node.right, values),
    "Or": lambda node, values: _truth(node.left, values) or _truth(node.right, values),
    "Not": lambda node, values: not _truth(node.node, values),
    "Neg": lambda node, values: -_number(node.node, values),
    "Test": _test,
    "CondExpr": _choice,
}
