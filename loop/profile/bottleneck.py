"""Decision tree for a kernel's bottleneck, and how promised gains compare with results."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loop.base.expressions import Expression, ExpressionError
from loop.model.index import SessionRow
from loop.model.measurement import Measurement
from loop.model.output import MeasureOutput
from loop.model.profile import FACTS, DeviceProfile, Fact, GainOutcome, Profile, Promised, SeverityRule, TreeRule
from loop.model.verdict import SpeedVerdict
from loop.report import format as say

Rule = TypeVar("Rule", TreeRule, SeverityRule)
AHEAD = 1.5
"""Ratio to the baseline from which a call needs no further work."""


def list_outcomes(rows: Iterable[SessionRow]) -> tuple[GainOutcome, ...]:
    """Results of the advice that all sessions gave. `rows`: sessions, oldest first.

    If a session judged a change, its result counts for the advice in its brief and closes earlier promises. Other
    advice is compared with the next session of the same target and environment that timed another build of the
    variant on the same workload.
    """
    outcomes: list[GainOutcome] = []
    pending: dict[tuple[object, ...], Promised] = {}
    """Target, device, threads, environment and variant to the promise that waits for a result."""
    for row in rows:
        outcomes += (gain.model_copy(update={"session": row.id}) for gain in row.gains)
        place = (row.target, row.device, row.threads, row.environment)
        judged = {*(gain.variant for gain in row.gains), *(candidate.variant for candidate in row.kept)}
        for variant in judged:
            pending.pop((*place, variant), None)
        for variant, build in row.builds.items():
            promised, speeds = pending.get((*place, variant)), row.speeds.get(variant, {})
            if promised is not None and promised.build != build and promised.workload in speeds:
                del pending[(*place, variant)]
                fields = promised.model_dump(include={"promise", "variant", "workload"})
                actual = speeds[promised.workload] / promised.ratio
                outcomes.append(GainOutcome(**fields, actual=actual, basis="later session", session=row.id))
        pending |= {
            (*place, promise.variant): promise for promise in row.promises if promise.variant not in judged
        }
    return tuple(outcomes)


def outcome_text(outcome: GainOutcome) -> str:
    """Promised and actual gain: `1.1x to 1.2x: 1.14x, inside`."""
    return f"{outcome.promise.text}: {say.speedup_text(outcome.actual)}, {outcome.side_of_promise}"


def first_match(
    rules: Sequence[Rule], facts: Mapping[str, Fact]
) -> tuple[Rule | None, dict[int, tuple[str, ...]]]:
    """The first rule that matches, and the undecided rules before it: index to the unknown facts. `and` stops at
    its first false part, so a CPU decides `device == 'cuda' and dram > 0.7`. Raises ExpressionError if a condition
    fails although it reads only known facts."""
    known = {name: value for name, value in facts.items() if value is not None}
    undecided: dict[int, tuple[str, ...]] = {}
    for place, rule in enumerate(rules):
        expression = Expression.parse(rule.when)
        try:
            if expression.evaluate_bool(known):
                return rule, undecided
        except ExpressionError:
            unknown = tuple(sorted(expression.names - known.keys()))
            if not unknown:
                raise
            undecided[place] = unknown
    return None, undecided


def time_share_won(ratio: float, weight: float = 1.0, gain: float | None = None) -> float:
    """Share of the total time saved if a call becomes `gain` times as fast; None: until it is `AHEAD`
    times the baseline. `ratio`: its speed against the baseline. `weight`: its share of the time, in any unit."""
    return weight * (1 - 1 / (gain or max(1.0, AHEAD / ratio)))


def worst_measurements(output: MeasureOutput, names: Collection[str]) -> dict[str, Measurement]:
    """For each variant the measurement with the most time to save; the variant with most of it first.
    Inconclusive workloads count only if a variant has no other: their lowest ratio is noise."""
    verdicts = {(v.variant, v.workload): v.verdict for v in output.verdicts if isinstance(v, SpeedVerdict)}
    timed = {variant for variant, _ in verdicts} & {*names}

    def urgency(measurement: Measurement) -> tuple[bool, float, float]:
        """Sort key: conclusive measurements first, then the largest saving, then the lowest ratio."""
        workload = measurement.workload
        verdict = verdicts.get((measurement.variant, workload.name), "inconclusive")
        saving = time_share_won(measurement.ratio, workload.weight)
        return verdict == "inconclusive", -saving, measurement.ratio

    worst: dict[str, Measurement] = {}
    for measurement in sorted(output.measurements, key=urgency):
        if measurement.against == "baseline" and measurement.variant in timed:
            worst.setdefault(measurement.variant, measurement)
    return worst


@dataclass
class Notes:
    """Facts collected about one variant on one workload."""

    facts: dict[str, Fact] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    """Fact to its source, if the source is not obvious."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Fact to the reason why it is unknown."""
    watched: DeviceProfile | None = None
    """One call as a GPU profiler recorded it; None without a profile."""

    def add(self, facts: Mapping[str, Fact], source: str = "") -> None:
        """Add facts. `source`: where the facts come from; empty if that is obvious."""
        self.facts |= facts
        if source:
            self.sources |= {name: source for name, value in facts.items() if value is not None}

    def explain_unknown(self, why: str, *names: str) -> None:
        """Note why these facts are unknown; facts that are known stay."""
        self.unknown |= {name: why for name in names if self.facts.get(name) is None}


def profile(
    measured: Measurement, notes: Notes, tree: Sequence[TreeRule], severities: Sequence[SeverityRule]
) -> Profile:
    """The profile with the tree leaf that the facts select, if there is one. Raises ExpressionError."""
    facts = {name: notes.facts.get(name) for name in FACTS}
    (leaf, undecided), (urgency, _) = first_match(tree, facts), first_match(severities, facts)
    names = ("bottleneck", "when", "fix", "gain")
    advice: dict[str, Any] = {name: getattr(leaf, name, None) for name in names}
    return Profile(
        variant=measured.variant,
        workload=measured.workload.name,
        facts=facts,
        sources=dict(notes.sources),
        watched=notes.watched,
        unknown={name: notes.unknown.get(name, "not told") for name, value in facts.items() if value is None},
        severity=urgency.severity if urgency else None,
        tool=urgency.tool if urgency else None,
        undecided=tuple(
            f"{tree[place].bottleneck}: {' and '.join(names)} unknown" for place, names in undecided.items()
        ),
        promise=leaf.promise_for(facts) if leaf else None,
        **advice,
    )
