"""Can a timing be trusted? Suspicious ones become `invalid` verdicts, which carry no speed."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from statistics import median_low
from typing import NamedTuple

from loop.base.processes import Tick
from loop.base.stats import median
from loop.machine.gpus import gpus
from loop.model.dtypes import Dtype
from loop.model.measurement import BASELINE, Check, Measurement, Segment
from loop.model.profile import DeviceFacts
from loop.model.verdict import Against, NoSpeedVerdict
from loop.model.workloads import count_operations, evaluate_work, tensor_bytes
from loop.timing import samples
from loop.timing.samples import MIN_ROUNDS, MemoryProbe, Pair, Timings
from loop.timing.verdicts import invalid_verdict
from loop.workers.bench import Bench
from loop.workers.judge_process import CallWay

EMPTY_SLACK, KERNEL_SLACK = 2.0, 1.25
"""An empty call may be this much faster than measured, if the clock has risen (CPU, GPU). An H200
needs 0.521 to 0.524 us for an empty kernel in a graph, 0.99 us for the smallest real one."""
LEAST_CALL_S = 2e-9
"""Shortest possible call of a function that does nothing, with its return: ten cycles at 5 GHz."""
SPARSE_SLACK = 2.0
"""A GPU's matrix units skip half of a structured sparse product."""
GPU_SLACK = 1.2
"""For boards faster than their driver says. An H200 reaches 0.97 of its memory, 0.35 of its L2."""
L2_BYTES_PER_CYCLE = 64
"""Bytes from L2 to one multiprocessor per cycle (NVIDIA's tuning guides, sm_70 to sm_90)."""

KINDS: dict[Dtype, int] = {"float16": 0, "bfloat16": 0, "float32": 1, "float64": 2}
"""Element type to its column in `PER_CYCLE`."""
PER_CYCLE: dict[str, tuple[int, int, int]] = {
    "7.0": (1024, 128, 64),
    "7.2": (1024, 128, 64),
    "7.5": (1024, 128, 32),
    "8.0": (2048, 1024, 128),
    "8.6": (1024, 512, 128),
    "8.7": (2048, 1024, 128),
    "8.9": (1024, 512, 128),
    "9.0": (4096, 2048, 256),
    "10.0": (8192, 4096, 1024),
    "10.3": (8192, 4096, 1024),
    "12.0": (1024, 512, 128),
    "12.1": (1024, 512, 128),
}
"""Dense operations per cycle of a multiprocessor, by compute capability: 2-byte, float32, float64.

From the peaks in NVIDIA's architecture papers, over multiprocessors and boost clock: V100 125
TFLOP/s, T4 65, A100 312, A40 150, L40S 362, H200 989, B200 2250, RTX 5090 419. From Ampere on,
float32 is TF32. float64 allows for products emulated with integers."""
TRIES = 5
"""Times that an empty call is measured again before a timing is called impossible."""
WAYS: dict[str, CallWay] = {"c_abi": "c_abi", "python": "python"}
SAID: dict[CallWay, str] = {"c_abi": "through C", "python": "from Python", "kernel": "as a kernel in a CUDA graph"}


class Ceiling(NamedTuple):
    """A hardware limit in operations or bytes a second, the slack allowed above it, its source."""

    per_s: float
    slack: float
    source: str

    @property
    def most(self) -> float:
        """The rate above which a claim is impossible."""
        return self.per_s * self.slack


def below_empty_call(seconds: float, empty_s: float, way: str, slack: float = EMPTY_SLACK) -> str:
    """Why a call cannot be this short: an empty one, made alike, takes longer. Empty if it can."""
    if seconds * slack >= empty_s:
        return ""
    empty = f"where a call that does nothing takes {empty_s * 1e6:.3g} us ({way})"
    return f"faster than an empty call: {seconds * 1e6:.3g} us, {empty}"


def beyond_memory(seconds: float, moved: float, whose: str, roof: Ceiling) -> str:
    """Why a call cannot be so short: no memory moves its bytes in that time. Empty where it can.

    `moved`: bytes that one call cannot avoid to move; `whose`: who says so, as in `the manifest's bytes`.
    """
    rate = moved / seconds
    if rate <= roof.most:
        return ""
    claim = f"{moved / 1e6:.3g} MB ({whose}) in {seconds * 1e6:.3g} us are {rate / 1e9:.0f} GB/s"
    return f"faster than memory: {claim}, where {roof.per_s / 1e9:.0f} GB/s are {roof.source}"


def beyond_arithmetic(flops_per_s: float | None, roof: Ceiling | None) -> str:
    """Why a time cannot be true: it needs more operations a second than the device has. Empty where it can."""
    if roof is None or flops_per_s is None or flops_per_s <= roof.most:
        return ""
    claim = f"{flops_per_s / 1e9:.0f} counted GFLOP/s"
    return f"faster than the device: {claim} where at most {roof.most / 1e9:.0f} are possible ({roof.source})"


def gpu_arithmetic(capability: str, gpu: DeviceFacts, dtype: Dtype) -> Ceiling | None:
    """The roof of a GPU by its generation, as in `9.0`; None for one that is not known."""
    if capability not in PER_CYCLE or not gpu.sms or not gpu.clock_hz:
        return None
    rate = PER_CYCLE[capability][KINDS[dtype]] * gpu.sms * gpu.clock_hz
    return Ceiling(rate, SPARSE_SLACK, f"{gpu.sms} multiprocessors of compute capability {capability}")


def beyond_gpu_memory(seconds: float, moved: float, whose: str, gpu: DeviceFacts) -> str:
    """The same for a GPU: what its L2 cannot hold comes from memory, and everything goes through the L2."""
    outside, objection = moved - gpu.l2_bytes, ""
    if gpu.bytes_per_s and gpu.l2_bytes and outside > 0:
        source = f"what its memory gives, beyond {gpu.l2_bytes / 2**20:.0f} MiB in its L2"
        objection = beyond_memory(seconds, outside, whose, Ceiling(gpu.bytes_per_s, GPU_SLACK, source))
    if not objection and gpu.sms and gpu.clock_hz:
        cache = Ceiling(gpu.sms * gpu.clock_hz * L2_BYTES_PER_CYCLE, GPU_SLACK, "what its L2 gives")
        objection = beyond_memory(seconds, moved, whose, cache)
    return objection


def why_impossible(bench: Bench, measurement: Measurement, kind: str) -> Generator[Tick, None, str]:
    """Why a measurement cannot be true; empty if it can. `kind`: of the call, as in `c_abi`."""
    seconds, workload, target = measurement.candidate_us * 1e-6, measurement.workload, bench.target
    objection = ""
    if kind in WAYS:  # Programs have no measured empty call.
        way: CallWay = "kernel" if bench.device == "cuda" else WAYS[kind]
        slack = KERNEL_SLACK if way == "kernel" else EMPTY_SLACK
        for number in range(1 + TRIES):
            floors = yield from bench.measure_floors(is_repeated=number > 0)
            objection = below_empty_call(seconds, floors.call_s_by_way.get(way, 0.0), SAID[way], slack)
            if not objection:
                break
    gpu = gpus().first if bench.device == "cuda" else None
    if gpu:
        stated = bench.gpu.flops_per_s.get(workload.dtype) if bench.gpu else None
        peak = gpu_arithmetic(gpu.capability, gpu.facts, workload.dtype)
        if bench.gpu and stated:  # The manifest's peak, at the best clock.
            peak = Ceiling(stated, 1.0, bench.gpu.source)
        objection = objection or beyond_arithmetic(measurement.flops_per_s, peak)
        moved, whose = evaluate_work(target.bytes, workload), "the manifest's `bytes`"
        if moved is None:
            sizes, whose = tensor_bytes(target, workload), "its output"
            moved = sum(sizes.get(name, 0) for name in target.signature.outputs)
        objection = objection or beyond_gpu_memory(seconds, moved, whose, gpu.facts)
    return objection or below_empty_call(seconds, LEAST_CALL_S, "on any processor", slack=1.0)


REMEMBERS = 2.0
"""A call on values already seen may be faster, because they are cached, but not by this factor."""
LEAST_GAIN_S = 3e-6
"""Smaller differences come from the clock."""
DEFERS, DEFERS_S = 5.0, 20e-6
"""A call defers work if its rest takes this many times its own time, and at least this."""
LAG_SHARE, LAG_S = 0.04, 60e-6
"""By our clock a sample may take longer than by the device's: by this share, and this much."""


def doubts(
    bench: Bench, timings: Timings, measured: Sequence[Measurement], pairs: Sequence[Pair]
) -> Generator[Tick, None, tuple[NoSpeedVerdict, ...]]:
    """At most one verdict without a speed for each variant and workload: the first doubt found."""
    verdicts = yield from every_doubt(bench, timings, measured, pairs)
    return tuple({(verdict.variant, verdict.workload): verdict for verdict in reversed(verdicts)}.values())[::-1]


def every_doubt(
    bench: Bench, timings: Timings, measured: Sequence[Measurement], pairs: Sequence[Pair]
) -> Generator[Tick, None, list[NoSpeedVerdict]]:
    """A verdict for each doubt: wrong output, cached result, clock, impossible speed, throttling."""
    lying: dict[str, str] = {}
    if any(map(clock_lies, timings.clock_pairs.values())):  # Measure this GPU's own lag before accusing.
        usual_s = yield from bench.measure_gpu_lag_s()
        lying = {side: clock_lies(lags, usual_s) for side, lags in timings.clock_pairs.items()}
    against, names = pairs[0].against, {pair.candidate.name: pair.variant for pair in pairs}
    verdicts = [
        *wrong_while_timed(timings.wrong_outputs, against, names),
        *_noticed(timings, against, names, lying),
    ]
    kinds = {(pair.variant, pair.against): str(pair.candidate.kind) for pair in pairs}
    for measurement in sorted(measured, key=lambda each: -count_operations(bench.target, each.workload)):
        key = (measurement.variant, measurement.against)
        if reason := (yield from why_impossible(bench, measurement, kinds.get(key, ""))):
            place = measurement.workload.name
            verdicts.append(invalid_verdict(measurement.variant, place, measurement.against, "impossible", reason))
    for name in dict.fromkeys(segment.workload for segment in timings.segments):
        segments = timings.segments_of(name)
        for pair in pairs:
            why = samples.explain_gpu_slowdown(segments, *pair.side_names)
            if why and len(samples.log_ratios(segments, *pair.side_names)) < MIN_ROUNDS:
                verdicts.append(invalid_verdict(pair.variant, name, pair.against, "held back", why))
    return verdicts


def _noticed(
    timings: Timings, against: Against, names: Mapping[str, str], lying: Mapping[str, str]
) -> Iterator[NoSpeedVerdict]:
    """Doubts of each side. `names`: side to its variant; `lying`: side to its clock's fault."""
    remembering = {place: remembers_results(probes) for place, probes in timings.memory_probes.items()}
    for (side, workload), reason in remembering.items():
        # If the baseline shows it too, the machine is the cause.
        if reason and side in names and (side == BASELINE or not remembering.get((BASELINE, workload))):
            yield invalid_verdict(names[side], workload, against, "remembers", reason)
    for side, variant in names.items():
        places = list(dict.fromkeys(segment.workload for segment in timings.segments if segment.side == side))
        if places and lying.get(side):
            yield invalid_verdict(variant, places[0], against, "clock", lying[side])
        for workload in places:
            own = [segment for segment in timings.segments_of(workload) if segment.side == side]
            if reason := defers_work(own):
                yield invalid_verdict(variant, workload, against, "defers", reason)
            # The variant is stopped while other sides are timed. So if they are disturbed, the machine is busy,
            # and slow verified calls prove nothing.
            busy = samples.warn_of_other_programs(
                segment for segment in timings.segments_of(workload) if segment.side != side
            )
            if not busy and (reason := unproven(timings.unproven_times_s(side, workload))):
                yield invalid_verdict(variant, workload, against, "foresees", reason)


def remembers_results(probes: Sequence[MemoryProbe]) -> str:
    """Why a variant seems to cache results; empty if it does not. `probes`: one for each process.

    More than half of the processes that had a core to themselves have to show it, because even
    these may be interrupted. If no process had a core to itself, all have to show it.
    """
    if not probes:
        return ""
    clean = [probe for probe in probes if probe.is_undisturbed]
    by_gain = sorted(clean or probes, key=lambda probe: probe.new_values_s / max(probe.repeated_values_s, 1e-9))
    fresh_s, again_s, _ = by_gain[(len(clean) - 1) // 2 if clean else 0]
    if fresh_s < REMEMBERS * again_s or fresh_s - again_s < LEAST_GAIN_S:
        return ""
    fresh, again = f"{fresh_s * 1e6:.1f} us on values it had not seen", f"{again_s * 1e6:.1f} us on the same again"
    return f"it remembers results: {fresh}, {again}"


def unproven(times: tuple[float, float] | None) -> str:
    """Why a side's timed calls prove nothing; empty for None. `times`: from `Timings.unproven`."""
    if times is None:
        return ""
    usual_s, judged_s = times
    calls = f"took {judged_s * 1e6:.1f} us or more, the others {usual_s * 1e6:.1f} us"
    return f"nothing shows that it computes while it is timed: calls whose results were looked at {calls}"


def clock_lies(lags: Sequence[tuple[float, float]], usual_s: float = 0.0) -> str:
    """Why a device's clock is wrong; empty if it is right.

    `lags`: seconds of samples by our clock and by the device's; `usual_s`: by which ours is longer
    for empty kernels. Three of four samples have to show it: the system may interrupt one.
    """
    if not lags:
        return ""
    excess = sorted(ours_s - own - LAG_SHARE * ours_s - LAG_S - usual_s for ours_s, own in lags)
    if excess[len(excess) // 4] <= 0:
        return ""
    ours_s, own = (median([pair[side] for pair in lags]) * 1e3 for side in (0, 1))
    clocks = f"samples took {ours_s:.2f} ms, and {own:.2f} ms by the events of the stream"
    return f"its clock was changed, or it works on another stream: {clocks}"


def defers_work(segments: Sequence[Segment]) -> str:
    """Why a side seems to compute only when its result is read; empty if it does not.

    More than half of its segments have to show it, because the system may interrupt a single one.
    `left_s`: from the return of a call until its result is there.
    """
    timed = [segment for segment in segments if segment.seconds]
    if not timed:
        return ""
    left_s = median_low([segment.left_s for segment in timed])
    call_s = median_low([median(segment.seconds) - segment.left_s for segment in timed])
    if left_s < DEFERS * call_s or left_s < DEFERS_S:
        return ""
    calls = f"{call_s * 1e6:.1f} us until a call returned, {left_s * 1e6:.1f} us more until its result was there"
    return f"it computes when its result is looked at: {calls}"


def wrong_while_timed(
    outputs: Iterable[tuple[str, Check]], against: Against, names: Mapping[str, str]
) -> Iterator[NoSpeedVerdict]:
    """A verdict for each timed output that was wrong; `names`: side to its variant."""
    for side, check in outputs:
        yield NoSpeedVerdict(
            variant=names.get(side, side),
            workload=check.workload.name,
            against=against,
            verdict="invalid" if check.status == "tampered" else "incorrect",
            cause=check.cause,
            reason=f"while it was timed: {check.message}",
        )
