"""Can a timing be trusted? Suspicious ones become `invalid` verdicts, which carry no speed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median, median_low

from loop.base.processes import Waiting
from loop.machine.machine import detect_gpus
from loop.model.dtypes import Dtype
from loop.model.measurement import BASELINE, Against, Measurement, NoSpeedVerdict, Segment
from loop.model.profile import DeviceFacts
from loop.model.workloads import count_operations, evaluate_work, tensor_bytes
from loop.timing import samples
from loop.timing.readiness import describe_gpu_use
from loop.timing.samples import EMPTY_CALL_NAMES, MIN_ROUNDS, MemoryProbe, Pair, Timings
from loop.timing.verdicts import invalid_verdict
from loop.workers.bench import Bench, VariantKind
from loop.workers.program import CallWay

EMPTY_SLACK, KERNEL_SLACK = 2.0, 1.25
"""An empty call may be this much faster than measured, if the clock has risen (CPU, GPU). An H200
needs 0.521 to 0.524 us for an empty kernel in a graph, 0.99 us for the smallest real one."""
LEAST_CALL_S = 2e-9  # Shortest call of a function that does nothing: ten cycles at 5 GHz.
SPARSE_SLACK = 2.0  # A GPU's matrix units skip half of a structured sparse product.
GPU_SLACK = 1.2  # For boards faster than their driver says; an H200 reaches 0.97 of its memory.
L2_BYTES_PER_CYCLE = 64  # From L2 to a multiprocessor (NVIDIA's tuning guides, sm_70 to sm_90).
RATE_COLUMN: dict[Dtype, int] = {"float16": 0, "bfloat16": 0, "float32": 1, "float64": 2}
"""Element type to its column in `OPERATIONS_PER_CYCLE`."""
OPERATIONS_PER_CYCLE: dict[str, tuple[int, int, int]] = {
    "7.0": (1024, 128, 64), "7.2": (1024, 128, 64), "7.5": (1024, 128, 32),
    "8.0": (2048, 1024, 128), "8.6": (1024, 512, 128), "8.7": (2048, 1024, 128),
    "8.9": (1024, 512, 128), "9.0": (4096, 2048, 256), "10.0": (8192, 4096, 1024),
    "10.3": (8192, 4096, 1024), "12.0": (1024, 512, 128), "12.1": (1024, 512, 128),
}  # fmt: skip
"""Dense operations per cycle of a multiprocessor, by compute capability: 2-byte, float32, float64.
From the peaks in NVIDIA's architecture papers, over multiprocessors and boost clock: V100 125
TFLOP/s, T4 65, A100 312, A40 150, L40S 362, H200 989, B200 2250, RTX 5090 419. From Ampere on,
float32 is TF32. float64 allows for products emulated with integers."""
FLOOR_TRIES = 5  # Times that an empty call is measured again before a timing is called impossible.


def explain_below_empty_call(seconds: float, empty_s: float, way_text: str, slack: float) -> str:
    """Why a call cannot take `seconds`: an empty one, made alike, takes longer. Empty if it can.
    `way_text`: what is called, in words; `slack`: factor by which a call may be faster."""
    if seconds * slack >= empty_s:
        return ""
    empty = f"where a call that does nothing takes {empty_s * 1e6:.3g} us ({way_text})"
    return f"faster than an empty call: {seconds * 1e6:.3g} us, {empty}"


def highest_flops_per_s(capability: str, gpu: DeviceFacts, dtype: Dtype) -> float | None:
    """A rate of operations that no GPU of a compute capability (`9.0`) exceeds; None: unknown."""
    if capability not in OPERATIONS_PER_CYCLE or not gpu.sms or not gpu.clock_hz:
        return None
    operations_per_cycle = OPERATIONS_PER_CYCLE[capability][RATE_COLUMN[dtype]]
    return operations_per_cycle * gpu.sms * gpu.clock_hz * SPARSE_SLACK


def explain_beyond_gpu_memory(seconds: float, nbytes: float, source: str, gpu: DeviceFacts) -> str:
    """Why a GPU cannot move the bytes (by `source`) in `seconds`; empty if it can, or without its
    rates (0). All pass through its L2 cache; what that cannot hold also comes from its memory."""
    memory_bytes_per_s = gpu.bytes_per_s if gpu.l2_bytes else 0.0
    l2_bytes_per_s = gpu.sms * gpu.clock_hz * L2_BYTES_PER_CYCLE
    beyond_l2 = f"what its memory gives, beyond {gpu.l2_bytes / 2**20:.0f} MiB in its L2"
    for size, most_per_s, giver in (
        (nbytes - gpu.l2_bytes, memory_bytes_per_s, beyond_l2),
        (nbytes, l2_bytes_per_s, "what its L2 gives"),
    ):
        if most_per_s and size / seconds > most_per_s * GPU_SLACK:
            claim = f"{size / 1e6:.3g} MB ({source}) in {seconds * 1e6:.3g} us"
            rate, limit = f"{size / seconds / 1e9:.0f} GB/s", f"{most_per_s / 1e9:.0f} GB/s"
            return f"faster than memory: {claim} are {rate}, where {limit} are {giver}"
    return ""


def explain_impossible_speed(bench: Bench, timing: Measurement, kind: VariantKind) -> Waiting[str]:
    """Why a measured call cannot be so short; empty if it can. Compares it with an empty call (not
    a program's), timed again up to `FLOOR_TRIES` times, and with a GPU's arithmetic and memory."""
    seconds, workload, target = timing.candidate_us * 1e-6, timing.workload, bench.target
    if kind != "command":  # Programs have no measured empty call.
        way: CallWay = "kernel" if bench.device == "cuda" else kind
        slack = KERNEL_SLACK if way == "kernel" else EMPTY_SLACK
        for number in range(1 + FLOOR_TRIES):
            floors = yield from bench.measure_floors(is_repeated=number > 0)
            empty_s = floors.call_s_by_way.get(way, 0.0)
            objection = explain_below_empty_call(seconds, empty_s, EMPTY_CALL_NAMES[way], slack)
            if not objection:
                break
        if objection:
            return objection
    gpu = detect_gpus().first if bench.device == "cuda" else None
    if gpu:
        most_flops_per_s = highest_flops_per_s(gpu.capability, gpu.facts, workload.dtype)
        source = f"{gpu.facts.sms} multiprocessors of compute capability {gpu.capability}"
        if bench.gpu and (stated_flops_per_s := bench.gpu.flops_per_s.get(workload.dtype)):
            # The manifest states the peak at the best clock, so it needs no slack.
            most_flops_per_s, source = stated_flops_per_s, bench.gpu.source
        counted_flops_per_s = timing.flops_per_s or 0.0
        if most_flops_per_s and counted_flops_per_s > most_flops_per_s:
            claim = f"{counted_flops_per_s / 1e9:.0f} counted GFLOP/s"
            limit = f"at most {most_flops_per_s / 1e9:.0f} are possible ({source})"
            return f"faster than the device: {claim} where {limit}"
        moved_bytes, byte_source = evaluate_work(target.bytes, workload), "the manifest's `bytes`"
        if moved_bytes is None:
            sizes, byte_source = tensor_bytes(target, workload), "its output"
            moved_bytes = sum(sizes.get(name, 0) for name in target.signature.outputs)
        if objection := explain_beyond_gpu_memory(seconds, moved_bytes, byte_source, gpu.facts):
            return objection
    return explain_below_empty_call(seconds, LEAST_CALL_S, "on any processor", slack=1.0)


CACHED_FACTOR = 2.0  # A call on cached values may be faster, but not by this factor.
CACHED_LEAST_S = 3e-6  # Smaller differences come from the clock.
DEFERRED_FACTOR, DEFERRED_LEAST_S = 5.0, 20e-6
"""A call defers work if its rest takes this many times its own time, and at least this."""
CLOCK_LAG_SHARE, CLOCK_LAG_S = 0.04, 60e-6
"""By our clock a sample may take longer than by the device's: by this share, and this much."""


def find_doubts(
    bench: Bench, timings: Timings, measured: Sequence[Measurement], pairs: Sequence[Pair]
) -> Waiting[tuple[NoSpeedVerdict, ...]]:
    """The first doubt of each variant and workload, as an `invalid` or `incorrect` verdict; one
    about a side alone names what the first pair is `against`. Order: wrong output, cached result,
    clock, deferred work, calls without proof, impossible speed, a GPU that slowed one side."""
    clock_faults: dict[str, str] = {}
    if any(map(explain_wrong_clock, timings.clock_pairs.values())):
        # Measure this GPU's own lag before accusing a side.
        usual_lag_s = yield from bench.measure_gpu_lag_s()
        is_shared = bool(describe_gpu_use(bench))
        for side, clock_pairs in timings.clock_pairs.items():
            clock_faults[side] = explain_wrong_clock(clock_pairs, usual_lag_s, is_shared=is_shared)
    against = pairs[0].against
    kinds = {pair.candidate.name: pair.candidate.kind for pair in pairs}
    verdicts = [*_doubts_of_sides(timings, against, kinds, clock_faults)]
    most_work_first = sorted(measured, key=lambda m: -count_operations(bench.target, m.workload))
    for measurement in most_work_first:
        place = measurement.variant, measurement.workload.name, measurement.against
        speed = explain_impossible_speed(bench, measurement, kinds[measurement.variant])
        if reason := (yield from speed):
            verdicts.append(invalid_verdict(*place, "impossible", reason))
    for workload in dict.fromkeys(segment.workload for segment in timings.segments):
        segments = timings.segments_of(workload)
        for pair in pairs:
            place = pair.candidate.name, workload, pair.against
            reason = samples.explain_gpu_slowdown(segments, *pair.side_names) or ""
            if reason and len(samples.log_ratios(segments, *pair.side_names)) < MIN_ROUNDS:
                verdicts.append(invalid_verdict(*place, "held back", reason))
    first_doubts: dict[tuple[str, str], NoSpeedVerdict] = {}
    for verdict in verdicts:
        first_doubts.setdefault((verdict.variant, verdict.workload), verdict)
    return tuple(first_doubts.values())


def _doubts_of_sides(
    timings: Timings, against: Against, sides: Collection[str], clock_faults: Mapping[str, str]
) -> Iterator[NoSpeedVerdict]:
    """Doubts about each of `sides`, after those about wrong outputs. `clock_faults`: by side."""
    for side, check in timings.wrong_outputs:
        yield check.make_verdict(side, against, f"while it was timed: {check.message}")
    probes_by_call = timings.memory_probes.items()
    cache_reasons = {call: explain_cached_results(probes) for call, probes in probes_by_call}
    for (side, workload), reason in cache_reasons.items():
        # If the baseline shows it too, the machine is the cause.
        is_machine = side != BASELINE and bool(cache_reasons.get((BASELINE, workload)))
        if reason and side in sides and not is_machine:
            yield invalid_verdict(side, workload, against, "remembers", reason)
    for side in sides:
        timed = [segment for segment in timings.segments if segment.side == side]
        workloads = list(dict.fromkeys(segment.workload for segment in timed))
        if workloads and clock_faults.get(side):
            yield invalid_verdict(side, workloads[0], against, "clock", clock_faults[side])
        for workload in workloads:
            if reason := explain_deferred_work([s for s in timed if s.workload == workload]):
                yield invalid_verdict(side, workload, against, "defers", reason)
            # The variant is stopped while other sides are timed. So if they are disturbed, the
            # machine is busy, and slow verified calls prove nothing.
            others = [s for s in timings.segments_of(workload) if s.side != side]
            times_s = timings.unproven_times_s(side, workload)
            if times_s and not samples.warn_of_other_programs(others):
                usual, slow = (f"{seconds * 1e6:.1f} us" for seconds in times_s)
                reason = f"calls whose results were looked at took {slow} or more, others {usual}"
                reason = f"nothing shows that it computes while it is timed: {reason}"
                yield invalid_verdict(side, workload, against, "foresees", reason)


def explain_cached_results(probes: Sequence[MemoryProbe]) -> str:
    """Why a variant seems to cache results; empty if it does not. `probes`: one for each process.
    More than half of the processes that had a core to themselves have to show it, because even
    these may be interrupted. If no process had a core to itself, all have to show it."""
    if not probes:
        return ""
    undisturbed = [probe for probe in probes if probe.is_undisturbed]
    considered = undisturbed or probes
    by_gain = sorted(considered, key=lambda p: p.new_values_s / max(p.repeated_values_s, 1e-9))
    # The median, or the smallest gain if all were disturbed.
    probe = by_gain[(len(undisturbed) - 1) // 2 if undisturbed else 0]
    new_s, repeated_s = probe.new_values_s, probe.repeated_values_s
    if new_s < CACHED_FACTOR * repeated_s or new_s - repeated_s < CACHED_LEAST_S:
        return ""
    new = f"{new_s * 1e6:.1f} us on values it had not seen"
    return f"it remembers results: {new}, {repeated_s * 1e6:.1f} us on the same again"


def explain_wrong_clock(
    clock_pairs: Sequence[tuple[float, float]], usual_lag_s: float = 0.0, *, is_shared: bool = False
) -> str:
    """Why a device's clock cannot be right; empty if it can. `clock_pairs`: seconds of each sample
    by our clock and by the device's; `usual_lag_s`: by which ours is longer for empty kernels.
    Three of four samples have to show it: the system may interrupt one. All have to if the GPU
    `is_shared`: a sample may wait for another program's kernels before its first event."""
    if not clock_pairs:
        return ""
    lags_s = sorted(our_s - device_s - CLOCK_LAG_SHARE * our_s for our_s, device_s in clock_pairs)
    if lags_s[0 if is_shared else len(lags_s) // 4] <= CLOCK_LAG_S + usual_lag_s:
        return ""
    our_ms = median([our_s for our_s, _ in clock_pairs]) * 1e3
    device_ms = median([device_s for _, device_s in clock_pairs]) * 1e3
    clocks = f"samples took {our_ms:.2f} ms, and {device_ms:.2f} ms by the events of the stream"
    others = "other programs keep the GPU from it, " if is_shared else ""
    return f"{others}its clock was changed, or it works on another stream: {clocks}"


def explain_deferred_work(segments: Sequence[Segment]) -> str:
    """Why a side seems to compute only when its result is read; empty if it does not. More than
    half of its segments have to show it, because the system may interrupt a single one."""
    timed = [segment for segment in segments if segment.seconds]
    if not timed:
        return ""
    # `left_s`: from the return of a call until its result was there; part of the samples' seconds.
    deferred_s = median_low([segment.left_s for segment in timed])
    call_s = median_low([median(segment.seconds) - segment.left_s for segment in timed])
    if deferred_s < DEFERRED_FACTOR * call_s or deferred_s < DEFERRED_LEAST_S:
        return ""
    call = f"{call_s * 1e6:.1f} us until a call returned"
    deferred = f"{deferred_s * 1e6:.1f} us more until its result was there"
    return f"it computes when its result is looked at: {call}, {deferred}"
