"""Is a timing faster than this device allows? Roofs are measured where a claim comes near them: it costs time."""

from collections.abc import Generator
from dataclasses import dataclass

from loop.base.errors import LoopError
from loop.base.expressions import Expression
from loop.base.processes import Tick
from loop.machine.gpus import gpus
from loop.machine.machine import machine, peak_flops_per_s
from loop.model.device import Dtype
from loop.model.measurement import Measurement
from loop.model.target import ITEM_SIZES, OUTPUT, Workload
from loop.model.workloads import formula_values, tensor_bytes, working_set
from loop.timing import roof_bounds as roofs
from loop.timing.roof import Roof as Reached
from loop.timing.roof import measure_roof
from loop.timing.roof_bounds import Moved, Roof
from loop.workers.bench import Bench
from loop.workers.judge_clock import Way

NEAR_FLOPS = 1 / 8
"""Share of a theoretical peak above which the real one is measured: a busy unit reaches a third of the former."""
SMALL_BYTES, NEAR_CACHE, NEAR_MEMORY = 1 << 20, 20e9, 4e9
"""Bytes a second of one thread above which the real figure is measured: of data up to that size, and of larger."""
TRIES = 5
"""Measurements of a roof before a timing is called impossible."""
WAYS: dict[str, Way] = {"c_abi": "c_abi", "python": "python"}
SAID: dict[Way, str] = {"c_abi": "through C", "python": "from Python", "kernel": "as a kernel in a CUDA graph"}


def impossible(bench: Bench, one: Measurement, kind: str) -> Generator[Tick, None, str]:
    """Why a measurement cannot be true; empty when it can. `kind`: of the candidate's side, as in `c_abi`."""
    seconds = one.candidate_us * 1e-6
    said = yield from _below_empty_call(bench, kind, seconds)
    if said:
        return said
    moved = compulsory(bench, one.workload)
    if bench.device == "cuda":
        gpu = gpus().first
        said = roofs.beyond_arithmetic(one.flops_per_s, _gpu_peak(bench, one.workload.dtype))
        return said or (roofs.beyond_gpu_memory(seconds, moved, gpu.limits) if gpu else "")
    said = roofs.beyond_arithmetic(one.flops_per_s, stated_peak(bench, one.workload.dtype))
    return said or (yield from _beyond_processor(bench, one, moved))


def _below_empty_call(bench: Bench, kind: str, seconds: float) -> Generator[Tick, None, str]:
    """Why a call of a side of that kind cannot take so little; a program's own calls have no floor."""
    if kind not in WAYS:
        return ""
    way: Way = "kernel" if bench.device == "cuda" else WAYS[kind]
    slack = roofs.KERNEL_SLACK if way == "kernel" else roofs.EMPTY_SLACK
    floors, said = (yield from bench.floors()), ""
    for _ in range(TRIES):
        said = roofs.below_empty_call(seconds, floors.call_s.get(way, 0.0), SAID[way], slack)
        if not said:
            return ""
        floors = yield from bench.floors(again=True)
    return said


def compulsory(bench: Bench, workload: Workload) -> Moved:
    """Bytes that a call has to move: as the manifest says, else those of its output."""
    target = bench.target
    if target.bytes is not None:
        formula = Expression.parse(target.bytes, arithmetic=True)
        return Moved(formula.evaluate_number(formula_values(workload)), declared=True)
    return Moved(tensor_bytes(bench.target, workload)[OUTPUT], declared=False)


def stated_peak(bench: Bench, dtype: Dtype) -> Roof | None:
    """Operations a second that the device cannot exceed by what is known of its kind; None where nobody says.

    Of a GPU the manifest's figure, its clock and accumulation at their best.
    """
    if bench.device == "cpu":
        peak = peak_flops_per_s(bench.threads, dtype)
        return Roof(peak, 1.0, "by its instructions and the fastest clock") if peak else None
    capability = machine().capability
    facts = bench.target.devices.get(f"sm_{capability.replace('.', '')}") if capability else None
    rate = facts.flops_per_s.get(dtype) if facts else None
    return Roof(rate, 1.0, f"datasheet of {facts.name}") if facts and rate else None


def _gpu_peak(bench: Bench, dtype: Dtype) -> Roof | None:
    """The manifest's figure, else what the driver and the generation of the GPU allow."""
    gpu = gpus().first
    return stated_peak(bench, dtype) or (roofs.gpu_arithmetic(gpu.capability, gpu.limits, dtype) if gpu else None)


@dataclass(frozen=True)
class _Claim:
    """What a measurement says that a processor did."""

    bench: Bench
    one: Measurement
    moved: Moved

    @property
    def seconds(self) -> float:
        return self.one.candidate_us * 1e-6

    @property
    def held(self) -> int:
        """Bytes of a working set that caches hold at least as well as the call's."""
        return max(working_set(self.bench.target, self.one.workload) // roofs.HELD_SHARE, 1)

    @property
    def is_near(self) -> bool:
        """Whether it comes near what a processor does at all: else nothing has to be measured."""
        slow = NEAR_CACHE if self.held <= SMALL_BYTES else NEAR_MEMORY
        if self.moved.count / self.seconds > slow * self.bench.threads:
            return True
        peak = peak_flops_per_s(self.bench.threads, self.one.workload.dtype)
        return bool(peak and self._vector and (self.one.flops_per_s or 0.0) > NEAR_FLOPS * peak)

    @property
    def _vector(self) -> bool:
        """Whether its arithmetic is done in units that are measured."""
        return ITEM_SIZES[self.one.workload.dtype] > 2

    def objection(self, reached: Reached) -> str:
        """Why it cannot be true, by what this processor reached."""
        threads = f"measured here on {self.bench.threads} thread{'s' if self.bench.threads > 1 else ''}"
        vector = Roof(reached.most_flops_per_s, roofs.VECTOR_SLACK, threads) if self._vector else None
        said = roofs.beyond_arithmetic(self.one.flops_per_s, vector)
        memory = Roof(reached.most_bytes_per_s, roofs.MEMORY_SLACK, f"{threads}, from {self.held / 1e6:.3g} MB")
        return said or roofs.beyond_memory(self.seconds, self.moved, memory)


def _beyond_processor(bench: Bench, one: Measurement, moved: Moved) -> Generator[Tick, None, str]:
    """Why a processor does not reach that; a figure is measured again before a timing is called impossible."""
    claim, best, said = _Claim(bench, one, moved), Reached(0.0, 0.0), ""
    if not claim.is_near:
        return ""
    for _ in range(TRIES):
        try:
            found = yield from measure_roof(bench.cache, one.workload.dtype, bench.threads, claim.held)
        except LoopError:  # No compiler: nothing is known, and nothing is claimed.
            return ""
        best = best.with_best(found)
        if not (said := claim.objection(best)):
            return ""
    return said
