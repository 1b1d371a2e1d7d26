"""`loop plan next`: what the next session should do, what it will take, cost and bring, and why."""

import json
from collections.abc import Iterator
from pathlib import Path

from loop.base.errors import ExitCode
from loop.base.screen import Screen
from loop.learning.next_plan import Idea
from loop.learning.predicting import expected, predicted_cost
from loop.library.rates import rates
from loop.session.next_session import Proposal, propose
from loop.steps.setting import read_setting

OTHERS = 3
"""Further ideas that are named."""


def show_next(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """The most urgent thing to do, and what else there is."""
    setting = read_setting(target)
    first, others = propose(setting, where_of(target))
    if as_json:
        screen.data(json.dumps(_fields(first, others), indent=1))
        return ExitCode.OK
    for line in _lines(first, predicted_cost(rates(setting.project), first.head)):
        screen.prose(line)
    screen.data(f"run it: {first.command}")
    for other in others[:OTHERS]:
        screen.say(f"also: {other.objective} (plan {other.plan}): {other.why[0]}")
    return ExitCode.OK


def _lines(first: Proposal, cost: str) -> Iterator[str]:
    yield first.idea.objective
    yield from (f"  why: {text}" for text in first.idea.why)
    yield f"  chain: {', '.join(first.head.plan.plan.patterns)}"
    yield f"  expected: {', '.join(filter(None, (expected(first.head), cost)))}"
    yield f"  benefit: {first.benefit.text}{_worth(first)}"


def where_of(target: Path | None) -> list[str]:
    """How a command names the target that the user gave."""
    return ["--target", str(target)] if target else []


def _worth(first: Proposal) -> str:
    return f", ${first.benefit_usd:.2f}" if first.benefit_usd else ""


def _fields(first: Proposal, others: tuple[Idea, ...]) -> dict[str, object]:
    known = first.head.predicted
    return {
        "schema_version": 1,
        "objective": first.idea.objective,
        "plan": first.idea.plan,
        "variant": first.idea.variant,
        "resume": first.idea.resume,
        "chain": list(first.head.plan.plan.patterns),
        "expected_minutes": known.seconds / 60 if known else None,
        "expected_usd": known.usd if known else None,
        "predicted": known.model_dump(mode="json") if known else None,
        "benefit": {
            "text": first.benefit.text,
            "minutes": first.benefit.minutes,
            "usd": first.benefit_usd,
            "evidence": first.benefit.evidence,
            "gain": first.benefit.gain.model_dump(mode="json") if first.benefit.gain else None,
        },
        "why": list(first.idea.why),
        "command": first.command,
        "others": [{"objective": one.objective, "plan": one.plan, "why": list(one.why)} for one in others],
    }
