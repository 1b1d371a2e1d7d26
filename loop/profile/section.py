"""What the report says of bottlenecks: a leaf of the decision tree for each variant, and what it rests on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.model.device_profile import DeviceProfile, KernelProfile
from loop.model.output import outputs_of
from loop.model.profile import FACTS, Fact, Occupancy, Profile
from loop.model.record import Finished
from loop.profile.model import ParallelismOutput, ProfileOutput
from loop.profile.promised import in_words
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
    profiles = [one for output in outputs_of(finished, ProfileOutput) for one in output.profiles]
    fillings = [one for output in outputs_of(finished, ParallelismOutput) for one in output.fillings]
    return Bottleneck(
        leaves=tuple(leaf(one) for one in profiles),
        facts=_facts(profiles),
        notes=tuple(note for one in profiles for note in _notes(one)),
        parallelism=_parallelism(fillings),
        kernels=kernels(profiles),
        calls=totals(profiles),
    )


def leaf(one: Profile) -> Leaf:
    """Where the tree led for one profile."""
    ratio, time_us = one.facts.get("ratio"), one.facts.get("time_us")
    figures = [say.times(ratio)] if isinstance(ratio, float) else []
    figures += [say.latency(time_us)] if isinstance(time_us, float) else []
    promised = in_words(one.promise)
    return Leaf(
        variant=one.variant,
        where=f"{one.workload} ({', '.join(figures)})" if figures else one.workload,
        severity=one.severity or "stop, it may be left alone",
        tool=one.tool or "",
        bottleneck=one.bottleneck or "not decided",
        when=one.when or "",
        fix=one.fix or "",
        gain=f"{one.gain or ''}{f' ({promised})' if promised else ''}",
        undecided=one.undecided,
    )


def _facts(profiles: Sequence[Profile]) -> Table | None:
    """A column a variant; a row a fact that is known of any."""
    heads = columns("Fact", *(f">{one.variant}" for one in profiles), "What it is")
    rows = tuple(
        (name, *(value(one.facts.get(name)) for one in profiles), meaning)
        for name, meaning in FACTS.items()
        if name not in SAID_ABOVE and any(one.facts.get(name) is not None for one in profiles)
    )
    return filled(heads, rows)


def value(fact: Fact) -> str:
    """A fact as text."""
    if fact is None:
        return "unknown"
    return str(fact) if isinstance(fact, str | int) else say.significant(fact)


def _notes(one: Profile) -> Iterator[str]:
    for names, source in _grouped(one.sources):
        yield f"{one.variant}, {names}: {source}"
    for names, why in _grouped(one.unknown):
        yield f"{one.variant}, {names} unknown: {why}"


def _grouped(notes: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Facts that share a note, together."""
    for text in dict.fromkeys(notes.values()):
        yield say.listed([name for name, other in notes.items() if other == text]), text


def _parallelism(fillings: Sequence[Occupancy]) -> Table | None:
    """One row a variant: the workload that fills its device least."""
    heads = columns(
        "Variant", "On", "Filled least on", ">Pieces of work", ">Places", ">Filled", ">Waves", "Limited by"
    )
    names = dict.fromkeys(one.variant for one in fillings)
    ordered = sorted(fillings, key=lambda one: (one.share, one.used))
    rows = tuple(_filling(next(one for one in ordered if one.variant == name)) for name in names)
    return filled(heads, rows)


def _filling(one: Occupancy) -> tuple[str, ...]:
    unknown = f" ({' and '.join(one.unknown)} not declared)" if one.unknown and one.resident > 1 else ""
    return (
        one.variant,
        one.on if one.at_hand else f"{one.on} (not at hand)",
        one.workload,
        str(one.items),
        f"{one.units} x {one.resident}",
        f"{100 * one.share:.0f} %",
        say.significant(one.waves),
        one.limited_by + unknown,
    )


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
    watched = ((one.variant, one.watched) for one in profiles if one.watched is not None)
    return tuple(f"{variant}, by {seen.by}: {', '.join(_parts(seen))}" for variant, seen in watched)


def _parts(watched: DeviceProfile) -> Iterator[str]:
    took = "" if watched.us is None else f", {say.latency(watched.us)} together"
    many = "1 launch" if watched.launches == 1 else f"{watched.launches} launches"
    yield f"{many} of {say.count(len(watched.kernels), 'kernel')} in one call{took}"
    if watched.cut:
        yield "the first ones, for it may launch more"
    hidden = len(watched.kernels) - MOST_KERNELS
    if hidden > 0:
        yield f"{say.count(hidden, 'more kernel')} not shown"
