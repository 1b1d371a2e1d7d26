"""What the GPU itself says of one call: counters by ncu, else kernels and times by torch's profiler."""

from collections.abc import Generator

from loop.base.processes import Tick
from loop.model.device_profile import DeviceProfile
from loop.model.target import Workload
from loop.profile import ncu
from loop.profile.counter_facts import device_profile
from loop.profile.profile import trace
from loop.steps.context import Context
from loop.workers.bench import Side

LEAST_S = 10.0
"""A profiler is given that long at least, however many variants there are."""


def watch(
    context: Context, side: Side, workload: Workload, variants: int
) -> Generator[Tick, None, tuple[DeviceProfile | None, str]]:
    """The profile of one call, and why counters of it are unknown; either may be missing.

    `variants`: how many share the step's limit.
    """
    limit_s = max(LEAST_S, context.kill_after_s / (2 * max(variants, 1)))
    counted = yield from ncu.count(context.bench, side, workload, limit_s)
    if counted.runs:
        return device_profile(counted.runs, "ncu", cut=counted.cut), ""
    traced = yield from trace(context.bench, side, workload, limit_s)
    if traced.runs:
        told = "torch's profiler told kernels and times, which is all that it can"
        return device_profile(traced.runs, "torch's profiler"), f"{counted.why}; {told}"
    return None, "; ".join(dict.fromkeys([counted.why, traced.why]))
