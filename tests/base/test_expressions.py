"""The language of conditions and formulas: its answers, and the text and values that it refuses."""

import ast
import os
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from loop.base.expressions import ALLOWED_NODES, Expression, ExpressionError
from loop.model.base import Model
from loop.session.objective import failing_parts
from tests.effort import MOST_CALLS, counted

ROUNDS = int(os.environ.get("LOOP_FUZZ", "600")) // 2


class Packages(Model):
    """The output of a step, as an object with fields."""

    ok: bool
    extension: str | None = None

    @property
    def secret(self) -> bool:
        """Not a field."""
        raise AssertionError("a property was read")


class Trap:
    """An object that must never be looked into."""

    ok = True

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was read")


VALUES: dict[str, object] = {
    "packages": Packages(ok=True, extension="missing"),
    "build": {"ok": True, "seconds": 4.5, "units": 2, "unknown": None, "flags": ("-O3", "-g"), "note": "a b"},
    "failed": False,
    "passed": True,
    "device": "cpu",
    "B": 2,
    "S": 512,
    "causal": True,
    "nan": float("nan"),
    "trap": Trap(),
    "huge": 10**400,
}


def truth(text: str, values: Mapping[str, object] = VALUES) -> bool:
    """The answer of a condition."""
    return Expression.parse(text).evaluate_bool(values)


def number(text: str) -> float:
    """The answer of a formula."""
    return Expression.parse(text).evaluate_number(VALUES)


CONDITIONS = [
    ("true", True),
    ("failed and packages.extension == 'missing'", False),
    ("'-O3' in build.flags", True),
    ("'a' in build.note", True),
    ("0 < build.seconds < 5", True),
    ("build.seconds + 0.5 == 5", True),
    ("build.seconds / 2 - 1 > 1", True),
    ("build.unknown is none", True),
    ("failed and build.unknown > 1", False),
    ("\n  passed\n  and not failed\n", True),
]


@pytest.mark.parametrize(("text", "answer"), CONDITIONS)
def test_a_condition_is_answered(text: str, answer: bool) -> None:
    """Every form of condition that a pattern may have is evaluated."""
    assert answer is truth(text)


FORMULAS = [
    ("4*B*S", 4096.0),
    ("4*B*S * (0.5 if causal else 1)", 2048.0),
    ("B if S > 1000 else S if S > 600 else 7", 7.0),
    ("(S + 1) / B - 0.5", 256.0),
    ("-S", -512.0),
    ("(S + 63) // 64 * B", 16.0),
    ("-S // 1000", -1.0),
]


@pytest.mark.parametrize(("text", "answer"), FORMULAS)
def test_a_formula_is_answered(text: str, answer: float) -> None:
    """Formulas may also multiply and choose."""
    assert answer == number(text)


NO_ANSWER = [
    ("faild", "`faild`: expected a known name, got 'faild' (did you mean 'failed'?)"),
    ("build.second > 1", "got 'build.second' (did you mean 'seconds'?)"),
    ("trap.ok", "got 'trap.ok'"),
    ("build.unknown < 1", "expected a number beside `<`, got a value that is not known"),
    ("build.unknown + 1 > 0", "expected a number, got a value that is not known"),
    ("nan < 1", "expected a number beside `<`, got nan"),
    ("'a' + 'b' == 'ab'", "expected a number, got 'a'"),
    ("1 in 'abc'", "expected text to look for in a text, got 1"),
    ("build.units / 0 > 1", "expected a divisor other than zero, got zero"),
    ("build.units", "expected true or false, got 2"),
    ("huge / 2 > 1", "expected a number that a double can hold, got a larger one"),
]


@pytest.mark.parametrize(("text", "words"), NO_ANSWER)
def test_a_condition_without_an_answer_is_an_error(text: str, words: str) -> None:
    """An unknown value is neither zero nor false: the condition raises an error."""
    with pytest.raises(ExpressionError) as refused:
        truth(text)
    assert words in refused.value.message


PIECES = [
    *("a", "b.c", "a.__class__", "_x", "1", "2.5", "9e99", "'t'", '"u"', "true", "none", "range", "é", "0x1f"),
    *"+-/*%~|()[]{},.:=< \n\\\x00'",
    *("**", "//", "==", "!=", ">=", "and", "or", "not", "in", "not in", "is", "is not", "defined"),
    *("if", "else", "for"),
]


def test_generated_text_is_answered_or_refused() -> None:
    """Generated text gives an answer or an ExpressionError, with little work and only allowed nodes."""
    chance = random.Random(5)
    for _ in range(ROUNDS):
        text = " ".join(chance.choices(PIECES, k=chance.randint(1, 15)))
        with counted() as effort, suppress(ExpressionError):
            expression = Expression.parse(text)
            assert all(isinstance(node, ALLOWED_NODES) for node in ast.walk(expression.tree)), text
            answer = expression.evaluate_number(VALUES)
            assert isinstance(answer, float)
        assert effort.calls < MOST_CALLS, text


OUTSIDE = [
    *("9**(9**9)", "a|upper", "a|attr('__class__')", "a.b()", "a(**b)", "a['b']", "a.0", "a[1:2]", "''.__class__"),
    *("().__class__.__bases__", "a.__class__", "__import__('os')", "{}", "[x for x in y]"),
    *("lambda: 1", "a := 1", "a = 1", "a is callable", "a is defined", "a[0] is none"),
    *("+a", "{{ a }}", "{% if a %}", "a\\b", "a @ b", "a & b", "!a", "a ? b : c", "$a", "a\x00"),
]


@pytest.mark.parametrize("text", OUTSIDE)
def test_nothing_outside_the_language_is_read(text: str) -> None:
    """Calls, filters, indices, powers, private names, templates: each is refused with its column."""
    with pytest.raises(ExpressionError) as refused:
        Expression.parse(text)
    assert refused.value.column is not None
    assert 1 <= refused.value.column <= len(text) + 1


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("build.ok and f(x)", 14, "a call"),
        ("ab = 1", 4, "invalid syntax"),
        ("a and 'open", 7, "unterminated string"),
        ("a <", 4, "invalid syntax"),
        ("a is odd", 1, "`is odd`"),
    ],
)
def test_a_mistake_is_found_at_its_column(text: str, column: int, words: str) -> None:
    """Columns count from 1, in the text of the expression, where the part that is refused begins."""
    with pytest.raises(ExpressionError) as refused:
        Expression.parse(text)
    assert column == refused.value.column
    assert words in refused.value.got


HOSTILE = {
    "blank": " \n ",
    "brackets": "(" * 1000,
    "and": " and ".join(["a"] * 160),
    "comparisons": "<".join(["1"] * 500),
    "far too long": "(" * 1_000_000,
    "hexadecimal": "0x" + "f" * 900,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused_without_much_work(text: str) -> None:
    """Deeply nested text is refused without a traceback and with little work."""
    Expression.parse("a")
    with counted() as effort, pytest.raises(ExpressionError) as refused:
        Expression.parse(text).evaluate_number({"a": True})
    assert effort.calls < MOST_CALLS
    assert len(refused.value.message) < 400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B > 1 and S <= 512 and 'cpu' in device", []),
        ("S >= 600", ["S is 512, asked: `S >= 600`"]),
        ("build.seconds <= 1.5", ["build.seconds is 4.5, asked: `build.seconds <= 1.5`"]),
        ("5 <= build.seconds and B < 4", ["build.seconds is 4.5, asked: `5 <= build.seconds`"]),
        ("build.flags == []", ["build.flags is -O3, -g, asked: `build.flags == []`"]),
        ("build.units < 0", ["build.units is 2, asked: `build.units < 0`"]),
        ("build.unknown >= 1", ["build.unknown is not known, asked: `build.unknown >= 1`"]),
    ],
)
def test_what_does_not_hold_is_told_by_itself(text: str, expected: list[str]) -> None:
    """Each false part of a condition is named, with its values."""
    assert expected == [miss.words for miss in failing_parts(Expression.parse(text), VALUES)]
