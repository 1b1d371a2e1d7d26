"""What profiles, launches and compilers tell of a kernel."""

from typing import Literal

from loop.model.base import Model
from loop.model.output import Output
from loop.model.profile import Occupancy, Profile
from loop.model.resources import CompiledLibrary, Placement


class ProfileOutput(Output):
    """Why each variant is as fast as it is, where it does worst."""

    actions = ("kernel.profile",)

    profiles: tuple[Profile, ...] = ()
    """One a variant that has a speed."""


class ParallelismOutput(Output):
    """Whether launches fill their devices."""

    actions = ("kernel.parallelism",)

    fillings: tuple[Occupancy, ...] = ()
    """One a variant with a declared launch and workload."""
    starved: tuple[str, ...] = ()
    """Variants that leave places empty on some workload."""
    least_share: float | None = None
    """Smallest share of the places that is taken; None where no launch is declared."""


class ResourcesOutput(Output):
    """What a GPU would do with kernels that nvcc compiles: by compiler, host code and its own limits."""

    actions = ("kernel.resources",)

    device: str = ""
    """The GPU reckoned with, as in `sm_89`."""
    device_name: str = ""
    """Its name; empty where the manifest has no facts on it."""
    libraries: tuple[CompiledLibrary, ...] = ()
    """The compiler's report, library by library; none without nvcc."""
    placements: tuple[Placement, ...] = ()
    """Shapes of launch, as the host code told them."""
    fillings: tuple[Occupancy, ...] = ()
    """How each timed call fills the GPU, by its largest launch."""
    spilled: tuple[str, ...] = ()
    """Kernels that spill more than they may."""
    broken: tuple[str, ...] = ()
    """Budgets that are not kept."""
    impossible: tuple[str, ...] = ()
    """Launches that the GPU refuses."""


class RefusedSource(Model):
    """One source that must not compile, and what the compiler did with it."""

    variant: str
    """Variant whose recipe it was compiled with."""
    title: str
    """What is wrong with the source."""
    status: Literal["refused", "compiled", "other"]
    """Refused with the words that are promised; compiled all the same; or refused for another reason."""
    message: str
    """The compiler's own error, or what happened."""


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
    """What the manifest promises of the compiled code: what must not compile, or template instances."""

    actions = ("kernel.must_not_compile", "kernel.instances")

    checks: tuple[RefusedSource, ...] = ()
    """Configurations that the compiler has to refuse: one a source and variant."""
    promised: int = 0
    """Instances that were looked up."""
    missing: tuple[MissingInstance, ...] = ()
    """Those that are not there."""
