"""Is a timing faster than this device allows? No call beats an empty one, nor a GPU's memory or arithmetic units.

A ceiling is what is measured or stated, times a slack that covers what a measurement misses.
"""

from collections.abc import Generator
from dataclasses import dataclass

from loop.base.processes import Tick
from loop.machine.gpus import gpus
from loop.model.device_profile import DeviceFacts
from loop.model.dtypes import Dtype
from loop.model.measurement import Measurement
from loop.model.target import Workload
from loop.model.workloads import counted, tensor_bytes
from loop.workers.bench import Bench
from loop.workers.judge_clock import Way

EMPTY_SLACK, KERNEL_SLACK = 2.0, 1.25
"""A processor whose clock was raised since makes an empty call up to so many times quicker, a GPU an empty kernel:
on an H200 that takes 0.521 to 0.524 us in a graph, and the smallest kernel that does something 0.99."""
LEAST_CALL_S = 2e-9
"""What calling a function that does nothing and returning from it takes at least: ten cycles at 5 GHz."""
SPARSE_SLACK = 2.0
"""Matrix units of a GPU skip half of a structured sparse product."""
GPU_SLACK = 1.2
"""For boards that run faster than their driver says. Of its memory an H200 reaches 0.97, of its L2 0.35."""
L2_BYTES_PER_CYCLE = 64
"""Bytes that a GPU's L2 gives one multiprocessor in a cycle (NVIDIA's tuning guides, sm_70 to sm_90)."""

KINDS: dict[Dtype, int] = {"float16": 0, "bfloat16": 0, "float32": 1, "float64": 2}
"""Element type to its place in a row of the table."""
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
"""Operations of one multiprocessor in a cycle, dense, by compute capability: on two-byte types, float32, float64.

From the peaks in NVIDIA's architecture papers, over multiprocessors and boost clock: V100 125 TFLOP/s, T4 65, A100
312, A40 150, L40S 362, H200 989, B200 2250, RTX 5090 419. From Ampere on float32 is what TF32 reaches. float64
allows for products put together from integers, where matrix units do more of these.
"""
TRIES = 5
"""Measurements of an empty call before a timing is called impossible."""
WAYS: dict[str, Way] = {"c_abi": "c_abi", "python": "python"}
SAID: dict[Way, str] = {"c_abi": "through C", "python": "from Python", "kernel": "as a kernel in a CUDA graph"}


@dataclass(frozen=True)
class Ceiling:
    """A rate that nothing exceeds by more than its slack."""

    per_s: float
    """Operations or bytes a second."""
    slack: float
    source: str
    """Where it is known from, as in `datasheet of NVIDIA L4`."""

    @property
    def most(self) -> float:
        """Operations or bytes a second above which a claim is impossible."""
        return self.per_s * self.slack


@dataclass(frozen=True)
class MovedBytes:
    """Bytes that one call cannot avoid to move."""

    count: float
    declared: bool
    """Whether the manifest says so; else it is the size of the output."""

    @property
    def said(self) -> str:
        """Whose figure it is."""
        return "the manifest's `bytes`" if self.declared else "its output"


def below_empty_call(seconds: float, empty_s: float, way: str, slack: float = EMPTY_SLACK) -> str:
    """Why a call cannot be so short: an empty call, made the same way, takes longer. Empty where it can."""
    if seconds * slack >= empty_s:
        return ""
    return (
        f"faster than an empty call: {seconds * 1e6:.3g} us, where a call that does nothing takes "
        f"{empty_s * 1e6:.3g} us ({way})"
    )


def beyond_memory(seconds: float, moved: MovedBytes, roof: Ceiling) -> str:
    """Why a call cannot be so short: no memory moves its bytes in that time. Empty where it can."""
    rate = moved.count / seconds
    if rate <= roof.most:
        return ""
    return (
        f"faster than memory: {moved.count / 1e6:.3g} MB ({moved.said}) in {seconds * 1e6:.3g} us are "
        f"{rate / 1e9:.0f} GB/s, where {roof.per_s / 1e9:.0f} GB/s are {roof.source}"
    )


def beyond_arithmetic(flops_per_s: float | None, roof: Ceiling | None) -> str:
    """Why a time cannot be true: it needs more operations a second than the device has. Empty where it can."""
    if roof is None or flops_per_s is None or flops_per_s <= roof.most:
        return ""
    return (
        f"faster than the device: {flops_per_s / 1e9:.0f} counted GFLOP/s where at most "
        f"{roof.most / 1e9:.0f} are possible ({roof.source})"
    )


def gpu_arithmetic(capability: str, gpu: DeviceFacts, dtype: Dtype) -> Ceiling | None:
    """The roof of a GPU by its generation, as in `9.0`; None for one that is not known."""
    if capability not in PER_CYCLE or not gpu.sms or not gpu.clock_hz:
        return None
    rate = PER_CYCLE[capability][KINDS[dtype]] * gpu.sms * gpu.clock_hz
    return Ceiling(rate, SPARSE_SLACK, f"{gpu.sms} multiprocessors of compute capability {capability}")


def beyond_gpu_memory(seconds: float, moved: MovedBytes, gpu: DeviceFacts) -> str:
    """The same for a GPU: what its L2 cannot hold comes from memory, and everything goes through the L2."""
    outside = MovedBytes(moved.count - gpu.l2_bytes, moved.declared)
    if gpu.bytes_per_s and gpu.l2_bytes and outside.count > 0:
        source = f"what its memory gives, beyond {gpu.l2_bytes / 2**20:.0f} MiB in its L2"
        objection = beyond_memory(seconds, outside, Ceiling(gpu.bytes_per_s, GPU_SLACK, source))
        if objection:
            return objection
    if not gpu.sms or not gpu.clock_hz:
        return ""
    cache = Ceiling(gpu.sms * gpu.clock_hz * L2_BYTES_PER_CYCLE, GPU_SLACK, "what its L2 gives")
    return beyond_memory(seconds, moved, cache)


def impossible(bench: Bench, measurement: Measurement, kind: str) -> Generator[Tick, None, str]:
    """Why a measurement cannot be true; empty when it can. `kind`: of the candidate's side, as in `c_abi`."""
    seconds, workload = measurement.candidate_us * 1e-6, measurement.workload
    objection = yield from _below_empty_call(bench, kind, seconds)
    moved, gpu = _compulsory(bench, workload), gpus().first if bench.device == "cuda" else None
    if gpu:
        stated = bench.gpu.flops_per_s.get(workload.dtype) if bench.gpu else None
        peak = gpu_arithmetic(gpu.capability, gpu.facts, workload.dtype)
        if bench.gpu and stated:  # The manifest's figure, its clock and accumulation at their best.
            peak = Ceiling(stated, 1.0, bench.gpu.source)
        objection = objection or beyond_arithmetic(measurement.flops_per_s, peak)
        objection = objection or beyond_gpu_memory(seconds, moved, gpu.facts)
    return objection or below_empty_call(seconds, LEAST_CALL_S, "on any processor", slack=1.0)


def _below_empty_call(bench: Bench, kind: str, seconds: float) -> Generator[Tick, None, str]:
    """Why a call of this kind of side cannot be so short; empty for programs, which have no measured floor."""
    if kind not in WAYS:
        return ""
    way: Way = "kernel" if bench.device == "cuda" else WAYS[kind]
    slack = KERNEL_SLACK if way == "kernel" else EMPTY_SLACK
    floors, objection = (yield from bench.floors()), ""
    for _ in range(TRIES):
        objection = below_empty_call(seconds, floors.call_s.get(way, 0.0), SAID[way], slack)
        if not objection:
            return ""
        floors = yield from bench.floors(again=True)
    return objection


def _compulsory(bench: Bench, workload: Workload) -> MovedBytes:
    """Bytes that a call has to move: as the manifest says, else those of its outputs that the signature tells."""
    target = bench.target
    moved = counted(target.bytes, workload)
    if moved is not None:
        return MovedBytes(moved, declared=True)
    sizes = tensor_bytes(target, workload)
    return MovedBytes(sum(sizes.get(name, 0) for name in target.signature.outputs), declared=False)
