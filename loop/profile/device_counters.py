"""What the GPU itself says of one call: counters by ncu, else kernels and times by torch's profiler."""

from collections.abc import Generator, Mapping, Sequence
from typing import Literal

from loop.base.processes import Tick
from loop.model.device_profile import DeviceProfile, KernelProfile, KernelRun
from loop.model.target import Workload
from loop.profile import ncu
from loop.profile.profile import trace
from loop.steps.context import Context
from loop.workers.bench import Side

SHARES = ("dram", "sm", "warps_active", "bank_conflicts")
"""Facts that a profiler gives as shares, 0 to 1."""
MOST_STALLS = 3
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


def device_profile(
    runs: Sequence[KernelRun], by: Literal["ncu", "torch's profiler"], *, cut: bool = False
) -> DeviceProfile | None:
    """The profile of a call from its launches; None where there are none."""
    if not runs:
        return None
    names = dict.fromkeys(run.kernel for run in runs)
    kernels = [_kernel(name, [run for run in runs if run.kernel == name]) for name in names]
    return DeviceProfile(
        by=by,
        kernels=tuple(sorted(kernels, key=lambda one: -(one.us or 0.0))),
        launches=len(runs),
        us=_sum([run.us for run in runs]),
        cut=cut,
    )


def _kernel(name: str, runs: Sequence[KernelRun]) -> KernelProfile:
    weights = [run.us or 0.0 for run in runs]
    return KernelProfile(
        kernel=name,
        launches=len(runs),
        us=_sum([run.us for run in runs]),
        registers=max((run.registers for run in runs if run.registers is not None), default=None),
        stalls=_stalls([run.stalls for run in runs], weights),
        **{share: _mean([getattr(run, share) for run in runs], weights) for share in SHARES},
    )


def _sum(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return sum(known) if len(known) == len(times) else None


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """The mean by weight; plain where nothing has a weight, None where a value is missing."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    total = sum(weights)
    if not total:
        return sum(known) / len(known)
    return sum(value * weight for value, weight in zip(known, weights, strict=True)) / total


def _stalls(found: Sequence[Mapping[str, float]], weights: Sequence[float]) -> dict[str, float]:
    """The reasons that take most of a warp's time, most first."""
    reasons = dict.fromkeys(reason for one in found for reason in one)
    means = {reason: _mean([one.get(reason) for one in found], weights) for reason in reasons}
    known = {reason: share for reason, share in means.items() if share}
    return dict(sorted(known.items(), key=lambda item: -item[1])[:MOST_STALLS])


def facts(profile: DeviceProfile) -> dict[str, float | str | None]:
    """What the decision tree may read: of the kernel that took longest."""
    longest = profile.longest
    return {
        **{share: getattr(longest, share) for share in SHARES},
        "stall": next(iter(longest.stalls), None),
    }


def source(profile: DeviceProfile) -> str:
    """Where these facts come from: `ncu, of small_kernel, 78% of the time of 2 kernels`."""
    longest, others = profile.longest, len(profile.kernels)
    if others == 1:
        return f"{profile.by}, of {longest.kernel}"
    if not profile.us or longest.us is None:
        return f"{profile.by}, of {longest.kernel}, the first of {others} kernels"
    return f"{profile.by}, of {longest.kernel}, {longest.us / profile.us:.0%} of the time of {others} kernels"
