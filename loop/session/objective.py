"""Judges a session: its plan's expressions `success`, `stop_if` and `requires`, and its grade."""

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from loop.base.documents import quote
from loop.base.errors import UsageError
from loop.base.expressions import Expression, ExpressionError, Miss
from loop.learning import learnings
from loop.model.change import DecisionOutput, kept_gains
from loop.model.money import RateCard
from loop.model.output import Output, VerifyOutput, outputs_of, read_output
from loop.model.plan import Reached
from loop.model.record import Finished, SessionHead, SessionRecord, Status, latest_attempts
from loop.money.bill import hourly_usd
from loop.report import format as say
from loop.report.findings import speed_verdicts, trusted_mean
from loop.store.sessions import CHECK_ACTIONS, find_blamed_commits, variants_with
from loop.timing.against_known_good import CompareOutput

MOST_LISTED = 4  # A message shows at most this many items of a list.


def compute_session_values(
    card: RateCard, head: SessionHead, finished: Sequence[Finished]
) -> Mapping[str, object]:
    """The values of `session.*` in expressions. `overrun`: minutes / planned minutes; 0 for a
    campaign. `speedup`: geometric mean of all ratios against the baseline, or None."""
    minutes = sum(record.seconds for record in finished) / 60
    outputs = [output for record in finished if (output := read_output(record, Output))]
    verdicts = [verdict for output in outputs for verdict in output.verdicts]
    ratios = [v.ratio for v in verdicts if v.against == "baseline" and v.ratio is not None]
    against_known_good = {v.verdict for v in verdicts if v.against == "known_good"}
    last_was_wrong = dict[str, bool]()  # By `kernel.verify` and `kernel.emulate`.
    checked_actions = set[str]()
    for record in finished:
        if checks := read_output(record, VerifyOutput):
            last_was_wrong[record.action] = bool(checks.wrong)
            checked_actions |= {record.action} if checks.variants else set()
    return {
        "minutes": minutes,
        "usd": minutes / 60 * hourly_usd(card, head),
        "overrun": 0.0 if head.campaign.is_unattended else minutes / head.plan.plan.budget.minutes,
        "speedup": geometric_mean(ratios) if ratios else None,
        "wrong": any(last_was_wrong.values()),
        "regressed": bool(against_known_good & {"slower", "incorrect"}),
        "unverified": "kernel.verify" not in checked_actions,
        "unemulated": "kernel.emulate" not in checked_actions,
    }


FINDING_NAMES = {"right", "wrong", "slower", "undecided", "unexplained", "gain", "best.ratio"}
"""Findings that `success` and `stop_if` may read, next to `<variant>.ratio` and `session.*`."""


def findings_of(finished: Sequence[Finished], variants: Sequence[str]) -> dict[str, object]:
    """Findings by name, as expressions read them. `ratio`: geometric mean of baseline time /
    variant time; None: unknown, noise, or wrong. `gain`: product of kept ratios. `slower`: than the
    known good. `unexplained`: wrong or slower, and no search blames one commit."""
    verdicts = learnings.session_verdicts(finished)
    right: dict[str, bool] = {}  # Variant to whether it is.
    for output in outputs_of(finished, VerifyOutput):
        right |= dict.fromkeys(output.right, True) | dict.fromkeys(output.wrong, False)
    wrong = [name for name, is_right in right.items() if not is_right]
    slower = list(variants_with("slower", [v for v in verdicts if v.against == "known_good"]))
    ratios: dict[str, float] = {}
    for name in variants:
        mean = trusted_mean([speed for speed in speed_verdicts(verdicts) if speed.variant == name])
        if mean is not None and name not in wrong:
            ratios[name] = mean
    searches = find_blamed_commits(latest_attempts(finished))
    explained = [variant for variant, commits in searches if len(commits) == 1]
    return {
        **{name: {"ratio": ratios.get(name), "right": right.get(name)} for name in variants},
        "right": [name for name, is_right in right.items() if is_right],
        "wrong": wrong,
        "slower": slower,
        "undecided": list(variants_with("inconclusive", verdicts)),
        "unexplained": [name for name in dict.fromkeys((*wrong, *slower)) if name not in explained],
        "gain": math.prod(change.ratio for change in kept_gains(finished)),
        "best": {"ratio": max(ratios.values(), default=None)},
    }


def is_anything_judged(finished: Sequence[Finished]) -> bool:
    """Whether any variant or change has a verdict: right, wrong, a speed, kept or reverted."""
    checks = outputs_of(finished, VerifyOutput)
    has_check = any(each.right or (each.wrong and not each.is_control_wrong) for each in checks)
    has_decision = any(output.tried for output in outputs_of(finished, DecisionOutput))
    return has_check or has_decision or bool(learnings.session_verdicts(finished))


def skipped_if_nothing_judged(
    head: SessionHead, finished: Sequence[Finished], status: Status, reason: str
) -> tuple[Status, str]:
    """Status and reason. `passed` becomes `skipped` if no verdict was made, though asked for."""
    if status == "passed" and asks_for_verdict(head) and not is_anything_judged(finished):
        return "skipped", f"no variant was judged, though {reason}"
    return status, reason


def asks_for_verdict(head: SessionHead) -> bool:
    """Whether the plan checks variants, or its `success` reads what is known of them."""
    patterns = [planned.pattern for planned in head.plan.patterns if planned.planned]
    steps = [step for pattern in patterns for step in pattern.steps]
    return any(step.action in CHECK_ACTIONS for step in steps) or needs_judged_variant(head)


def judge_objective(
    head: SessionHead, finished: Sequence[Finished], session_values: Mapping[str, object]
) -> Reached | None:
    """Which parts of the plan's `success` are false now; None without one. `session_values`:
    `session.*`. `uncompared`: if it reads `slower`, variants without a clear comparison."""
    success = head.plan.plan.success
    if success is None:
        return None
    values = readable_values(head, finished, session_values)
    missed = failing_parts(Expression.parse(success), values)
    is_judged = is_anything_judged(finished) or not needs_judged_variant(head)
    verdicts = [v for v in learnings.session_verdicts(finished) if v.against == "known_good"]
    compared = {*head.roles, *(v.variant for v in verdicts if v.verdict != "inconclusive")}
    for output in outputs_of(finished, CompareOutput):
        compared.update(output.unchanged)
    names = (*head.variants, *head.emulated) if "slower" in success else ()
    uncompared = tuple(name for name in names if name not in compared)
    return Reached(success=success, missed=missed, judged=is_judged, uncompared=uncompared)


def needs_judged_variant(head: SessionHead) -> bool:
    """Whether the plan's `success` reads a finding, so that it needs a judged variant."""
    success, variants = head.plan.plan.success, (*head.variants, *head.emulated)
    names = Expression.parse(success).names if success else ()
    return any(name in FINDING_NAMES or name.partition(".")[0] in variants for name in names)


def readable_values(
    head: SessionHead, finished: Sequence[Finished], session_values: Mapping[str, object]
) -> dict[str, object]:
    """All values that `success` and `stop_if` may read."""
    findings = findings_of(finished, (*head.variants, *head.emulated))
    facts = {"device": head.device, "target": head.target, "plan": head.plan.plan.parameters}
    return {**findings, **facts, "session": session_values}


def refuse_unmet_requirement(head: SessionHead) -> None:
    """Raise UsageError that names the false parts of the plan's `requires`, if it has any."""
    plan = head.plan.plan
    if plan.requires is None:
        return
    variants = {"variants": list(head.variants), "emulated": list(head.emulated)}
    values = {**vars(head), **variants, "plan": plan.parameters}
    if false_parts := failing_parts(Expression.parse(plan.requires), values):
        reasons = "; ".join(part.words for part in false_parts)
        raise UsageError(f"plan {plan.name} requires what is not so: {reasons}", "loop plan list")


def objective_text(record: SessionRecord, finished: Sequence[Finished]) -> str:
    """`5 % faster than at the start, nothing wrong: reached (1.07x)` with gain or best ratio, or
    `missed` with the false parts, or `not judged` with the reason; empty without an objective."""
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
    findings: Mapping[str, Any] = findings_of(finished, record.head.variants)
    ratio = findings["best"]["ratio"] if "ratio" in objective.success else None
    ratio = findings["gain"] if "gain" in objective.success else ratio
    speed = f" ({say.speedup_text(ratio)})" if isinstance(ratio, float) else ""
    outcome = f"{goal}: reached{speed}"
    without = {name for out in outputs_of(finished, CompareOutput) for name in out.no_known_good}
    if names := [name for name in objective.uncompared if name not in without]:
        outcome += f", but not clearly compared with a known good: {', '.join(names)}"
    if names := [name for name in objective.uncompared if name in without]:
        verb = "has" if len(names) == 1 else "have"
        outcome += f"; {say.listed_words(names)} {verb} no known good to compare with"
    return outcome


def failing_parts(condition: Expression, values: Mapping[str, object]) -> tuple[Miss, ...]:
    """Those parts of a condition, joined by `and`, that are false or have no value; empty: true."""
    misses = []
    for part in condition.parts:
        actual_values = "; ".join(_describe_value(name, values) for name in sorted(part.names))
        try:
            if part.evaluate_bool(values):
                continue
        except ExpressionError as error:
            actual_values = actual_values or error.message
        text = ast.unparse(part.tree)
        misses.append(Miss(text, f"{actual_values}, asked: `{text}`"))
    return tuple(misses)


def _describe_value(name: str, values: Mapping[str, object]) -> str:
    """A name with its value in words: `cpu.ratio is 1.31`, `best.ratio is not known`."""
    try:
        value = Expression.parse(name).evaluate(values, lambda value: value)
    except ExpressionError:
        value = None
    if value is None:
        return f"{name} is not known"
    if isinstance(value, list):
        items = [*map(str, value[:MOST_LISTED]), *(["..."] if len(value) > MOST_LISTED else [])]
        return f"{name} is {', '.join(items) or 'empty'}"
    return f"{name} is {value:.3g}" if isinstance(value, float) else f"{name} is {quote(value)}"


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
    """`cpu.ratio >= 1.5 and wrong == []` in words: `cpu at 1.5x ..., nothing wrong`."""
    texts = []
    for part in Expression.parse(success).parts:
        code = ast.unparse(part.tree)
        text = f"`{code}`"
        for pattern, words in GOAL_PHRASES.items():
            if match := re.fullmatch(pattern, code):
                text = match.expand(words)
                break
        texts.append(text)
    return ", ".join(texts)


def grade_session(
    head: SessionHead,
    status: Status,
    reason: str,
    finished: Iterable[Finished],
    objective: Reached | None,
    seconds: float,
) -> tuple[str, str]:
    """The grade by the rule that a report states, and its reason. `seconds`: of the session."""
    steps = [record for record in latest_attempts(finished) if record.status != "skipped"]
    if status == "paused":
        return "-", f"paused: {reason}"
    if status == "skipped" and not asks_for_verdict(head):
        return "-", reason
    if status in ("aborted", "skipped") or not steps:
        return "F", reason
    if status == "failed":
        return "D", reason
    missed_parts = objective.missed if objective else ()
    flaws = [f"the objective is missed: {part.words}" for part in missed_parts]
    planned_s = 60 * head.plan.plan.budget.minutes
    if seconds > planned_s:
        flaws.append(f"the session took {say.seconds(seconds)} of {say.seconds(planned_s)}")
    late = [step for step in steps if step.is_over_budget]
    if texts := [f"{step.label} ({step.seconds:.1f} of {step.budget_s:g} s)" for step in late]:
        flaws.append(f"over budget: {', '.join(texts)}")
    if flaws:
        return "C" if missed_parts else "B", "Every gate passed, but " + "; ".join(flaws)
    reached_text = "reached its objective, and " if objective else ""
    if objective and objective.uncompared:
        reached_text = "reached its objective as far as it was judged, and "
    return "A", f"The session {reached_text}passed every gate within its time"
