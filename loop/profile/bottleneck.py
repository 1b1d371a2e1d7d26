"""Decision tree for a kernel's bottleneck, and how promised gains compare with results."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from loop.base.expressions import Expression, ExpressionError
from loop.model.index import SessionRow
from loop.model.measurement import Measurement
from loop.model.output import MeasureOutput
from loop.model.profile import FACTS, DeviceProfile, Fact, GainOutcome, Profile, Promised, SeverityRule, TreeRule
from loop.model.verdict import SpeedVerdict
from loop.report import format as say

Rule = TypeVar("Rule", TreeRule, SeverityRule)
SUFFICIENT_RATIO = 1.5
"""Ratio to the baseline from which a call needs no further work."""


def list_outcomes(rows: Iterable[SessionRow]) -> tuple[GainOutcome, ...]:
    """Promised and actual gains of the advice that sessions gave. `rows`: sessions, oldest first. If a session
    judged a change, its result counts for the advice in its brief and closes earlier promises. Other advice is
    compared with the next session of the same target and environment that timed another build of the variant on
    the same workload."""
    outcomes: list[GainOutcome] = []
    open_promises: dict[tuple[object, ...], Promised] = {}
    """Target, device, threads, environment and variant to the promise that waits for a result."""
    for row in rows:
        outcomes += (gain.model_copy(update={"session": row.id}) for gain in row.gains)
        setting = (row.target, row.device, row.threads, row.environment)
        judged_variants = {gain.variant for gain in row.gains} | {change.variant for change in row.kept}
        for variant in judged_variants:
            open_promises.pop((*setting, variant), None)
        for variant, build in row.builds.items():
            promised = open_promises.get((*setting, variant))
            ratios = row.speeds.get(variant, {})
            if promised and promised.build != build and promised.workload in ratios:
                del open_promises[(*setting, variant)]
                fields = promised.model_dump(include={"promise", "variant", "workload"})
                fields["actual"] = ratios[promised.workload] / promised.ratio
                outcomes.append(GainOutcome(**fields, basis="later session", session=row.id))
        for promised in row.promises:
            if promised.variant not in judged_variants:
                open_promises[(*setting, promised.variant)] = promised
    return tuple(outcomes)


def outcome_text(outcome: GainOutcome) -> str:
    """Promised and actual gain: `1.1x to 1.2x: 1.14x, inside`."""
    return f"{outcome.promise.text}: {say.speedup_text(outcome.actual)}, {outcome.side_of_promise}"


def first_match(
    rules: Sequence[Rule], facts: Mapping[str, Fact]
) -> tuple[Rule | None, dict[int, tuple[str, ...]]]:
    """The first rule that matches, or None, and the undecided rules before it: index to the unknown facts that it
    reads. A rule is decided without a fact that its earlier parts make irrelevant: on a CPU `device == 'cuda' and
    dram > 0.7` is false. Raises ExpressionError if a condition fails although it reads only known facts."""
    known = {name: value for name, value in facts.items() if value is not None}
    undecided: dict[int, tuple[str, ...]] = {}
    for index, rule in enumerate(rules):
        condition = Expression.parse(rule.when)
        try:
            if condition.evaluate_bool(known):
                return rule, undecided
        except ExpressionError:
            unknown = tuple(sorted(condition.names - known.keys()))
            if not unknown:
                raise
            undecided[index] = unknown
    return None, undecided


def saved_time_share(ratio: float, weight: float = 1.0) -> float:
    """The part of `weight` (a call's time) saved once it is `SUFFICIENT_RATIO` times as fast as the baseline.
    `ratio`: its speed against the baseline."""
    return weight * (1 - 1 / max(1.0, SUFFICIENT_RATIO / ratio))


def worst_measurements(output: MeasureOutput, names: Collection[str]) -> dict[str, Measurement]:
    """For each timed variant of `names` its measurement with the most time to save; the variant with most of it
    first. A variant's inconclusive workloads count only if it has no other: their lowest ratio is noise."""
    speeds = [verdict for verdict in output.verdicts if isinstance(verdict, SpeedVerdict)]
    verdicts = {(speed.variant, speed.workload): speed.verdict for speed in speeds}
    timed_variants = {variant for variant, _ in verdicts} & {*names}

    def sort_key(measurement: Measurement) -> tuple[bool, float, float]:
        """Conclusive measurements first, then the largest saving, then the lowest ratio."""
        workload = measurement.workload
        verdict = verdicts.get((measurement.variant, workload.name), "inconclusive")
        saving = saved_time_share(measurement.ratio, workload.weight)
        return verdict == "inconclusive", -saving, measurement.ratio

    worst: dict[str, Measurement] = {}
    for measurement in sorted(output.measurements, key=sort_key):
        if measurement.against == "baseline" and measurement.variant in timed_variants:
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
    device_profile: DeviceProfile | None = None
    """One call as a GPU profiler recorded it; None without a profile."""

    def add(self, facts: Mapping[str, Fact], source: str = "") -> None:
        """Add facts. `source`: where the facts come from; empty if that is obvious."""
        self.facts |= facts
        if source:
            self.sources |= {name: source for name, value in facts.items() if value is not None}

    def explain_unknown(self, why: str, *names: str) -> None:
        """Note why these facts are unknown; facts that are known stay."""
        self.unknown |= {name: why for name in names if self.facts.get(name) is None}


def make_profile(
    measured: Measurement, notes: Notes, tree: Sequence[TreeRule], severities: Sequence[SeverityRule]
) -> Profile:
    """The profile with its facts, and the advice of the first rules that match, if any. Raises ExpressionError."""
    facts = {name: notes.facts.get(name) for name in FACTS}
    unknown_facts = [name for name, value in facts.items() if value is None]
    leaf, unknown_by_rule = first_match(tree, facts)
    severity_rule, _ = first_match(severities, facts)
    undecided = []
    for index, names in unknown_by_rule.items():
        undecided.append(f"{tree[index].bottleneck}: {' and '.join(names)} unknown")
    return Profile(
        variant=measured.variant,
        workload=measured.workload.name,
        facts=facts,
        sources=dict(notes.sources),
        watched=notes.device_profile,
        unknown={name: notes.unknown.get(name, "not told") for name in unknown_facts},
        severity=severity_rule.severity if severity_rule else None,
        tool=severity_rule.tool if severity_rule else None,
        undecided=tuple(undecided),
        promise=leaf.promise_for(facts) if leaf else None,
        bottleneck=leaf.bottleneck if leaf else None,
        when=leaf.when if leaf else None,
        fix=leaf.fix if leaf else None,
        gain=leaf.gain if leaf else None,
    )
