"""`loop run step`: one action of the table by itself, as a part of a session that is done elsewhere."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.documents import did_you_mean
from loop.base.errors import UsageError
from loop.base.screen import Screen
from loop.cli.bench import BenchRequest, choose, shown, walk_alone
from loop.model.pattern import Estimate, Pattern, Step
from loop.model.plan import Plan, PlanBudget
from loop.session.events import Happening, StepEnded
from loop.steps.setting import trusted_setting, with_given
from loop.steps.spread import write_samples


@dataclass(frozen=True)
class StepRequest:
    """What the user, or an executor, asked for."""

    action: str
    given: str
    """The action's arguments, a JSON object."""
    target: Path | None
    device: str
    variants: Sequence[str]
    threads: int | None
    seed: int
    workloads: Sequence[str]
    checks: Sequence[str]
    budget_s: float
    limit_s: float
    samples: Path | None
    """Where raw samples go."""
    json: bool


def run_step(asked: StepRequest, screen: Screen) -> int:
    """Do one step on the target; the exit code."""
    from loop.actions import ACTIONS

    action, samples = asked.action, asked.samples
    if action not in ACTIONS:
        raise UsageError(f"no action {action!r}", hint=did_you_mean(action, list(ACTIONS)))
    if samples is not None and not samples.absolute().parent.is_dir():
        raise UsageError(f"--samples {samples}: no such folder", hint=f"mkdir -p {samples.parent}")
    setting = with_given(trusted_setting(asked.target, screen), [*asked.workloads, *asked.checks])
    step = Step(
        id="step",
        title=action,
        action=action,
        arguments=_read(asked.given),
        budget_s=asked.budget_s,
        limit_s=asked.limit_s,
    )
    pattern = Pattern(
        format=1,
        name="step",
        number=1,
        title=action,
        problem=action,
        use_when=(action,),
        estimate=Estimate(minutes=1),
        steps=(step,),
    )
    plan = Plan(
        format=1,
        name="step",
        title=action,
        patterns=("step",),
        workloads=tuple(asked.workloads) or (next(iter(setting.target.workloads)),),
        checks=tuple(asked.checks),
        budget=PlanBudget(minutes=asked.limit_s / 60),
    )
    request = BenchRequest(
        "step",
        asked.variants,
        asked.target,
        asked.device,
        asked.workloads,
        asked.threads,
        asked.seed,
        json=asked.json,
    )
    chosen = choose(request, setting.target)

    def store(event: Happening) -> Happening:
        if samples is not None and isinstance(event, StepEnded):
            write_samples(samples, event.samples)
        return event

    return shown(request, *walk_alone(setting, plan, pattern, chosen, request, screen, store, warm=True), screen)


def _read(given: str) -> dict[str, Any]:
    """The arguments of the action. Raises UsageError for what is no JSON object."""
    with contextlib.suppress(ValueError):
        found = json.loads(given)
        if isinstance(found, dict):
            return found
    raise UsageError(f"--with {given!r}: expected a JSON object", hint="""--with '{"seeds": 2}'""")
