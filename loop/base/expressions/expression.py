"""A checked expression, and its answer for given values."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from loop.base.expressions.evaluation import finite_number, truth
from loop.base.expressions.grammar import ALWAYS, CONDITION, FORMULA, conjuncts, names, read
from loop.base.expressions.wording import ExpressionError

T = TypeVar("T")


@dataclass(frozen=True)
class Expression:
    """A checked expression."""

    text: str
    tree: ast.expr
    names: frozenset[str]
    """Dotted names it reads, except those it only asks about with `is defined`."""

    @classmethod
    @lru_cache(1000)
    def parse(cls, text: str, *, arithmetic: bool = False, remainders: bool = False) -> "Expression":
        """Read and check an expression; `arithmetic` admits what formulas need, `remainders` also `%`.

        Raises ExpressionError, with the column, when it holds anything outside the language.
        """
        tree = read(text, CONDITION if remainders else FORMULA if arithmetic else ALWAYS)
        return cls(text, tree, frozenset(names(tree)))

    @property
    def parts(self) -> tuple["Expression", ...]:
        """What `and` joins at the top, one by one; an expression without `and` is its own only part."""
        return tuple(Expression(self.text, part, frozenset(names(part))) for part in conjuncts(self.tree))

    def evaluate_bool(self, values: Mapping[str, object]) -> bool:
        """Its truth. Raises ExpressionError when a name is unknown or the result is no boolean."""
        return self._answer(lambda: truth(self.tree, values))

    def evaluate_number(self, values: Mapping[str, object]) -> float:
        """Its value, always finite. Raises ExpressionError when a name is unknown or the result is no number."""
        return self._answer(lambda: finite_number(self.tree, values))

    def _answer(self, answer: Callable[[], T]) -> T:
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
