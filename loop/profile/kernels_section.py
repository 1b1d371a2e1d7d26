"""The kernels of a call as a profiler of the GPU saw them."""

from collections.abc import Iterator, Sequence

from loop.model.device_profile import DeviceProfile, KernelProfile
from loop.model.profile import Profile
from loop.report import format as say
from loop.report.markdown import Table, columns, filled

MOST_KERNELS = 4
"""Kernels of a call that are shown."""


def kernels(profiles: Sequence[Profile]) -> Table | None:
    """A row a kernel of each profiled call, the longest of a call first."""
    heads = columns(
        *("Variant", "Kernel", ">Launches", ">Time", ">DRAM", ">SM", ">Warps", ">Bank conflicts", ">Registers"),
        "Its warps wait for",
    )
    seen = [(one.variant, one.watched) for one in profiles if one.watched is not None]
    rows = [(name, *_kernel(kernel)) for name, watched in seen for kernel in watched.kernels[:MOST_KERNELS]]
    return filled(heads, rows)


def _kernel(one: KernelProfile) -> tuple[str, ...]:
    shares = (one.dram, one.sm, one.warps_active, one.bank_conflicts)
    return (
        one.kernel,
        str(one.launches),
        "-" if one.us is None else say.latency(one.us),
        *(percent(share) for share in shares),
        "-" if one.registers is None else str(one.registers),
        ", ".join(f"{reason} {percent(share)}" for reason, share in one.stalls.items()) or "-",
    )


def percent(share: float | None) -> str:
    """`37 %`, `0.3 %`; what is unknown is a dash."""
    if share is None:
        return "-"
    return f"{say.significant(100 * share, 2) if 0 < share < 0.01 else f'{100 * share:.0f}'} %"


def totals(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """What each profiled call came to, in a sentence."""
    return tuple(_total(one.variant, one.watched) for one in profiles if one.watched is not None)


def _total(variant: str, watched: DeviceProfile) -> str:
    return f"{variant}, by {watched.by}: {', '.join(_parts(watched))}"


def _parts(watched: DeviceProfile) -> Iterator[str]:
    took = "" if watched.us is None else f", {say.latency(watched.us)} together"
    many = "1 launch" if watched.launches == 1 else f"{watched.launches} launches"
    yield f"{many} of {say.count(len(watched.kernels), 'kernel')} in one call{took}"
    if watched.cut:
        yield "the first ones, for it may launch more"
    hidden = len(watched.kernels) - MOST_KERNELS
    if hidden > 0:
        yield f"{say.count(hidden, 'more kernel')} not shown"
