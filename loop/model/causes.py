"""The codes of what is wrong: code decides by them, their words are for readers. Nothing heavy is imported."""

from typing import Literal

Cause = Literal[
    "", "elements", "loose tolerance", "checker", "NaN", "plain error", "two outputs", "one output",
    "first call", "later calls", "not written", "changed input", "outside", "replaced", "declined",
    "raised", "wrong result", "launched nothing", "left work", "cache kept", "unusable", "sanitizer",
    "device lost", "remembers", "clock", "defers", "foresees", "impossible", "held back",
    "differs from itself",
]  # fmt: skip
"""Why a check failed, a worker said no or a timing is not trusted.

- empty: nothing is wrong, the status says it all, or an earlier release stored it
- `elements`, `NaN`, `plain error`: elements outside their tolerance, one that is NaN (mostly because nobody wrote
  it), a result that loses more than the plain implementation
- `loose tolerance`: what the stated tolerance allows; zeros would be right by that, so less is allowed
- `checker`: the task's own check of the outputs says no
- `two outputs`, `not written`: the output differs from call to call, or follows what stood in its memory before
- `one output`: other values gave the very same, though the right answers are far apart
- `first call`, `later calls`: it is wrong in the first call of its process alone, or right there alone: it keeps
  values between calls
- `changed input`, `outside`, `replaced`: it wrote to an input, reached beyond its tensors, replaced what judges it
- `declined`, `raised`, `wrong result`: an error number, an exception, a result of another kind, shape or type
- `launched nothing`, `left work`, `cache kept`: the stream that it was given is empty, does not wait for all the
  work, or keeps lines of the second-level cache
- `unusable`, `sanitizer`, `device lost`: anything else that cannot be called, a sanitizer's finding, a lost GPU
- `remembers`, `defers`, `foresees`: while it is timed it gives old results, or computes later or sooner
- `clock`, `cores`: its clock disagrees with ours; it left its cores
- `impossible`, `held back`, `differs from itself`: the figures cannot be true, or this machine does not allow them
"""
