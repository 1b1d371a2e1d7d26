"""What a plan is for: the names that `success`, `stop_if` and `requires` read, and what they say."""

import ast
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loop.base.errors import UsageError
from loop.base.expressions import Expression, ExpressionError, misses
from loop.base.stats import geometric_mean
from loop.learning import learnings
from loop.model.change import kept
from loop.model.money import RateCard
from loop.model.objective import Missed, PhaseTime, Reached
from loop.model.output import VerifyOutput, outputs_of
from loop.model.plan import Plan
from loop.model.record import Finished, Machine, Revision, SessionHead, SessionRecord, Status, latest_attempts
from loop.money.bill import hourly_usd
from loop.report import format as say
from loop.report.findings import speed_verdicts, trusted_mean
from loop.report.markdown import Table, columns, filled
from loop.store.rows import CHECKS, blamed, judged


def session_facts(card: RateCard, head: SessionHead) -> Callable[[Sequence[Finished]], Mapping[str, object]]:
    """A function from the steps that have ended to the facts they make up."""
    per_hour, budget_minutes = hourly_usd(card, head), head.plan.plan.budget.minutes

    def facts(finished: Sequence[Finished]) -> Mapping[str, object]:
        minutes = sum(record.seconds for record in finished) / 60
        return {
            "minutes": minutes,
            "usd": minutes / 60 * per_hour,
            "overrun": 0.0 if head.campaign.unattended else minutes / budget_minutes,
            "speedup": _speedup(finished),
            "wrong": any(_found_wrong(finished, action) for action in ("kernel.verify", "kernel.emulate")),
            "regressed": _slower(finished) or any(record.output.get("risen") for record in finished),
            "unverified": not _held_against_reference(finished, "kernel.verify"),
            "unemulated": not _held_against_reference(finished, "kernel.emulate"),
        }

    return facts


def _held_against_reference(finished: Sequence[Finished], action: str) -> bool:
    """Whether an action has held a variant against the reference."""
    return any(record.output.get("variants") for record in finished if record.action == action)


def _found_wrong(finished: Sequence[Finished], action: str) -> bool:
    """Whether the last step of a kind found a variant wrong."""
    outputs = [record.output for record in finished if record.action == action and record.output]
    return bool(outputs and outputs[-1].get("wrong"))


def _verdicts(finished: Sequence[Finished]) -> list[dict[str, object]]:
    return [verdict for record in finished for verdict in record.output.get("verdicts", ())]


def _speedup(finished: Sequence[Finished]) -> float | None:
    """Geometric mean of the ratios against the baseline; None before anything was measured."""
    ratios = [v["ratio"] for v in _verdicts(finished) if v["against"] == "baseline"]
    known = [ratio for ratio in ratios if isinstance(ratio, float)]
    return geometric_mean(known) if known else None


def _slower(finished: Sequence[Finished]) -> bool:
    """Whether a variant is slower than its known good, or wrong beside it."""
    known = (verdict for verdict in _verdicts(finished) if verdict["against"] == "known_good")
    return any(verdict["verdict"] in ("slower", "incorrect") for verdict in known)


FOUND = frozenset(("right", "wrong", "slower", "undecided", "unexplained", "gain", "best.ratio"))
"""Names of what a session found, beside those of variants and of `session`."""


def found_names(variants: Collection[str]) -> set[str]:
    """Every name of what a session of these variants can find."""
    hidden = {name.partition(".")[0] for name in FOUND} | {"session", "plan", "target", "device"}
    own = (name for name in variants if name not in hidden)
    return {*FOUND, *(f"{name}.{field}" for name in own for field in ("ratio", "right"))}


def required_names() -> set[str]:
    """What is known before the first step."""
    machine = {f"machine.{name}" for name in Machine.model_fields}
    revision = {f"revision.{name}" for name in Revision.model_fields}
    return {"variants", "emulated", *machine, *revision}


def found(finished: Sequence[Finished], variants: Sequence[str]) -> dict[str, object]:
    """What the steps so far found, by those names.

    `ratio`: geometric mean over the workloads of baseline time / variant time; None where no workload was judged,
    or an interval says nothing. `gain`: product of the mean ratios of kept changes against what they replaced; 1
    where none was kept. `unexplained`: variants that are wrong, or slower than their known good, without a commit.
    """
    verdicts = learnings.collect(finished).verdicts
    row = judged(verdicts)
    checked = _checked(finished)
    right, wrong = ([name for name, found in checked.items() if found is sought] for sought in (True, False))
    slower = list(row["regressed"])
    speeds = speed_verdicts(verdicts)
    means = {name: trusted_mean([one for one in speeds if one.variant == name]) for name in variants}
    ratios = {name: mean for name, mean in means.items() if mean is not None and name not in wrong}
    bad = dict.fromkeys((*wrong, *slower))
    return {
        **{name: {"ratio": ratios.get(name), "right": checked.get(name)} for name in variants},
        "right": right,
        "wrong": wrong,
        "slower": slower,
        "undecided": list(row["unsure"]),
        "unexplained": [name for name in bad if name not in dict(blamed(latest_attempts(finished)))],
        "gain": math.prod(one.ratio for one in kept(finished)),
        "best": {"ratio": max(ratios.values(), default=None)},
    }


def _checked(finished: Sequence[Finished]) -> dict[str, bool]:
    """Variant to whether the last checks of it found it right."""
    last: dict[str, bool] = {}
    for output in outputs_of(finished, VerifyOutput):
        last |= {**dict.fromkeys(output.right, True), **dict.fromkeys(output.wrong, False)}
    return last


def anything_judged(finished: Sequence[Finished]) -> bool:
    """Whether a variant or a change of one has a verdict: right, wrong, a speed, kept or taken back."""
    verified = (output.of(one.variant) for output in outputs_of(finished, VerifyOutput) for one in output.variants)
    return (
        any(one.verdict != "not judged" for one in verified)
        or bool(learnings.collect(finished).verdicts)
        or any(record.output.get("tried") for record in finished)
    )


def unless_nothing_judged(
    head: SessionHead, finished: Sequence[Finished], status: Status, reason: str
) -> tuple[Status, str]:
    """How a session ended: not `passed` where its plan or objective asks for a verdict and no variant got one."""
    planned = (one.pattern for one in head.plan.patterns if one.planned)
    verifies = any(step.action in CHECKS for pattern in planned for step in pattern.steps)
    if status != "passed" or anything_judged(finished) or not (verifies or Objective.of(head).needs_verdict):
        return status, reason
    return "skipped", f"no variant was judged, though {reason}"


@dataclass(frozen=True)
class Objective:
    """What a plan is for, over the variants of one session."""

    plan: Plan
    known: Mapping[str, object]
    """What else its expressions read: device, target, parameters of the plan."""
    variants: Sequence[str]

    @classmethod
    def of(cls, head: SessionHead) -> "Objective":
        """That of a session."""
        known = {"device": head.device, "target": head.target, "plan": head.plan.plan.parameters}
        return cls(head.plan.plan, known, (*head.variants, *head.emulated))

    def judge(self, finished: Sequence[Finished], session: Mapping[str, object]) -> Reached | None:
        """Whether it is reached by now; None where the plan states none. `session`: what is read by that name."""
        if self.plan.success is None:
            return None
        parts = misses(Expression.parse(self.plan.success), self._values(finished, session))
        return Reached(
            success=self.plan.success,
            missed=tuple(Missed(part=one.part, words=one.words, off=one.off) for one in parts),
            judged=anything_judged(finished) or not self.needs_verdict,
        )

    @property
    def needs_verdict(self) -> bool:
        """Whether it speaks of what a session finds of variants."""
        names = Expression.parse(self.plan.success).names if self.plan.success else ()
        return any(name in FOUND or name.partition(".")[0] in self.variants for name in names)

    def enough(self, finished: Sequence[Finished], session: Mapping[str, object]) -> bool:
        """Whether no further step is to be begun. What is not known yet stops nothing."""
        if self.plan.stop_if is None:
            return False
        try:
            return Expression.parse(self.plan.stop_if).evaluate_bool(self._values(finished, session))
        except ExpressionError:
            return False

    def _values(self, finished: Sequence[Finished], session: Mapping[str, object]) -> dict[str, object]:
        return {**found(finished, self.variants), **self.known, "session": session}


def refuse_unless_met(head: SessionHead) -> None:
    """Raises UsageError where a plan requires what is not there."""
    plan = head.plan.plan
    if plan.requires is None:
        return
    values = {
        **Objective.of(head).known,
        "variants": list(head.variants),
        "emulated": list(head.emulated),
        "machine": head.machine,
        "revision": head.revision,
    }
    missing = misses(Expression.parse(plan.requires), values)
    if missing:
        what = "; ".join(f"`{one.part}`, and {one.got}" for one in missing)
        raise UsageError(f"plan {plan.name} requires {what}", hint="loop plan list")


def phase_times(plan: Plan, finished: Sequence[Finished]) -> tuple[PhaseTime, ...]:
    """What each phase took: its patterns, and those that answered their outcomes."""
    spent = dict.fromkeys((phase.name for phase in plan.phases), 0.0)
    for name, record in zip(_phases(plan, finished), latest_attempts(finished), strict=True):
        if name:
            spent[name] += record.seconds
    return tuple(PhaseTime(name=one.name, minutes=one.minutes, seconds=spent[one.name]) for one in plan.phases)


def _phases(plan: Plan, finished: Sequence[Finished]) -> Iterator[str]:
    """The phase of each step. A pattern that the plan does not list belongs to the one it answered."""
    begins = {one.first: one.name for one in plan.phases}
    of, now = {}, ""
    for pattern in plan.patterns:
        now = begins.get(pattern, now)
        of[pattern] = now
    current = ""
    for record in latest_attempts(finished):
        current = of.get(record.pattern, current)
        yield current


@dataclass(frozen=True)
class ObjectiveView:
    """The objective of a session, as it is shown."""

    title: str
    lines: tuple[str, ...]
    late: tuple[str, ...]
    """The steps that lost most time; they stand under the last of the lines."""
    phases: Table | None


def objective(record: SessionRecord, finished: Sequence[Finished]) -> ObjectiveView:
    """That of a session which has ended, or is paused."""
    late = (
        f"{one.step}: {say.seconds(one.seconds)} of {say.seconds(one.expected_s)}; {one.why}."
        for one in record.late
    )
    lines = tuple(_lines(record, finished))
    return ObjectiveView(record.head.plan.plan.title, lines, tuple(late), _phase_rows(record))


def verdict(record: SessionRecord, finished: Sequence[Finished]) -> str:
    """`5 % faster than at the start, nothing wrong: reached (1.07x)`; empty where a plan states no objective."""
    asked = record.objective
    if asked is None:
        return ""
    goal = goals(asked.success)
    if asked.missed:
        return f"{goal}: missed ({'; '.join(map(_instead, asked.missed))})"
    if not asked.judged:
        return f"{goal}: not judged, as no variant was"
    if record.status == "failed":
        return f"{goal}: not judged, as the session failed"
    figures = [found(finished, record.head.variants).get(name) for name in ("gain", "best")]
    gain, best = figures[0], figures[1]["ratio"] if isinstance(figures[1], dict) else None
    reached = gain if "gain" in asked.success else best if "ratio" in asked.success else None
    return f"{goal}: reached{f' ({say.times(reached)})' if isinstance(reached, float) else ''}"


def _instead(one: Missed) -> str:
    """`gain is 1.02, 3 % off`, without the expression that the goal says in words."""
    return one.words.removesuffix(f"`{one.part}`").rstrip().removesuffix(", asked:")


GOALS = (
    (r"wrong == \[\]", "nothing wrong"),
    (r"slower == \[\]", "nothing slower than its known good"),
    (r"undecided == \[\]", "no verdict open"),
    (r"unexplained == \[\]", "a commit named for each regression"),
    (r"gain - 1 >=? (?P<share>[\d.]+)", "{share} % faster than at the start"),
    (r"gain >=? (?P<times>[\d.]+)", "{times} the speed at the start"),
    (r"best\.ratio >=? (?P<times>[\d.]+)", "the best variant at {times} the baseline's speed or more"),
    (r"(?P<name>\w+)\.ratio >=? (?P<times>[\d.]+)", "{name} at {times} the baseline's speed or more"),
    (r"(?P<name>\w+)\.right", "{name} right"),
)
"""What parts of an objective say, in words; any other part stands as it is."""


def goals(success: str) -> str:
    """`5 % faster than at the start, nothing wrong` of `gain - 1 >= 0.05 and wrong == []`."""
    return ", ".join(map(_goal, map(ast.unparse, (part.tree for part in Expression.parse(success).parts))))


def _goal(part: str) -> str:
    for pattern, words in GOALS:
        asked = re.fullmatch(pattern, part)
        if asked:
            given = asked.groupdict()
            figures = {"share": lambda x: f"{100 * float(x):.3g}", "times": lambda x: say.times(float(x))}
            return words.format(**{name: figures.get(name, str)(text) for name, text in given.items()})
    return f"`{part}`"


def _lines(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    plan = record.head.plan.plan
    said = verdict(record, finished)
    if said:
        yield f"Objective: {said}."
    if record.objective and record.objective.missed and plan.otherwise:
        yield f"What answers a miss: {plan.otherwise}."
    planned = 60 * plan.budget.minutes
    if record.late:
        yield f"It took {say.seconds(record.seconds)} of {say.seconds(planned)}. Most time was lost in:"


def _phase_rows(record: SessionRecord) -> Table | None:
    rows = tuple(
        (
            phase.name,
            say.seconds(60 * phase.minutes),
            say.seconds(phase.seconds),
            say.share(phase.seconds, 60 * phase.minutes),
        )
        for phase in record.phases
    )
    return filled(columns("Phase", ">Planned", ">Actual", ">Of its plan"), rows)
