"""Profile a variant outside of timed runs: compiler report, ncu counters, torch trace, roofline."""

import csv
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from loop.base.errors import LoopError, WorkFailed
from loop.base.processes import Waiting, run
from loop.base.stats import sum_if_all_known
from loop.builds.build import first_error
from loop.builds.known_builds import ENGLISH_MESSAGES
from loop.builds.resources import short_name
from loop.calls.call import Refused
from loop.machine.machine import compiler_version
from loop.model.dtypes import Dtype
from loop.model.profile import DeviceProfile, Fact, KernelRun
from loop.model.target import CAbiVariant, Workload
from loop.report import format as say
from loop.steps.context import Context
from loop.workers.bench import Bench, Side
from loop.workers.messages import Kernel, Observe, ObserveMode
from loop.workers.program import START_LIMIT_S, WorkerLost

REPORT_LIMIT_S = 20.0
LISTING = ("-fPIC", "-S", "-fopt-info-vec-optimized", '-DLOOP_BUILD_ID="report"')
GCC_VERSION = re.compile(r"(\S+-)?(gcc|g\+\+|c\+\+|cc)\S* \(")
VECTORISED = re.compile(r"optimized: .*\bloop vectorized\b")
"""gcc's remark on a vectorised loop, with -fopt-info-vec-optimized."""
ARITHMETIC = re.compile(
    r"(?m)^\s+v?(?:add|sub|mul|div|min|max|sqrt|fn?m(?:add|sub)\d{3})(?P<kind>[ps])[shd]\s"
)  # x86 floating-point instruction in a listing; kind `p`: whole vectors, `s`: one element.
KernelRuns = tuple[tuple[KernelRun, ...], str]
"""Kernel launches of one call in order, and why there are none, with a remedy."""
NCU = "ncu"
NCU_LIMIT_S = 40.0  # Seconds, with the import of torch; few kernels take 2 to 4 s.
MOST_LAUNCHES = 40  # Most launches of a call that ncu measures.
TIME_COUNTER, REGISTER_COUNTER = "gpu__time_duration.sum", "launch__registers_per_thread"
CONFLICT_COUNTER = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
WAVEFRONT_COUNTER = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
PERCENT_COUNTERS = {
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps_active": "sm__warps_active.avg.pct_of_peak_sustained_active",
}  # Fact to the ncu counter that gives it, in per cent.
STALL_COUNTER = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
"""Stalled warps by reason, averaged over issued instructions; all reasons add up to all warps."""
WAITS = {
    "long_scoreboard": "loads from device memory",
    "short_scoreboard": "shared memory and special units",
    "barrier": "other warps at a barrier",
    "wait": "the fixed latency of its own instructions",
    "no_instruction": "instructions to be fetched",
    "math_pipe_throttle": "busy arithmetic units",
    "mio_throttle": "the queue of shared-memory instructions",
    "lg_throttle": "the queue of loads and stores",
    "tex_throttle": "the queue of texture instructions",
    "imc_miss": "constants that are not in their cache",
    "branch_resolving": "targets of branches",
    "dispatch_stall": "the dispatcher",
    "drain": "stores on their way at its end",
    "membar": "memory fences",
    "gmma": "matrix units of the warp group",
    "sleeping": "the end of a sleep",
    "misc": "something else",
    "not_selected": "other warps that could issue as well",
}  # Stall reason to what the warp waits for.
NOT_EVERYWHERE = frozenset({"gmma", "sleeping", "misc"})  # Reasons without a counter on some GPUs.
ISSUE_REASON = "selected"  # The same counter for warps that issue; needed for the total.
STALL_COUNTERS = {reason: STALL_COUNTER.format(reason) for reason in (*WAITS, ISSUE_REASON)}
OTHER_COUNTERS = (TIME_COUNTER, REGISTER_COUNTER, CONFLICT_COUNTER, WAVEFRONT_COUNTER)
METRICS = (*OTHER_COUNTERS, *PERCENT_COUNTERS.values(), *STALL_COUNTERS.values())
UNIT_NS = {"n": 1.0, "u": 1e3, "m": 1e6, "": 1e9}  # Unit prefix of seconds to nanoseconds.
NO_PERMISSION = "ERR_NVGPUCTRPERM"
PERMISSION_HINT = (
    "let the driver give counters to all users (NVreg_RestrictProfilingToAdminUsers=0), or run as "
    "root; a container needs --cap-add=SYS_ADMIN"
)
INSTALL_HINT = "it comes with the CUDA toolkit (nsight-compute): put its folder on the PATH"
SHARES = ("dram", "sm", "warps_active", "bank_conflicts")  # Facts of a profiler as shares, 0 to 1.
MOST_STALLS = 3  # Most stall reasons that are kept of a kernel.
SHORTEST_LIMIT_S = 10.0  # Shortest time limit in seconds of a profiler, for any number of variants.
ROOF_SOURCE = Path(__file__).with_name("roof.c")
ROOF_COMPILERS = ("g++", "gcc", "clang++", "clang")
ROOF_FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-pthread")
ROOF_TRIAL_MS = 10
ROOF_LIMIT_S = 20.0
UNDISTURBED_SHARE, ROOF_TRIES = 0.8, 3
"""Share of its best rate that a valid measurement of the roof reaches, and number of attempts."""
MOST_SHARE = 1.1  # Share of a measured roof that noise may reach; beyond it the roof is wrong.
UNMEASURED = "the roof of this machine could not be measured"


def compiler_report(
    bench: Bench, variant: CAbiVariant, limit_s: float
) -> Waiting[tuple[dict[str, int | float | None], str]]:
    """Vectorisation facts from compiling a variant's sources to assembly; or no facts, and why.
    `vectorised`: number of gcc's remarks, one for each place and vector width. `vector_share`:
    share of vector instructions in the floating-point arithmetic; None without such arithmetic."""
    version = compiler_version(variant.build.compiler) or ""  # Names gcc first, or its foundation.
    if "Free Software Foundation" not in version and not GCC_VERSION.match(version):
        return {}, f"{variant.build.compiler} is not gcc, whose report is read"
    listings, remarks = "", ""
    with tempfile.TemporaryDirectory(dir=bench.scratch) as folder:
        listing = Path(folder) / "listing.s"
        for source in variant.sources:
            command = [variant.build.compiler, *variant.build.flags, f"-I{bench.include}", *LISTING]
            command += [source, "-o", str(listing)]
            note = f"reading what the compiler makes of {source}"
            build = run(command, cwd=bench.folder, limit_s=limit_s, env=ENGLISH_MESSAGES, note=note)
            completed = yield from build
            if not completed.succeeded:
                why = first_error(completed.errors) or completed.ending
                return {}, f"the compiler's report on {source}: {why}"
            listings += listing.read_text(errors="replace")
            remarks += completed.errors
    count, share = len(VECTORISED.findall(remarks)), vector_share(listings)
    return {"vectorised": count, "vector_share": share}, ""


def vector_share(listing: str) -> float | None:
    """Share of vector instructions in the floating-point arithmetic of x86 assembly; None: none."""
    kinds = [match["kind"] for match in ARITHMETIC.finditer(listing)]
    return kinds.count("p") / len(kinds) if kinds else None


def observe_call(
    bench: Bench, side: Side, workload: Workload, mode: ObserveMode, limit_s: float, tool: list[str]
) -> Waiting[tuple[tuple[Kernel, ...], str]]:
    """Make one profiled call in a worker of its own. Returns the kernels that the worker saw, and
    why the call failed, or empty. `mode`: see `Observe`. `tool`: a profiler's command, or empty."""
    note = f"watching {side.name} on {workload.name}"
    try:
        yield from bench.prepare_answer(workload, with_windows=True)
        with bench.start_worker(side, tool=tool) as worker:
            yield from worker.receive(START_LIMIT_S, note)
            request = Observe(bench.make_call(workload, side.name, with_windows=True), mode)
            kernels = yield from worker.ask(request, limit_s=limit_s, note=note)
            if tool:
                code = yield from worker.wait_for_end(limit_s, f"waiting for {tool[0]}")
                if code:
                    return (), f"{tool[0]} ended with {code}"
    except (Refused, WorkerLost, LoopError) as error:
        return (), str(error)
    return kernels, ""


def run_ncu(bench: Bench, side: Side, workload: Workload, limit_s: float) -> Waiting[KernelRuns]:
    """Hardware counters of one call by ncu. An error becomes the reason in the result."""
    if shutil.which(NCU) is None:
        return (), f"there is no {NCU} on the PATH: {INSTALL_HINT}"
    with tempfile.TemporaryDirectory(dir=bench.scratch) as folder:
        log = Path(folder) / "csv"
        ncu = [NCU, "--target-processes", "all", "--profile-from-start", "off"]
        ncu += ["--clock-control", "none", "--cache-control", "none"]
        ncu += ["--csv", "--log-file", str(log)]
        ncu += ["--metrics", ",".join(METRICS), "--launch-count", str(MOST_LAUNCHES)]
        limit_s = min(limit_s, NCU_LIMIT_S)
        _, call_error = yield from observe_call(bench, side, workload, "mark", limit_s, ncu)
        text = log.read_text(errors="replace") if log.is_file() else ""
    runs = read_log(text)
    if runs and not call_error:
        return runs, ""
    if NO_PERMISSION in text or NO_PERMISSION in call_error:
        return (), f"{NCU} may not read this GPU's counters ({NO_PERMISSION}): {PERMISSION_HINT}"
    errors = [error.strip() for error in re.findall("==ERROR==(.*)", text)]
    reasons = "; ".join(filter(None, (*errors[:1], call_error)))
    return (), f"{NCU}: {reasons}" if reasons else f"{NCU} saw no kernel in the call"


def read_log(text: str) -> tuple[KernelRun, ...]:
    """Launches in a log of `ncu --csv`, in order. The CSV has a row for each launch and counter. A
    fact without its counter, or whose counter has no number, is None. The stalls, as shares of the
    warps' time, are empty if a counter is missing that every GPU has."""
    counters_by_launch, name_by_launch = dict[str, dict[str, float]](), dict[str, str]()
    table = [line for line in text.splitlines() if line.startswith('"')]
    for row in csv.DictReader(table):
        launch, counter = row.get("ID") or "", row.get("Metric Name")
        if not counter or not launch.isdecimal():
            continue
        name_by_launch[launch] = row["Kernel Name"]
        counters = counters_by_launch.setdefault(launch, {})
        time_unit = re.fullmatch("([num]?)s(?:econd)?", row.get("Metric Unit") or "")
        scale = UNIT_NS[time_unit[1]] if time_unit else 1.0  # Times in nanoseconds.
        with suppress(ValueError):  # Skips `n/a`.
            counters[counter] = scale * float((row.get("Metric Value") or "").replace(",", ""))
    runs = []
    percents = PERCENT_COUNTERS.items()
    for launch, counters in counters_by_launch.items():
        facts: dict[str, Any] = {fact: counters[c] / 100 for fact, c in percents if c in counters}
        if TIME_COUNTER in counters:
            facts["us"] = counters[TIME_COUNTER] / 1e3
        if REGISTER_COUNTER in counters:
            facts["registers"] = int(counters[REGISTER_COUNTER])
        if CONFLICT_COUNTER in counters and WAVEFRONT_COUNTER in counters:
            wavefronts = counters[WAVEFRONT_COUNTER] or 1.0
            facts["bank_conflicts"] = counters[CONFLICT_COUNTER] / wavefronts
        warps = {reason: counters[c] for reason, c in STALL_COUNTERS.items() if c in counters}
        total, stalls = sum(warps.values()), {}
        if total and not STALL_COUNTERS.keys() - warps.keys() - NOT_EVERYWHERE:
            stalled = [reason for reason, count in warps.items() if count and reason in WAITS]
            stalls = {WAITS[reason]: warps[reason] / total for reason in stalled}
        runs.append(KernelRun(kernel=short_name(name_by_launch[launch]), stalls=stalls, **facts))
    return tuple(runs)


def profile_call(
    context: Context, side: Side, workload: Workload, variant_count: int
) -> Waiting[tuple[DeviceProfile | None, str]]:
    """Profile of one call, by ncu, else by torch's profiler, else None; and why hardware counters
    are unknown: empty for ncu. `variant_count`: of variants that share the step's time limit."""
    if side.kind == "command":
        return None, "a program of its own is not profiled"
    # At most two profilers run for each variant.
    limit_s = max(SHORTEST_LIMIT_S, context.kill_after_s / (2 * max(variant_count, 1)))
    bench = context.bench
    runs, ncu_error = yield from run_ncu(bench, side, workload, limit_s)
    if runs:
        return merge_runs(runs, "ncu"), ""
    kernels, trace_error = yield from observe_call(bench, side, workload, "trace", limit_s, [])
    if kernels:
        runs = tuple(
            KernelRun(kernel=short_name(k.name), us=k.us, registers=k.registers) for k in kernels
        )
        limits = "torch's profiler told kernels and times, which is all that it can"
        return merge_runs(runs, "torch's profiler"), f"{ncu_error}; {limits}"
    return None, f"{ncu_error}; torch's profiler: {trace_error or 'it saw no kernel in the call'}"


def merge_runs(runs: Sequence[KernelRun], by: Literal["ncu", "torch's profiler"]) -> DeviceProfile:
    """Combine launches by kernel. Shares: means weighted by time; None if one is unknown."""
    kernels = []
    for name in dict.fromkeys(launch.kernel for launch in runs):
        launches = [launch for launch in runs if launch.kernel == name]
        weights = [launch.us or 0.0 for launch in launches]
        reasons = dict.fromkeys(reason for launch in launches for reason in launch.stalls)
        columns = {fact: [getattr(run, fact) for run in launches] for fact in SHARES}
        columns |= {reason: [run.stalls.get(reason) for run in launches] for reason in reasons}
        means: dict[str, float] = {}  # Without shares that are unknown in one launch.
        for share, values in columns.items():
            if None not in values:
                means[share] = fmean(values, weights if any(weights) else None)
        stalls = sorted(filter(means.get, reasons), key=lambda reason: -means[reason])
        registers = [run.registers for run in launches if run.registers is not None]
        kernel = KernelRun(
            kernel=name,
            launches=len(launches),
            us=sum_if_all_known([launch.us for launch in launches]),
            registers=max(registers, default=None),
            stalls={reason: means[reason] for reason in stalls[:MOST_STALLS]},
            **{fact: means.get(fact) for fact in SHARES},
        )
        kernels.append(kernel)
    return DeviceProfile(
        by=by,
        kernels=tuple(sorted(kernels, key=lambda kernel: -(kernel.us or 0.0))),
        launches=len(runs),
        us=sum_if_all_known([launch.us for launch in runs]),
        cut=by == "ncu" and len(runs) >= MOST_LAUNCHES,  # ncu stops after so many launches.
    )


@dataclass(frozen=True)
class PeakRates:
    """Peak rates of a device; None if unknown."""

    flops_per_s: float | None = None  # Operations per second; a multiply-add counts as two.
    bytes_per_s: float | None = None
    source: str = ""  # Source of these rates, or why they are unknown.

    def facts(
        self, flops: float | None, moved_bytes: float | None, seconds: float
    ) -> tuple[dict[str, Fact], str]:
        """Roofline facts of a call (Williams, Waterman, Patterson 2009), and the roofs that it
        exceeds, as `1.56 of the arithmetic roof`. `moved_bytes`: the least, so `bandwidth_share` is
        a lower bound. A share above MOST_SHARE proves the roof wrong: it and `roof` become None."""
        intensity = flops / moved_bytes if flops is not None and moved_bytes else None
        facts: dict[str, Fact] = {"flops": flops, "bytes": moved_bytes, "intensity": intensity}
        exceeded = []
        for fact, roof, amount, peak in (
            ("flops_share", "arithmetic", flops, self.flops_per_s),
            ("bandwidth_share", "bandwidth", moved_bytes, self.bytes_per_s),
        ):
            facts[fact] = None
            if amount is not None and peak and seconds > 0:
                share = amount / seconds / peak
                if share > MOST_SHARE:
                    exceeded.append(f"{share:.3g} of the {roof} roof")
                else:
                    facts[fact] = min(share, 1.0)
        facts["roof"] = None
        if not exceeded and intensity is not None and self.flops_per_s and self.bytes_per_s:
            # Left of the roofline's ridge, bandwidth limits the call.
            is_bandwidth_bound = intensity * self.bytes_per_s < self.flops_per_s
            facts["roof"] = "memory" if is_bandwidth_bound else "compute"
        return facts, " and ".join(exceeded)


def measure_roof(folder: Path, dtype: Dtype, threads: int, working_set: int) -> Waiting[PeakRates]:
    """Measure a processor's rates with `threads` threads on `working_set` bytes, by a program built
    in `folder`. Repeats disturbed ones; two-byte types run as float32. Raises LoopError."""
    program = folder / "roof"
    compiler = next((name for name in ROOF_COMPILERS if compiler_version(name)), None)
    if compiler is None:
        raise WorkFailed(f"{UNMEASURED}: there is no C compiler")
    command = [compiler, *ROOF_FLAGS, str(ROOF_SOURCE), "-o", str(program)]
    note = "compiling the program that measures roofs"
    completed = yield from run(command, limit_s=ROOF_LIMIT_S, note=note)
    if not completed.succeeded:
        raise WorkFailed(f"{UNMEASURED}: {compiler} {completed.ending}")
    kind = "double" if dtype == "float64" else "float"
    command = [str(program), kind, str(threads), str(working_set), str(ROOF_TRIAL_MS)]
    note = "measuring what the processor reaches"
    for _ in range(ROOF_TRIES):
        completed = yield from run(command, limit_s=ROOF_LIMIT_S, note=note)
        if not completed.succeeded:
            raise WorkFailed(f"{UNMEASURED}: {completed.ending}")
        figures = json.loads(completed.output)
        flops_per_s, bytes_per_s = figures["flops_per_s"], figures["bytes_per_s"]
        # A rate far below the best trial's: another program shared the core.
        if flops_per_s >= UNDISTURBED_SHARE * figures["most_flops_per_s"]:
            rates = f"of {flops_per_s / 1e9:.3g} GFLOP/s and {bytes_per_s / 1e9:.3g} GB/s"
            source = f"{rates}, measured here on {say.count(threads, 'thread')}"
            return PeakRates(flops_per_s, bytes_per_s, source)
    raise WorkFailed(f"{UNMEASURED}: other programs ran meanwhile")
