"""Which expressions there are: Python's parser reads, an allow-list over its tokens and its tree decides."""

import ast
import keyword
import re
from collections.abc import Iterator

from loop.base.documents.complaints import QUOTED, clip
from loop.base.errors import UsageError

MAX_NUMBER = 10**300
"""Beyond it a number is no longer a measured or counted one."""


class ExpressionError(UsageError):
    """An expression that cannot be read, or has no answer."""

    def __init__(self, expected: str, got: str, column: int | None = None, *, of: str | None = None) -> None:
        self.expected, self.got, self.column = expected, got, column
        """`column`: where in the text, from 1; None for what only shows when it is evaluated."""
        place = f"column {column}: " if column else ""
        text = f"`{clip(of)}`: " if of else ""
        super().__init__(f"{text}{place}expected {expected}, got {got}")


def said(value: object) -> str:
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


MAX_LENGTH = 1000
MAX_DEPTH = 40
COMPARISONS = frozenset(("Compare", "Eq", "NotEq", "Lt", "LtE", "Gt", "GtE", "In", "NotIn", "Is", "IsNot"))
LOGIC = frozenset(("BoolOp", "And", "Or", "UnaryOp", "Not"))
VALUES = frozenset(("Constant", "Name", "Attribute", "Load", "Tuple", "List"))
ALWAYS = COMPARISONS | LOGIC | VALUES | {"USub", "BinOp", "Add", "Sub", "Div"}
FORMULA = ALWAYS | {"Mult", "FloorDiv", "IfExp"}
CONDITION = FORMULA | {"Mod"}
LANGUAGE = "comparisons, and/or/not/in, names, numbers, + - /"
OPERATORS = {
    "*": "a product",
    "**": "a power",
    "%": "a remainder",
    "//": "a floor division",
    "~": "a concatenation",
    "|": "a filter",
    "{": "a mapping",
    "}": "a mapping",
    ":": "a colon",
    "=": "one equals sign; two compare",
    ";": "a semicolon",
}
"""Signs outside the language, and what they would be."""
ADMITTED = {"*": "Mult", "//": "FloorDiv", "%": "Mod"}
"""Those of them that formulas or conditions on sizes have, and their nodes."""
NODES = {"Call": "a call", "Subscript": "an index", "IfExp": "an if-else", "UAdd": "a plus sign before a value"}
CONSTANTS = {"true": "True", "false": "False", "none": "None"}
"""How Python writes them: in as many letters, so that columns stay."""
WORDS = frozenset(("and", "or", "not", "in", "is", "if", "else", *CONSTANTS))
"""No name is one of these."""
NAMES = frozenset(keyword.kwlist) - WORDS - frozenset(CONSTANTS.values())
"""Python's keywords that are names here, such as `try`."""
FULL_WIDTH = 0xFEE0
"""From a letter to its wide twin: Python reads a name with it as the same name, and never as a keyword."""
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<name>[^\W\d]\w*)
    |\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w])
    |'[^'\\\n]*'|"[^"\\\n]*"
    |[=!<>]=|\*\*|//|[-+*/%<>=~|(){}\[\].,:;]""",
    re.VERBOSE,
)


def read(text: str, allowed: frozenset[str]) -> ast.expr:
    """Python's tree of an expression in which every node is allowed. Raises ExpressionError with the column."""
    if not text.strip():
        raise ExpressionError("an expression", "nothing")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"at most {MAX_LENGTH} characters", str(len(text)))
    _refuse_brackets(text)
    python = "".join(_tokens(text, allowed))
    begin = len(python) - len(python.lstrip())
    try:
        tree = ast.parse(python.strip(), mode="eval").body
    except SyntaxError as error:
        rest = text[begin + error.offset - 1 :].split() if error.offset else []
        column = begin + error.offset if error.offset else len(text.rstrip())
        got = repr(rest[0][:QUOTED]) if rest else "it ends too early"
        raise ExpressionError("an expression", f"a mistake: {got}", column) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError("an expression", f"one that cannot be read: {type(error).__name__}") from error
    _Check(python, begin, allowed).check(tree)
    return tree


def _refuse_brackets(text: str) -> None:
    """Deep nesting costs the parser more than it is worth."""
    depth = 0
    for column, character in enumerate(text, start=1):
        depth += (character in "([{") - (character in ")]}")
        if depth > MAX_DEPTH // 2:
            raise ExpressionError(f"at most {MAX_DEPTH // 2} brackets in one another", "more", column)


def _tokens(text: str, allowed: frozenset[str]) -> Iterator[str]:
    """The text as Python has it, piece by piece; nothing beyond the language's own signs."""
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ExpressionError("a name, number, text or sign", repr(text[at]), at + 1)
        if token[0] in OPERATORS and ADMITTED.get(token[0]) not in allowed:
            raise ExpressionError(_language(allowed), OPERATORS[token[0]], at + 1)
        yield " " * len(token[0]) if token["space"] else _as_python(token[0])
        at = token.end()


def _as_python(token: str) -> str:
    return chr(ord(token[0]) + FULL_WIDTH) + token[1:] if token in NAMES else CONSTANTS.get(token, token)


def _language(allowed: frozenset[str]) -> str:
    remainder = " %" if "Mod" in allowed else ""
    return LANGUAGE + (f" * //{remainder}, if-else" if "Mult" in allowed else "")


class _Check:
    """Raises unless every node of a tree is in the language."""

    def __init__(self, python: str, begin: int, allowed: frozenset[str]) -> None:
        self.python, self.begin, self.allowed = python, begin, allowed

    def check(self, tree: ast.expr) -> None:
        waiting: list[tuple[ast.AST, ast.expr, int]] = [(tree, tree, 1)]
        while waiting:
            node, around, depth = waiting.pop()
            place = node if isinstance(node, ast.expr) else around
            if depth > MAX_DEPTH:
                raise ExpressionError(f"at most {MAX_DEPTH} levels", "a deeper expression", self._column(place))
            kind = type(node).__name__
            if kind not in self.allowed:
                got = NODES.get(kind, f"a {kind.lower()}")
                raise ExpressionError(_language(self.allowed), got, self._column(place))
            if (refused := _refused(node)) is not None:
                raise ExpressionError(*refused, self._column(place))
            waiting += [(child, place, depth + 1) for child in ast.iter_child_nodes(node) if not is_defined(node)]

    def _column(self, node: ast.expr) -> int:
        """Where in the text a node shows what it is: at the dot, the bracket or the comparison."""
        match node:
            case ast.Attribute(value=before) | ast.Call(func=before) | ast.Subscript(value=before):
                offset = before.end_col_offset or 0
            case ast.Compare(left=before):
                offset = (before.end_col_offset or 0) + 1
            case _:
                offset = node.col_offset
        stripped = self.python.strip()
        return self.begin + len(stripped.encode()[:offset].decode(errors="ignore")) + 1


def _refused(node: ast.AST) -> tuple[str, str] | None:
    """What is expected and what is there, where a node is of a known kind and yet outside the language."""
    match node:
        case ast.Attribute(attr=name) if name.startswith("_"):
            return "a field", repr(name)
        case ast.Attribute() if dotted(node) is None:
            return "a name before the dot", "a value"
        case ast.Name(id=name) if name.startswith("_"):
            return "a name", repr(name)
        case ast.Constant(value=int() | float() as number) if not -MAX_NUMBER < number < MAX_NUMBER:
            return "a number below 1e300", "a larger one"
        case ast.Constant(value=value) if not isinstance(value, str | int | float | None):
            return "a name, number or text", f"a {type(value).__name__}"
        case ast.Tuple(elts=items) | ast.List(elts=items) if not all(map(_is_constant, items)):
            return "a list of constants", "something to work out"
        case ast.Compare(ops=operators) if any(isinstance(sign, ast.Is | ast.IsNot) for sign in operators):
            return _refused_test(node)
    return None


def _refused_test(node: ast.Compare) -> tuple[str, str] | None:
    match node.comparators[-1]:
        case ast.Constant(value=None):
            asked = "none"
        case ast.Name(id=asked):
            pass
        case _:
            asked = "..."
    if asked not in ("defined", "none") or len(node.ops) > 1:
        return "`is defined` or `is none`", f"`is {asked[:QUOTED]}`"
    return None if dotted(node.left) else (f"a name before `is {asked}`", "a value")


def _is_constant(item: ast.expr) -> bool:
    negative = isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.USub)
    return isinstance(item.operand if negative else item, ast.Constant)  # type: ignore[attr-defined]


def is_defined(node: ast.AST) -> bool:
    """Whether a checked node is `a is defined` or `a is not defined`."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Is | ast.IsNot)
        and isinstance(node.comparators[0], ast.Name)
    )


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` for a name or dotted access."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def conjuncts(node: ast.expr) -> Iterator[ast.expr]:
    """The trees that `and` joins at the top."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for part in node.values:
            yield from conjuncts(part)
    else:
        yield node


def names(node: ast.AST) -> Iterator[str]:
    """Dotted names that the tree reads."""
    whole = dotted(node) if isinstance(node, ast.expr) else None
    if whole is not None:
        yield whole
    elif not is_defined(node):
        for child in ast.iter_child_nodes(node):
            yield from names(child)
