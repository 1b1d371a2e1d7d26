"""Outputs of the gate's actions: checks of the environment, of builds and of answers."""

from typing import Literal

from pydantic import Field

from loop.model.measurement import Build, PropertyCheck, VariantChecks, Weaknesses
from loop.model.output import Output
from loop.model.profile import DeviceFacts
from loop.model.target import Workload


class TorchOutput(Output):
    """The torch check of the environment."""

    actions = ("environment.torch",)

    version: str = ""
    """Version of torch; empty when it cannot be imported."""
    cuda_build: str | None = None
    """CUDA release torch was built for; None for a CPU build."""
    threads: int = 0


class NumpyOutput(Output):
    """The NumPy check of the environment."""

    actions = ("environment.numpy",)

    version: str = ""
    shares_memory: bool = False
    """Whether torch and NumPy can share a buffer, so that their binary interfaces agree."""


class DeviceOutput(Output):
    """The device check of the environment."""

    actions = ("environment.device",)

    device: str = ""
    name: str = ""
    capability: str | None = None
    """Compute capability of the GPU, as in 8.9."""
    uuid: str | None = None
    """The GPU's UUID, as `nvidia-smi -L` prints it."""
    facts: DeviceFacts | None = None
    """The GPU's properties, as its driver reports them; None on a CPU."""
    matmul_error: float | None = None
    """Largest relative error of a small matrix product on the device."""
    driver: str | None = None
    cuda: str | None = None
    """Newest CUDA release that the driver supports."""
    toolkit: str | None = None
    """CUDA release of nvcc; None without nvcc."""


class LibrariesOutput(Output):
    """The library-path check of the environment."""

    actions = ("environment.libraries",)

    duplicates: tuple[str, ...] = ()
    """Runtime libraries that were loaded more than once from different files."""


class ExtensionOutput(Output):
    """The check of the built variants."""

    actions = ("environment.extension",)

    extension: Literal["ready", "missing", "broken"] = "missing"
    """`ready`: every build is right; `missing`: one needs a build; `broken`: one is wrong."""


class PreemptionOutput(Output):
    """Whether the cloud is about to take the machine away."""

    actions = ("session.preemption",)

    cloud: str | None = None
    """The machine's cloud; None if no metadata server answers."""
    notice: str = ""
    """What will happen to the machine; empty if nothing is planned."""


class SourcesOutput(Output):
    """What a variant's sources include, before anything is compiled."""

    actions = ("kernel.sources",)

    units: int = 0
    """Largest number of translation units of any variant."""
    framework_headers: tuple[str, ...] = ()


class BuildOutput(Output):
    """Builds of the selected variants."""

    actions = ("kernel.build",)

    builds: tuple[Build, ...] = ()
    seconds: float = 0.0
    """Compiler time of this step; 0 when all was cached."""


class LoadOutput(Output):
    """Whether built libraries load, export the declared symbols, and match the sources on disk."""

    actions = ("kernel.load",)

    loaded: tuple[str, ...] = ()


class ShareOutput(Output):
    """Checks by one job of an executor: all variants on a share of the workloads."""

    actions = ("kernel.verify_share",)

    sides: tuple[VariantChecks, ...] = ()
    """The checks of each variant; on a CPU followed by checks with another number of threads."""
    control: VariantChecks
    left_out: tuple[Workload, ...] = ()
    no_room: tuple[str, ...] = ()
    """Workloads that the device has no memory for, and why."""
    notes: tuple[str, ...] = ()
    blind_spots: Weaknesses = Field(default_factory=dict)
    """Blind spots of the drawn inputs, and what the reference does not read."""
    zeros_pass: tuple[str, ...] = ()
    """Workloads on which an output of all zeros would pass."""


class PropertiesOutput(Output):
    """Property checks: relations between a variant's own outputs, without a reference."""

    actions = ("kernel.properties",)

    checks: tuple[PropertyCheck, ...] = ()
    held: int = 0
