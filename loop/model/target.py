"""A target: a kernel project, declared by its manifest `target.yaml`; first its signature."""

import itertools
import zlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from loop.model.base import Count, Model
from loop.model.dtypes import ITEM_SIZES, Device, Dtype
from loop.model.plan import Identifier, Text
from loop.model.profile import DeviceFacts


class PythonFunction(Model):
    """A Python function: takes tensors by position, attributes by keyword; returns the output."""

    python: Text
    """`module:function` or `file.py:function`, seen from the target's folder."""


class Fill(Model):
    """Random or constant values for one input tensor."""

    kind: Literal["normal", "constant", "one_hot", "zeros"] = "normal"
    """`normal`: normal distribution; `constant`: one value everywhere; `one_hot`: one non-zero per
    row; `zeros`: normal, but the first row is 0, and one element of each other row."""
    scale: Annotated[float, Field(gt=0)] = 1.0
    """Standard deviation for `normal` and `zeros`; the value itself for the other kinds."""
    offset: float = 0.0
    """Added to every value: -8 makes nearly all normal values negative."""
    nan_along: Text | None = None
    """A dimension of the tensor. All elements at one random index of this dimension become NaN."""


class Tolerance(Model):
    """Allowed error of one element: atol + rtol * |reference|. Zero for both: equal values."""

    atol: Annotated[float, Field(ge=0)]
    rtol: Annotated[float, Field(ge=0)]
    matched: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the output's elements that must be within the allowed error."""
    cap: Annotated[float, Field(ge=0)] | None = None
    """Maximum absolute error of the remaining elements. Default: any finite error."""


OUTPUT = "output"  # Default name of a single output.
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w{0,63}$")]
"""A name that can be a Python keyword argument."""
ANY = "..."  # Dimensions that are unknown until generator or reference makes the tensor.
Passed = Literal["inputs", "expected", "outputs"]


class Attribute(Model):
    """A parameter of the call that is not a tensor. C kernels receive it as a double."""

    kind: Literal["flag", "choice", "number", "text"]
    """C gets a flag as 0 or 1, a choice as its index, a number as is. Text: only `parameters`."""
    default: bool | int | float | str | None = None
    """Value if a workload gives none. A number without a default is NaN in C and None in Python."""
    choices: tuple[str, ...] = ()
    """Allowed words of a choice, in the order of their indices."""

    @model_validator(mode="after")
    def _refuse_wrong_default(self) -> "Attribute":
        """Refuse a default that the attribute's kind does not admit, and a choice without words."""
        if self.kind == "choice" and not self.choices:
            raise ValueError("a choice needs `choices`")
        if self.default is not None and not self.admits(self.default):
            raise ValueError(f"a {self.kind} cannot have the default {self.default!r}")
        return self

    def admits(self, value: object) -> bool:
        """Whether `value` is allowed for this attribute."""
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "choice":
            return value in self.choices
        if self.kind == "text":
            return isinstance(value, str)
        return isinstance(value, int | float) and not isinstance(value, bool)

    def as_number(self, value: bool | int | float | str | None) -> float | None:
        """A value as C gets it, a double: a choice becomes its index; None stays None."""
        if isinstance(value, str):
            return float(self.choices.index(value))
        return None if value is None else float(value)

    @property
    def default_value(self) -> bool | int | float | str | None:
        """The default value; if none is stated: False for a flag, the first word for a choice."""
        if self.default is None and self.kind in ("flag", "choice"):
            return False if self.kind == "flag" else self.choices[0]
        return self.default


class Signature(Model):
    """Inputs, outputs and attributes of the function, in the order of the C interface."""

    inputs: dict[Word, Text] = Field(default_factory=dict)
    """Input tensors: name to dimensions, as in `q: B H Sq D`. With a `generator`, dimensions may be
    `...`, or `inputs` empty; names, shapes and types then come from the generated tensors."""
    outputs: dict[Word, Text] = Field(default_factory=dict)
    """Output tensors: name to dimensions. Default: the outputs that the reference returns."""
    attributes: dict[Word, Attribute] = Field(default_factory=dict)
    """Keyword arguments of the function that are not tensors."""
    sizes: tuple[Word, ...] = ()
    """Further sizes, besides the dimensions above. Only the generator receives them."""
    parameters: dict[Word, Attribute] = Field(default_factory=dict)
    """Further values that only the generator receives."""
    updates: dict[Word, Word] = Field(default_factory=dict)
    """Output to the input that it overwrites in place, as in `cache: k_cache`. Such outputs are not
    returned and not passed again. All other inputs must stay unchanged."""
    shorthand: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Names by which a workload sets several dimensions to one size, as in `S: [Sq, Sk]`."""
    types: dict[Word, Dtype] = Field(default_factory=dict)
    """Input or output name to its element type, for tensors of another type than the workload's."""
    words: dict[str, Text] = Field(default_factory=dict)
    """Dimension to a plural noun for messages, as in `Sq: query rows`."""

    @property
    def dimensions(self) -> tuple[str, ...]:
        """All dimension names and sizes, in order of appearance."""
        names = " ".join([*self.inputs.values(), *self.outputs.values()]).split()
        return tuple(dict.fromkeys(name for name in (*names, *self.sizes) if name != ANY))

    @property
    def attributes_and_parameters(self) -> dict[str, Attribute]:
        """Attributes and parameters: all values that a workload may set besides sizes."""
        return {**self.attributes, **self.parameters}

    @property
    def has_unknown_outputs(self) -> bool:
        """Whether only the reference knows the outputs or their shapes."""
        return not self.outputs or ANY in self.outputs.values()

    @property
    def output_dimensions(self) -> str:
        """Dimensions of the only output; empty if there are several, or none is named."""
        return next(iter(self.outputs.values())) if len(self.outputs) == 1 else ""


class Generator(PythonFunction):
    """A Python function that makes the inputs of a call: tensors, also in containers, and more. It
    gets the workload's sizes, attributes and parameters by keyword; `seed`, `dtype` (`torch.dtype`)
    and `device` if it declares them. `loop` seeds `random`, NumPy and torch before each call: equal
    seeds must give equal values. For GPU tensors, the reference runs there."""

    passes: Literal["positional", "keywords", "one"] = "positional"
    """How the function receives what is generated: by position, by keyword, or as one argument."""


class Modules(Model):
    """The functions are classes such as `torch.nn.Module`. `loop` makes one object of each and
    calls it. Before each constructor it seeds alike, so that random weights are equal. It then
    converts the reference's parameters to float64. Calls must not change parameters and buffers."""

    arguments: PythonFunction | None = None
    """Function that returns constructor arguments: a list or a dict of keywords. Default: none."""
    seed: Seed | None = None
    """Seed before each constructor. Default: a new seed in every round."""
    state: Literal["fixed", "free"] = "fixed"
    """`free`: calls may change parameters and buffers, as BatchNorm does in training."""


class Checker(PythonFunction):
    """The task's own function that checks outputs. It runs in the judge's process. It returns a
    bool, a message (empty: right) or both; or it raises AssertionError for a wrong output."""

    given: Annotated[tuple[Passed, ...], Field(min_length=1)] = ("inputs", "outputs")
    """Arguments, in order: the `inputs`, `expected` outputs (in the outputs' types), `outputs`."""
    alone: bool = False
    """Skip the comparison with the reference: for outputs that may differ, as random samples."""


Value = bool | int
Values = dict[Identifier, Value]  # One point of a tuning search: field to value.
Scalar = bool | int | float | str
Entry = dict[str, Scalar | tuple[Scalar, ...]]
"""Workloads in a manifest: a list of values stands for one workload per value."""
Choices = Annotated[tuple[Value, ...], Field(min_length=1)]
Macro = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
DeviceKey = Annotated[str, StringConstraints(pattern=r"^(cpu|sm_\d{2,3})$")]


class Tuning(Model):
    """A set of values to tune together, as the shape of a tile. The compiler gets them as macros:
    field `rows` of macro `TILE` becomes `-DTILE_ROWS=64` and replaces `{tuned}` in the flags."""

    title: Text
    variant: Identifier
    """The compiled variant to time. Other variants may use the same macros."""
    macro: Macro
    """Prefix of the macros' names."""
    values: Annotated[dict[Identifier, Choices], Field(min_length=1)]
    """Field to the values to try."""
    best: dict[DeviceKey, Values]
    """Device (`cpu` or a compute capability) to its best values; other GPUs use the first GPU's."""
    workloads: Annotated[tuple[Entry, ...], Field(min_length=1)]

    @property
    def points(self) -> list[Values]:
        """All combinations of the values, in order."""
        combinations = itertools.product(*self.values.values())
        return [dict(zip(self.values, combination, strict=True)) for combination in combinations]

    def best_on(self, device: str) -> Values | None:
        """Best values of a device (`cpu`, `sm_89`); for other GPUs the first GPU's; None: none."""
        if device in self.best:
            return self.best[device]
        gpus = [key for key in self.best if key != "cpu"]
        return self.best[gpus[0]] if gpus and device != "cpu" else None


def literal_text(value: Value) -> str:
    """A value as text for C and YAML: `true`, `64`."""
    return str(value).lower()


Placeholder = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]


class ResourceBudget(Model):
    """Resource limits for kernels. If several budgets match a kernel, the first applies."""

    kernel: Text
    """Part of the kernel's demangled name."""
    registers: Count | None = None
    """Maximum registers per thread."""
    spill_bytes: Count = 0
    """Maximum bytes of spilled registers."""
    stack_bytes: Count | None = None
    """Maximum bytes of stack per thread."""
    shared_bytes: Count | None = None
    """Maximum bytes of shared memory per block, static and dynamic."""
    blocks_per_sm: Annotated[int, Field(ge=1)] | None = None
    """Minimum number of blocks that fit on one multiprocessor at a time."""


class Instances(Model):
    """Template instances that the built library must contain."""

    symbol: Text
    """Name as in `nm -C`, without return type and parameters: `scale::rows<{T}, {N}>`."""
    over: Annotated[dict[Placeholder, tuple[str | int, ...]], Field(min_length=1)]
    """Placeholder to its values. The library must contain all combinations."""
    file: Text
    """File with the explicit instantiations, relative to the target's folder."""
    line: Text
    """Line of that file that instantiates one, with the same placeholders."""

    def required_symbols(self) -> Iterator[tuple[str, str]]:
        """(required symbol, source line that instantiates it) of each combination of values."""
        for values in itertools.product(*self.over.values()):
            symbol, line = self.symbol, self.line
            for name, value in zip(self.over, values, strict=True):
                symbol = symbol.replace(f"{{{name}}}", str(value))
                line = line.replace(f"{{{name}}}", str(value))
            yield symbol, line


class MustNotCompile(Model):
    """A source that must not compile, and the expected error."""

    title: Text
    source: Text
    """The file, relative to the target's folder."""
    flags: tuple[str, ...] = ()
    """Additional flags, as in `-DD=20`."""
    says: Text
    """Text that the error must contain, as a static assertion's. Quoted source does not count."""


Role = Literal["main", "example", "baseline"]
SetName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]

ARCH, TUNED = "{arch}", "{tuned}"
"""Placeholders in flags: the GPU's compute capability, and the macros of the tuned values."""
ARCH_WITH_ALL_INSTRUCTIONS = {"sm_90": ("-gencode=arch=compute_90a,code=sm_90a",)}
"""Replacement of `-arch={arch}` for GPUs whose instructions later ones lack: Hopper's `wgmma`."""


class BuildRecipe(Model):
    """Compiler and flags for one shared library."""

    compiler: Text = "g++"
    """Compiler: a name on the PATH or an absolute path."""
    flags: tuple[str, ...] = ("-O3",)
    """Flags, in order. `loop` adds output, header folder and build id. `{arch}` becomes the compute
    capability (`sm_89`) of this machine's GPU, else of the first of `devices`; for Hopper,
    `-arch={arch}` becomes `sm_90a`. `{tuned}` becomes the macros of the target's `tuning`."""

    def with_placeholders_filled(self, fillings: Mapping[str, tuple[str, ...]]) -> "BuildRecipe":
        """The recipe with placeholders replaced; within a flag (`-arch={arch}`) by one flag."""
        flags: list[str] = []
        for flag in self.flags:
            if flag in fillings:
                flags += fillings[flag]
                continue
            for placeholder, values in fillings.items():
                if len(values) == 1:
                    flag = flag.replace(placeholder, values[0])
            flags.append(flag)
        return self.model_copy(update={"flags": tuple(flags)})


Formula = Annotated[int, Field(ge=0)] | Text  # A number, or an expression over a workload.


class Launch(Model):
    """How a call is divided into parallel pieces. Expressions can read dimensions, attributes and
    `itemsize`; on a CPU `cores` (threads it may use) and `lanes` (float32 of its widest vector)."""

    blocks: Formula
    """CUDA: blocks launched. CPU: pieces of work that threads take."""
    threads: Formula = 1
    registers: Formula | None = None
    """Registers per thread. Default: from the compiler's report."""
    shared_bytes: Formula | None = None
    """Bytes of shared memory per block, static and dynamic."""


class _Variant(Model):
    title: Text = "variant"
    role: Role = "main"
    """Purpose: `main` is to become faster, `example` demonstrates, `baseline` is for comparison."""
    dtypes: Annotated[tuple[Dtype, ...], Field(min_length=1)] = ("float32",)
    """Supported element types. Default: those of the kind's default list that have a tolerance."""
    takes: Text | None = None
    """Condition for supported calls, as in `D % 8 == 0 and Sk <= 65536`. It can read dimensions,
    attributes, `dtype`, `itemsize` and `layout` (`contiguous`, `strided`, `misaligned`,
    `transposed`, `broadcast`). `loop` skips other calls as not supported. Default: all calls. In a
    supported call, the variant may decline only inputs that are not contiguous: by an error number,
    or in Python by `raise NotImplementedError`. Any other exception is a crash."""
    deterministic: bool = True
    """Whether equal inputs must give equal bits, or in Python equal values but for sums' order."""


class CAbiVariant(_Variant):
    """A shared library with the C interface. `loop` builds it."""

    kind: Literal["c_abi"]
    """Compiled by `loop` and loaded with ctypes."""
    title: Text = "compiled variant"
    device: Device
    sources: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Translation units, relative to the target's folder."""
    entry: Identifier
    build: BuildRecipe = BuildRecipe()
    architecture: Text | None = None
    """The only supported GPU architecture, `sm_90`: on others it is skipped, and `loop` says so."""
    launch: Launch | None = None
    """How a call is divided into parallel pieces; None: not declared."""
    emulation: BuildRecipe | None = None
    """Compiler and flags for the emulator; None for a variant that cannot be emulated."""
    budgets: tuple[ResourceBudget, ...] = ()
    """Resource limits of its kernels. A kernel without a budget may not spill."""
    instances: tuple[Instances, ...] = ()
    """Template instances that its library must contain."""
    must_not_compile: tuple[MustNotCompile, ...] = ()
    """Configurations that the compiler must refuse."""


class PythonVariant(_Variant):
    """A Python function: PyTorch, Triton or a torch extension."""

    kind: Literal["python"]
    """Imported in a worker process that has torch."""
    title: Text = "Python variant"
    device: Literal["cpu", "cuda", "any"]
    module: Annotated[str, StringConstraints(pattern=r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)*|.+\.py)$")]
    """Module in the target's folder or installed; or a file, as in `answers/1.py`."""
    function: Word
    """Function in the module: tensors by position, attributes by keyword. With `modules`: class."""
    passing: Literal["returned", "passed"] = "returned"
    """`returned`: it returns outputs; `passed`: it writes to tensors passed after the inputs."""
    dtypes: Annotated[tuple[Dtype, ...], Field(min_length=1)] = ("float32", "float16", "bfloat16")
    launch: Launch | None = None


class CommandVariant(_Variant):
    """A program that reads tensors from files and writes its output to one. It may time itself."""

    kind: Literal["command"]
    """A program that runs once per call. Reports mark times that it measured itself."""
    title: Text = "external program"
    device: Device
    run: Annotated[tuple[Text, ...], Field(min_length=1)]
    """The command line. Placeholders are sizes (`{N}`), attributes (`{factor}`), the element type
    (`{dtype}`) and files of tensors (`{x}`, `{output}`). The environment variable LOOP_CALL names a
    JSON description of the call."""


Variant = Annotated[CAbiVariant | PythonVariant | CommandVariant, Field(discriminator="kind")]


class Component(Model):
    """A part of a variant that can be checked alone, with its own reference."""

    of: Identifier | Annotated[tuple[Identifier, ...], Field(min_length=1)]
    """The compiled variant or variants whose library exports the component."""
    title: Text
    entry: Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9_]|\{of\})*$")]
    """The exported function; `{of}` becomes the variant's name."""
    flags: tuple[str, ...] = ()
    """Additional flags, for a separate build; the variant's own build then lacks the component."""
    signature: Signature | None = None
    """Its own inputs and outputs. A dimension that only the output has is known from its size.
    Default: the target's signature, with only the output replaced by `output`."""
    output: Text | None = None
    """Dimensions of an intermediate result (float32) of the call, in place of a `signature`."""
    reference: PythonFunction
    """Trusted slow implementation in float64. If it declares `sizes`, it gets all dimensions."""
    plain: PythonFunction | None = None
    """Plain implementation in the element type itself."""
    inputs: PythonFunction | None = None
    """Makes the inputs, a tensor each, from `sizes`, `seed` and attributes. Default: `values`."""
    form: PythonFunction | None = None
    """Normalises an output before the comparison, if several are equivalent. Keeps the shape."""
    tolerance: dict[Dtype, Tolerance] = Field(default_factory=dict)
    """Workload's element type to the allowed error. Default: the target's."""
    values: dict[Identifier, dict[Identifier, Fill]] = Field(default_factory=dict)
    workloads: Annotated[tuple[Entry, ...], Field(min_length=1)]

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants that have the component."""
        return (self.of,) if isinstance(self.of, str) else self.of


class Target(Model):
    """A kernel project: signature, reference, workloads and variants."""

    format: Literal[2]
    """Format number of this file."""
    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
    function: Identifier
    """Name of the function that all variants compute."""
    signature: Signature
    reference: PythonFunction
    """Trusted slow implementation. It receives float64 tensors."""
    plain: PythonFunction | None = None
    """Plain implementation in the element type itself. Its error limits the error of variants."""
    baseline: PythonFunction
    """The function that the user would run without the variants, such as a library call."""
    generator: Generator | None = None
    """Makes the inputs of a call. Default: `values` fill the inputs."""
    modules: Modules | None = None
    """States that the functions are classes, and how to construct them."""
    checker: Checker | None = None
    """The task's own output check, besides the comparison with the reference."""
    properties: tuple[Text, ...] = ()
    """Relations between outputs to test without a reference: functions, as `module:function`."""
    faults: dict[Text, PythonFunction] = Field(default_factory=dict)
    """Known faults that explain wrong outputs: `rows were not divided` to a faulty reference."""
    values: dict[Identifier, dict[Identifier, Fill]] = Field(default_factory=dict)
    """Kind of values (named by workloads) to input to its fill. Missing inputs: standard normal."""
    memory: str | None = None
    """Expression over dimensions and attributes: bytes that the reference needs for one call."""
    first_call_s: Annotated[float, Field(gt=0)] | None = None
    """Time limit in seconds of a process's first call, which may compile or tune. Default: 120."""
    tolerance: dict[Dtype, Tolerance]
    """Element type to the allowed error of one element."""
    dtypes: dict[Device, Dtype]
    """Device to the element type of workloads that name none."""
    flops: str | None = None
    """Expression over dimensions and attributes: floating-point operations of one call."""
    bytes: str | None = None
    """Expression over dimensions, attributes and `itemsize`: least bytes that one call moves."""
    devices: dict[Annotated[str, StringConstraints(pattern=r"^sm_\d{2,3}$")], DeviceFacts] = Field(
        default_factory=dict
    )
    """Compute capability (`sm_89`) to GPU facts, for occupancy estimates without such a GPU."""
    workloads: Annotated[dict[SetName, tuple[Entry, ...]], Field(min_length=1)]
    """Set name to workloads. A list of values stands for one workload per value."""
    variants: Annotated[dict[Identifier, Variant], Field(min_length=1)]
    tuning: dict[Identifier, Tuning] = Field(default_factory=dict)
    """Values to tune, with the best ones of each device."""
    components: dict[Identifier, Component] = Field(default_factory=dict)
    """Parts of variants that can be checked alone, in the order of the computation."""

    @field_validator("variants")
    @classmethod
    def _fill_dtypes(cls, variants: dict[str, Variant], info: ValidationInfo) -> dict[str, Variant]:
        """Variants without `dtypes` get those of their kind that have a tolerance, if any has."""
        typed, tolerances = dict(variants), info.data.get("tolerance", {})
        for name, variant in variants.items():
            dtypes = tuple(dtype for dtype in variant.dtypes if dtype in tolerances)
            if dtypes and "dtypes" not in variant.model_fields_set:
                typed[name] = variant.model_copy(update={"dtypes": dtypes})
        return typed

    @property
    def is_plain(self) -> bool:
        """Whether controls, properties and layouts can be made from the signature alone."""
        return not self.why_not_plain

    @property
    def why_not_plain(self) -> str:
        """What the signature alone does not tell of a call; empty if nothing."""
        shapes = {**self.signature.inputs, **self.signature.outputs}
        reasons = {
            "its `generator` makes the inputs": self.generator is not None,
            "its functions are classes (`modules`)": self.modules is not None,
            "it changes its inputs in place": bool(self.signature.updates),
            f"it has {len(self.signature.outputs)} outputs": len(self.signature.outputs) != 1,
            "it has no input": not self.signature.inputs,
            "its signature leaves a shape open": ANY in shapes.values(),
        }
        return next((reason for reason, applies in reasons.items() if applies), "")

    @property
    def python_functions(self) -> tuple[str, ...]:
        """Names of all Python functions in the manifest that judge outputs or make inputs."""
        functions = [self.reference, self.plain, self.baseline, self.generator, self.checker]
        functions += [self.modules.arguments if self.modules else None, *self.faults.values()]
        for part in self.components.values():
            functions += [part.reference, part.plain, part.inputs, part.form]
        return (*(function.python for function in functions if function), *self.properties)

    def component_target(self, component: Component) -> "Target":
        """A component as a target of its own, without what concerns other inputs or counts work."""
        signature = component.signature
        if signature is None:  # The target's own inputs, and an intermediate result as the output.
            types: dict[str, Dtype] = {**self.signature.types, OUTPUT: "float32"}
            outputs = {OUTPUT: component.output}
            signature = self.signature.model_copy(update={"outputs": outputs, "types": types})
        unset_names = ("memory", "flops", "bytes", "generator", "modules", "checker")
        fields: dict[str, object] = dict.fromkeys(unset_names)
        fields |= {name: getattr(component, name) for name in ("reference", "plain", "values")}
        fields |= {"properties": (), "faults": {}, "components": {}, "signature": signature}
        fields |= {"function": component.entry, "workloads": {"component": component.workloads}}
        fields["tolerance"] = {**self.tolerance, **component.tolerance}
        return self.model_copy(update=fields)

    def compiled_variant(self, name: str, architecture: str) -> CAbiVariant:
        """A compiled variant with placeholders filled. `architecture`: as `sm_89`."""
        variant = self.variants[name]
        assert isinstance(variant, CAbiVariant)
        arch_flags = ARCH_WITH_ALL_INSTRUCTIONS.get(architecture, (f"-arch={architecture}",))
        flags_by_placeholder = {
            f"-arch={ARCH}": arch_flags,
            ARCH: (architecture,),
            TUNED: self.tuning_macros("cpu" if variant.device == "cpu" else architecture),
        }
        build = variant.build.with_placeholders_filled(flags_by_placeholder)
        return variant.model_copy(update={"build": build})

    def emulated_variant(self, name: str, device: str = "") -> CAbiVariant:
        """A variant as built for the emulator on a CPU, tuned for a device (default: first GPU)."""
        variant = self.variants[name]
        assert isinstance(variant, CAbiVariant)
        assert variant.emulation is not None
        macros = self.tuning_macros(device or next(iter(self.devices), "sm_89"))
        build = variant.emulation.with_placeholders_filled({TUNED: macros})
        return variant.model_copy(update={"device": "cpu", "build": build})

    def tuning_macros(self, device: str) -> tuple[str, ...]:
        """Compiler flags that define all tuned values for a device: `cpu` or a capability."""
        flags: list[str] = []
        for tuning in self.tuning.values():
            for field, value in (tuning.best_on(device) or {}).items():
                flags.append(f"-D{tuning.macro}_{field.upper()}={literal_text(value)}")
        return tuple(flags)

    def variants_on(self, device: Device) -> tuple[str, ...]:
        """Names of the variants that run on a device, in the manifest's order."""
        variants = self.variants.items()
        return tuple(name for name, variant in variants if variant.device in (device, "any"))

    @property
    def emulated_variants(self) -> tuple[str, ...]:
        """Names of the variants that have a build for the emulator."""
        compiled = {name: v for name, v in self.variants.items() if isinstance(v, CAbiVariant)}
        return tuple(name for name, variant in compiled.items() if variant.emulation)


class Workload(Model):
    """One problem instance: sizes, type, attributes, kind of values, seed: they fix all inputs."""

    name: str
    """Short description, unique within the target: `B1 H1 S64 D64 float16`."""
    sizes: dict[str, Annotated[int, Field(ge=0)]]
    attributes: dict[str, bool | int | float | str | None] = Field(default_factory=dict)
    dtype: Dtype
    values: str = "normal"
    """Kind of input values: of the target, or `normal` (sd 1), `wide` (sd 4), `constant`."""
    seed: int = 0
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Relative share of time that these calls take in the user's program."""

    @property
    def formula_values(self) -> dict[str, object]:
        """Names and values that the target's `flops` and `bytes` expressions can read."""
        return {**self.sizes, **self.attributes, "itemsize": ITEM_SIZES[self.dtype]}

    @property
    def base_seed(self) -> int:
        """The `--seed` that reproduces this workload's inputs, independent of other workloads."""
        return self.seed - zlib.crc32(self.name.encode())
