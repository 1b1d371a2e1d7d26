"""What the records of a session show, in sentences, and what the next session should do about it. Plain text."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from loop.base.ratios import plain_ratio, times
from loop.base.stats import CONFIDENCE, t_quantile
from loop.gate.model import BuildOutput
from loop.model.change import kept_runs, standing
from loop.model.debugging import SmallestOutput
from loop.model.measurement import Check, Measurement, Mismatch
from loop.model.output import MeasureOutput, Output, VerifyOutput, outputs_of, read_output
from loop.model.record import Finished, Status, latest_attempts
from loop.model.verdict import Verdict


@dataclass(frozen=True)
class Findings:
    """What the steps of a session led to. The last attempt of each step counts."""

    verdicts: tuple[Verdict, ...]
    not_exercised: tuple[str, ...]
    learned: tuple[str, ...]


def collect(finished: Iterable[Finished]) -> Findings:
    """Verdicts, gaps and lessons of all steps, each once, in order, of the target with its kept changes.

    A variant that is incorrect anywhere keeps no verdict on its speed.
    """
    finished = tuple(finished)
    found = outputs_of(finished, Output)
    return Findings(
        verdicts=_honest(list(_standing(finished))),
        not_exercised=tuple(dict.fromkeys(text for output in found for text in output.not_exercised)),
        learned=tuple(dict.fromkeys(text for output in found for text in output.learned)),
    )


def _standing(finished: Iterable[Finished]) -> Iterator[Verdict]:
    """Every verdict on what the session leaves behind: a kept change's replace those on what was there.

    What a change is against the build before it is said of the change: the known good is another build.
    """
    records = latest_attempts(finished)
    changes = kept_runs(records)
    found: list[Verdict] = []
    for record in standing(records):
        output = read_output(record, Output)
        new = output.verdicts if output else ()
        if record.run in changes:
            new = tuple(verdict for verdict in new if verdict.against != "known_good")
            mended = {verdict.variant for verdict in new if verdict.ratio is not None}
            found = [one for one in found if one.ratio is not None or one.variant not in mended]
        found += new
    return iter(found)


def _honest(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """One verdict a variant, workload and comparison, the last one; correctness before speed."""
    wrong = {verdict.variant for verdict in verdicts if verdict.verdict in ("incorrect", "invalid")}
    kept = [verdict for verdict in verdicts if verdict.ratio is None or verdict.variant not in wrong]
    return tuple({(verdict.variant, verdict.workload, verdict.against): verdict for verdict in kept}.values())


def session_status(finished: Iterable[Finished], verdicts: Sequence[Verdict]) -> tuple[Status, str]:
    """How the session ended and why, in one line: failed before aborted before paused before passed."""
    steps = latest_attempts(finished)
    for verdict in verdicts:
        if verdict.verdict in ("incorrect", "invalid"):
            return "failed", f"{verdict.variant} is {verdict.verdict}: {verdict.reason}"
        if verdict.verdict == "slower" and verdict.against == "known_good":
            beside = [one for one in verdicts if (one.variant, one.against) == (verdict.variant, "known_good")]
            slower = sum(verdict.verdict == "slower" for verdict in beside)
            where = f"{slower} of {len(beside)} workloads" if len(beside) > 1 else verdict.workload
            return "failed", f"{verdict.variant} is slower than the known good on {where}"
    return _step_status(steps)


def _step_status(steps: Sequence[Finished]) -> tuple[Status, str]:
    endings: tuple[Status, ...] = ("failed", "aborted", "paused")
    for status in endings:
        for record in steps:
            if record.status == status:
                return status, f"{record.pattern}/{record.step}: {record.message}"
    passed = sum(record.status == "passed" for record in steps)
    if passed:
        return "passed", "the one step that ran passed" if passed == 1 else f"all {passed} steps that ran passed"
    return ("skipped", "every step was skipped") if steps else ("aborted", "no step has ended")


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
    for one in (
        measurement
        for output in outputs
        for measurement in output.measurements
        if measurement.against == "baseline"
    ):
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
    return [
        measurement for measurement in measurements if (measurement.variant, measurement.workload.name) in known
    ]


def _ratio(measurement: Measurement) -> str:
    low, high = measurement.interval
    return f"{times(measurement.ratio)} [{plain_ratio(low)}, {plain_ratio(high)}]"


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
    every = {build.build_id: build for output in outputs for build in output.builds}.values()
    builds = [build for build in every if build.compiled]
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


def where_to_begin(finished: Sequence[Finished], variant: str | None, files: Sequence[str]) -> str:
    """Where to look for what is wrong with a variant; empty where nothing is wrong.

    From the smallest failing workload on where that was looked for, else from the first. `files`: its sources.
    """
    checked = [one for output in outputs_of(finished, VerifyOutput) for one in output.variants]
    failures = [one.first_failure for one in checked if one.variant == variant and one.first_failure]
    smallest = [case for output in outputs_of(finished, SmallestOutput) for case in output.smallest]
    if variant is None or not failures:
        return ""
    where = f"Look in {', '.join(files)}: " if files else ""
    for one in smallest:
        if one.variant == variant:
            return f"{where}{one_line(one.check.message)}"
    return f"{where}{one_line(failures[0].message)}"


def one_line(text: str) -> str:
    """A proposal's lines after the first are commands: nothing else may begin a line."""
    return " ".join(text.split()).rstrip(".")
