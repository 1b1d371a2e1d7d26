"""`loop run step`: one action of the table by itself, as a part of a session that is done elsewhere."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.actions import ACTIONS
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
class StepRequest(BenchRequest):
    """One action of the table. `what` stays empty."""

    action: str = ""
    arguments: str = "{}"
    """The action's arguments, a JSON object."""
    checks: Sequence[str] = ()
    budget_s: float = 60
    limit_s: float = 600
    samples: Path | None = None
    """Where raw samples go."""


def run_step(request: StepRequest, screen: Screen) -> int:
    """Do one step on the target; the exit code."""
    action, samples = request.action, request.samples
    if action not in ACTIONS:
        raise UsageError(f"no action {action!r}", hint=did_you_mean(action, list(ACTIONS)))
    if samples is not None and not samples.absolute().parent.is_dir():
        raise UsageError(f"--samples {samples}: no such folder", hint=f"mkdir -p {samples.parent}")
    setting = with_given(trusted_setting(request.target, screen), [*request.workloads, *request.checks])
    step = Step(
        id="step",
        title=action,
        action=action,
        arguments=_read(request.arguments),
        budget_s=request.budget_s,
        limit_s=request.limit_s,
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
        workloads=tuple(request.workloads) or (next(iter(setting.target.workloads)),),
        checks=tuple(request.checks),
        budget=PlanBudget(minutes=request.limit_s / 60),
    )
    chosen = choose(request, setting.target)

    def store(event: Happening) -> Happening:
        if samples is not None and isinstance(event, StepEnded):
            write_samples(samples, event.samples)
        return event

    return shown(request, *walk_alone(setting, plan, pattern, chosen, request, screen, store, warm=True), screen)


def _read(text: str) -> dict[str, Any]:
    """The arguments of the action. Raises UsageError for what is no JSON object."""
    with contextlib.suppress(ValueError):
        arguments = json.loads(text)
        if isinstance(arguments, dict):
            return arguments
    raise UsageError(f"--with {text!r}: expected a JSON object", hint="""--with '{"seeds": 2}'""")
