"""What the report says of bottlenecks: a leaf of the decision tree for each variant, and what it rests on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.model.device_profile import DeviceProfile, KernelRun
from loop.model.output import outputs_of
from loop.model.profile import FACTS, Fact, Occupancy, Profile
from loop.model.record import Finished
from loop.profile.model import ParallelismOutput, ProfileOutput
from loop.report import format as say
from loop.report.markdown import Table, columns, filled

SAID_ABOVE = ("device", "ratio", "time_us")
"""Facts that stand in the sentence."""
MOST_KERNELS = 4
"""Kernels of a call that are shown."""


@dataclass(frozen=True)
class Leaf:
    """Where one variant does worst, why, and what to do about it."""

    variant: str
    where: str
    severity: str
    tool: str
    """Empty where nothing needs to be done."""
    bottleneck: str
    when: str
    """The condition that matched; empty where none did."""
    fix: str
    gain: str
    undecided: tuple[str, ...]
    """Rules before it that could not be decided."""


@dataclass(frozen=True)
class Bottleneck:
    """The section on bottlenecks."""

    leaves: tuple[Leaf, ...]
    facts: Table | None
    notes: tuple[str, ...]
    """Where facts come from, and why others are unknown."""
    parallelism: Table | None
    kernels: Table | None = None
    """What a profiler of the GPU saw, kernel by kernel."""
    calls: tuple[str, ...] = ()
    """What each profiled call came to."""


def bottleneck(finished: Sequence[Finished]) -> Bottleneck:
    """Everything that was profiled, and how launches fill their devices."""
    profiles = [profile for output in outputs_of(finished, ProfileOutput) for profile in output.profiles]
    fillings = [filling for output in outputs_of(finished, ParallelismOutput) for filling in output.fillings]
    return Bottleneck(
        leaves=tuple(leaf(profile) for profile in profiles),
        facts=_facts(profiles),
        notes=tuple(note for profile in profiles for note in _notes(profile)),
        parallelism=_parallelism(fillings),
        kernels=kernels(profiles),
        calls=totals(profiles),
    )


def leaf(profile: Profile) -> Leaf:
    """Where the tree led for one profile."""
    ratio, time_us = profile.facts.get("ratio"), profile.facts.get("time_us")
    figures = [say.times(ratio)] if isinstance(ratio, float) else []
    figures += [say.latency(time_us)] if isinstance(time_us, float) else []
    promised = profile.promise.text if profile.promise else ""
    return Leaf(
        variant=profile.variant,
        where=f"{profile.workload} ({', '.join(figures)})" if figures else profile.workload,
        severity=profile.severity or "stop, it may be left alone",
        tool=profile.tool or "",
        bottleneck=profile.bottleneck or "not decided",
        when=profile.when or "",
        fix=profile.fix or "",
        gain=f"{profile.gain or ''}{f' ({promised})' if promised else ''}",
        undecided=profile.undecided,
    )


def _facts(profiles: Sequence[Profile]) -> Table | None:
    """One column for each variant, one row for each known fact."""
    heads = columns("Fact", *(f">{profile.variant}" for profile in profiles), "What it is")
    rows = tuple(
        (name, *(value(profile.facts.get(name)) for profile in profiles), meaning)
        for name, meaning in FACTS.items()
        if name not in SAID_ABOVE and any(profile.facts.get(name) is not None for profile in profiles)
    )
    return filled(heads, rows)


def value(fact: Fact) -> str:
    """A fact as text."""
    if fact is None:
        return "unknown"
    return str(fact) if isinstance(fact, str | int) else say.significant(fact)


def _notes(profile: Profile) -> Iterator[str]:
    for names, source in _grouped(profile.sources):
        yield f"{profile.variant}, {names}: {source}"
    for names, why in _grouped(profile.unknown):
        yield f"{profile.variant}, {names} unknown: {why}"


def _grouped(notes: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Facts that share a note, together with it."""
    for text in dict.fromkeys(notes.values()):
        yield say.listed([name for name, other in notes.items() if other == text]), text


def _parallelism(fillings: Sequence[Occupancy]) -> Table | None:
    """One row a variant: the workload that fills its device least."""
    heads = columns(
        "Variant", "On", "Filled least on", ">Pieces of work", ">Places", ">Filled", ">Waves", "Limited by"
    )
    names = dict.fromkeys(filling.variant for filling in fillings)
    ordered = sorted(fillings, key=lambda filling: (filling.share, filling.used))
    rows = tuple(_filling(next(filling for filling in ordered if filling.variant == name)) for name in names)
    return filled(heads, rows)


def _filling(filling: Occupancy) -> tuple[str, ...]:
    unknown = (
        f" ({' and '.join(filling.unknown)} not declared)" if filling.unknown and filling.resident > 1 else ""
    )
    return (
        filling.variant,
        filling.on if filling.at_hand else f"{filling.on} (not at hand)",
        filling.workload,
        str(filling.items),
        f"{filling.units} x {filling.resident}",
        f"{100 * filling.share:.0f} %",
        say.significant(filling.waves),
        filling.limited_by + unknown,
    )


def kernels(profiles: Sequence[Profile]) -> Table | None:
    """A row a kernel of each profiled call, the longest of a call first."""
    heads = columns(
        *("Variant", "Kernel", ">Launches", ">Time", ">DRAM", ">SM", ">Warps", ">Bank conflicts", ">Registers"),
        "Its warps wait for",
    )
    watched = [(profile.variant, profile.watched) for profile in profiles if profile.watched is not None]
    rows = [(name, *_kernel(kernel)) for name, watched in watched for kernel in watched.kernels[:MOST_KERNELS]]
    return filled(heads, rows)


def _kernel(kernel_profile: KernelRun) -> tuple[str, ...]:
    shares = (kernel_profile.dram, kernel_profile.sm, kernel_profile.warps_active, kernel_profile.bank_conflicts)
    return (
        kernel_profile.kernel,
        str(kernel_profile.launches),
        "-" if kernel_profile.us is None else say.latency(kernel_profile.us),
        *(percent(share) for share in shares),
        "-" if kernel_profile.registers is None else str(kernel_profile.registers),
        ", ".join(f"{reason} {percent(share)}" for reason, share in kernel_profile.stalls.items()) or "-",
    )


def percent(share: float | None) -> str:
    """`37 %`, `0.3 %`; what is unknown is a dash."""
    if share is None:
        return "-"
    return f"{say.significant(100 * share, 2) if 0 < share < 0.01 else f'{100 * share:.0f}'} %"


def totals(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """What each profiled call came to, in a sentence."""
    return tuple(
        f"{profile.variant}, by {profile.watched.by}: {', '.join(_parts(profile.watched))}"
        for profile in profiles
        if profile.watched is not None
    )


def _parts(watched: DeviceProfile) -> Iterator[str]:
    took = "" if watched.us is None else f", {say.latency(watched.us)} together"
    many = "1 launch" if watched.launches == 1 else f"{watched.launches} launches"
    yield f"{many} of {say.count(len(watched.kernels), 'kernel')} in one call{took}"
    if watched.cut:
        yield "the first ones, for it may launch more"
    hidden = len(watched.kernels) - MOST_KERNELS
    if hidden > 0:
        yield f"{say.count(hidden, 'more kernel')} not shown"
