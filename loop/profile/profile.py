"""What can be seen of a variant from outside its clock: the compiler's report, a processor's counters, a trace."""

import re
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import LoopError
from loop.base.processes import Tick, run
from loop.builds.compiler_errors import first_error
from loop.builds.reads import ENGLISH
from loop.calls.counters import Counters
from loop.machine.machine import compiler_version
from loop.model.device_profile import KernelRun
from loop.model.resources import short_name
from loop.model.target import CAbiVariant, Workload
from loop.workers.bench import Bench, Side
from loop.workers.messages import How, Observe, Observed
from loop.workers.program import START_LIMIT_S, Refusal, WorkerLost
from loop.workers.worker import Worker

REPORT_LIMIT_S = 20.0
COUNT_LIMIT_S = 20.0
LISTING = ("-fPIC", "-S", "-fopt-info-vec-optimized", '-DLOOP_BUILD_ID="report"')
VECTORISED = re.compile(r"optimized: .*\bloop vectorized\b")
"""What gcc says of a loop under -fopt-info-vec-optimized."""
ARITHMETIC = re.compile(
    r"^\s+v?(?:add|sub|mul|div|min|max|sqrt|fn?m(?:add|sub)(?:132|213|231))(?P<kind>[ps])[shd]\s", re.MULTILINE
)
"""x86 floating-point arithmetic in an assembly listing: `p` works on whole vectors, `s` on one element."""


@dataclass(frozen=True)
class VectorReport:
    """What the compiler made of a variant; None is unknown, and `why` says why."""

    vectorised: int | None = None
    """Loops that the compiler vectorised by itself, once for each place and vector width."""
    vector_share: float | None = None
    """Share of the floating-point instructions in its listing that work on whole vectors."""
    why: str = ""


def compiler_report(
    bench: Bench, variant: CAbiVariant, limit_s: float = REPORT_LIMIT_S
) -> Generator[Tick, None, VectorReport]:
    """The compiler's report on the sources of a variant, compiled to a listing."""
    if not is_gcc(compiler_version(variant.build.compiler) or ""):
        return VectorReport(why=f"{variant.build.compiler} is not gcc, whose report is read")
    listings, remarks = "", ""
    with tempfile.TemporaryDirectory(dir=bench.scratch) as folder:
        listing = Path(folder) / "listing.s"
        for source in variant.sources:
            command = [variant.build.compiler, *variant.build.flags, f"-I{bench.include}", *LISTING]
            command += [source, "-o", str(listing)]
            note = f"reading what the compiler makes of {source}"
            completed = yield from run(command, cwd=bench.folder, limit_s=limit_s, env=ENGLISH, note=note)
            if not completed.ok:
                why = first_error(completed.errors) or completed.how
                return VectorReport(why=f"the compiler's report on {source}: {why}")
            listings += listing.read_text(errors="replace")
            remarks += completed.errors
    return VectorReport(len(VECTORISED.findall(remarks)), vector_share(listings))


def is_gcc(version: str) -> bool:
    """Whether this is the first line of gcc's version text."""
    return "Free Software Foundation" in version or bool(re.match(r"(\S+-)?(gcc|g\+\+|c\+\+|cc)\S* \(", version))


def vector_share(listing: str) -> float | None:
    """Share of vector instructions in the floating-point arithmetic of an x86 listing; None without any."""
    kinds = [match["kind"] for match in ARITHMETIC.finditer(listing)]
    return kinds.count("p") / len(kinds) if kinds else None


def no_counters() -> str:
    """Why this machine gives no hardware counters; empty where it gives some."""
    with Counters() as counters:
        return "" if counters.open() else counters.why_not


def count(bench: Bench, side: Side, workload: Workload) -> Generator[Tick, None, Observed]:
    """What the processor counts while one side computes a workload, in a process of its own.

    Everything that goes wrong is a reason, not an error: a profile does without counters.
    """
    why = no_counters()
    if why:
        return Observed({}, why, 0)
    if not side.compiled:
        return Observed({}, "counted for compiled variants only", 0)
    yield from bench.expect(workload, wide=True)
    try:
        note = f"counting {side.name} on {workload.name}"
        with bench.open(side) as worker:
            return (yield from observe(bench, worker, side, workload, "count", note, COUNT_LIMIT_S))
    except (Refusal, WorkerLost, LoopError) as error:
        return Observed({}, f"{side.name} could not be counted: {error}", 0)


def observe(
    bench: Bench, worker: Worker, side: Side, workload: Workload, how: How, note: str, limit_s: float
) -> Generator[Tick, None, Observed]:
    """Have a worker that was just opened load its side, and make a call in one of the ways of `Observe`.

    The judge has to have written its inputs. Raises WorkerLost, or Refusal where the side does not do it.
    """
    yield from worker.receive(START_LIMIT_S, note)
    request = Observe(bench.call(workload, side.name, wide=True), how)
    return (yield from worker.ask(request, limit_s=limit_s, note=note))


@dataclass(frozen=True)
class Watched:
    """What a profiler of the GPU saw of one call."""

    runs: tuple[KernelRun, ...] = ()
    """Its launches, in order; by torch's profiler names, times and registers, no more."""
    cut: bool = False
    """Whether there may be more of them."""
    why: str = ""
    """Why there are none, and what mends that."""


def trace(bench: Bench, side: Side, workload: Workload, limit_s: float) -> Generator[Tick, None, Watched]:
    """Kernels of one call of a side by torch's profiler, in a process of its own; a failure is a reason."""
    if side.kind == "command":
        return Watched(why="a program of its own is not profiled")
    note = f"tracing {side.name} on {workload.name}"
    try:
        yield from bench.expect(workload, wide=True)
        with bench.open(side) as worker:
            reply = yield from observe(bench, worker, side, workload, "trace", note, limit_s)
    except (Refusal, WorkerLost, LoopError) as error:
        return Watched(why=f"torch's profiler: {error}")
    runs = tuple(
        KernelRun(kernel=short_name(kernel.kernel), us=kernel.us, registers=kernel.registers)
        for kernel in reply.kernels
    )
    return Watched(runs, why="" if runs else "torch's profiler saw no kernel in the call")
