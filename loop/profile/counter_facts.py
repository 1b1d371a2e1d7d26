"""From the launches that a profiler saw to the profile of a call, and the facts of its longest kernel. Pure."""

from collections.abc import Mapping, Sequence
from typing import Literal

from loop.model.device_profile import DeviceProfile, KernelProfile, KernelRun

SHARES = ("dram", "sm", "warps_active", "bank_conflicts")
"""Facts that a profiler gives as shares, 0 to 1."""
MOST_STALLS = 3


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
