"""Time the variants that passed verification against the baseline."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Annotated

from pydantic import Field

from loop.base.stats import geometric_mean, median, times
from loop.gate.kernel import workloads
from loop.gate.verification import untaken_workloads
from loop.model.base import Model
from loop.model.measurement import BASELINE, Segment, SideSensors
from loop.model.output import MeasureOutput, outputs_of
from loop.model.record import Finished
from loop.model.verdict import SpeedVerdict, Verdict
from loop.report import format as say
from loop.steps.context import Context, Result, RunningAction
from loop.timing import schedule
from loop.timing.doubts import doubts
from loop.timing.readiness import hold_device, ready_variants, warnings, with_warnings
from loop.timing.samples import EMPTY_CALL_NAMES, Pair, Terms, log_ratios
from loop.timing.verdicts import by_interval, confidence, measurements, noise_between_rounds, tally_words
from loop.workers.bench import fit_workloads


def call_lines(output: MeasureOutput) -> Iterator[str]:
    """Report lines: how each side is called, and how long empty calls take."""
    if output.called:
        yield "called: " + "; ".join(f"{side}: {way}" for side, way in output.called.items())
    if output.empty_us:
        yield "an empty call: " + ", ".join(f"{way} {say.latency(us)}" for way, us in output.empty_us.items())


def sensed_clocks(segments: Sequence[Segment]) -> tuple[SideSensors, ...]:
    """The GPU's clocks and throttling while each side was timed, in timing order."""
    sides = []
    for name in dict.fromkeys(segment.side for segment in segments if segment.sensors):
        own = [segment.sensors for segment in segments if segment.side == name and segment.sensors]
        clocks = sorted(r.sm_clock_mhz for readings in own for r in readings if r.sm_clock_mhz is not None)
        reasons = Counter(word for readings in own for word in {word for r in readings for word in r.throttle})
        sides.append(
            SideSensors(
                side=name,
                segments=len(own),
                sm_clock_mhz=(clocks[0], round(median(clocks)), clocks[-1]) if clocks else None,
                throttled=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
            )
        )
    return tuple(sides)


def sensor_lines(finished: Sequence[Finished], baseline: str) -> tuple[str, ...]:
    """A line for each side on a GPU: `plain: 1980 MHz (1755 to 1980), no throttling told`."""
    lines = []
    for sensors in (sensors for output in outputs_of(finished, MeasureOutput) for sensors in output.sensors):
        clock, throttled = "clock unknown", "no throttling told"
        if sensors.sm_clock_mhz is not None:
            least, middle, most = sensors.sm_clock_mhz
            clock = f"{middle} MHz" if least == most else f"{middle} MHz ({least} to {most})"
        if sensors.throttled:
            reasons = say.listed_words([f"{reason} in {number}" for reason, number in sensors.throttled.items()])
            throttled = f"held back: {reasons} of {say.count(sensors.segments, 'segment')}"
        name = baseline if sensors.side == "baseline" else sensors.side
        lines.append(f"{name}: {clock}, {throttled}")
    return tuple(lines)


ROUNDS_SHARE = 0.95
"""Share of the step's time for the rounds; the rest is for the checks in `doubts`."""

DEFAULT_ROUNDS: Mapping[str, int] = {"cpu": 5, "cuda": 8}
"""Default rounds by device. On a GPU, starting a process takes longer than several rounds."""


class MeasureTerms(Model):
    """How many rounds `kernel.measure` times."""

    rounds: Annotated[int, Field(ge=2, le=100)] | None = None
    """Rounds, if the step's budget allows. Default: 5 on a CPU, 8 on a GPU."""


def measure(context: Context, arguments: MeasureTerms) -> RunningAction[MeasureOutput]:
    """Time the baseline and every verified variant, alternating, in fresh processes."""
    state = yield from ready_variants(context)
    unmeasured = tuple(
        f"speed of {name}: it was not found right" for name in context.task.variants if name not in state.right
    )
    if state.builds is None:
        message = f"nothing to measure: {state.why_not}"
        return Result(MeasureOutput(ok=False, message=message, hint=state.hint, not_exercised=unmeasured))
    bench = context.bench
    sides = [bench.make_side(name, state.builds.get(name)) for name in state.right]
    rounds, baseline = arguments.rounds or DEFAULT_ROUNDS[bench.device], bench.make_side(BASELINE)
    terms = Terms(rounds, ROUNDS_SHARE * context.budget_s, context.task.seed)
    with ExitStack() as stack:
        shared = yield from hold_device(bench, stack)
        all_sides = [baseline, *sides]
        fitting = fit_workloads(
            bench, workloads(context, context.task.plan.workloads), all_sides, with_windows=True
        )
        pairs = [Pair(side, side.name, BASELINE, "baseline") for side in sides]
        timings = yield from schedule.measure(bench, all_sides, fitting.workloads, terms)
        warning_texts = warnings(bench, shared, timings)
        confidence_level = confidence(max(1, len(pairs) * len(fitting.workloads)))
        all_measurements = measurements(bench.target, pairs, fitting.workloads, timings, confidence_level)
        control = Pair(baseline, BASELINE, BASELINE, "baseline")
        doubt_verdicts = yield from doubts(bench, timings, all_measurements, [*pairs, control])
    # A doubted variant gets no speed; with a doubted baseline, no variant gets one.
    doubted_variants = {verdict.variant for verdict in doubt_verdicts}
    trusted_measurements = [
        measurement for measurement in all_measurements if not doubted_variants & {measurement.variant, BASELINE}
    ]
    verdicts: tuple[Verdict, ...] = (*doubt_verdicts, *map(by_interval, trusted_measurements))
    floors = timings.floors.call_s_by_way if timings.floors else {}
    output = MeasureOutput(
        ok=bool(fitting.workloads) and not doubt_verdicts,
        message=with_warnings(fitting.extend_message(_describe(verdicts)), warning_texts),
        verdicts=verdicts,
        not_exercised=(
            *unmeasured,
            *(f"speed on {text}" for text in fitting.exclusions),
            *(
                f"speed of {side.name} on {text}"
                for side in sides
                for text in untaken_workloads(side, fitting.workloads)
            ),
            *bench.notes,
        ),
        measurements=all_measurements,
        rounds=timings.rounds,
        called=timings.call_descriptions,
        empty_us={EMPTY_CALL_NAMES[way]: seconds * 1e6 for way, seconds in floors.items()},
        outputs=timings.checked_outputs,
        threads=bench.threads,
        block_sd=noise_between_rounds(
            log_ratios(timings.segments_of(w.name), *p.side_names) for p in pairs for w in fitting.workloads
        ),
        warnings=warning_texts,
        sensors=sensed_clocks(timings.segments),
    )
    return Result(output, samples={"measure": timings.segments})


def _describe(verdicts: Sequence[Verdict]) -> str:
    """Summarise verdicts in one line, with a mean ratio where every workload has a clear one."""
    bad = [verdict for verdict in verdicts if not isinstance(verdict, SpeedVerdict)]
    if bad:
        others = {verdict.variant: verdict.verdict for verdict in bad if verdict.variant != bad[0].variant}
        too = "".join(f"; {name} is {verdict} too" for name, verdict in others.items())
        return f"{bad[0].variant} is {bad[0].verdict}: {bad[0].reason}{too}"
    by_variant: dict[str, list[SpeedVerdict]] = {}
    for verdict in verdicts:
        if isinstance(verdict, SpeedVerdict):
            by_variant.setdefault(verdict.variant, []).append(verdict)
    texts = []
    for name, mine in by_variant.items():
        mean = times(geometric_mean([verdict.ratio for verdict in mine]))
        unclear = any(verdict.verdict == "inconclusive" for verdict in mine)
        ratio = "" if unclear else f", {mean} the baseline's speed"
        texts.append(f"{name} {tally_words(mine)} of {len(mine)}{ratio}")
    return "; ".join(texts)
