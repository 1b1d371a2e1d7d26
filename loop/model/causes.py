"""Codes for causes of failure. Programs compare codes, not messages. Imports nothing heavy."""

from typing import Literal

Cause = Literal[
    "", "elements", "loose tolerance", "checker", "NaN", "plain error", "two outputs", "one output",
    "first call", "later calls", "not written", "changed input", "outside", "replaced", "declined",
    "raised", "wrong result", "launched nothing", "left work", "unusable", "sanitizer",
    "device lost", "remembers", "clock", "defers", "foresees", "impossible", "held back",
    "differs from itself",
]  # fmt: skip
"""Why a check failed, a worker refused, or a timing is not trusted. The subject is the variant.

- empty: nothing is wrong, the status is enough, or an earlier release stored it
- `elements`, `NaN`, `plain error`: beyond the tolerance; NaN (unwritten); less exact than `plain`
- `loose tolerance`: the stated tolerance accepts it but also zeros; the judge's stricter one: wrong
- `checker`: the task's own checker rejected the outputs
- `two outputs`, `not written`: output differs between calls, or depends on old content of memory
- `one output`: different input values gave the same output, though the correct outputs differ
- `first call`, `later calls`: wrong only in a process's first call, or only in later ones
- `changed input`, `outside`, `replaced`: wrote to an input, outside tensors; replaced judge's code
- `declined`, `raised`, `wrong result`: error number, exception, result of wrong kind, shape or type
- `launched nothing`, `left work`: the given stream has no work, or does not wait for all work
- `unusable`, `sanitizer`, `device lost`: cannot be called otherwise, sanitizer finding, lost GPU
- `remembers`, `defers`, `foresees`: timed calls return old results, compute after or before them
- `clock`: its clock disagrees with the judge's
- `impossible`, `held back`, `differs from itself`: untrue times; one side slowed; a control differs
"""
