"""`loop plan next`: what the next session should do, what it will take, cost and bring, and why."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from loop.base.errors import ExitCode, LoopError, UsageError
from loop.base.screen import Screen
from loop.learning import statistics_command as statistics
from loop.learning.next_plan import Benefit, Idea, benefit, ideas
from loop.learning.predicting import expected, foresee, predicted_cost
from loop.library.rates import rates
from loop.model.record import SessionHead
from loop.model.target import CAbiVariant
from loop.money.charging import rates_of
from loop.session.opening import SessionRequest, make_head, resolve
from loop.steps.setting import Setting, read_setting
from loop.store import index, past_changes

OTHERS = 3
"""Further ideas that are named."""


@dataclass(frozen=True)
class Proposal:
    """One idea, resolved and priced."""

    idea: Idea
    head: SessionHead
    benefit: Benefit
    benefit_usd: float | None
    command: str


def show_next(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """The most urgent thing to do, and what else there is."""
    setting = read_setting(target)
    first, others = propose(setting, target)
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


def propose(setting: Setting, target: Path | None) -> tuple[Proposal, tuple[Idea, ...]]:
    """The first idea whose plan can be run here, and the others."""
    root = setting.project.sessions
    rows = index.rows(root, last=index.LOOKED_BACK, target=setting.target.name)
    standings = statistics.gather(setting.project, setting.patterns)
    now = make_head(SessionRequest(target=target), setting, resolve(SessionRequest(target=target), setting))
    lost: dict[str, int] = {}
    for one in past_changes.lost_ideas(root, now):
        lost[one.variant] = lost.get(one.variant, 0) + 1
    compiled = [name for name, one in setting.target.variants.items() if isinstance(one, CAbiVariant)]
    every = ideas(rows, now.ground, lost, standings, compiled)
    found = [one for one in every if one.plan in setting.plans or one.resume]
    for place, idea in enumerate(found):
        try:
            head = foresee(_head(idea, setting, target), setting)
        except LoopError:  # Its variant is not there any more, or runs on another device.
            continue
        new = all(row.ground != head.ground for row in rows)
        brings = benefit(idea, head.plan.plan.patterns, standings, new, rows)
        rest = (*found[:place], *found[place + 1 :])
        return Proposal(idea, head, brings, _usd(brings, setting, head), _command(idea, target)), rest
    raise UsageError("no plan of this target can be run here", hint="loop plan list")


def _head(idea: Idea, setting: Setting, target: Path | None) -> SessionHead:
    """The head that a session of this idea would have."""
    known = idea.plan in setting.plans
    request = SessionRequest(target=target, plan=idea.plan if known else None)
    request = request if known else replace(request, pattern=idea.plan)
    if idea.variant is not None:
        request = replace(request, variants=(idea.variant,))
    return make_head(request, setting, resolve(request, setting))


def _usd(brings: Benefit, setting: Setting, head: SessionHead) -> float | None:
    """Its minutes at the rates of who would have spent them."""
    gpu = head.machine.gpus[0] if head.machine.gpus else None
    held = rates_of(rates(setting.project), head.device, gpu)
    by_hour = sum(rate.usd_per_hour for rate in held)
    return None if brings.minutes is None else brings.minutes / 60 * by_hour


def _command(idea: Idea, target: Path | None) -> str:
    where = ["--target", str(target)] if target else []
    if idea.resume:
        return shlex.join(["loop", "run", "session", "--resume", idea.resume, *where])
    chosen = ["--variant", idea.variant] if idea.variant else []
    return shlex.join(["loop", "run", "session", idea.plan, *chosen, *where])


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
