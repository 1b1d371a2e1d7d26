"""What each action finds: the fields that gates, rules and reports may read."""

from typing import Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.bisect import Answer
from loop.model.measurement import (
    Build,
    ControlResult,
    Measurement,
    NullControl,
    PositiveControl,
    PropertyCheck,
    SideSensors,
    VariantChecks,
)
from loop.model.outcome import Output as Output
from loop.model.profile import Filling, Profile
from loop.model.resources import Bound, CompiledLibrary, Placement


class TorchOutput(Output):
    """The torch check of the environment."""

    version: str = ""
    """Version of torch; empty when it cannot be imported."""
    cuda_build: str | None = None
    """CUDA release torch was built for; None for a CPU build."""
    threads: int = 0
    """Threads torch uses."""


class NumpyOutput(Output):
    """The NumPy check of the environment."""

    version: str = ""
    """Version of NumPy; empty when it cannot be imported."""
    shares_memory: bool = False
    """Whether torch and NumPy see the same memory: their binary interfaces agree."""


class DeviceOutput(Output):
    """The device check of the environment."""

    device: str = ""
    """Where the session runs: cpu or cuda."""
    name: str = ""
    """Processor or GPU."""
    capability: str | None = None
    """Compute capability of the GPU, as in 8.9."""
    uuid: str | None = None
    """Which GPU it is, as nvidia-smi -L shows it."""
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

    missing: tuple[str, ...] = ()
    """Libraries that the dynamic linker did not find."""
    duplicates: tuple[str, ...] = ()
    """Runtime libraries that were loaded more than once from different files."""


class ExtensionOutput(Output):
    """The check of the built variants."""

    extension: Literal["ready", "missing", "broken"] = "missing"
    """Loads and answers; has to be built; or was built and does not work."""


class BuildOutput(Output):
    """Builds of the selected variants."""

    builds: tuple[Build, ...] = ()
    """One a compiled variant."""
    units: int = 0
    """Translation units of the variant that has most."""
    framework_headers: tuple[str, ...] = ()
    """Framework headers that any of them includes."""
    seconds: float = 0.0
    """Compiler time of this step; 0 when all was cached."""


class SourcesOutput(Output):
    """What a variant's sources include, before anything is compiled."""

    units: int = 0
    """Translation units of the variant that has most."""
    framework_headers: tuple[str, ...] = ()
    """Framework headers that any of them includes."""


class LoadOutput(Output):
    """Whether built libraries load, export what they promise, and are what is on disk."""

    loaded: tuple[str, ...] = ()
    """Variants that loaded."""
    undefined: tuple[str, ...] = ()
    """Symbols the linker could not find, demangled."""


class VerifyOutput(Output):
    """Correctness of the selected variants."""

    variants: tuple[VariantChecks, ...] = ()
    """One a variant."""
    control: VariantChecks | None = None
    """The baseline library through the same checks: it has to pass."""
    seed: int = 0
    """Base seed of the inputs; the same seed replays them."""
    right: tuple[str, ...] = ()
    """Variants without a wrong answer."""
    wrong: tuple[str, ...] = ()
    """Variants that failed a check."""


class EmulateOutput(VerifyOutput):
    """Correctness of variants made for a GPU, under the emulator."""


class ChangesOutput(Output):
    """What changed since the known good."""

    changed: tuple[str, ...] = ()
    """Compiled variants whose build is another."""
    count: int = 0
    """How many they are."""
    files: tuple[str, ...] = ()
    """Files of the target that differ from the known good's revision."""
    lines: int = 0
    """Lines added and removed in them."""


class PropertiesOutput(Output):
    """Relations between outputs that hold without any reference."""

    checks: tuple[PropertyCheck, ...] = ()
    """One a variant, property and workload."""
    held: int = 0
    """Checks in which the relation holds."""


class OperatorSpeed(Model):
    """A compiled variant called as an operator of PyTorch, on a workload where the way of calling matters."""

    variant: str
    """Name of the variant."""
    workload: str
    """Name of the workload."""
    us: float
    """Latency of the operator in microseconds."""
    ratio: float
    """Time of the baseline / time of the operator: the ratio of the call through C, times that of both calls."""
    direct_ratio: float
    """The ratio of the call through C."""
    rounds: int
    """Rounds in which both calls were timed, turn about."""


class MeasureOutput(Output):
    """Speed of the variants that are right."""

    measurements: tuple[Measurement, ...] = ()
    """One a variant and workload."""
    rounds: int = 0
    """Fresh sets of processes."""
    called: dict[str, str] = Field(default_factory=dict)
    """Side to how its calls are made, as in `C, writes into a given output`."""
    empty_us: dict[str, float] = Field(default_factory=dict)
    """Microseconds of a call that does nothing, by the way it is made."""
    as_operator: tuple[OperatorSpeed, ...] = ()
    """Compiled variants called as PyTorch calls its own, on their shortest workloads."""
    both_ways: dict[str, str] = Field(default_factory=dict)
    """Variant to its ratio by either way of calling it, where they differ by more than a tenth."""
    outputs: int = 0
    """Outputs of timed calls that were held against the reference."""
    warnings: tuple[str, ...] = ()
    """What disturbed it: others on the same GPU."""
    sensors: tuple[SideSensors, ...] = ()
    """What the GPU's sensors said, one a side; none on a CPU."""
    energy_j: float | None = None
    """Joules that the GPU took from the first timed call to the last; None where no counter told."""
    energy_s: float = 0.0
    """Seconds over which it took them."""
    threads: int = 0
    """Threads of each process on the CPU."""
    block_sd: float | None = None
    """Median over workloads of the standard deviation of a round's log ratio: the noise of this machine."""


class CompareOutput(Output):
    """The variants against themselves and their known good."""

    measurements: tuple[Measurement, ...] = ()
    """One a variant, workload and comparison."""
    null_controls: tuple[NullControl, ...] = ()
    """Each variant against itself."""
    positive_controls: tuple[PositiveControl, ...] = ()
    """Each variant made slower on purpose."""
    rounds: int = 0
    """Fresh sets of processes: the blocks."""
    outputs: int = 0
    """Outputs of timed calls that were held against the reference."""
    warnings: tuple[str, ...] = ()
    """What disturbed it: others on the same GPU."""


class GateOutput(Output):
    """What the gate is worth: variants made to err on purpose, through the same checks as real candidates."""

    controls: tuple[ControlResult, ...] = ()
    """One a control and variant; honest candidates among them."""
    killed: int = 0
    """Controls that were rejected."""
    total: int = 0
    """Controls that err; honest candidates do not count."""
    survivors: tuple[str, ...] = ()
    """Controls that passed."""
    rejected: tuple[str, ...] = ()
    """Honest candidates that did not pass."""
    wrong_reasons: tuple[str, ...] = ()
    """Controls that were rejected for another reason than theirs."""
    not_applicable: tuple[str, ...] = ()
    """Controls that cannot be made here, and why."""
    indistinguishable: tuple[str, ...] = ()
    """Controls that change nothing beyond what is allowed, on any inputs that were tried. They are not counted."""
    told_by_others: tuple[str, ...] = ()
    """Controls that no workload of the target tells, and the inputs that do."""


class ProfileOutput(Output):
    """Why each variant is as fast as it is, where it does worst."""

    profiles: tuple[Profile, ...] = ()
    """One a variant that has a speed."""


class ParallelismOutput(Output):
    """Whether launches fill their devices."""

    fillings: tuple[Filling, ...] = ()
    """One a variant with a declared launch and workload."""
    starved: tuple[str, ...] = ()
    """Variants that leave places empty on some workload."""
    least_share: float | None = None
    """Smallest share of the places that is taken; None where no launch is declared."""


class ResourcesOutput(Output):
    """What a GPU would do with kernels that nvcc compiles: by compiler, host code and its own limits."""

    device: str = ""
    """The GPU reckoned with, as in `sm_89`."""
    device_name: str = ""
    """Its name; empty where the manifest has no facts on it."""
    libraries: tuple[CompiledLibrary, ...] = ()
    """The compiler's report, library by library; none without nvcc."""
    placements: tuple[Placement, ...] = ()
    """Shapes of launch, as the host code told them."""
    fillings: tuple[Filling, ...] = ()
    """How each timed call fills the GPU, by its largest launch."""
    bounds: tuple[Bound, ...] = ()
    """The least time of each timed workload."""
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


class MustNotCompileOutput(Output):
    """Configurations that the compiler has to refuse."""

    checks: tuple[RefusedSource, ...] = ()
    """One a source and variant."""


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


class InstancesOutput(Output):
    """Template instances that the manifest promises."""

    promised: int = 0
    """Instances that were looked up."""
    missing: tuple[MissingInstance, ...] = ()
    """Those that are not there."""


class BisectOutput(Output):
    """Which commit brought a regression."""

    variant: str = ""
    """The variant that regressed; empty where none did."""
    metric: Literal["latency", "correctness", ""] = ""
    """How."""
    answer: Answer | None = None
    """What was found; None where nothing was searched."""
    log: str = ""
    """Where the log is that `git bisect replay` takes."""


class StepTiming(Model):
    """Estimate against actual for one step."""

    step: str
    """Pattern and step."""
    budget_s: float
    """Seconds it was meant to take."""
    seconds: float
    """Seconds it took."""
    longest_silence_s: float
    """Longest time without a sign of life."""


class AuditOutput(Output):
    """The audit of the session's own journal."""

    steps: tuple[StepTiming, ...] = ()
    """Every finished step."""
    longest_silence_s: float = 0.0
    """Longest time without a sign of life."""
    over_budget: tuple[str, ...] = ()
    """Steps that took longer than they were meant to."""


class CommandOutput(Output):
    """A command of the user's own."""

    code: int = 0
    """Exit status."""
    seconds: float = 0.0
    """How long it took."""
    output: str = ""
    """The end of what it printed."""
