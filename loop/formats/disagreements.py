"""Why their verdict and ours may differ, by what we found and by what both say of themselves."""

from collections.abc import Iterator, Mapping

from loop.formats.model import FLOATS, ForeignTask
from loop.formats.theirs import Verdict
from loop.model.causes import Cause
from loop.model.output import Ours

VERDICTS = ("right", "wrong")
ONLY_OURS: Mapping[Cause, str] = {
    "changed input": "it changes its inputs: we compare them after each call, they do not",
    "outside": "it reads or writes beside its tensors: we put guard zones around them, they do not",
    "not written": "what stood in its output before a call shows in it: we fill outputs first, they do not",
    "two outputs": "the same inputs gave two outputs: we call several times on the same inputs",
    "one output": "other values gave the very same output, which is within the tolerance: we look for that",
    "wrong result": "its outputs are not of the type, shape or class of the reference's: they do not mind",
    "loose tolerance": "by the tolerance zeros would be right; we allow less where that is so",
    "NaN": "a NaN or infinity in place of a number is wrong for us, however few elements are off",
    "unusable": "it does not load on its own in a process of ours",
    "replaced": "it replaces what it is judged with: we look for that",
    "checker": "the task's own checker says no on our inputs, which come from other seeds",
}
"""What we found, and why they may not find it."""


def agree(own: str, foreign: Verdict) -> bool | None:
    """Whether two verdicts say the same; None where there are not two."""
    if own not in VERDICTS or foreign.status not in VERDICTS:
        return None
    return own == foreign.status


def causes(task: ForeignTask, own: Ours, foreign: Verdict) -> list[str]:
    """What may be behind a disagreement, the likeliest first; nothing where both say the same, or one nothing."""
    if agree(own.verdict, foreign) is not False:
        return []
    if foreign.status == "wrong":
        return list(_they_reject(task))
    return list(_timed(task) if own.timed else _they_pass(task, own))


def _timed(task: ForeignTask) -> Iterator[str]:
    """Where an answer is wrong for us in a timed call, and right for them."""
    if task.timing.checked is False:
        yield "they do not check the outputs of timed calls; we check one of them, chosen at random"
    if task.timing.fresh_inputs is False:
        yield "their timed calls all get the same inputs; ours get others"
    if task.timing.cold_cache is False:
        yield "they do not clear the cache between timed calls"
    yield from task.hints


def _they_pass(task: ForeignTask, own: Ours) -> Iterator[str]:
    """Where an answer is wrong for us, and right for them."""
    if own.status in ("crashed", "hung") or own.cause in ONLY_OURS:
        yield ONLY_OURS.get(own.cause, "it gives no output in a process of ours, and they took its word for it")
        return
    if task.judging.checker:
        yield f"only their own checker decides there ({task.judging.checker}); we compare with float64, too"
    yield "each of our calls has other values at the same addresses; theirs may have new tensors"
    yield "their inputs come from fixed seeds, ours from a fresh one"
    yield from task.hints


def _they_reject(task: ForeignTask) -> Iterator[str]:
    """Where an answer is right for us, and wrong for them."""
    if task.judging.checker:
        yield "their checker is given outputs as the answer packs them; we pack them as the reference does"
    if task.judging.either:
        yield "they allow the larger of atol and rtol times the expected value; we allow their sum"
    yield "they compare with the reference in its own type, which may itself be off; we compare with float64"
    yield "we allow what the plain implementation loses in the same type; they allow their tolerance alone"
    if any(dtype not in FLOATS for dtype in task.dtypes):
        yield "they cast whole numbers to floating point before the call"
    yield from task.hints
