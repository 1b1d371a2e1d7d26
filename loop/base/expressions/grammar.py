"""Which expressions there are: Jinja2 reads, an allow-list over its tokens and its tree decides."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from loop.base.expressions.wording import MAX_NUMBER, SHOWN, ExpressionError, clip

MAX_LENGTH = 1000
MAX_DEPTH = 40
ALWAYS = frozenset(
    ("Compare", "Operand", "And", "Or", "Not", "Const", "Name", "Getattr", "Neg", "Add", "Sub", "Div", "Test")
) | {"Tuple", "List"}
FORMULA = ALWAYS | {"Mul", "FloorDiv", "CondExpr"}
CONDITION = FORMULA | {"Mod"}
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
ADMITTED = {"mul": "Mul", "floordiv": "FloorDiv", "mod": "Mod"}
"""Those of them that formulas or conditions on sizes have, and their nodes."""
NODES = {
    "Call": "a call",
    "Filter": "a filter",
    "Getitem": "an index",
    "Mul": "a product",
    "FloorDiv": "a floor division",
    "CondExpr": "an if-else",
    "Pos": "a plus sign before a value",
}
BRACES = ("{{", "}}", "{%", "%}", "{#", "#}")


def read(text: str, allowed: frozenset[str]) -> Any:
    """Jinja's tree of an expression in which every node is allowed. Raises ExpressionError with the column."""
    _refuse_monsters(text)
    tree = _parse(text, allowed)
    _check(tree, allowed)
    return tree


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
        reason = (error.message or "").replace("unexpected 'end of template'", "it ends too early")
        raise ExpressionError("an expression", f"a mistake: {clip(reason)}", error.lineno) from error
    except (ValueError, RecursionError, OverflowError, AssertionError) as error:
        raise ExpressionError("an expression", f"one that cannot be read: {type(error).__name__}") from error
    return tree


def _tokens(text: str, allowed: frozenset[str]) -> Iterator[Any]:
    """Jinja's tokens, each with its column; nothing beyond the language's own signs."""
    lexer = _environment().lexer
    for token in lexer.wrap(_raw_tokens(lexer, text)):
        if token.type in OPERATORS and ADMITTED.get(token.type) not in allowed:
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
    remainder = " %" if "Mod" in allowed else ""
    return LANGUAGE + (f" * //{remainder}, if-else" if "Mul" in allowed else "")


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
        raise ExpressionError("`is defined` or `is none`", f"`is {clip(node.name)}`", node.lineno)
    if dotted(node.node) is None:
        raise ExpressionError(f"a name before `is {node.name}`", "a value", node.lineno)


def _check_items(node: Any) -> None:
    values = [item.node if _kind(item) == "Neg" else item for item in node.items]
    if not all(_kind(value) == "Const" for value in values):
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


def dotted(node: Any) -> str | None:
    """`a.b.c` for a name or dotted access."""
    parts: list[str] = []
    while _kind(node) == "Getattr":
        parts.append(node.attr)
        node = node.node
    return ".".join([node.name, *reversed(parts)]) if _kind(node) == "Name" else None


def conjuncts(node: Any) -> Iterator[Any]:
    """The trees that `and` joins at the top."""
    if _kind(node) != "And":
        yield node
        return
    yield from conjuncts(node.left)
    yield from conjuncts(node.right)


def names(node: Any) -> Iterator[str]:
    """Dotted names that the tree reads."""
    if _kind(node) == "Test" and node.name == "defined":
        return
    whole = dotted(node)
    if whole is not None:
        yield whole
        return
    for child in node.iter_child_nodes():
        yield from names(child)
