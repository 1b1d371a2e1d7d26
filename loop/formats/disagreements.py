"""Why their verdict and ours may differ, by what both formats of judging say of themselves."""

from collections.abc import Iterator

from loop.formats.model import FLOATS, ForeignTask
from loop.formats.theirs import Verdict

VERDICTS = ("right", "wrong")


def agree(ours: str, theirs: Verdict) -> bool | None:
    """Whether two verdicts say the same; None where there are not two."""
    if ours not in VERDICTS or theirs.status not in VERDICTS:
        return None
    return ours == theirs.status


def causes(task: ForeignTask, ours: str, theirs: Verdict) -> list[str]:
    """What may be behind a disagreement; nothing where both say the same, or one says nothing."""
    if agree(ours, theirs) is not False:
        return []
    return list(_they_pass(task) if theirs.status == "right" else _they_reject(task))


def _they_pass(task: ForeignTask) -> Iterator[str]:
    """Where an answer is wrong for us, and right for them."""
    if task.judging.checker:
        yield f"only their own checker decides there ({task.judging.checker}); we compare with float64, too"
    if task.timing.checked is False:
        yield "they do not check the outputs of timed calls; we check one of them, chosen at random"
    if task.timing.fresh_inputs is False:
        yield "their timed calls all get the same inputs; ours get others"
    if task.timing.cold_cache is False:
        yield "they do not clear the cache between timed calls"
    yield "their inputs come from fixed seeds, ours from a fresh one; we also try other layouts and guard zones"
    yield from task.hints


def _they_reject(task: ForeignTask) -> Iterator[str]:
    """Where an answer is right for us, and wrong for them."""
    if task.judging.either:
        yield "they allow the larger of atol and rtol times the expected value; we allow their sum"
    yield "they compare with the reference in its own type, which may itself be off; we compare with float64"
    yield "we allow what the plain implementation loses in the same type; they allow their tolerance alone"
    if any(one not in FLOATS for one in task.dtypes):
        yield "they cast whole numbers to floating point before the call"
    yield from task.hints
