"""What no call can be faster than: an empty call, the memory, the arithmetic units. Pure.

A roof is an upper bound: what is measured or stated, times a slack that covers what a measurement misses.
"""

from dataclasses import dataclass

from loop.model.device import Dtype, GpuLimits

EMPTY_SLACK, KERNEL_SLACK = 2.0, 1.25
"""A processor whose clock was raised since makes an empty call up to so many times quicker, a GPU an empty kernel:
on an H200 that takes 0.521 to 0.524 us in a graph, and the smallest kernel that does something 0.99."""
MEMORY_SLACK = 2.0
"""Reading is measured; a core may write beside it, and prefetch better than a plain loop does."""
VECTOR_SLACK = 1.5
"""A loop of multiply-adds is measured; no unit computes more, but clocks move."""
SPARSE_SLACK = 2.0
"""Matrix units of a GPU skip half of a structured sparse product."""
GPU_SLACK = 1.2
"""For boards that run faster than their driver says. Of its memory an H200 reaches 0.97, of its L2 0.35."""
HELD_SHARE = 4
"""Caches keep part of what is larger than they are: memory is held to the bandwidth of a fraction of the data."""
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


@dataclass(frozen=True)
class Roof:
    """A rate that nothing exceeds by more than its slack."""

    per_s: float
    """Operations or bytes a second."""
    slack: float
    source: str
    """Where it is known from, as in `measured here on 2 threads`."""

    @property
    def most(self) -> float:
        """Operations or bytes a second that are impossible beyond this."""
        return self.per_s * self.slack


@dataclass(frozen=True)
class Moved:
    """Bytes that one call cannot avoid to move."""

    count: float
    declared: bool
    """Whether the manifest says so; else it is the size of the output."""

    @property
    def said(self) -> str:
        """Whose figure it is."""
        return "the manifest's `bytes`" if self.declared else "its output"


def below_empty_call(seconds: float, empty_s: float, way: str, slack: float = EMPTY_SLACK) -> str:
    """Why a call cannot take so little: one that does nothing takes longer, made the same way. Else empty."""
    if seconds * slack >= empty_s:
        return ""
    return (
        f"faster than an empty call: {seconds * 1e6:.3g} us, where a call that does nothing takes "
        f"{empty_s * 1e6:.3g} us ({way})"
    )


def beyond_memory(seconds: float, moved: Moved, roof: Roof) -> str:
    """Why a call cannot take so little: no memory moves its bytes in that time. Empty when some does."""
    rate = moved.count / seconds
    if rate <= roof.most:
        return ""
    return (
        f"faster than memory: {moved.count / 1e6:.3g} MB ({moved.said}) in {seconds * 1e6:.3g} us are "
        f"{rate / 1e9:.0f} GB/s, where {roof.per_s / 1e9:.0f} GB/s are {roof.source}"
    )


def beyond_arithmetic(flops_per_s: float | None, roof: Roof | None) -> str:
    """Why a time cannot be true: more operations a second than the device has. Empty when it can."""
    if roof is None or flops_per_s is None or flops_per_s <= roof.most:
        return ""
    return (
        f"faster than the device: {flops_per_s / 1e9:.0f} counted GFLOP/s where at most "
        f"{roof.most / 1e9:.0f} are possible ({roof.source})"
    )


def gpu_arithmetic(capability: str, gpu: GpuLimits, dtype: Dtype) -> Roof | None:
    """The roof of a GPU by its generation, as in `9.0`; None for one that is not known."""
    if capability not in PER_CYCLE or not gpu.sms or not gpu.clock_hz:
        return None
    rate = PER_CYCLE[capability][KINDS[dtype]] * gpu.sms * gpu.clock_hz
    return Roof(rate, SPARSE_SLACK, f"{gpu.sms} multiprocessors of compute capability {capability}")


def beyond_gpu_memory(seconds: float, moved: Moved, gpu: GpuLimits) -> str:
    """The same for a GPU: what its L2 cannot hold comes from memory, and everything goes through the L2."""
    outside = Moved(moved.count - gpu.l2_bytes, moved.declared)
    if gpu.bytes_per_s and gpu.l2_bytes and outside.count > 0:
        said = f"what its memory gives, beyond {gpu.l2_bytes / 2**20:.0f} MiB in its L2"
        found = beyond_memory(seconds, outside, Roof(gpu.bytes_per_s, GPU_SLACK, said))
        if found:
            return found
    if not gpu.sms or not gpu.clock_hz:
        return ""
    cache = Roof(gpu.sms * gpu.clock_hz * L2_BYTES_PER_CYCLE, GPU_SLACK, "what its L2 gives")
    return beyond_memory(seconds, moved, cache)
