"""What the records of a session show, in sentences, and what the next session should do about it. Plain text."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from loop.base.stats import CONFIDENCE, t_quantile
from loop.gate.model import BuildOutput
from loop.learning.summary import collect
from loop.model.debugging import Smallest, SmallestOutput
from loop.model.measurement import Check, Measurement, Mismatch, VariantChecks
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
from loop.model.record import Finished, SessionHead, latest_attempts

SHORT_CALL_US = 10.0
"""A call shorter than this is mostly the cost of calling."""
CRITICAL, MEDIUM = 0.5, 1.5
"""Ratios below which a workload is critical, and above which it is left alone (the profiling decision tree)."""
HOPELESS = 0.5
"""A resolution coarser than this is no measurement."""
MANY_WORKLOADS = 3
"""How many are named before the rest is counted."""


def learnings(finished: Sequence[Finished]) -> tuple[str, ...]:
    """Concrete sentences from the records, the ones that actions wrote themselves at the end; each once."""
    sentences = [
        *_wrong(outputs_of(finished, VerifyOutput)),
        *_extremes(outputs_of(finished, MeasureOutput)),
        *_noise(outputs_of(finished, MeasureOutput)),
        *_builds(outputs_of(finished, BuildOutput)),
        *_budgets(finished),
        *collect(finished).learned,
    ]
    return tuple(dict.fromkeys(sentences))


def _wrong(outputs: Iterable[VerifyOutput]) -> Iterator[str]:
    for checks in (checks for output in outputs for checks in output.variants):
        bad = [check for check in checks.checks if not check.passed]
        if bad:
            names = [check.workload.name for check in bad]
            listed = ", ".join(names[:MANY_WORKLOADS]) + (" ..." if len(names) > MANY_WORKLOADS else "")
            yield f"{checks.variant} is incorrect on {len(bad)} of {len(checks.checks)} workloads: {listed}."
            yield from _where(checks.variant, bad[0])


def _where(variant: str, check: Check) -> Iterator[str]:
    if check.first is not None and check.worst is not None:
        yield (
            f"On {check.workload.name} the first wrong element of {variant} is at {_place(check.first)}, "
            f"the worst at {_place(check.worst)}."
        )


def _place(mismatch: Mismatch) -> str:
    return " ".join(f"{name}={index}" for name, index in mismatch.index.items())


def _extremes(outputs: Sequence[MeasureOutput]) -> Iterator[str]:
    """Best and worst of what was judged: a ratio that noise made is nobody's best."""
    every = _by_variant(outputs)
    for variant, measurements in every.items():
        judged = _judged(outputs, measurements)
        unjudged = len(measurements) - len(judged)
        if unjudged:
            yield f"{variant} could not be judged on {unjudged} of {len(measurements)} workloads."
        if judged:
            yield _extreme(variant, judged)


def _extreme(variant: str, judged: Sequence[Measurement]) -> str:
    best = max(judged, key=lambda one: one.ratio)
    worst = min(judged, key=lambda one: one.ratio)
    if best is worst:
        return f"{variant} runs at {_ratio(best)} of the baseline's speed on {best.workload.name}."
    return (
        f"{variant} does best on {best.workload.name} ({_ratio(best)}) "
        f"and worst on {worst.workload.name} ({_ratio(worst)})."
    )


def _by_variant(outputs: Iterable[MeasureOutput]) -> dict[str, list[Measurement]]:
    found: dict[str, list[Measurement]] = {}
    for one in (one for output in outputs for one in output.measurements if one.against == "baseline"):
        found.setdefault(one.variant, []).append(one)
    return found


def _judged(outputs: Iterable[MeasureOutput], measurements: Iterable[Measurement]) -> list[Measurement]:
    """The measurements that led to a verdict other than `inconclusive`."""
    known = {
        (verdict.variant, verdict.workload)
        for output in outputs
        for verdict in output.verdicts
        if verdict.against == "baseline" and verdict.verdict in ("faster", "slower", "same")
    }
    return [one for one in measurements if (one.variant, one.workload.name) in known]


def _ratio(measurement: Measurement) -> str:
    low, high = measurement.interval
    return f"{measurement.ratio:.2f}x [{low:.2f}, {high:.2f}]"


def resolution(rounds: int, block_sd: float) -> float:
    """Half width of the ratio's interval, as a fraction, that this noise leads to after so many rounds."""
    return t_quantile(0.5 + CONFIDENCE / 2, rounds - 1) * block_sd / math.sqrt(rounds)


def _noise(outputs: Iterable[MeasureOutput]) -> Iterator[str]:
    for output in outputs:
        if output.block_sd is None or output.rounds < 2:
            continue
        resolved = resolution(output.rounds, output.block_sd)
        if resolved > HOPELESS:
            yield (
                f"The machine was too disturbed to judge: a round's log ratio scatters by {output.block_sd:.2f}. "
                "End what else runs on it, or measure more rounds."
            )
        else:
            yield (
                f"A round's ratio scatters by {100 * output.block_sd:.1f} % on this machine: "
                f"{output.rounds} rounds resolve differences of about {100 * resolved:.1f} %."
            )


def _builds(outputs: Iterable[BuildOutput]) -> Iterator[str]:
    builds = {build.build_id: build for output in outputs for build in output.builds}.values()
    cached = [build for build in builds if build.cached]
    for build in builds:
        if not build.cached:
            yield f"{build.variant} was compiled in {build.seconds:.1f} s."
    if cached:
        names = ", ".join(build.variant for build in cached)
        seconds = sum(build.seconds for build in cached)
        yield f"The cache held {names}: {seconds:.1f} s of compiling were not repeated."


def _budgets(finished: Iterable[Finished]) -> Iterator[str]:
    ran = [record for record in latest_attempts(finished) if record.status in ("passed", "failed")]
    late = [record for record in ran if record.over_budget]
    for record in late:
        times = record.seconds / record.budget_s
        yield (
            f"{record.pattern}/{record.step} took {record.seconds:.1f} s against a budget of "
            f"{record.budget_s:g} s, {times:.1f} times as long."
        )
    if ran and not late:
        tightest = max(ran, key=lambda record: record.seconds / record.budget_s)
        share = tightest.seconds / tightest.budget_s
        yield (
            f"Every step kept its budget; the tightest was {tightest.pattern}/{tightest.step} "
            f"with {100 * share:.0f} % of {tightest.budget_s:g} s."
        )


def proposal(
    head: SessionHead, finished: Sequence[Finished], sources: Mapping[str, Sequence[str]] | None = None
) -> str:
    """What the next session should do: a sentence, then the commands, a line each.

    `sources`: variant to its files, so that the sentence can say where to look.
    """
    wrong = _first_wrong(outputs_of(finished, VerifyOutput))
    if wrong is not None:
        small = {one.variant: one for output in outputs_of(finished, SmallestOutput) for one in output.smallest}
        files = (sources or {}).get(wrong[0].variant, ())
        return _mend_variant(head, *wrong, files, small.get(wrong[0].variant))
    broken = next((r for r in latest_attempts(finished) if r.status == "failed"), None)
    if broken is not None:
        return _mend_step(head, broken)
    if any(record.status in ("aborted", "paused") for record in latest_attempts(finished)):
        return f"Go on where this session stopped.\n{head.resume_command}"
    measured = outputs_of(finished, MeasureOutput)
    candidates = _own(_by_variant(measured), sources or {})
    if not candidates:
        return f"Nothing was timed: measure against the baseline next.\n{head.command()}"
    judged = _judged(measured, candidates)
    worst = min(judged, key=lambda one: one.ratio, default=None)
    if worst is None or (worst.ratio >= MEDIUM and 2 * len(judged) < len(candidates)):
        return _measure_again(head, len(judged), len(candidates))
    return _look_at(head, worst, measured[-1])


def _measure_again(head: SessionHead, judged: int, timed: int) -> str:
    """Few verdicts, and all of them good: of the rest nothing is known."""
    missing = (
        f"{timed - judged} of {timed} timings could not be judged" if judged else "no workload could be judged"
    )
    return f"Measure again on a quieter machine or with more rounds: {missing}.\n{head.command()}"


def _own(measured: Mapping[str, Sequence[Measurement]], sources: Mapping[str, object]) -> list[Measurement]:
    """Measurements of variants whose files are known, for those can be worked on; of all where none is."""
    every = [one for measurements in measured.values() for one in measurements]
    return [one for one in every if one.variant in sources] or every


def _first_wrong(outputs: Iterable[VerifyOutput]) -> tuple[VariantChecks, Check] | None:
    for checks in (checks for output in outputs for checks in output.variants):
        if checks.first_failure is not None:
            return checks, checks.first_failure
    return None


def _mend_variant(
    head: SessionHead, checks: VariantChecks, check: Check, files: Sequence[str], small: Smallest | None
) -> str:
    """From the smallest failing workload on where that was looked for, else from the first."""
    where = f" in {', '.join(files)}" if files else ""
    place = small.check if small else check
    start = f"{'smallest' if small else 'first'} failing workload, {place.workload.name}"
    verify = head.verify_command(checks.variant, small.words if small else "", small.seed if small else None)
    return (
        f"Mend {checks.variant}{where}: {_one_line(check.message)}. "
        f"Start from its {start}, then run the session again.\n"
        f"{verify}\n{head.command()}"
    )


def _mend_step(head: SessionHead, record: Finished) -> str:
    hint = f" What usually cures it: {_one_line(record.hint)}." if record.hint else ""
    what = f"Mend {record.pattern}/{record.step}: {_one_line(record.message)}.{hint}"
    return f"{what} Then run the session again.\n{head.command()}"


def _one_line(text: str) -> str:
    """A proposal's lines after the first are commands: nothing else may begin a line."""
    return " ".join(text.split()).rstrip(".")


def _look_at(head: SessionHead, worst: Measurement, measured: MeasureOutput) -> str:
    slack = resolution(measured.rounds, measured.block_sd) if measured.block_sd and measured.rounds > 1 else None
    return f"{_advice(worst)}{_worth(slack)}\n{head.command(worst.variant)}"


def _advice(worst: Measurement) -> str:
    where = f"{worst.variant} on {worst.workload.name}, its lowest ratio ({_ratio(worst)})"
    if worst.ratio >= MEDIUM:
        return f"Leave the speed alone, or add workloads that matter: even {where}, is well ahead of the baseline."
    urgency = "Profile first, this is critical" if worst.ratio < CRITICAL else "Profile next"
    if worst.candidate_us < SHORT_CALL_US:
        return f"{urgency}: {where}. At {worst.candidate_us:.1f} µs a call, look at the cost of the call itself."
    rate = f" It computes {worst.flops_per_s / 1e9:.3g} GFLOP/s there." if worst.flops_per_s else ""
    return f"{urgency}: {where}.{rate} Change one thing, verify, measure again."


def _worth(slack: float | None) -> str:
    if slack is None or slack > HOPELESS:
        return ""
    return f" A change has to bring over {100 * slack:.1f} % to show above this machine's noise."
