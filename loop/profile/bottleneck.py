"""What holds a kernel back: the roofline, and the walk down a tree in which unknown is never zero. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from loop.base.expressions import Expression, ExpressionError
from loop.model.index import SessionRow
from loop.model.measurement import Measurement
from loop.model.output import MeasureOutput
from loop.model.profile import (
    FACTS,
    DeviceProfile,
    Fact,
    GainOutcome,
    Profile,
    Promise,
    Promised,
    SeverityRule,
    TreeRule,
)
from loop.model.verdict import SpeedVerdict
from loop.report import format as say


def promise(rule: TreeRule, facts: Mapping[str, Fact]) -> Promise | None:
    """What a leaf promises; None where it states no interval, or one that unknown facts decide."""
    if rule.times is None:
        return None
    known = {name: value for name, value in facts.items() if value is not None}
    try:
        low, high = (Expression.parse(str(end)).evaluate_number(known) for end in rule.times)
    except ExpressionError:
        return None
    return Promise(advice=rule.bottleneck, stated=(low, high)) if 0 < low <= high else None


def outcomes(rows: Iterable[SessionRow]) -> tuple[GainOutcome, ...]:
    """What came of the advice of all sessions. `rows`: oldest first.

    A change that a session judged is an outcome of the advice in its brief, and closes what was promised before.
    Other advice is held against the next session of the same target and environment that timed another build
    of the variant on the same workload.
    """
    outcomes: list[GainOutcome] = []
    open_: dict[tuple[object, ...], Promised] = {}
    for row in rows:
        outcomes += (gain.model_copy(update={"session": row.id}) for gain in row.gains)
        place = (row.target, row.device, row.threads, row.environment)
        judged = {*(gain.variant for gain in row.gains), *(candidate.variant for candidate in row.kept)}
        for variant in judged:
            open_.pop((*place, variant), None)
        for variant, build in row.builds.items():
            promised, speeds = open_.get((*place, variant)), row.speeds.get(variant, {})
            if promised is not None and promised.build != build and promised.workload in speeds:
                del open_[(*place, variant)]
                outcomes.append(promised.came_to(speeds[promised.workload], row.id))
        open_ |= {(*place, promise.variant): promise for promise in row.promises if promise.variant not in judged}
    return tuple(outcomes)


def held(outcome: GainOutcome) -> str:
    """`1.1x to 1.2x: 1.14x, inside`."""
    return f"{outcome.promise.text}: {say.times(outcome.actual)}, {outcome.side}"


Rule = TypeVar("Rule", TreeRule, SeverityRule)


AHEAD = 1.5
"""A call with this ratio against the baseline is left alone."""
MOST_SHARE = 1.1
"""A call may come out this much above a roof that was measured itself; further above the roof is wrong."""


@dataclass(frozen=True)
class Reach:
    """What the device reaches."""

    flops_per_s: float | None
    bytes_per_s: float | None


def roofline(
    flops: float | None, moved: float | None, seconds: float, reach: Reach
) -> dict[str, float | str | None]:
    """Facts of a call with so many operations and bytes (Williams, Waterman, Patterson 2009); None where unknown.

    Nothing is above its roof: where a call comes to more, that roof is unknown, and which roof it is under too.
    `moved`: bytes that the call must move at least, so that `bandwidth_share` is a lower bound of the traffic's.
    """
    intensity = flops / moved if flops is not None and moved else None
    shares = _shares(flops, moved, seconds, reach)
    below = {name: None if share is None or share > MOST_SHARE else share for name, share in shares.items()}
    roof = None
    if below == shares and intensity is not None and reach.flops_per_s and reach.bytes_per_s:
        # Left of the ridge bandwidth times intensity stays below the peak.
        roof = "memory" if intensity * reach.bytes_per_s < reach.flops_per_s else "compute"
    flops_share, bandwidth_share = (None if share is None else min(share, 1.0) for share in below.values())
    facts = {"flops": flops, "bytes": moved, "intensity": intensity, "flops_share": flops_share}
    return {**facts, "bandwidth_share": bandwidth_share, "roof": roof}


def exceeded(flops: float | None, moved: float | None, seconds: float, reach: Reach) -> str:
    """Which roof a call is above, as `1.56 of the arithmetic roof`; empty where it is below, as it has to be."""
    shares = _shares(flops, moved, seconds, reach)
    above = [f"{share:.3g} of the {name} roof" for name, share in shares.items() if share and share > MOST_SHARE]
    return " and ".join(above)


def _shares(flops: float | None, moved: float | None, seconds: float, reach: Reach) -> dict[str, float | None]:
    """Share of each roof that a call comes to; None where that is unknown."""
    rates = {"arithmetic": (flops, reach.flops_per_s), "bandwidth": (moved, reach.bytes_per_s)}
    return {
        name: amount / seconds / peak if amount is not None and peak and seconds > 0 else None
        for name, (amount, peak) in rates.items()
    }


@dataclass(frozen=True)
class FirstMatch(Generic[Rule]):
    """The first rule that matched, and the earlier ones that could not be decided: by place."""

    rule: Rule | None
    undecided: Mapping[int, tuple[str, ...]]
    """Place among the rules to the unknown facts that it reads."""


def first(rules: Sequence[Rule], facts: Mapping[str, Fact]) -> FirstMatch[Rule]:
    """Walk the rules in order. A rule that comes to read an unknown fact does not match.

    An `and` ends at its first false part, so that `device == 'cuda' and dram > 0.7` is decided on a CPU.
    Raises ExpressionError for a condition that has no answer though everything it reads is known.
    """
    known = {name: value for name, value in facts.items() if value is not None}
    undecided: dict[int, tuple[str, ...]] = {}
    for place, rule in enumerate(rules):
        expression = Expression.parse(rule.when)
        try:
            if expression.evaluate_bool(known):
                return FirstMatch(rule, undecided)
        except ExpressionError:
            unknown = tuple(sorted(expression.names - known.keys()))
            if not unknown:
                raise
            undecided[place] = unknown
    return FirstMatch(None, undecided)


def worth(ratio: float, weight: float = 1.0, gain: float | None = None) -> float:
    """Share of the time that goes if a call becomes `gain` times as fast; by default as fast as AHEAD asks for.

    `weight`: its share of the time, or anything in proportion to that.
    """
    return weight * (1 - 1 / (gain or max(1.0, AHEAD / ratio)))


def worst(output: MeasureOutput, names: Collection[str]) -> dict[str, Measurement]:
    """Of each of these variants with a speed the measurement where most is to be won; then the lowest.

    Workloads that could not be judged count only where none could: the lowest ratio of noise is nobody's worst.
    """
    words = {(v.variant, v.workload): v.verdict for v in output.verdicts if isinstance(v, SpeedVerdict)}
    timed = {variant for variant, _ in words} & {*names}
    measurements: dict[str, Measurement] = {}
    for measurement in worst_first(output.measurements):
        variant = measurement.variant
        if measurement.against != "baseline" or variant not in timed:
            continue
        clear = words.get((variant, measurement.workload.name), "inconclusive") != "inconclusive"
        first = measurements.setdefault(variant, measurement)
        if clear and words.get((variant, first.workload.name), "inconclusive") == "inconclusive":
            measurements[variant] = measurement
    return measurements


def worst_first(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Those where most is to be won first, then those with the lowest ratio."""
    return sorted(measurements, key=lambda each: (-worth(each.ratio, each.workload.weight), each.ratio))


@dataclass
class Notes:
    """What was seen of one variant on one workload, as it comes in."""

    facts: dict[str, Fact] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    """Where facts come from, where that is not plain."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Why facts are unknown."""
    watched: DeviceProfile | None = None
    """One call as a profiler of the GPU saw it."""

    def tell(self, facts: Mapping[str, Fact], source: str = "") -> None:
        """Add facts, and where they come from where that is not plain."""
        self.facts |= facts
        if source:
            self.sources |= {name: source for name, value in facts.items() if value is not None}

    def silent(self, why: str, *names: str) -> None:
        """Say why facts are unknown, unless they are known."""
        self.unknown |= {name: why for name in names if self.facts.get(name) is None}


def profile(
    measured: Measurement, notes: Notes, tree: Sequence[TreeRule], severities: Sequence[SeverityRule]
) -> Profile:
    """The leaf of the tree that the facts lead to, with everything it rests on. Raises ExpressionError."""
    facts = {name: notes.facts.get(name) for name in FACTS}
    leaf, urgency = first(tree, facts), first(severities, facts)
    undecided = (
        f"{tree[place].bottleneck}: {' and '.join(names)} unknown" for place, names in leaf.undecided.items()
    )
    return Profile(
        variant=measured.variant,
        workload=measured.workload.name,
        facts=facts,
        sources=dict(notes.sources),
        watched=notes.watched,
        unknown={name: notes.unknown.get(name, "not told") for name, value in facts.items() if value is None},
        severity=urgency.rule.severity if urgency.rule else None,
        tool=urgency.rule.tool if urgency.rule else None,
        bottleneck=leaf.rule.bottleneck if leaf.rule else None,
        when=leaf.rule.when if leaf.rule else None,
        fix=leaf.rule.fix if leaf.rule else None,
        gain=leaf.rule.gain if leaf.rule else None,
        promise=promise(leaf.rule, facts) if leaf.rule else None,
        undecided=tuple(undecided),
    )
