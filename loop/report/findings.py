"""What the report says of correctness and speed."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from loop.base.stats import geometric_mean
from loop.model.change import standing
from loop.model.measurement import Check, MapPart, Measurement, Mismatch, VariantChecks
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
from loop.model.record import Finished, SessionRecord
from loop.model.verdict import SpeedVerdict, Verdict
from loop.report import format as say
from loop.report.figures.roofline import Roof
from loop.report.markdown import Table, columns, filled

ALIKE = 4.0
"""Errors of the parts of a dimension that differ by less than this factor say nothing of where it goes wrong."""
MANY_FAILURES = 8
"""How many failing workloads of a variant are described one by one."""


@dataclass(frozen=True)
class Failure:
    """One workload on which a variant is not right."""

    variant: str
    workload: str
    what: str
    places: tuple[str, ...] = ()
    """Where: the first wrong element and the worst."""


@dataclass(frozen=True)
class Correctness:
    """Right or wrong, variant by variant."""

    table: Table | None
    silent: str = ""
    """How many checks gave no output, and why."""
    failures: tuple[Failure, ...] = ()
    more: tuple[str, ...] = ()
    """How many failures are not described."""


def correctness(finished: Sequence[Finished]) -> Correctness:
    """Everything that was verified, the control included."""
    outputs = outputs_of(finished, VerifyOutput)
    checked = [checks for output in outputs for checks in output.variants]
    checked += [output.control for output in outputs if output.control is not None]
    rows = [row for checks in checked for row in _check_rows(checks)]
    heads = columns(
        *("Variant", ">Right", "Not right", ">Largest error", ">Allowed there", ">Plain implementation's"),
        *("Type", "Build"),
    )
    return Correctness(
        table=filled(heads, rows),
        silent=_silent([check for checks in checked for check in checks.checks]),
        failures=tuple(chain.from_iterable(map(_failures, checked))),
        more=tuple(chain.from_iterable(map(_more, checked))),
    )


def _silent(checks: Sequence[Check]) -> str:
    """How many checks gave no output that could be judged, and why; empty where all did."""
    mute = tuple(one for one in checks if one.status not in ("right", "wrong", "tampered"))
    if not mute:
        return ""
    tally = VariantChecks(variant="", build_id=None, checks=mute).tally
    return f"{len(mute)} of {say.count(len(checks), 'check')} gave no output: {tally}."


def _check_rows(checks: VariantChecks) -> Iterator[tuple[str, ...]]:
    """One row a type of elements: errors of different types do not belong in one figure."""
    name = "baseline (control)" if checks.variant == "baseline" else checks.variant
    name += " (emulated)" if checks.emulated else ""
    for dtype in dict.fromkeys(check.workload.dtype for check in checks.checks):
        mine = [check for check in checks.checks if check.workload.dtype == dtype]
        some = checks.model_copy(update={"checks": tuple(mine)})
        right, rest = some.count("right"), some.tally_of_others
        told = [check for check in mine if check.max_error is not None]
        worst = max(told, key=lambda check: check.max_error or 0.0, default=None)
        largest, allowed = (worst.max_error, worst.allowed_error) if worst else (None, None)
        plain = max((check.plain_max_error for check in mine if check.plain_max_error is not None), default=None)
        build = (checks.build_id or "-")[:12]
        errors = map(say.error, (largest, allowed, plain))
        yield name, f"{right:,} of {len(mine):,}", rest or "-", *errors, dtype, build


def _wrong(checks: VariantChecks) -> list[Check]:
    """The first failure of each workload and layout: other seeds say the same."""
    failed: dict[tuple[str, str], Check] = {}
    for check in checks.checks:
        if not check.passed:
            failed.setdefault((check.workload.name, check.inputs), check)
    return list(failed.values())


def _failures(checks: VariantChecks) -> Iterator[Failure]:
    for number, check in enumerate(_wrong(checks)[:MANY_FAILURES]):
        places = [("first", check.first), ("worst", check.worst)]
        texts = tuple(f"{word} at {_element(place)}" for word, place in places if place is not None)
        layout = "" if check.inputs == "contiguous" else f" with {check.inputs} inputs"
        places_of = (*texts, *(_map(check) if number == 0 else ()))
        yield Failure(checks.variant, check.workload.name + layout, _what(check, bool(texts)), places_of)


def _what(check: Check, has_places: bool) -> str:
    if check.status == "wrong" and check.wrong and has_places:
        return f"{check.wrong:,} of {say.count(check.total, 'element')} wrong"
    return check.message if check.status == "wrong" else f"{check.status}: {check.message}"


def _element(mismatch: Mismatch) -> str:
    place = " ".join(f"{name}={index}" for name, index in mismatch.index.items())
    expected, got = ("nan" if value is None else f"{value:.6g}" for value in (mismatch.expected, mismatch.got))
    return f"{place}: expected {expected}, got {got} (allowed error {mismatch.allowed:.1e})"


def _map(check: Check) -> Iterator[str]:
    """Where along each dimension the error is; then the neighbours of the first wrong element."""
    for name, parts in check.map.items():
        if len(parts) > 1:
            yield f"largest error along {name}: {_spans(parts)}"
    if check.first is not None and len(check.first.around) > 1:
        pairs = ", ".join(f"{_number(got)} for {_number(expected)}" for expected, got in check.first.around)
        yield f"around the first: {pairs}"


def _spans(parts: Sequence[MapPart]) -> str:
    """`0-31 nothing wrong, 32-63 0.4`; one figure where all parts are alike."""
    errors = [math.inf if part.largest is None else part.largest for part in parts if part.wrong]
    if len(errors) == len(parts) and max(errors) <= ALIKE * min(errors):
        return f"alike everywhere, up to {_largest(max(errors))}"
    return ", ".join(f"{_span(part)} {_largest(part.largest) if part.wrong else 'right'}" for part in parts)


def _span(part: MapPart) -> str:
    return f"{part.first}" if part.first == part.last else f"{part.first}-{part.last}"


def _largest(value: float | None) -> str:
    return "nan" if value is None or value > 1e300 else f"{value:.2g}"


def _number(value: float | None) -> str:
    return "nan" if value is None else f"{value:.4g}"


def _more(checks: VariantChecks) -> Iterator[str]:
    left = _wrong(checks)[MANY_FAILURES:]
    if left:
        names = "; ".join(check.workload.name for check in left)
        yield f"{checks.variant} fails on {say.count(len(left), 'more workload')}: {names}"


@dataclass(frozen=True)
class VariantSpeed:
    """One variant against the baseline."""

    variant: str
    summary: str
    table: Table | None


def speeds(
    record: SessionRecord, finished: Sequence[Finished], roof: Roof | None = None
) -> tuple[VariantSpeed, ...]:
    """Every timed variant, one row a workload, by the session's verdicts."""
    judged = {(v.variant, v.workload): v for v in speed_verdicts(record.verdicts)}
    outputs = outputs_of(standing(finished), MeasureOutput)
    by_variant = _last_timed((one for output in outputs for one in output.measurements), judged)
    base, made = record.head.baseline, []
    for name, mine in by_variant.items():
        verdicts = [judged[name, one.workload.name] for one in mine]
        heads = columns(
            *("Workload", "Verdict", ">Ratio [99 % interval]", f">{name}", f">{base}"),
            *(">GB/s", ">GFLOP/s", ">Of the roof", f">Memory {name}", f">Memory {base}"),
        )
        rows = [_speed_row(one, verdict, roof) for one, verdict in zip(mine, verdicts, strict=True)]
        made.append(VariantSpeed(name, _summary(mine, verdicts), filled(heads, rows)))
    return tuple(made)


def _last_timed(
    measurements: Iterable[Measurement], judged: Mapping[tuple[str, str], SpeedVerdict]
) -> dict[str, list[Measurement]]:
    """By variant the measurements that the verdicts are from, one a workload; else the first."""
    found: dict[str, dict[str, Measurement]] = {}
    for one in measurements:
        verdict = judged.get((one.variant, one.workload.name)) if one.against == "baseline" else None
        if verdict is not None:
            mine = found.setdefault(one.variant, {})
            if one.workload.name not in mine or one.ratio == verdict.ratio:
                mine[one.workload.name] = one
    return {name: list(mine.values()) for name, mine in found.items()}


def speed_verdicts(verdicts: Iterable[Verdict]) -> list[SpeedVerdict]:
    """Verdicts on speed against the baseline; a variant that is incorrect anywhere has none."""
    listed = list(verdicts)
    wrong = {one.variant for one in listed if not isinstance(one, SpeedVerdict)}
    return [
        one
        for one in listed
        if isinstance(one, SpeedVerdict) and one.against == "baseline" and one.variant not in wrong
    ]


def mean_of(verdicts: Sequence[SpeedVerdict]) -> str:
    """`geometric mean 1.63x`; empty where nothing was judged or a ratio says nothing: a mean of noise is noise."""
    mean = trusted_mean(verdicts)
    return "" if mean is None else f"geometric mean {say.times(mean)}"


def trusted_mean(verdicts: Sequence[SpeedVerdict]) -> float | None:
    """Geometric mean of the ratios; None where nothing was judged or a ratio says nothing."""
    if all(one.verdict == "inconclusive" for one in verdicts) or any(one.vague for one in verdicts):
        return None
    return geometric_mean([one.ratio for one in verdicts])


def _summary(measurements: Sequence[Measurement], verdicts: Sequence[SpeedVerdict]) -> str:
    """`geometric mean 1.63x over 6 workloads, 5 rounds each`, or why there is no mean."""
    rounds = sorted({one.rounds for one in measurements})
    counted = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    over = f"over {say.count(len(verdicts), 'workload')}, {counted} rounds each"
    vague = sum(one.vague for one in verdicts)
    if all(one.verdict == "inconclusive" for one in verdicts):
        return f"inconclusive {over}"
    return f"no mean {over}: too wide an interval on {vague}" if vague else f"{mean_of(verdicts)} {over}"


def _speed_row(one: Measurement, verdict: SpeedVerdict, roof: Roof | None) -> tuple[str, ...]:
    own = "" if one.timed_by == "loop" else " (its own clock)"
    few = f"{say.times(verdict.ratio)}, too few rounds"
    share = None if roof is None else roof.share(one.flops_per_s, one.bytes_per_s)
    return (
        one.workload.name,
        verdict.verdict + own,
        few if one.ranged else say.ratio(verdict.ratio, verdict.interval),
        say.latency(one.candidate_us),
        say.latency(one.reference_us),
        say.giga(one.bytes_per_s),
        say.giga(one.flops_per_s),
        "-" if share is None else f"{say.significant(100 * share, 2)} %",
        say.memory(one.candidate_peak_bytes),
        say.memory(one.reference_peak_bytes),
    )


def reasons(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Why workloads were neither faster nor slower, each reason once with its workloads."""
    by_reason: dict[tuple[str, str, str], list[str]] = {}
    for one in speed_verdicts(verdicts):
        if one.verdict in ("same", "inconclusive"):
            by_reason.setdefault((one.variant, one.verdict, one.reason), []).append(one.workload)
    return tuple(
        f"{variant} is {word} on {names[0] if len(names) == 1 else say.count(len(names), 'workload')}: {why}"
        for (variant, word, why), names in by_reason.items()
    )
