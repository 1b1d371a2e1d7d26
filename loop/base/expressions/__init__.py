"""The language of `when`, `gate` and formulas: Jinja2's parser, an allow-list over its tree, our own evaluator.

Compare, and/or/not/in, constants, names, dotted access, + - /, `is defined` and `is none`; formulas also
have `*`, `//` and `a if c else b`, conditions on sizes `%` too. No calls, filters, indices or powers: the full
Jinja sandbox hangs on 9**(9**9).
"""

from loop.base.expressions.expression import Expression
from loop.base.expressions.wording import ExpressionError

__all__ = ["Expression", "ExpressionError"]
