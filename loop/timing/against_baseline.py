"""Time the variants that passed verification against the baseline."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import geometric_mean, median
from typing import Annotated

from pydantic import Field

from loop.gate.kernel import describe_untaken_workloads, workloads
from loop.model.base import Model
from loop.model.measurement import BASELINE, Segment, SideSensors, SpeedVerdict, Verdict
from loop.model.output import MeasureOutput, outputs_of
from loop.model.record import Finished
from loop.report import format as say
from loop.steps.context import Context, Result, RunningAction
from loop.timing import schedule
from loop.timing.doubts import find_doubts
from loop.timing.readiness import disturbance_warnings, hold_device, ready_variants
from loop.timing.samples import EMPTY_CALL_NAMES, ROUNDS_SHARE, Limits, Pair
from loop.timing.verdicts import by_interval, confidence, measurements, tally_words
from loop.workers.bench import fit_workloads


def call_lines(output: MeasureOutput) -> Iterator[str]:
    """Report lines: how each side is called, and how long empty calls take."""
    if output.called:
        yield "called: " + "; ".join(f"{side}: {text}" for side, text in output.called.items())
    if output.empty_us:
        latencies = [f"{way} {say.latency(us)}" for way, us in output.empty_us.items()]
        yield f"an empty call: {', '.join(latencies)}"


def sensed_clocks(segments: Sequence[Segment]) -> tuple[SideSensors, ...]:
    """The GPU's clocks while each side was timed, and in how many segments it throttled for which
    reason; in timing order. Segments without sensor readings do not count: on a CPU it is empty."""
    sensed, sides = [segment for segment in segments if segment.sensors], list[SideSensors]()
    for side in dict.fromkeys(segment.side for segment in sensed):
        readings = [s.sensors for s in sensed if s.side == side and s.sensors]
        all_mhz = [reading.sm_clock_mhz for ends in readings for reading in ends]
        clocks = [mhz for mhz in all_mhz if mhz is not None]
        throttled = Counter[str]()
        for before, after in readings:
            throttled.update({*before.throttle, *after.throttle})
        counts = dict(sorted(throttled.items(), key=lambda item: (-item[1], item[0])))
        mhz = (min(clocks), round(median(clocks)), max(clocks)) if clocks else None
        sensors = SideSensors(side=side, segments=len(readings), sm_clock_mhz=mhz, throttled=counts)
        sides.append(sensors)
    return tuple(sides)


def sensor_lines(finished: Sequence[Finished], baseline: str) -> tuple[str, ...]:
    """A line for each side on a GPU: `plain: 1980 MHz (1755 to 1980), no throttling told`."""
    lines = []
    outputs = outputs_of(finished, MeasureOutput)
    for sensors in itertools.chain(*(output.sensors for output in outputs)):
        clock, throttling = "clock unknown", "no throttling told"
        if sensors.sm_clock_mhz is not None:
            low, middle, high = sensors.sm_clock_mhz
            clock = f"{middle} MHz" if low == high else f"{middle} MHz ({low} to {high})"
        if sensors.throttled:
            counts = [f"{reason} in {count}" for reason, count in sensors.throttled.items()]
            reasons = say.listed_words(counts)
            throttling = f"held back: {reasons} of {say.count(sensors.segments, 'segment')}"
        name = baseline if sensors.side == BASELINE else sensors.side
        lines.append(f"{name}: {clock}, {throttling}")
    return tuple(lines)


DEFAULT_ROUNDS: Mapping[str, int] = {"cpu": 5, "cuda": 8}  # A GPU's processes start slowly.


class MeasureTerms(Model):
    """How many rounds `kernel.measure` times."""

    rounds: Annotated[int, Field(ge=2, le=100)] | None = None
    """Rounds, if the step's budget allows. Default: 5 on a CPU, 8 on a GPU."""


def measure(context: Context, arguments: MeasureTerms) -> RunningAction[MeasureOutput]:
    """Time the baseline and every verified variant, alternating, in fresh processes.
    Fails if a timing is doubted, or if no workload fits into memory; being slower fails nothing."""
    state = yield from ready_variants(context)
    wrong_names = [name for name in context.task.variants if name not in state.right]
    not_exercised = [f"speed of {name}: it was not found right" for name in wrong_names]
    if state.builds is None:
        message = f"nothing to measure: {state.why_not}"
        skipped = tuple(not_exercised)
        output = MeasureOutput(ok=False, message=message, hint=state.hint, not_exercised=skipped)
        return Result(output)
    bench = context.bench
    sides = [bench.make_side(name, state.builds.get(name)) for name in state.right]
    rounds, baseline = arguments.rounds or DEFAULT_ROUNDS[bench.device], bench.make_side(BASELINE)
    limits = Limits(rounds, ROUNDS_SHARE * context.budget_s, context.task.seed)
    pairs = [Pair(side, BASELINE, "baseline") for side in sides]
    with ExitStack() as stack:
        lock_warning = yield from hold_device(bench, stack)
        planned = workloads(context, context.task.plan.workloads)
        fitting = fit_workloads(bench, planned, [baseline, *sides], with_windows=True)
        timed = fitting.workloads
        timings = yield from schedule.measure(bench, [baseline, *sides], timed, limits)
        warning_texts = disturbance_warnings(bench, lock_warning, timings)
        level = confidence(max(1, len(pairs) * len(timed)))
        measured = measurements(bench.target, pairs, timed, timings, level)
        control = Pair(baseline, BASELINE, "baseline")
        doubts = yield from find_doubts(bench, timings, measured, [*pairs, control])
    # A doubted variant gets no speed; with a doubted baseline, no variant gets one.
    doubted = {verdict.variant for verdict in doubts}
    trusted = [m for m in measured if BASELINE not in doubted and m.variant not in doubted]
    verdicts: tuple[Verdict, ...] = (*doubts, *map(by_interval, trusted))
    empty_s_by_way = timings.floors.call_s_by_way if timings.floors else {}
    not_exercised += [f"speed on {text}" for text in fitting.exclusions]
    for side in sides:
        untaken = describe_untaken_workloads(side, timed)
        not_exercised += [f"speed of {side.name} on {text}" for text in untaken]
    sentences = [fitting.extend_message(_summarise_verdicts(verdicts))]
    sentences += [f"warning: {text}" for text in warning_texts]
    output = MeasureOutput(
        ok=bool(timed) and not doubts,
        message="; ".join(sentences),
        verdicts=verdicts,
        not_exercised=(*not_exercised, *bench.notes),
        measurements=measured,
        rounds=timings.rounds,
        called=timings.call_descriptions,
        empty_us={EMPTY_CALL_NAMES[way]: s * 1e6 for way, s in empty_s_by_way.items()},
        outputs=timings.checked_outputs,
        threads=bench.threads,
        warnings=warning_texts,
        sensors=sensed_clocks(timings.segments),
    )
    return Result(output, samples={"measure": timings.segments})


def _summarise_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Verdicts in one line, with mean ratios and what is undecided; or variants without a speed."""
    speeds = [verdict for verdict in verdicts if isinstance(verdict, SpeedVerdict)]
    without_speed = [verdict for verdict in verdicts if not isinstance(verdict, SpeedVerdict)]
    if without_speed:
        first = without_speed[0]
        others = {v.variant: v.verdict for v in without_speed if v.variant != first.variant}
        others_text = "".join(f"; {variant} is {word} too" for variant, word in others.items())
        return f"{first.variant} is {first.verdict}: {first.reason}{others_text}"
    summaries = []
    for variant in dict.fromkeys(speed.variant for speed in speeds):
        own_speeds = [speed for speed in speeds if speed.variant == variant]
        undecided = [speed for speed in own_speeds if speed.verdict == "inconclusive"]
        mean = say.speedup_text(geometric_mean([speed.ratio for speed in own_speeds]))
        detail = f" ({undecided[0].reason})" if undecided else f", {mean} the baseline's speed"
        summaries.append(f"{variant} {tally_words(own_speeds)} of {len(own_speeds)}{detail}")
    return "; ".join(summaries)
