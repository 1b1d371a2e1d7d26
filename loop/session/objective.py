"""A plan's objective: evaluates its expressions `success`, `stop_if` and `requires`."""

import ast
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loop.base.errors import UsageError
from loop.base.expressions import Expression, ExpressionError, failing_parts
from loop.base.stats import geometric_mean
from loop.learning import learnings
from loop.model.change import kept_gains
from loop.model.money import RateCard
from loop.model.output import VerifyOutput, outputs_of
from loop.model.plan import Plan, Reached
from loop.model.record import Finished, Machine, Revision, SessionHead, SessionRecord, Status, latest_attempts
from loop.money.bill import hourly_usd
from loop.report import format as say
from loop.report.findings import speed_verdicts, trusted_mean
from loop.report.sections import Line, Section
from loop.session.course import View
from loop.store.rows import CHECK_ACTIONS, find_blamed_commits, variants_with, verdict_fields


def make_session_facts(card: RateCard, head: SessionHead) -> Callable[[Sequence[Finished]], Mapping[str, object]]:
    """A function that computes the facts an expression reads as `session.*`, from the finished steps."""
    per_hour, budget_minutes = hourly_usd(card, head), head.plan.plan.budget.minutes

    def facts(finished: Sequence[Finished]) -> Mapping[str, object]:
        """The values of `session.*` after these steps."""
        minutes = sum(record.seconds for record in finished) / 60
        verdicts = [verdict for record in finished for verdict in record.output.get("verdicts", ())]
        ratios = [v["ratio"] for v in verdicts if v["against"] == "baseline" and isinstance(v["ratio"], float)]
        slower = any(v["against"] == "known_good" and v["verdict"] in ("slower", "incorrect") for v in verdicts)
        checks = {
            action: [record.output for record in finished if record.action == action and record.output]
            for action in ("kernel.verify", "kernel.emulate")
        }
        return {
            "minutes": minutes,
            "usd": minutes / 60 * per_hour,
            "overrun": 0.0 if head.campaign.is_unattended else minutes / budget_minutes,
            "speedup": geometric_mean(ratios) if ratios else None,
            "wrong": any(outputs[-1].get("wrong") for outputs in checks.values() if outputs),
            "regressed": slower,
            "unverified": not any(output.get("variants") for output in checks["kernel.verify"]),
            "unemulated": not any(output.get("variants") for output in checks["kernel.emulate"]),
        }

    return facts


FINDING_NAMES = frozenset(("right", "wrong", "slower", "undecided", "unexplained", "gain", "best.ratio"))
"""Names of findings that `success` and `stop_if` may read, next to `<variant>.ratio` and `session.*`."""


def readable_finding_names(variants: Collection[str]) -> set[str]:
    """All names of findings that an expression may read in a session of these variants."""
    hidden = {name.partition(".")[0] for name in FINDING_NAMES} | {"session", "plan", "target", "device"}
    own = (name for name in variants if name not in hidden)
    return {*FINDING_NAMES, *(f"{name}.{field}" for name in own for field in ("ratio", "right"))}


def readable_requirement_names() -> set[str]:
    """All names that `requires` may read, next to target, device and plan: known before the first step."""
    machine = {f"machine.{name}" for name in Machine.model_fields}
    revision = {f"revision.{name}" for name in Revision.model_fields}
    return {"variants", "emulated", *machine, *revision}


def findings_of(finished: Sequence[Finished], variants: Sequence[str]) -> dict[str, object]:
    """The findings of the finished steps, by the names in `FOUND` and `<variant>.ratio`, `<variant>.right`.

    `ratio`: geometric mean over workloads of baseline time / variant time; None if no workload was
    judged or an interval is too wide. `gain`: product of the kept changes' mean ratios; 1 without one.
    `unexplained`: variants that are wrong or slower than their known-good build, without a blamed commit.
    """
    verdicts = learnings.collect_findings(finished).verdicts
    row = verdict_fields(verdicts)
    checked: dict[str, bool] = {}
    for output in outputs_of(finished, VerifyOutput):
        checked |= {**dict.fromkeys(output.right, True), **dict.fromkeys(output.wrong, False)}
    right, wrong = ([name for name, passed in checked.items() if passed is wanted] for wanted in (True, False))
    slower, speeds = list(row["regressed"]), speed_verdicts(verdicts)
    means = {name: trusted_mean([speed for speed in speeds if speed.variant == name]) for name in variants}
    ratios = {name: mean for name, mean in means.items() if mean is not None and name not in wrong}
    explained = dict(find_blamed_commits(latest_attempts(finished)))
    return {
        **{name: {"ratio": ratios.get(name), "right": checked.get(name)} for name in variants},
        "right": right,
        "wrong": wrong,
        "slower": slower,
        "undecided": list(variants_with("inconclusive", verdicts)),
        "unexplained": [name for name in dict.fromkeys((*wrong, *slower)) if name not in explained],
        "gain": math.prod(change.ratio for change in kept_gains(finished)),
        "best": {"ratio": max(ratios.values(), default=None)},
    }


def is_anything_judged(finished: Sequence[Finished]) -> bool:
    """Whether any variant or change has a verdict: right, wrong, a speed, kept or reverted."""
    outputs = outputs_of(finished, VerifyOutput)
    verified = (output.verdict_on(checks.variant) for output in outputs for checks in output.variants)
    return (
        any(judgement.verdict != "not judged" for judgement in verified)
        or bool(learnings.collect_findings(finished).verdicts)
        or any(record.output.get("tried") for record in finished)
    )


def skipped_if_nothing_judged(
    head: SessionHead, finished: Sequence[Finished], status: Status, reason: str
) -> tuple[Status, str]:
    """Status and reason; `skipped` instead of `passed` if a verdict was asked for and none was given."""
    steps = (step for planned in head.plan.patterns if planned.planned for step in planned.pattern.steps)
    verifies = any(step.action in CHECK_ACTIONS for step in steps)
    if (
        status != "passed"
        or is_anything_judged(finished)
        or not (verifies or Objective.of(head).needs_judged_variant)
    ):
        return status, reason
    return "skipped", f"no variant was judged, though {reason}"


@dataclass(frozen=True)
class Objective:
    """A plan's objective, evaluated for the variants of one session."""

    plan: Plan
    plan_values: Mapping[str, object]
    """Further values that expressions read: device, target, parameters of the plan."""
    variants: Sequence[str]

    @classmethod
    def of(cls, head: SessionHead) -> "Objective":
        """The objective of a session's plan."""
        known = {"device": head.device, "target": head.target, "plan": head.plan.plan.parameters}
        return cls(head.plan.plan, known, (*head.variants, *head.emulated))

    def judge(self, finished: Sequence[Finished], session: Mapping[str, object]) -> Reached | None:
        """Which parts of the objective are missed now; None without one. `session`: values of `session.*`."""
        if self.plan.success is None:
            return None
        parts = failing_parts(Expression.parse(self.plan.success), self._values(finished, session))
        return Reached(
            success=self.plan.success,
            missed=parts,
            judged=is_anything_judged(finished) or not self.needs_judged_variant,
        )

    @property
    def needs_judged_variant(self) -> bool:
        """Whether the objective reads a finding, so that it needs a judged variant."""
        names = Expression.parse(self.plan.success).names if self.plan.success else ()
        return any(name in FINDING_NAMES or name.partition(".")[0] in self.variants for name in names)

    def is_stop_reached(self, finished: Sequence[Finished], session: Mapping[str, object]) -> bool:
        """Whether `stop_if` is true. An expression with a value that is not known yet is false."""
        if self.plan.stop_if is None:
            return False
        try:
            return Expression.parse(self.plan.stop_if).evaluate_bool(self._values(finished, session))
        except ExpressionError:
            return False

    def _values(self, finished: Sequence[Finished], session: Mapping[str, object]) -> dict[str, object]:
        """All values that the plan's expressions may read."""
        return {**findings_of(finished, self.variants), **self.plan_values, "session": session}


def refuse_unmet_requirement(head: SessionHead) -> None:
    """Raise UsageError if the plan's `requires` is false."""
    plan = head.plan.plan
    if plan.requires is None:
        return
    values = {
        **Objective.of(head).plan_values,
        "variants": list(head.variants),
        "emulated": list(head.emulated),
        "machine": head.machine,
        "revision": head.revision,
    }
    missing = failing_parts(Expression.parse(plan.requires), values)
    if missing:
        what = "; ".join(part.words for part in missing)
        raise UsageError(f"plan {plan.name} requires what is not so: {what}", hint="loop plan list")


def goal_section(view: View) -> Iterator[Section]:
    """The report section on the plan's objective, and whether the session reached it."""
    record, plan = view.record, view.head.plan.plan
    lines: list[Line] = []
    if outcome := objective_text(record, view.finished):
        lines.append(f"Objective: {outcome}.")
    if record.objective and record.objective.missed and plan.otherwise:
        lines.append(f"What answers a miss: {plan.otherwise}.")
    yield Section(plan.title, lines=tuple(lines))


def objective_text(record: SessionRecord, finished: Sequence[Finished]) -> str:
    """`5 % faster than at the start, nothing wrong: reached (1.07x)`; empty without an objective."""
    objective = record.objective
    if objective is None:
        return ""
    goal = goal_text(objective.success)
    if objective.missed:
        return f"{goal}: missed ({'; '.join(part.words for part in objective.missed)})"
    if not objective.judged:
        return f"{goal}: not judged, as no variant was"
    if record.status == "failed":
        return f"{goal}: not judged, as the session failed"
    facts: Mapping[str, Any] = findings_of(finished, record.head.variants)
    reached = facts["gain"] if "gain" in objective.success else None
    reached = facts["best"]["ratio"] if reached is None and "ratio" in objective.success else reached
    return f"{goal}: reached{f' ({say.times(reached)})' if isinstance(reached, float) else ''}"


GOAL_PHRASES = {
    r"wrong == \[\]": "nothing wrong",
    r"slower == \[\]": "nothing slower than its known good",
    r"undecided == \[\]": "no verdict open",
    r"unexplained == \[\]": "a commit named for each regression",
    r"gain - 1 >=? 0\.0([1-9])": r"\1 % faster than at the start",
    r"gain - 1 >=? 0\.([1-9]\d)": r"\1 % faster than at the start",
    r"gain >=? ([\d.]+)": r"\1x the speed at the start",
    r"best\.ratio >=? ([\d.]+)": r"the best variant at \1x the baseline's speed or more",
    r"(\w+)\.ratio >=? ([\d.]+)": r"\1 at \2x the baseline's speed or more",
    r"(\w+)\.right": r"\1 right",
}
"""Pattern of one part of an objective to its words; any other part is printed as code."""


def goal_text(success: str) -> str:
    """An objective in words: `cpu.ratio >= 1.5 and wrong == []` becomes `cpu at 1.5x ..., nothing wrong`."""
    texts = []
    for part in (ast.unparse(part.tree) for part in Expression.parse(success).parts):
        matches = ((re.fullmatch(form, part), words) for form, words in GOAL_PHRASES.items())
        texts.append(next((match.expand(words) for match, words in matches if match), f"`{part}`"))
    return ", ".join(texts)
