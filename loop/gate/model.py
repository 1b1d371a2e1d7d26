"""What the checks of the environment, of builds and of answers find."""

from typing import Literal

from pydantic import Field

from loop.model.measurement import Build, Looked, PropertyCheck, VariantChecks
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
    """Threads torch uses."""


class NumpyOutput(Output):
    """The NumPy check of the environment."""

    actions = ("environment.numpy",)

    version: str = ""
    """Version of NumPy; empty when it cannot be imported."""
    shares_memory: bool = False
    """Whether torch and NumPy see the same memory: their binary interfaces agree."""


class DeviceOutput(Output):
    """The device check of the environment."""

    actions = ("environment.device",)

    device: str = ""
    """Where the session runs: cpu or cuda."""
    name: str = ""
    """Processor or GPU."""
    capability: str | None = None
    """Compute capability of the GPU, as in 8.9."""
    uuid: str | None = None
    """Which GPU it is, as nvidia-smi -L shows it."""
    facts: DeviceFacts | None = None
    """What its driver says that it can do."""
    matmul_error: float | None = None
    """Largest relative error of a small matrix product on it."""
    driver: str | None = None
    """Version of the NVIDIA driver."""
    cuda: str | None = None
    """Newest CUDA release whose code that driver runs."""
    toolkit: str | None = None
    """Release of nvcc."""


class LibrariesOutput(Output):
    """The library-path check of the environment."""

    actions = ("environment.libraries",)

    missing: tuple[str, ...] = ()
    """Libraries that the dynamic linker did not find."""
    duplicates: tuple[str, ...] = ()
    """Runtime libraries that were loaded more than once from different files."""


class ExtensionOutput(Output):
    """The check of the built variants."""

    actions = ("environment.extension",)

    extension: Literal["ready", "missing", "broken"] = "missing"
    """Loads and answers; has to be built; or was built and does not work."""


class SourcesOutput(Output):
    """What a variant's sources include, before anything is compiled."""

    actions = ("kernel.sources",)

    units: int = 0
    """Translation units of the variant that has most."""
    framework_headers: tuple[str, ...] = ()
    """Framework headers that any of them includes."""


class BuildOutput(Output):
    """Builds of the selected variants."""

    actions = ("kernel.build",)

    builds: tuple[Build, ...] = ()
    """One a compiled variant."""
    units: int = 0
    """Translation units of the variant that has most."""
    framework_headers: tuple[str, ...] = ()
    """Framework headers that any of them includes."""
    seconds: float = 0.0
    """Compiler time of this step; 0 when all was cached."""


class LoadOutput(Output):
    """Whether built libraries load, export what they promise, and are what is on disk."""

    actions = ("kernel.load",)

    loaded: tuple[str, ...] = ()
    """Variants that loaded."""


class ShareOutput(Output):
    """What a job found that verifies all variants on some of the workloads."""

    actions = ("kernel.verify_share",)

    sides: tuple[VariantChecks, ...] = ()
    """The checks of each variant; on a CPU then once more, on another number of threads."""
    control: VariantChecks
    """The checks of the baseline."""
    left_out: tuple[Workload, ...] = ()
    """Workloads for which no time was left."""
    no_room: tuple[str, ...] = ()
    """Workloads that the device has no memory for, and why."""
    notes: tuple[str, ...] = ()
    """What could not be exercised."""
    looked: Looked = Field(default_factory=Looked)
    """What its inputs showed, and in the first job what the reference does not read."""
    zeros: tuple[str, ...] = ()
    """Workloads on which zeros would be right."""
    edited: tuple[str, ...] = ()
    """Files of a foreign task that were edited meanwhile."""


class ChangesOutput(Output):
    """What changed since the known good."""

    actions = ("kernel.changes",)

    changed: tuple[str, ...] = ()
    """Compiled variants whose build is another."""
    count: int = 0
    """How many they are."""
    files: tuple[str, ...] = ()
    """Files of the target that differ from the known good's revision."""


class PropertiesOutput(Output):
    """Relations between outputs that hold without any reference."""

    actions = ("kernel.properties",)

    checks: tuple[PropertyCheck, ...] = ()
    """One a variant, property and workload."""
    held: int = 0
    """Checks in which the relation holds."""
