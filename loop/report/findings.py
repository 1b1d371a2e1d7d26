"""Report sections on correctness, on speed, and on the commit that bisection found."""

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from statistics import geometric_mean

from loop.model import measurement
from loop.model.bisect import UNCOMMITTED, BisectAnswer, BisectOutput, Probe
from loop.model.change import latest_target_attempts
from loop.model.measurement import Check, Measurement, SpeedVerdict, VariantChecks, Verdict
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
from loop.model.profile import Profile
from loop.model.record import Finished
from loop.model.target import Signature
from loop.report import format as say
from loop.report.markdown import drop_empty_columns
from loop.report.sections import Line, Section

ALIKE_FACTOR = 4.0  # A dimension whose parts have errors within this factor explains nothing.
MANY_FAILURES = 8  # Most failing workloads of a variant that are described one by one.
CHECK_COLUMNS = ["Variant", ">Right", "Not right", ">Largest error", ">Allowed there"]
CHECK_COLUMNS += [">Plain implementation's", "Type", "Build"]
COMPARISON_NOTE = (
    "Every output was held against the float64 reference, element by element; the control is the "
    "library through the same checks, on the workloads that are timed."
)
SPEED_NOTE = "A ratio is the library's time over the variant's: above 1 the variant is faster."
ROOF_FACTS = ("flops", "bytes", "time_us", "flops_share", "bandwidth_share")  # Of a profile.
RATES_NOTE = " GB/s and GFLOP/s are the manifest's `bytes` and `flops` over the variant's time."
MOST_NAMED_WORKLOADS = 4  # Most workloads that are named; more are only counted.
MOST_LINES = 60  # Lines of the culprit's diff in the report; git has the rest.
Roof = tuple[float, float] | None  # Peak FLOP/s and bytes/s of the device; None: unknown.


def correctness_sections(
    finished: Sequence[Finished], empty_note: str = "Nothing was verified."
) -> Iterator[Section]:
    """A table with a row for each variant and dtype, then the failures. `empty_note`: if none."""
    outputs = outputs_of(finished, VerifyOutput)
    checked_variants = [checks for output in outputs for checks in output.variants]
    all_checks = [check for checks in checked_variants for check in checks.checks]
    checked_variants += [output.control for output in outputs if output.control is not None]
    rows = list(dict.fromkeys(row for checks in checked_variants for row in _check_rows(checks)))
    table = drop_empty_columns(CHECK_COLUMNS, rows)
    judged = ("right", "wrong", "tampered")
    without_output = tuple(check for check in all_checks if check.status not in judged)
    note = f"{COMPARISON_NOTE} " if table else empty_note
    if table and without_output:
        tally = VariantChecks(variant="", build_id=None, checks=without_output).tally
        share = f"{len(without_output)} of {say.count(len(all_checks), 'check')}"
        note += f"{share} gave no output: {tally}."
    yield Section("Correctness", note=note, table=table, folded_column=2)
    failures = [failure for checks in checked_variants for failure in _failure_lines(checks)]
    if failures:
        yield Section(note="Where it is wrong:", lines=tuple(failures))


def _check_rows(checks: VariantChecks) -> Iterator[tuple[str, ...]]:
    """A row of `CHECK_COLUMNS` for each dtype: errors of different dtypes cannot be compared."""
    name = "baseline (control)" if checks.variant == "baseline" else checks.variant
    name += " (emulated)" if checks.emulated else ""
    build = (checks.build_id or "-")[:12]
    for dtype in dict.fromkeys(check.workload.dtype for check in checks.checks):
        of_type = tuple(check for check in checks.checks if check.workload.dtype == dtype)
        checks_of_type = checks.model_copy(update={"checks": of_type})
        with_error = [check for check in of_type if check.max_error is not None]
        worst = max(with_error, key=lambda check: check.max_error or 0.0, default=None)
        plain_errors = [check.plain_max_error for check in of_type]
        errors: list[float | None] = [worst.max_error, worst.allowed_error] if worst else [None] * 2
        errors.append(max((error for error in plain_errors if error is not None), default=None))
        error_cells = ["-" if error is None else f"{error:.1e}" for error in errors]
        right = f"{checks_of_type.count('right'):,} of {len(of_type):,}"
        yield name, right, checks_of_type.tally_of_others or "-", *error_cells, dtype, build


def _failure_lines(checks: VariantChecks) -> Iterator[Line]:
    """The first failure on each workload and layout (other seeds repeat it); a count of others."""
    first_failures: dict[tuple[str, str], Check] = {}
    for check in checks.checks:
        if not check.passed:
            first_failures.setdefault((check.workload.name, check.inputs), check)
    for number, check in enumerate(list(first_failures.values())[:MANY_FAILURES]):
        places = [("first", check.first), ("worst", check.worst)]
        elements = [f"{word} at {place.text}" for word, place in places if place is not None]
        layout = "" if check.inputs == "contiguous" else f" with {check.inputs} inputs"
        description = check.message
        if check.status != "wrong":
            description = f"{check.status}: {check.message}"
        elif check.wrong and elements:
            description = f"{check.wrong:,} of {say.count(check.total, 'element')} wrong"
        line = f"`{checks.variant}` on {check.workload.name}{layout}: {description}"
        yield line, *elements, *(_error_map_lines(check) if number == 0 else ())
    if hidden := list(first_failures.values())[MANY_FAILURES:]:
        names = "; ".join(check.workload.name for check in hidden)
        yield f"{checks.variant} fails on {say.count(len(hidden), 'more workload')}: {names}"


def _error_map_lines(check: Check) -> Iterator[str]:
    """A line for each dimension that was split: largest error by part (`0-31 right, 32-63 0.4`)."""
    for name, parts in check.map.items():
        if len(parts) < 2:
            continue
        errors, part_texts = list[tuple[float, str]](), list[str]()
        for part in parts:
            error = math.inf if part.largest is None else part.largest  # NaN: JSON has none.
            error_text = "nan" if error > 1e300 else f"{error:.2g}"
            if part.count:
                errors.append((error, error_text))
            span = f"{part.first}" if part.first == part.last else f"{part.first}-{part.last}"
            part_texts.append(f"{span} {error_text if part.count else 'right'}")
        is_alike = len(errors) == len(parts) and max(errors)[0] <= ALIKE_FACTOR * min(errors)[0]
        text = f"alike everywhere, up to {max(errors)[1]}" if is_alike else ", ".join(part_texts)
        yield f"largest error along {name}: {text}"


def describe_location(check: Check, signature: Signature) -> str:
    """Where elements are wrong: `query rows 64 to 127 of 128, all heads`; empty without a map."""
    if not check.spans:
        return ""
    partial, whole = list[str](), list[str]()
    for name, span in check.spans.items():
        label, indices = signature.words.get(name, name), signature.words.get(name, f"of {name}")
        if span.size <= 1:
            continue
        if span.count == span.size:
            whole.append(f"all {indices}")
        elif span.count == 1:
            partial.append(f"{label} {span.first} alone, of {span.size}")
        elif span.count == span.last - span.first + 1:
            partial.append(f"{label} {span.first} to {span.last} of {span.size}")
        else:
            place = f"between {span.first} and {span.last}"
            partial.append(f"{span.count} of {span.size} {indices} {place}")
    return ", ".join([*partial, *whole]) or "its one element"


def find_roof(profiles: Sequence[Profile]) -> Roof:
    """The highest peaks that a profile implies: rates / their shares; None without `ROOF_FACTS`."""
    flops_peaks, bytes_peaks = list[float](), list[float]()
    for profile in profiles:
        values = [profile.facts.get(name) for name in ROOF_FACTS]
        numbers = [float(value) for value in values if isinstance(value, int | float) and value > 0]
        if len(numbers) == len(ROOF_FACTS):
            flops, moved, time_us, flops_share, bandwidth_share = numbers
            flops_peaks.append(flops / time_us * 1e6 / flops_share)
            bytes_peaks.append(moved / time_us * 1e6 / bandwidth_share)
    return (max(flops_peaks), max(bytes_peaks)) if flops_peaks else None


def speed_sections(
    verdicts: Sequence[Verdict], finished: Sequence[Finished], baseline: str, roof: Roof = None
) -> Iterator[Section]:
    """A table per variant that was timed and is right everywhere, a row per workload."""
    speeds = speed_verdicts(verdicts)
    verdict_of = {(verdict.variant, verdict.workload): verdict for verdict in speeds}
    outputs = outputs_of(latest_target_attempts(finished), MeasureOutput)
    # Variant to workload to the timing behind its verdict, else to the first.
    by_variant: dict[str, dict[str, Measurement]] = {}
    for timing in (timing for output in outputs for timing in output.measurements):
        name = timing.workload.name
        verdict = verdict_of.get((timing.variant, name)) if timing.against == "baseline" else None
        if verdict is not None:
            timing_by_workload = by_variant.setdefault(timing.variant, {})
            if name not in timing_by_workload or timing.ratio == verdict.ratio:
                timing_by_workload[name] = timing
    title = f"Speed against {baseline}"
    for variant, timings in by_variant.items():
        pairs = [(timing, verdict_of[variant, name]) for name, timing in timings.items()]
        heads = ["Workload", "Verdict", ">Ratio [99 % interval]", f">{variant}", f">{baseline}"]
        heads += [">GB/s", ">GFLOP/s", ">Of the roof"]
        rounds = sorted({timing.rounds for timing in timings.values()})
        rounds_text = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
        workloads_text = f"over {say.count(len(pairs), 'workload')}, {rounds_text} rounds each"
        variant_verdicts = [verdict for _, verdict in pairs]
        summary = f"{mean_text(variant_verdicts)} {workloads_text}"
        if all(verdict.verdict == "inconclusive" for verdict in variant_verdicts):
            summary = f"inconclusive {workloads_text}"
        elif vague_count := sum(measurement.is_vague(each.interval) for each in variant_verdicts):
            summary = f"no mean {workloads_text}: too wide an interval on {vague_count}"
        rows = [_speed_row(timing, verdict, roof) for timing, verdict in pairs]
        table = drop_empty_columns(heads, rows)
        yield Section(title, note=f"`{variant}`: {summary}.", table=table)
        title = ""
    if by_variant:
        workloads_by_reason: dict[tuple[str, str, str], list[str]] = {}
        for verdict in speeds:
            if verdict.verdict in ("same", "inconclusive"):
                key = (verdict.variant, verdict.verdict, verdict.reason)
                workloads_by_reason.setdefault(key, []).append(verdict.workload)
        reasons = []
        for (variant, word, reason), names in workloads_by_reason.items():
            place = names[0] if len(names) == 1 else say.count(len(names), "workload")
            reasons.append(f"{variant} is {word} on {place}: {reason}")
        timed = [timing for timings in by_variant.values() for timing in timings.values()]
        has_rates = any(timing.flops_per_s or timing.bytes_per_s for timing in timed)
        yield Section(note=SPEED_NOTE + RATES_NOTE * has_rates, lines=tuple(reasons))


def speed_verdicts(verdicts: Iterable[Verdict]) -> list[SpeedVerdict]:
    """Speed verdicts against the baseline, of variants that are right and valid everywhere."""
    all_verdicts = list(verdicts)
    speeds = [verdict for verdict in all_verdicts if isinstance(verdict, SpeedVerdict)]
    wrong = {each.variant for each in all_verdicts if not isinstance(each, SpeedVerdict)}
    return [each for each in speeds if each.against == "baseline" and each.variant not in wrong]


def mean_text(verdicts: Sequence[SpeedVerdict]) -> str:
    """Mean ratio as `geometric mean 1.63x`; empty: all inconclusive, or an interval is too wide."""
    mean = trusted_mean(verdicts)
    return "" if mean is None else f"geometric mean {say.speedup_text(mean)}"


def trusted_mean(verdicts: Sequence[SpeedVerdict]) -> float | None:
    """Geometric mean of the ratios; None if all are inconclusive or an interval is too wide."""
    is_inconclusive = all(verdict.verdict == "inconclusive" for verdict in verdicts)
    if is_inconclusive or any(measurement.is_vague(verdict.interval) for verdict in verdicts):
        return None
    return geometric_mean([verdict.ratio for verdict in verdicts])


def _speed_row(timing: Measurement, verdict: SpeedVerdict, roof: Roof) -> tuple[str, ...]:
    """A workload's row of the table of speeds."""
    clock_note = " (times itself)" if timing.timed_by == "itself" else ""
    too_few_text = f"{say.speedup_text(verdict.ratio)}, too few rounds"
    flops_per_s, bytes_per_s, share_text = timing.flops_per_s, timing.bytes_per_s, "-"
    if roof is not None and flops_per_s and bytes_per_s:  # The larger share of a peak.
        share = max(flops_per_s / roof[0], bytes_per_s / roof[1])
        share_text = f"{say.significant(100 * share, 2)} %"
    return (
        timing.workload.name,
        verdict.verdict + clock_note,
        too_few_text if timing.ranged else say.ratio(verdict.ratio, verdict.interval),
        say.latency(timing.candidate_us),
        say.latency(timing.reference_us),
        "-" if bytes_per_s is None else say.significant(bytes_per_s / 1e9),
        "-" if flops_per_s is None else say.significant(flops_per_s / 1e9),
        share_text,
    )


def headline(answer: BisectAnswer) -> str:
    """The outcome and its reason, in one line."""
    return f"{answer.outcome.replace('_', ' ')}: {answer.why}"


def blamed_lines(answer: BisectAnswer) -> tuple[str, ...]:
    """A line for each culprit, and each commit of a range with one, with why it was skipped."""
    lines = []
    for commit in (*answer.culprits, *answer.range):
        reason = answer.skipped.get(commit.commit)
        skipped = f": {reason}" if reason else ""
        hash_text = "" if commit.commit == UNCOMMITTED else f"`{commit.short_commit}` "
        when = f", {commit.when:%Y-%m-%d}" if commit.when else ""
        author = f" ({commit.author}{when})" if commit.author else ""
        lines.append(f"{hash_text}{commit.subject}{skipped}{author}")
    return tuple(lines)


def show_command(commits: Iterable[str], *options: str) -> str:
    """The git command that shows commits by their hashes; `git diff` for uncommitted changes."""
    committed = [commit[:12] for commit in commits if commit != UNCOMMITTED]
    words = ["show", *committed] if committed else ["diff"]
    return shlex.join(["git", *options, *words])


def basis_lines(answer: BisectAnswer) -> Iterator[str]:
    """The basis of an answer: the culprit's step, workloads, observations, skipped commits."""
    if answer.ratio is not None:
        yield f"Its parent's time over its own: {say.speedup_text(answer.ratio)}, in fresh pairs"
    observations = sum(len(probe.values) for probe in answer.probes)
    if answer.workloads and (observations or answer.checks):
        scope = say.count(len(answer.workloads), "workload")
        if len(answer.workloads) <= MOST_NAMED_WORKLOADS:
            scope += f" ({', '.join(answer.workloads)})"
        set_texts = []
        for names in (answer.sets, answer.left_out):
            set_texts.append(f"set{'s' if len(names) > 1 else ''} {', '.join(names)}")
        scope += f" of the {set_texts[0]}" if answer.sets else ""
        scope += f", in {say.count(answer.checks, 'check')}" if answer.checks else ""
        scope += f"; not tried: the {set_texts[1]}" if answer.left_out else ""
        yield f"Judged on {scope}"
    if answer.probes:
        probes, builds = say.count(len(answer.probes), "probe"), say.count(answer.builds, "build")
        yield f"{say.count(observations, 'observation')} in {probes}, {builds}"
    in_range = {commit.commit for commit in answer.range}
    for commit, reason in answer.skipped.items():
        if commit not in in_range:
            yield f"Skipped `{commit[:12]}`: {reason}"


def sections(finished: Sequence[Finished]) -> Iterator[Section]:
    """Which commit made a variant slower or wrong, with the probes of the search."""
    for output in outputs_of(finished, BisectOutput):
        answer = output.answer
        if answer is None:
            continue
        title = f"Which commit made {output.variant} regress"
        lines = (*blamed_lines(answer), *basis_lines(answer))
        yield Section(title, note=f"{headline(answer)}.", lines=lines)
        rows = []
        probes_by_pair = dict[tuple[str, str], list[Probe]]()
        for probe in answer.probes:
            probes_by_pair.setdefault((probe.commit, probe.against), []).append(probe)
        for (commit, _), probes in probes_by_pair.items():
            values = tuple(value for probe in probes for value in probe.values)
            all_probes = probes[-1].model_copy(update={"values": values})
            result = all_probes.describe(output.metric or "latency")
            rows.append((commit[:12], str(len(values)), result))
        heads = ["Commit", ">Observations", "What came of it"]
        yield Section(table=drop_empty_columns(heads, rows))
        patch = answer.difference.splitlines()
        omission = (f"... {len(patch) - MOST_LINES} more lines",) if len(patch) > MOST_LINES else ()
        if patch:
            code = (*patch[:MOST_LINES], *omission)
            yield Section(note="What the blamed commit changed:", code=code, language="diff")
