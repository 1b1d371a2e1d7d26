"""`loop plan next`: what the next session should do, what it will take, cost and bring, and why."""

from collections.abc import Iterator
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.screen import Screen
from loop.learning.next_plan import Benefit, Idea
from loop.learning.predicting import expected, predicted_cost
from loop.library.rates import rates
from loop.model.base import Model, Printed
from loop.model.plan import Predicted
from loop.session.next_session import PricedIdea, propose
from loop.steps.setting import read_setting

OTHERS = 3
"""Further ideas that are named."""


def show_next(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """The most urgent thing to do, and what else there is."""
    setting = read_setting(target)
    first, others = propose(setting, where_of(target))
    if as_json:
        screen.data(to_json(_fields(first, others)))
        return ExitCode.OK
    for line in _lines(first, predicted_cost(rates(setting.project), first.head)):
        screen.prose(line)
    screen.data(f"run it: {first.command}")
    for other in others[:OTHERS]:
        screen.say(f"also: {other.objective} (plan {other.plan}): {other.why[0]}")
    return ExitCode.OK


def _lines(first: PricedIdea, cost: str) -> Iterator[str]:
    yield first.idea.objective
    yield from (f"  why: {text}" for text in first.idea.why)
    known = " ".join(first.idea.why)
    yield from (f"  wrong: {text}" for text in first.wrong if text not in known)
    yield from (f"  {text}" for text in [first.unjudged] if text and text not in known)
    yield f"  chain: {', '.join(first.head.plan.plan.patterns)}"
    yield f"  expected: {', '.join(filter(None, (expected(first.head), cost)))}"
    worth = f", ${first.benefit.usd:.2f}" if first.benefit.usd else ""
    yield f"  benefit: {first.benefit.text}{worth}"


def where_of(target: Path | None) -> list[str]:
    """How a command names the target that the user gave."""
    return ["--target", str(target)] if target else []


class OtherIdea(Model):
    """Something else that could be done."""

    objective: str
    """What for."""
    plan: str
    """Name of the plan."""
    why: tuple[str, ...]
    """What leads to it."""


class NextSession(Printed):
    """What the next session should do."""

    objective: str
    """What for."""
    plan: str
    """Name of the plan."""
    variant: str | None
    """The variant that it is about; None for all."""
    resume: str | None
    """The session to go on with, instead of a new one."""
    chain: tuple[str, ...]
    """Its patterns."""
    expected_minutes: float | None
    """What it takes."""
    expected_usd: float | None
    """What it costs."""
    predicted: Predicted | None
    """Both with their intervals."""
    benefit: Benefit
    """What it may bring."""
    why: tuple[str, ...]
    """What in the records leads to it."""
    command: str
    """What runs it."""
    wrong: tuple[str, ...]
    """A sentence for each variant that is wrong."""
    unjudged: str
    """Variants and sets that no session judged on these files; empty where every one was."""
    others: tuple[OtherIdea, ...]
    """What else could be done, the most urgent first."""


def _fields(first: PricedIdea, others: tuple[Idea, ...]) -> NextSession:
    known = first.head.predicted
    return NextSession(
        objective=first.idea.objective,
        plan=first.idea.plan,
        variant=first.idea.variant,
        resume=first.idea.resume,
        chain=first.head.plan.plan.patterns,
        expected_minutes=known.seconds / 60 if known else None,
        expected_usd=known.usd if known else None,
        predicted=known,
        benefit=first.benefit,
        why=first.idea.why,
        command=first.command,
        wrong=first.wrong,
        unjudged=first.unjudged,
        others=tuple(OtherIdea(objective=other.objective, plan=other.plan, why=other.why) for other in others),
    )
