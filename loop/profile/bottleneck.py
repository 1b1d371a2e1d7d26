"""Decision tree for a kernel's bottleneck."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from loop.base.expressions import Expression, ExpressionError
from loop.model.measurement import Measurement, SpeedVerdict
from loop.model.output import MeasureOutput
from loop.model.profile import FACTS, DeviceProfile, Fact, Profile, SeverityRule, TreeRule

Rule = TypeVar("Rule", TreeRule, SeverityRule)
SUFFICIENT_RATIO = 1.5
"""Ratio to the baseline from which a call needs no further work."""


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
    """The part of `weight` (a call's time) saved once it is `SUFFICIENT_RATIO` times as fast as the
    baseline. `ratio`: its speed against the baseline."""
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
    undecided = [f"{tree[n].bottleneck}: {' and '.join(names)} unknown" for n, names in unknown_by_rule.items()]
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
        bottleneck=leaf.bottleneck if leaf else None,
        when=leaf.when if leaf else None,
        fix=leaf.fix if leaf else None,
        gain=leaf.gain if leaf else None,
    )
