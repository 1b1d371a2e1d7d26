"""Which variants may be timed; and a lock on the device, with a check for other programs on it."""

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import psutil

from loop.base.locks import LockHeld, locked
from loop.base.places import shared_locks
from loop.base.processes import Tick, Waiting
from loop.gate.kernel import compile_all, unjudged_workloads, variants_to_build, workloads
from loop.machine import nvml
from loop.machine.machine import cores, detect_gpus
from loop.model.measurement import Build
from loop.model.output import VerifyOutput
from loop.report import format as say
from loop.steps.context import Context
from loop.timing import samples
from loop.timing.samples import Timings
from loop.workers.bench import UNJUDGED_HINT, Bench

IDLE_WAIT_S = 2.0  # Longest wait for an idle GPU: its load may be read late, and be our own work.


@dataclass(frozen=True)
class ReadyVariants:
    """Variants that may be timed, with their builds; or `why_not`, with a hint."""

    right: tuple[str, ...] = ()
    builds: Mapping[str, Build] | None = None
    why_not: str = ""
    hint: str | None = None


def ready_variants(context: Context) -> Waiting[ReadyVariants]:
    """The variants that passed verification in this session, with the builds that were checked, and
    builds of the others; else `why_not`. Builds what the cache has lost."""
    verification = context.latest_output("kernel.verify", VerifyOutput)
    if verification is None or not verification.right:
        why_not = "no variant is right" if verification else "nothing was verified"
        return ReadyVariants(why_not=why_not)
    variants = variants_to_build(context, context.task.variants)
    current_builds, _ = yield from compile_all(context, variants)
    build_by_variant = {build.variant: build for build in current_builds}
    for checks in verification.variants:
        build = build_by_variant.get(checks.variant)
        if checks.build_id and (build is None or build.build_id != checks.build_id):
            reason = f"{checks.variant} was edited after it was verified"
            return ReadyVariants(why_not=reason, hint="run the session again")
    if not workloads(context, context.task.plan.workloads):
        reason = next(iter(unjudged_workloads(context).values()), "there is none")
        why_not = f"no workload that is timed could be judged: {reason}"
        return ReadyVariants(why_not=why_not, hint=UNJUDGED_HINT)
    return ReadyVariants(verification.right, build_by_variant)


def hold_device(bench: Bench, stack: ExitStack) -> Waiting[str]:
    """Lock the device until `stack` closes; wait while another session measures on it, then until a
    GPU is idle. Returns a warning: whom it waited for, and other users of the GPU; else empty."""
    project_locks = bench.cache / "locks"
    project_locks.mkdir(parents=True, exist_ok=True)
    gpu = detect_gpus().first if bench.device == "cuda" else None
    lock_name = gpu.uuid if gpu else bench.device
    warning_texts = list[str]()
    # The process that started this command may hold the lock: it counts as ours.
    own_pids = (os.getpid(), *(parent.pid for parent in psutil.Process().parents()))
    for folder in filter(None, (project_locks, shared_locks())):  # In one order: no deadlock.
        start_time, first_holder = time.monotonic(), ""
        while True:
            try:
                stack.enter_context(locked(folder / lock_name))
                break
            except LockHeld as error:
                if error.pid in own_pids:
                    break
                note = f"waiting for {error.holder}, which measures"
                yield Tick(note, is_urgent=not first_holder)
                first_holder = first_holder or error.holder
                time.sleep(0.1)
        waited = f"waited {time.monotonic() - start_time:.0f} s for {first_holder}, which measured"
        warning_texts += [waited] if first_holder else []
    warning_texts.append((yield from wait_for_idle_gpu(bench)))
    return "; ".join(filter(None, warning_texts))


def disturbance_warnings(bench: Bench, lock_warning: str, timings: Timings) -> tuple[str, ...]:
    """What disturbed the timing: users of the device, programs, threads without their own core."""
    warning_texts = [lock_warning or describe_gpu_use(bench)]
    warning_texts.append(samples.warn_of_other_programs(timings.segments))
    core_count = say.count(bench.threads, "core")
    for side, threads in timings.crowding_threads.items():
        cure = "let it use OMP_NUM_THREADS"
        if threads <= cores():
            cure = f"--threads {threads} gives each a core"
        crowd = f"{side} ran {threads} threads on {core_count}"
        warning_texts.append(f"{crowd}, and they wait for each other: {cure}")
    return tuple(filter(None, warning_texts))


def wait_for_idle_gpu(bench: Bench) -> Waiting[str]:
    """Wait until the GPU is idle, at most `IDLE_WAIT_S`; a warning about other programs, or ''."""
    sensors, deadline = bench.sensors, time.monotonic() + IDLE_WAIT_S
    if sensors is None:
        return ""
    busy_percent = sensors.busy_percent() or 0
    while busy_percent > nvml.BUSY_PERCENT and time.monotonic() < deadline:
        yield Tick(f"waiting for the GPU to rest, {busy_percent} % busy")
        time.sleep(0.1)
        busy_percent = sensors.busy_percent() or 0
    return describe_gpu_use(bench, busy_percent)


def describe_gpu_use(bench: Bench, busy_percent: int | None = None) -> str:
    """A warning about other programs on the GPU, memory of unknown owner, and load; else empty.
    `busy_percent`: the load before timing; None: not to be judged, as it may be our own."""
    if bench.sensors is None:
        return ""
    users, gpu = bench.sensors.users() or (), detect_gpus().first
    name = gpu.name if gpu else "the GPU"
    others = [user for user in users if user.pid != os.getpid()]
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    other_users = nvml.other_users(others, children, set(psutil.pids()))
    known_bytes = sum(user.memory_bytes or 0 for user in users)
    unexplained_bytes = (bench.sensors.memory() or (0, 0))[1] - known_bytes
    return nvml.warn_of_others(name, other_users, unexplained_bytes, busy_percent)
