"""Which variants may be timed; and a lock on the device, with a check for other programs on it."""

import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from loop.base.locks import LockHeld, locked
from loop.base.places import shared_locks
from loop.base.processes import Tick
from loop.gate.kernel import builds, workloads
from loop.machine import nvml
from loop.machine.gpus import gpus
from loop.machine.nvml import OtherUse
from loop.model.measurement import Build
from loop.model.output import VerifyOutput
from loop.steps.context import Context
from loop.timing import samples
from loop.timing.samples import Timings
from loop.workers.bench import Bench

REST_S = 2.0
"""How long to wait for an idle GPU: its load reading may be a second old, and be our own work."""


@dataclass(frozen=True)
class ReadyVariants:
    """Variants that may be timed, with their builds; or `why_not`, with a hint."""

    right: tuple[str, ...] = ()
    builds: Mapping[str, Build] | None = None
    why_not: str = ""
    hint: str | None = None


def ready_variants(context: Context) -> Generator[Tick, None, ReadyVariants]:
    """The variants that passed verification in this session, with the builds that were checked."""
    verified = context.latest("kernel.verify")
    checks = VerifyOutput.model_validate(verified) if verified else None
    if checks is None or not checks.right:
        return ReadyVariants(why_not="no variant is right" if checks else "nothing was verified")
    built = {build.variant: build for build in (yield from builds(context))[0]}
    for each in checks.variants:
        build = built.get(each.variant)
        if each.build_id and (build is None or build.build_id != each.build_id):
            why = f"{each.variant} was edited after it was verified"
            return ReadyVariants(why_not=why, hint="run the session again")
    if not workloads(context, context.task.plan.workloads):
        return ReadyVariants(why_not="no workload that is timed could be judged")
    return ReadyVariants(checks.right, built)


def hold_device(bench: Bench, stack: ExitStack) -> Generator[Tick, None, str]:
    """Lock the device until `stack` closes; wait while another session measures on it.

    Returns a warning: whom it waited for, and other users of the GPU. Empty if there are none.
    """
    own = bench.cache / "locks"
    own.mkdir(parents=True, exist_ok=True)
    gpu = gpus().first if bench.device == "cuda" else None
    notes = []
    for folder in filter(None, (own, shared_locks())):  # The same order everywhere: no deadlock.
        notes.append((yield from _hold(folder / (gpu.uuid if gpu else bench.device), stack)))
    notes.append((yield from warn_before(bench)))
    return "; ".join(filter(None, notes))


def _hold(lock: Path, stack: ExitStack) -> Generator[Tick, None, str]:
    """Hold a lock until `stack` closes; for whom it waited. A parent's lock counts as ours."""
    begun, whom = time.monotonic(), ""
    while True:
        try:
            stack.enter_context(locked(lock))
            return f"waited {time.monotonic() - begun:.0f} s for {whom}, which measured" if whom else ""
        except LockHeld as held:
            if held.pid in (os.getpid(), *(parent.pid for parent in psutil.Process().parents())):
                return ""
            yield Tick(f"waiting for {held.holder}, which measures", is_urgent=not whom)
            whom = whom or held.holder
            time.sleep(0.1)


def warnings(bench: Bench, before: str, timings: Timings) -> tuple[str, ...]:
    """What disturbed the device. `before`: the text from `hold_device`."""
    return tuple(filter(None, (before or warn_after(bench), samples.warn_of_other_programs(timings.segments))))


def with_warnings(message: str, warned: Sequence[str]) -> str:
    """Append the warnings to a step's one-line message."""
    return "; ".join([message, *(f"warning: {text}" for text in warned)])


def warn_before(bench: Bench) -> Generator[Tick, None, str]:
    """A warning about other programs on the GPU before timing starts; empty if there are none."""
    sensors, begun = bench.sensors, time.monotonic()
    if sensors is None:
        return ""
    while (busy := sensors.busy_percent() or 0) > nvml.BUSY_PERCENT and time.monotonic() - begun < REST_S:
        yield Tick(f"waiting for the GPU to rest, {busy} % busy")
        time.sleep(0.1)
    warning = warn_after(bench, busy)
    if warning:
        yield Tick(warning)
    return warning


def warn_after(bench: Bench, busy: int | None = None) -> str:
    """A warning about other programs, memory of unknown owner, and load (`busy`, %); else empty."""
    if bench.sensors is None:
        return ""
    users, gpu = bench.sensors.users() or (), gpus().first
    others = [user for user in users if user.pid != os.getpid()]
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    held = sum(user.memory_bytes or 0 for user in users)
    company = OtherUse(
        others=nvml.other_users(others, children, set(psutil.pids())),
        loose_bytes=(bench.sensors.memory() or (0, 0))[1] - held,
        busy_percent=busy,
    )
    return company.warning(gpu.name if gpu else "the GPU")
