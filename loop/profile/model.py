"""Results of profiles, launches and compiler reports."""

from typing import Literal

from loop.model.base import Model
from loop.model.measurement import CompiledLibrary, Placement
from loop.model.output import Output
from loop.model.profile import Occupancy, Profile


class ProfileOutput(Output):
    """The bottleneck of each variant on its worst workload."""

    actions = ("kernel.profile",)

    profiles: tuple[Profile, ...] = ()
    """A profile for each variant that was timed."""


class ParallelismOutput(Output):
    """How launches fill their devices."""

    actions = ("kernel.parallelism",)

    fillings: tuple[Occupancy, ...] = ()
    """An occupancy for each variant and workload with a known launch."""


class ResourcesOutput(Output):
    """Resources and occupancy of nvcc's kernels on a GPU, which need not be at hand."""

    actions = ("kernel.resources",)

    device: str = ""
    """Architecture of the GPU, such as `sm_89`."""
    device_name: str = ""
    """Name of the GPU; empty if the manifest has no facts about it."""
    libraries: tuple[CompiledLibrary, ...] = ()
    """The compiler's report on each library; empty without nvcc."""
    placements: tuple[Placement, ...] = ()
    """Distinct launches of the host code, with their occupancy."""
    fillings: tuple[Occupancy, ...] = ()
    """How each timed call fills the GPU, by its largest launch."""
    spilled: tuple[str, ...] = ()
    """Kernels that spill more bytes than their budget allows."""
    broken: tuple[str, ...] = ()
    """Budgets that are exceeded."""
    impossible: tuple[str, ...] = ()
    """Launches that the GPU refuses."""


class RefusedSource(Model):
    """A source that must not compile, and what the compiler did with it."""

    variant: str
    """Variant whose build recipe was used."""
    title: str
    """Name of the error in the source."""
    status: Literal["refused", "compiled", "other"]
    """Refused with the promised message; compiled; or refused for another reason."""
    message: str
    """The compiler's error, or what happened instead."""


class MissingInstance(Model):
    """A promised template instance that a library does not hold."""

    variant: str
    """Name of the variant."""
    symbol: str
    """The instance, demangled."""
    file: str
    """Where its explicit instantiation belongs."""
    line: str
    """The line to add there."""


class PromisesOutput(Output):
    """Checks of the manifest's promises: sources that must not compile, and template instances."""

    actions = ("kernel.must_not_compile", "kernel.instances")

    checks: tuple[RefusedSource, ...] = ()
    """A check for each source that must not compile, and variant."""
    promised: int = 0
    """Number of template instances that were looked up."""
    missing: tuple[MissingInstance, ...] = ()
    """Promised instances that a library lacks."""
