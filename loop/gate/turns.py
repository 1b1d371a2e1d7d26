"""Which calls of a process gave wrong outputs: the first, later ones, or all of them."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

from loop.base.processes import Tick
from loop.model.causes import Cause
from loop.model.measurement import Check
from loop.workers.bench import JUDGE_LIMIT_S, Bench
from loop.workers.judge_messages import Compare, Finding
from loop.workers.messages import Computed, Turn

OF_VALUES = ("elements", "loose tolerance", "checker", "NaN", "plain error", "two outputs", "one output")
"""Causes behind which a kernel may stand that depends on the calls before."""
SAID: dict[Cause, str] = {
    "first call": "wrong in the first call of its process, right afterwards",
    "later calls": "right in the first call of its process, wrong in later ones: it keeps values between calls",
}
Which = Literal["none", "first", "later", "all", "mixed"]


@dataclass(frozen=True)
class WrongTurns:
    """Which calls of a check gave wrong outputs."""

    which: Which
    """`first`: only the first ones; `later`: only the last ones."""
    fresh: bool
    """Whether no call of the process came before."""
    message: str = ""
    """What is wrong then."""


def wrong_turns(bench: Bench, request: Compare, reply: Computed) -> Generator[Tick, None, Which]:
    """Compare each output of a check with the reference, and see which calls gave the wrong ones."""
    wrong, right = list[Turn](), list[Turn]()
    for path, turn in zip(request.outputs, reply.turns, strict=False):
        alone = Compare(request.call, (path,), before=request.before)
        finding = yield from bench.judge(alone, JUDGE_LIMIT_S, f"outputs of {request.call.key}, one by one")
        (wrong if is_wrong(finding) else right).append(turn)
    return _which(wrong, right)


def is_wrong(finding: Finding) -> bool:
    """Whether an output is outside the tolerance."""
    return finding.worst is not None or bool(finding.checker or finding.message)


def _which(wrong: list[Turn], right: list[Turn]) -> Which:
    if not wrong or not right:
        return "all" if wrong else "none"
    if max(turn.last for turn in wrong) < min(turn.first for turn in right):
        return "first"
    return "later" if max(turn.last for turn in right) < min(turn.first for turn in wrong) else "mixed"


def cause_of(first: WrongTurns, again: WrongTurns) -> Cause:
    """What two checks of one call say, the second in a fresh process; empty where its place says nothing.

    Both have to agree: what differs by chance, as in a race, differs from process to process.
    """
    if again.which == "first" and (first.which == "first" or (first.which == "all" and not first.fresh)):
        return "first call"
    kept = first.which == "all" and not first.fresh and again.which in ("none", "later")
    return "later calls" if kept or (first.which == again.which == "later") else ""


def named(check: Check, cause: Cause, turns: WrongTurns) -> Check:
    """The check with this cause."""
    return check.model_copy(update={"cause": cause, "message": f"{SAID[cause]}: {turns.message}"})
