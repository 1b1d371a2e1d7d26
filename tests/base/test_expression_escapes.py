"""What is not in the language of expressions: known escapes, mistakes, and text made to hurt."""

import pytest

from loop.base.expressions import Expression, ExpressionError
from tests.effort import MOST_CALLS, counted


def refusal(text: str, *, arithmetic: bool = False) -> ExpressionError:
    """Why a text is no expression."""
    with pytest.raises(ExpressionError) as refused:
        Expression.parse(text, arithmetic=arithmetic)
    return refused.value


ESCAPES = [
    "9**(9**9)",
    "'a' * 999999999",
    "a * b",
    "5 % 2",
    "'%s' % a",
    "a|upper",
    "a|attr('__class__')",
    "a.b()",
    "a(**b)",
    "''.join(a)",
    "'{0.__class__}'.format(a)",
    "a['b']",
    "a.0",
    "a[1:2]",
    "[1, 2][0]",
    "''.__class__",
    "1.5.real",
    "().__class__.__bases__",
    "a.__class__",
    "a._private",
    "_a",
    "__import__('os')",
    "self._TemplateReference__context",
    "{}",
    "[a]",
    "(a, b)",
    "a if b else c",
    "[x for x in y]",
    "lambda: 1",
    "a := 1",
    "a = 1",
    "a is callable",
    "a is divisibleby 3",
    "a is defined(b)",
    "a[0] is defined",
    "(1 / 0) is none",
    "+a",
    "{{ a }}",
    "{% if a %}",
    "{# a #}",
    "a\\b",
    "a @ b",
    "a & b",
    "!a",
    "a ? b : c",
    "`a`",
    "a <> b",
    "$a",
    "a\x00",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_nothing_outside_the_language_is_read(text: str) -> None:
    """Calls, filters, indices, powers, private names, templates: each is refused with its column."""
    said = refusal(text)
    assert said.column is not None
    assert 1 <= said.column <= len(text) + 1
    assert f"column {said.column}: expected {said.expected}, got {said.got}" == said.message


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("build.ok and f(x)", 15, "a call"),
        ("build.ok | upper", 10, "a filter"),
        ("a * 2", 3, "a product"),
        ("ab = 1", 4, "invalid syntax"),
        ("ab.cd[0]", 6, "an index"),
        ("ab.cd.__class__", 6, "'__class__'"),
        ("a and 'open", 7, "unterminated string"),
        ("a b", 3, "invalid syntax"),
        ("a <", 4, "invalid syntax"),
        ("x < 9e999999", 5, "a larger one"),
        ("a is odd", 3, "`is odd`"),
    ],
)
def test_a_mistake_is_found_at_its_column(text: str, column: int, words: str) -> None:
    """Columns count from 1, in the text of the expression."""
    said = refusal(text)
    assert column == said.column
    assert words in said.got


HOSTILE = {
    "empty": "",
    "blank": " \n ",
    "brackets": "(" * 1000,
    "lists": "[" * 1000,
    "not": "not " * 249 + "a",
    "minus": "-" * 999 + "1",
    "sum": "+".join(["1"] * 500),
    "and": " and ".join(["a"] * 160),
    "dots": "a" + ".a" * 499,
    "comparisons": "<".join(["1"] * 500),
    "choices": "1 if a else " * 80 + "1",
    "exponent": "9e999999",
    "too long": "a" * 1001,
    "far too long": "(" * 1_000_000,
    "is": "a is " * 199 + "none",
    "in": "a in " * 199 + "a",
    "commas": "(" + "1," * 499,
    "hexadecimal": "0x" + "f" * 900,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("arithmetic", [False, True])
def test_hostile_text_is_refused_without_much_work(text: str, arithmetic: bool) -> None:
    """No traceback and no waiting, however it is nested; what can be read is short enough to answer."""
    Expression.parse("a")
    said = "expected "
    with counted() as effort:
        try:
            Expression.parse(text, arithmetic=arithmetic).evaluate_number({"a": True})
        except ExpressionError as error:
            said = error.message
    assert effort.calls < MOST_CALLS
    assert "expected " in said
    assert len(said) < 400
