"""The language of `when`, `gate` and formulas: Jinja2's parser, an allow-list over its tree, our own evaluator.

Compare, and/or/not/in, constants, names, dotted access, + - /, `is defined` and `is none`; formulas also
have `*` and `a if c else b`. No calls, filters, indices or powers: the full Jinja sandbox hangs on 9**(9**9).
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from loop.errors import LoopError

MAX_LENGTH = 1000
MAX_DEPTH = 40
MAX_NUMBER = 10**300
SHOWN = 60
"""Characters of an expression or a value that a message quotes."""


class ExpressionError(LoopError):
    """An expression that cannot be read, or has no answer."""

    def __init__(self, expected: str, got: str, column: int | None = None, *, of: str | None = None) -> None:
        self.expected, self.got, self.column = expected, got, column
        """`column`: where in the text, from 1; None for what only shows when it is evaluated."""
        place = f"column {column}: " if column else ""
        text = f"`{_clip(of)}`: " if of else ""
        super().__init__(f"{text}{place}expected {expected}, got {got}")


ALWAYS = frozenset(
    ("Compare", "Operand", "And", "Or", "Not", "Const", "Name", "Getattr", "Neg", "Add", "Sub", "Div", "Test")
) | {"Tuple", "List"}
FORMULA = ALWAYS | {"Mul", "CondExpr"}
LANGUAGE = "comparisons, and/or/not/in, names, numbers, + - /"
OPERATORS = {
    "mul": "a product",
    "pow": "a power",
    "mod": "a remainder",
    "floordiv": "a floor division",
    "tilde": "a concatenation",
    "pipe": "a filter",
    "lbrace": "a mapping",
    "rbrace": "a mapping",
    "colon": "a colon",
    "assign": "one equals sign; two compare",
    "semicolon": "a semicolon",
}
"""Signs outside the language, and what they would be."""
NODES = {
    "Call": "a call",
    "Filter": "a filter",
    "Getitem": "an index",
    "Mul": "a product",
    "CondExpr": "an if-else",
    "Pos": "a plus sign before a value",
}
BRACES = ("{{", "}}", "{%", "%}", "{#", "#}")


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

        Raises ExpressionError, with the column, when it holds anything outside the language.
        """
        _refuse_monsters(text)
        allowed = FORMULA if arithmetic else ALWAYS
        tree = _parse(text, allowed)
        _check(tree, allowed)
        return cls(text, tree, frozenset(_names(tree)))

    def evaluate_bool(self, values: Mapping[str, object]) -> bool:
        """Its truth. Raises ExpressionError when a name is unknown or the result is no boolean."""
        return self._evaluate(lambda: _truth(self.tree, values))

    def evaluate_number(self, values: Mapping[str, object]) -> float:
        """Its value, always finite. Raises ExpressionError when a name is unknown or the result is no number."""
        return self._evaluate(lambda: _finite(_number(self.tree, values)))

    def _evaluate[T](self, answer: Callable[[], T]) -> T:
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


def _clip(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _said(value: object) -> str:
    """A value as a message shows it."""
    if value is None:
        return "a value that is not known"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _clip(repr(value[: 2 * SHOWN]))
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < MAX_NUMBER):
        return _clip(repr(value))
    return f"a {type(value).__name__}"


def _refuse_monsters(text: str) -> None:
    """What would cost the parser more than it is worth, and what is meant for a template."""
    if not text.strip():
        raise ExpressionError("an expression", "nothing")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"at most {MAX_LENGTH} characters", str(len(text)))
    for braces in BRACES:
        if braces in text:
            raise ExpressionError("an expression without braces", braces, text.index(braces) + 1)
    if "\\" in text:
        raise ExpressionError("text without backslashes", "one", text.index("\\") + 1)
    depth = 0
    for column, character in enumerate(text, start=1):
        depth += (character in "([{") - (character in ")]}")
        if depth > MAX_DEPTH // 2:
            raise ExpressionError(f"at most {MAX_DEPTH // 2} brackets in one another", "more", column)


@functools.cache
def _environment() -> Any:
    from jinja2 import Environment  # Here, because a command that reads no expression need not wait for it.

    return Environment(autoescape=False)


def _parse(text: str, allowed: frozenset[str]) -> Any:
    """Jinja's tree. Its line numbers are columns here: the tokens are given that way."""
    from jinja2 import TemplateSyntaxError
    from jinja2.lexer import TokenStream
    from jinja2.parser import Parser

    try:
        parser = Parser(_environment(), "", state="variable")
        parser.stream = TokenStream(_tokens(text, allowed), None, None)
        tree = parser.parse_expression()
        if not parser.stream.eos:
            found = parser.stream.current
            raise ExpressionError("the end of the expression", repr(str(found.value)[:SHOWN]), found.lineno)
    except TemplateSyntaxError as error:
        raise ExpressionError("an expression", f"a mistake: {_clip(error.message or '')}", error.lineno) from error
    except (ValueError, RecursionError, OverflowError, AssertionError) as error:
        raise ExpressionError("an expression", f"one that cannot be read: {type(error).__name__}") from error
    return tree


def _tokens(text: str, allowed: frozenset[str]) -> Iterator[Any]:
    """Jinja's tokens, each with its column; nothing beyond the language's own signs."""
    lexer = _environment().lexer
    for token in lexer.wrap(_raw_tokens(lexer, text)):
        if token.type in OPERATORS and not (token.type == "mul" and "Mul" in allowed):
            raise ExpressionError(_language(allowed), OPERATORS[token.type], token.lineno)
        yield token


def _raw_tokens(lexer: Any, text: str) -> Iterator[tuple[int, str, str]]:
    from jinja2 import TemplateSyntaxError

    column = 1
    try:
        for _, kind, value in lexer.tokeniter(text, None, state="variable"):
            yield column, kind, value
            column += len(value)
    except TemplateSyntaxError as error:
        found = text[column - 1 : column]
        raise ExpressionError("a name, number, text or sign", repr(found), column) from error


def _kind(node: Any) -> str:
    return type(node).__name__


def _language(allowed: frozenset[str]) -> str:
    return LANGUAGE + (" *, if-else" if "Mul" in allowed else "")


def _check(tree: Any, allowed: frozenset[str]) -> None:
    """Raise unless every node of the tree is in the language."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ExpressionError(f"at most {MAX_DEPTH} levels", "a deeper expression", node.lineno)
        if _kind(node) not in allowed:
            found = NODES.get(_kind(node), f"a {_kind(node).lower()}")
            raise ExpressionError(_language(allowed), found, node.lineno)
        CHECKS.get(_kind(node), _no_check)(node)
        waiting += [(child, depth + 1) for child in node.iter_child_nodes()]


def _no_check(node: Any) -> None:
    """Most nodes are right by their kind."""


def _check_field(node: Any) -> None:
    if node.attr.startswith("_"):
        raise ExpressionError("a field", repr(node.attr), node.lineno)
    if _kind(node.node) not in ("Name", "Getattr"):
        raise ExpressionError("a name before the dot", "a value", node.lineno)


def _check_name(node: Any) -> None:
    if node.name.startswith("_"):
        raise ExpressionError("a name", repr(node.name), node.lineno)


def _check_test(node: Any) -> None:
    if node.name not in ("defined", "none") or node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
        raise ExpressionError("`is defined` or `is none`", f"`is {_clip(node.name)}`", node.lineno)
    if _dotted(node.node) is None:
        raise ExpressionError(f"a name before `is {node.name}`", "a value", node.lineno)


def _check_items(node: Any) -> None:
    if not all(_kind(item) == "Const" for item in node.items):
        raise ExpressionError("a list of constants", "something to work out", node.lineno)


def _check_constant(node: Any) -> None:
    value = node.value
    if isinstance(value, int | float) and not -MAX_NUMBER < value < MAX_NUMBER:
        raise ExpressionError("a number below 1e300", "a larger one", node.lineno)


def _check_choice(node: Any) -> None:
    if node.expr2 is None:
        raise ExpressionError("an `else`", "an `if` without one", node.lineno)


CHECKS: dict[str, Callable[[Any], None]] = {
    "Getattr": _check_field,
    "Name": _check_name,
    "Test": _check_test,
    "Tuple": _check_items,
    "List": _check_items,
    "Const": _check_constant,
    "CondExpr": _check_choice,
}


def _dotted(node: Any) -> str | None:
    """`a.b.c` for a name or dotted access."""
    parts: list[str] = []
    while _kind(node) == "Getattr":
        parts.append(node.attr)
        node = node.node
    return ".".join([node.name, *reversed(parts)]) if _kind(node) == "Name" else None


def _names(node: Any) -> Iterator[str]:
    if _kind(node) == "Test" and node.name == "defined":
        return
    dotted = _dotted(node)
    if dotted is not None:
        yield dotted
        return
    for child in node.iter_child_nodes():
        yield from _names(child)


def _value(node: Any, values: Mapping[str, object]) -> Any:
    return EVALUATE[_kind(node)](node, values)
