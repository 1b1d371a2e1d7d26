"""Conclusions from a session's records, in sentences of plain text."""

import math
from collections.abc import Iterable, Iterator, Sequence

from loop.base.stats import CONFIDENCE, t_quantile
from loop.model.change import kept_runs, latest_target_attempts
from loop.model.debugging import DebugOutput
from loop.model.measurement import Measurement
from loop.model.output import MeasureOutput, Output, VerifyOutput, outputs_of, read_output
from loop.model.record import Finished, Status, latest_attempts
from loop.model.verdict import Verdict

UNUSABLE_RESOLUTION = 0.5
"""Relative resolution above which timings cannot be judged."""


def session_verdicts(finished: Iterable[Finished]) -> tuple[Verdict, ...]:
    """Verdicts of all steps, from their last attempts, with kept changes applied. An incorrect variant keeps no
    speed verdict. A kept change's verdicts replace those on the earlier code; those against the known good are
    left out, because that is another build."""
    records = latest_attempts(finished)
    kept_changes = kept_runs(records)
    verdicts: list[Verdict] = []
    for record in latest_target_attempts(records):
        output = read_output(record, Output)
        new_verdicts = output.verdicts if output else ()
        if record.run in kept_changes:
            new_verdicts = tuple(verdict for verdict in new_verdicts if verdict.against != "known_good")
            # These variants are right now: their earlier verdicts without a ratio, as `incorrect`, go.
            timed_variants = {verdict.variant for verdict in new_verdicts if verdict.ratio is not None}
            verdicts = [past for past in verdicts if past.ratio is not None or past.variant not in timed_variants]
        verdicts += new_verdicts
    wrong_variants = {verdict.variant for verdict in verdicts if verdict.verdict in ("incorrect", "invalid")}
    last_verdicts = {}
    for verdict in verdicts:
        if verdict.ratio is None or verdict.variant not in wrong_variants:
            last_verdicts[verdict.variant, verdict.workload, verdict.against] = verdict
    return tuple(last_verdicts.values())


def session_status(finished: Iterable[Finished], verdicts: Sequence[Verdict]) -> tuple[Status, str]:
    """Status and reason of a session, by its verdicts, then its steps; failed outranks aborted, then paused."""
    for verdict in verdicts:
        name = verdict.variant
        if verdict.verdict in ("incorrect", "invalid"):
            return "failed", f"{name} is {verdict.verdict}: {verdict.reason}"
        if verdict.verdict == "slower" and verdict.against == "known_good":
            compared = [v.verdict for v in verdicts if (v.variant, v.against) == (name, "known_good")]
            workloads = verdict.workload
            if len(compared) > 1:
                workloads = f"{compared.count('slower')} of {len(compared)} workloads"
            return "failed", f"{name} is slower than the known good on {workloads}"
    steps = latest_attempts(finished)
    endings: tuple[Status, ...] = ("failed", "aborted", "paused")
    for status in endings:
        for record in steps:
            if record.status == status:
                return status, f"{record.pattern}/{record.step}: {record.message}"
    passed = sum(record.status == "passed" for record in steps)
    if passed:
        return "passed", "the one step that ran passed" if passed == 1 else f"all {passed} steps that ran passed"
    return ("skipped", f"nothing to do: {steps[-1].message}") if steps else ("aborted", "no step has ended")


def learned_sentences(finished: Sequence[Finished]) -> tuple[str, ...]:
    """What a session learned: sentences from its measurements, then those that actions wrote, each once."""
    measured = outputs_of(finished, MeasureOutput)
    sentences = [*_best_and_worst(measured), *_noise_sentences(measured)]
    sentences += [text for output in outputs_of(finished, Output) for text in output.learned]
    return tuple(dict.fromkeys(sentences))


def _best_and_worst(outputs: Sequence[MeasureOutput]) -> Iterator[str]:
    """Best and worst workload of each variant, without inconclusive measurements."""
    conclusive_cases: set[tuple[str, str]] = set()
    measurements_by_variant: dict[str, list[Measurement]] = {}
    for output in outputs:
        for verdict in output.verdicts:
            if verdict.against == "baseline" and verdict.verdict in ("faster", "slower", "same"):
                conclusive_cases.add((verdict.variant, verdict.workload))
        for measurement in output.measurements:
            if measurement.against == "baseline":
                measurements_by_variant.setdefault(measurement.variant, []).append(measurement)
    for variant, timed in measurements_by_variant.items():
        conclusive = [m for m in timed if (variant, m.workload.name) in conclusive_cases]
        if len(conclusive) < len(timed):
            yield f"{variant} could not be judged on {len(timed) - len(conclusive)} of {len(timed)} workloads."
        if conclusive:
            best = max(conclusive, key=lambda measurement: measurement.ratio)
            worst = min(conclusive, key=lambda measurement: measurement.ratio)
            if best is worst:
                yield f"{variant} runs at {best.speed_text} of the baseline's speed on {best.workload.name}."
            else:
                best_text = f"best on {best.workload.name} ({best.speed_text})"
                yield f"{variant} does {best_text} and worst on {worst.workload.name} ({worst.speed_text})."


def _noise_sentences(outputs: Iterable[MeasureOutput]) -> Iterator[str]:
    """How much a round's ratio varies, and the smallest difference that this resolves."""
    for output in outputs:
        if output.block_sd is None or output.rounds < 2:
            continue
        # Half width of the ratio's confidence interval after so many rounds, as a fraction.
        quantile = t_quantile(0.5 + CONFIDENCE / 2, output.rounds - 1)
        resolution = quantile * output.block_sd / math.sqrt(output.rounds)
        if resolution > UNUSABLE_RESOLUTION:
            scatter = f"a round's log ratio scatters by {output.block_sd:.2f}"
            advice = "End what else runs on it, or measure more rounds."
            yield f"The machine was too disturbed to judge: {scatter}. {advice}"
        else:
            yield (
                f"A round's ratio scatters by {100 * output.block_sd:.1f} % on this machine: "
                f"{output.rounds} rounds resolve differences of about {100 * resolution:.1f} %."
            )


def explain_location(finished: Sequence[Finished], variant: str | None, files: Sequence[str]) -> str:
    """Where to look for an incorrect variant's error: in `files`, its sources, with the smallest failing workload
    that a step found, else the first. Empty if the variant is correct or None."""
    checked = [checks for output in outputs_of(finished, VerifyOutput) for checks in output.variants]
    failures = [checks.first_failure for checks in checked if checks.variant == variant and checks.first_failure]
    if variant is None or not failures:
        return ""
    smallest = [case for output in outputs_of(finished, DebugOutput) for case in output.smallest]
    failure = next((case.check for case in smallest if case.variant == variant), failures[0])
    message = one_line(failure.message)
    return f"Look in {', '.join(files)}: {message}" if files else message


def one_line(text: str) -> str:
    """The text on one line, without a final full stop."""
    return " ".join(text.split()).rstrip(".")
