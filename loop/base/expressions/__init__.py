"""The language of `when`, `gate` and formulas: Python's parser, an allow-list over its tree, our own evaluator.

It has comparisons, and/or/not/in, constants, names, dotted access, + - /, `is defined` and `is none`.
Formulas also have `*`, `//` and `a if c else b`; conditions on sizes have `%` too. There are no calls or indices.
Nothing is executed: `evaluation` walks the tree that `grammar` has checked.
"""

from loop.base.expressions.evaluation import Expression
from loop.base.expressions.grammar import ExpressionError

__all__ = ["Expression", "ExpressionError"]
