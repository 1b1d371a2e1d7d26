"""A target: a kernel project as its manifest declares it."""

import itertools
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from loop.model.base import Count, Model
from loop.model.dtypes import ITEM_SIZES, Device, Dtype
from loop.model.plan import Identifier, Text
from loop.model.profile import DeviceFacts
from loop.model.signature import (
    OUTPUT,
    Baseline,
    Checker,
    Fill,
    Generator,
    Modules,
    PythonFunction,
    Signature,
    Tolerance,
    Word,
)

Value = bool | int
Values = dict[Identifier, Value]
"""Field to value: one point of a search."""
Scalar = bool | int | float | str
Entry = dict[str, Scalar | tuple[Scalar, ...]]
"""Workloads as a manifest writes them: a list as a value stands for one workload each."""
Macro = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
DeviceKey = Annotated[str, StringConstraints(pattern=r"^(cpu|sm_\d{2,3})$")]


class Tuning(Model):
    """One set of values that belong together, such as the shape of a tile.

    They reach the compiler as macros: field `rows` of macro `TILE` is `-DTILE_ROWS=64`, in the place of `{tuned}`
    among a variant's flags.
    """

    title: Text
    variant: Identifier
    """The compiled variant that is timed; others may use the same macros."""
    macro: Macro
    """What the macros' names begin with."""
    values: Annotated[dict[Identifier, Annotated[tuple[Value, ...], Field(min_length=1)]], Field(min_length=1)]
    """Field to the values that are tried."""
    best: dict[DeviceKey, Values]
    """Device to its best values, as far as anybody measured: `cpu`, or a compute capability. A GPU that is not
    here takes the first one's."""
    workloads: Annotated[tuple[Entry, ...], Field(min_length=1)]
    """What the values are timed on, as workloads are written everywhere."""

    @model_validator(mode="after")
    def _best_is_whole(self) -> "Tuning":
        for device, chosen in self.best.items():
            if chosen.keys() != self.values.keys():
                fields, got = ", ".join(self.values), ", ".join(chosen) or "none"
                raise ValueError(f"best.{device}: expected values for {fields}, got {got}")
        return self

    @property
    def size(self) -> int:
        """How many points there are."""
        return math.prod(map(len, self.values.values()))

    @property
    def points(self) -> list[Values]:
        """Every combination of the values, in order."""
        every = itertools.product(*self.values.values())
        return [dict(zip(self.values, chosen, strict=True)) for chosen in every]

    def best_on(self, device: str) -> Values | None:
        """The best values of a device: its own; for a GPU without any the first GPU's; None for another kind."""
        same = [key for key in self.best if (key == "cpu") == (device == "cpu")]
        return self.best.get(device) or (self.best[same[0]] if same else None)

    def defines(self, chosen: Values) -> tuple[str, ...]:
        """Values as a compiler is told them."""
        return tuple(f"-D{self.macro}_{field.upper()}={literal(value)}" for field, value in chosen.items())


def literal(value: Value) -> str:
    """A value as C and YAML write it: `true`, `64`."""
    return str(value).lower()


Placeholder = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


class ResourceBudget(Model):
    """What the kernels of one name may take; of several budgets that fit a kernel the first is its own."""

    kernel: Text
    """Part of the kernel's demangled name."""
    registers: Count | None = None
    """Registers a thread, at most."""
    spill_bytes: Count = 0
    """Bytes of registers that may be spilled to memory."""
    stack_bytes: Count | None = None
    """Bytes of stack a thread, at most."""
    shared_bytes: Count | None = None
    """Bytes of shared memory a block, static and dynamic, at most."""
    blocks_per_sm: Annotated[int, Field(ge=1)] | None = None
    """Blocks that one multiprocessor has to hold at a time, at least."""

    def fits(self, name: str) -> bool:
        """Whether it is meant for the kernel of that demangled name."""
        return self.kernel in name


class Instances(Model):
    """Template instances that the built library has to hold."""

    symbol: Text
    """Their name as `nm -C` prints it, without return type and parameters, as in `scale::rows<{T}, {N}>`."""
    over: Annotated[dict[Placeholder, tuple[str | int, ...]], Field(min_length=1)]
    """Placeholder to everything it stands for; all combinations are promised."""
    file: Text
    """Where the explicit instantiations are, relative to the target's folder."""
    line: Text
    """The line there that makes one, with the same placeholders."""

    @model_validator(mode="after")
    def _placeholders_agree(self) -> "Instances":
        for field, text in (("symbol", self.symbol), ("line", self.line)):
            used = set(PLACEHOLDER.findall(text))
            for name in sorted(used ^ set(self.over)):
                known = "which `over` does not have" if name in used else "which `over` has, is not in it"
                raise ValueError(f"{field}: {{{name}}}, {known}")
        return self

    def promised(self) -> Iterator[tuple[str, str]]:
        """Each symbol with the line that makes it."""
        for choice in itertools.product(*self.over.values()):
            symbol, line = self.symbol, self.line
            for name, value in zip(self.over, choice, strict=True):
                symbol, line = (t.replace(f"{{{name}}}", str(value)) for t in (symbol, line))
            yield symbol, line


class MustNotCompile(Model):
    """A source that the compiler has to refuse, and what it has to say."""

    title: Text
    source: Text
    """The file, relative to the target's folder."""
    flags: tuple[str, ...] = ()
    """Flags besides the variant's own, as in `-DD=20`."""
    says: Text
    """Text of the error, as in a static assertion; not of a source line that the compiler quotes."""


Role = Literal["main", "example", "baseline"]
SetName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]

ARCH, TUNED = "{arch}", "{tuned}"
"""What stands in flags for the GPU's compute capability, and for the macros of what is tuned."""
WHOLE_ARCH = {"sm_90": ("-gencode=arch=compute_90a,code=sm_90a",)}
"""What `-arch={arch}` becomes where some instructions of a GPU are not in later ones: Hopper's `wgmma`."""


class BuildRecipe(Model):
    """How one shared library is compiled."""

    compiler: Text = "g++"
    """Compiler: a name on the PATH or an absolute path."""
    flags: tuple[str, ...] = ("-O3",)
    """Flags, in order; `loop` adds the output, the header's folder and the build id. `{arch}` stands for the
    GPU's compute capability, as in `sm_89`: of the one at hand, else the first of the target's `devices`.
    For Hopper, `-arch={arch}` asks for `sm_90a`, which has all of its instructions;
    `{tuned}` for the macros of the target's `tuning`."""

    def filled(self, words: Mapping[str, tuple[str, ...]]) -> "BuildRecipe":
        """The recipe with what stands for something replaced: a whole flag by several, or a part by one word."""
        flags: list[str] = []
        for flag in self.flags:
            if flag in words:
                flags += words[flag]
                continue
            for name, values in words.items():
                flag = flag.replace(name, values[0]) if len(values) == 1 else flag
            flags.append(flag)
        return self.model_copy(update={"flags": tuple(flags)})


Formula = Annotated[int, Field(ge=0)] | Text
"""A number, or an expression over a workload."""


class Launch(Model):
    """How a call is cut into pieces that may run at the same time, declared by hand.

    Its expressions may read dimensions, attributes and `itemsize`; on a CPU also `cores`, threads that a process
    may use, and `lanes`, the float32 elements of its widest vector.
    """

    blocks: Formula
    """CUDA: blocks launched. CPU: pieces of work that threads take."""
    threads: Formula = 1
    registers: Formula | None = None
    """Registers a thread, by the compiler's report."""
    shared_bytes: Formula | None = None
    """Shared memory a block, static and dynamic."""


class _Variant(Model):
    title: Text = "variant"
    role: Role = "main"
    """What it is there for: `main` is made faster, `example` shows something, `baseline` is compared with."""
    dtypes: Annotated[tuple[Dtype, ...], Field(min_length=1)] = ("float32",)
    """Element types it takes. Default: those of the list here that have a tolerance."""
    takes: Text | None = None
    """Calls that it takes, as in `D % 8 == 0 and Sk <= 65536`: an expression over dimensions, attributes, `dtype`,
    `itemsize` and `layout`, how inputs lie: `contiguous`, `strided`, `misaligned`, `transposed` or `broadcast`.
    `loop` does not make other calls, and counts them as not supported. Default: all. It may decline inputs that
    are not contiguous in a call that it takes, and nothing else: with an error number, or in Python with
    `raise NotImplementedError`. Any other exception is a crash."""
    deterministic: bool = True
    """Whether the same inputs must give the same bits."""


class CAbiVariant(_Variant):
    """A shared library behind the C interface, built by `loop`."""

    kind: Literal["c_abi"]
    """Compiled, loaded with ctypes."""
    title: Text = "compiled variant"
    device: Device
    sources: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Translation units, relative to the target's folder."""
    entry: Identifier
    build: BuildRecipe = BuildRecipe()
    architecture: Text | None = None
    """The only GPU architecture that it is made for, as in `sm_90`. `loop` skips it on other GPUs and says so.
    None: whatever its flags build for."""
    launch: Launch | None = None
    """How a call is cut up; None where nobody declared it."""
    emulation: BuildRecipe | None = None
    """How the same sources are compiled for the emulator; None for a variant that cannot be emulated."""
    budgets: tuple[ResourceBudget, ...] = ()
    """What its kernels may take; a kernel without one may not spill."""
    instances: tuple[Instances, ...] = ()
    """Template instances that its library has to hold."""
    must_not_compile: tuple[MustNotCompile, ...] = ()
    """Configurations that the compiler has to refuse."""

    def emulated(self, tuned: tuple[str, ...] = ()) -> "CAbiVariant":
        """The variant as it is built for the emulator: on the processor, by its own recipe."""
        assert self.emulation is not None
        build = self.emulation.filled({TUNED: tuned})
        return self.model_copy(update={"device": "cpu", "build": build})


class PythonVariant(_Variant):
    """Anything importable: PyTorch, Triton, a torch extension."""

    kind: Literal["python"]
    """Imported in a child process that has torch."""
    title: Text = "Python variant"
    device: Literal["cpu", "cuda", "any"]
    module: Annotated[str, StringConstraints(pattern=r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)*|.+\.py)$")]
    """Module, found from the target's folder or among the installed packages; or a file, as in `answers/1.py`."""
    function: Word
    """Callable in it: positional tensors, attributes by keyword, returns the output. With `modules` a class."""
    passing: Literal["returned", "passed"] = "returned"
    """Whether it returns its outputs, or writes them to tensors that are passed after its inputs."""
    dtypes: Annotated[tuple[Dtype, ...], Field(min_length=1)] = ("float32", "float16", "bfloat16")
    launch: Launch | None = None


class CommandVariant(_Variant):
    """A program that reads tensors from files and writes its output to one; it may time itself."""

    kind: Literal["command"]
    """Run once a call; its own figures are marked as its own."""
    title: Text = "external program"
    device: Device
    run: Annotated[tuple[Text, ...], Field(min_length=1)]
    """The command line. `{N}` stands for a size, `{factor}` for an attribute, `{dtype}` for the element type,
    `{x}` and `{output}` for the files of tensors. The environment has them, too: LOOP_N, LOOP_factor, LOOP_dtype,
    LOOP_PATH_x, LOOP_PATH_output. LOOP_CALL names a JSON file that describes the call."""


Variant = Annotated[CAbiVariant | PythonVariant | CommandVariant, Field(discriminator="kind")]


class Component(Model):
    """A part of a variant that can be checked alone, against a reference of its own."""

    of: Identifier | Annotated[tuple[Identifier, ...], Field(min_length=1)]
    """The compiled variant whose library has it, or several."""
    title: Text
    entry: Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9_]|\{of\})*$")]
    """The exported function; `{of}` stands for the variant's name."""
    flags: tuple[str, ...] = ()
    """Added to the flags of the variant, for a build of its own: the variant itself is then built without it."""
    signature: Signature | None = None
    """What it takes and gives; a dimension that only the output has reaches it through the output's size. Default:
    that of the target, with an `output` of its own: then it is a part of the variant's call."""
    output: Text | None = None
    """Dimensions of a part of the variant's call, which is float32."""
    reference: PythonFunction
    """The trusted slow answer, float64; where it takes `sizes`, it is given the size of each dimension."""
    plain: PythonFunction | None = None
    """The same written out in the element type itself."""
    inputs: PythonFunction | None = None
    """Makes the inputs: given `sizes`, `seed` and the attributes, it returns a tensor each. Default: `values`."""
    form: PythonFunction | None = None
    """Brings an output into the form that is compared, where several mean the same; it keeps the shape."""
    tolerance: dict[Dtype, Tolerance] = Field(default_factory=dict)
    """Allowed error of one element, by the workload's element type. Default: the target's."""
    values: dict[Identifier, dict[Identifier, Fill]] = Field(default_factory=dict)
    workloads: Annotated[tuple[Entry, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _has_an_output(self) -> "Component":
        if (self.signature is None) == (self.output is None):
            raise ValueError("expected either `signature` or `output`")
        return self

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that have it."""
        return (self.of,) if isinstance(self.of, str) else self.of

    def entry_in(self, variant: str) -> str:
        """The function that a variant's library exports."""
        return self.entry.replace("{of}", variant)


class Target(Model):
    """A kernel project: signature, reference, workloads and variants."""

    format: Literal[2]
    """Format number of this file; 1 is read, too."""
    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
    function: Identifier
    """What all variants compute."""
    signature: Signature
    reference: PythonFunction
    """The trusted slow answer; it is given float64 tensors."""
    plain: PythonFunction | None = None
    """The function written out in the element type itself: its error bounds what a variant may lose."""
    baseline: Baseline
    """What the user would otherwise run."""
    generator: Generator | None = None
    """Makes the inputs of a call; without one they are filled as `values` says."""
    modules: Modules | None = None
    """Says that the functions are classes, and how they are made."""
    checker: Checker | None = None
    """The task's own check of the outputs, besides the comparison with the reference."""
    properties: tuple[Text, ...] = ()
    """Relations between outputs that hold without any reference: bundled ones by name, or `module:function`."""
    faults: dict[Text, PythonFunction] = Field(default_factory=dict)
    """Wrong references that a wrong output is held against: as if what (`the rows were not divided`), and how."""
    values: dict[Identifier, dict[Identifier, Fill]] = Field(default_factory=dict)
    """Kinds of input values that workloads name: input to what fills it; inputs left out are unit normals."""
    memory: str | None = None
    """Expression over dimensions and attributes: bytes that the float64 reference of one call needs."""
    first_call_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds that the first call of a process may take: it may compile or tune itself. Default: 120."""
    tolerance: dict[Dtype, Tolerance]
    """Allowed error of one element, by element type."""
    dtypes: dict[Device, Dtype]
    """Element type that is measured on each device where a workload names none."""
    flops: str | None = None
    """Expression over dimensions and attributes: floating-point operations of one call."""
    bytes: str | None = None
    """Expression over dimensions, attributes and `itemsize`: bytes one call must move."""
    devices: dict[Annotated[str, StringConstraints(pattern=r"^sm_\d{2,3}$")], DeviceFacts] = Field(
        default_factory=dict
    )
    """GPUs by compute capability, `sm_89`: what launches are held against where no such GPU is at hand."""
    workloads: Annotated[dict[SetName, tuple[Entry, ...]], Field(min_length=1)]
    """Named sets; a list as a value stands for one workload each."""
    variants: Annotated[dict[Identifier, Variant], Field(min_length=1)]
    tuning: dict[Identifier, Tuning] = Field(default_factory=dict)
    """What may be tuned, and the best values of each device."""
    components: dict[Identifier, Component] = Field(default_factory=dict)
    """Parts of variants that can be checked alone, in the order in which they are at work."""

    @field_validator("variants")
    @classmethod
    def _types_by_default(cls, variants: dict[str, Variant], info: ValidationInfo) -> dict[str, Variant]:
        """A variant whose types are not written takes those of the default that have a tolerance."""
        typed, known = dict(variants), info.data.get("tolerance", {})
        for name, variant in variants.items():
            dtypes = tuple(dtype for dtype in variant.dtypes if dtype in known)
            if dtypes and "dtypes" not in variant.model_fields_set:
                typed[name] = variant.model_copy(update={"dtypes": dtypes})
        return typed

    @property
    def is_plain(self) -> bool:
        """Whether the manifest alone tells every tensor of a call, and there is one output."""
        return self.signature.is_plain and self.generator is None and self.modules is None

    @property
    def functions(self) -> tuple[str, ...]:
        """Every function that judges or makes inputs: bundled names, and `module:function`."""
        every = [self.reference, self.plain, self.baseline, self.generator, self.checker]
        every += [self.modules.arguments if self.modules else None, *self.faults.values()]
        for part in self.components.values():
            every += [part.reference, part.plain, part.inputs, part.form]
        return (*(function.python for function in every if function), *self.properties)

    def part(self, component: Component) -> "Target":
        """A component as a target of its own; its workloads are the set `component`."""
        outputs = {OUTPUT: component.output}
        types: dict[str, Dtype] = {**self.signature.types, OUTPUT: "float32"}
        part = self.signature.model_copy(update={"outputs": outputs, "types": types})
        none = ("memory", "flops", "bytes", "generator", "modules", "checker")
        fields = {
            **{name: getattr(component, name) for name in ("reference", "plain", "values")},
            **dict.fromkeys(none),
            "properties": (),
            "faults": {},
            "components": {},
            "signature": component.signature or part,
            "function": component.entry,
            "tolerance": {**self.tolerance, **component.tolerance},
            "workloads": {"component": component.workloads},
        }
        return self.model_copy(update=fields)

    def compiled(self, name: str, architecture: str) -> CAbiVariant:
        """A compiled variant as it is built for a GPU of that compute capability, or on this processor."""
        variant = self.variants[name]
        assert isinstance(variant, CAbiVariant)
        words = {
            f"-arch={ARCH}": WHOLE_ARCH.get(architecture, (f"-arch={architecture}",)),
            ARCH: (architecture,),
            TUNED: self.tuned("cpu" if variant.device == "cpu" else architecture),
        }
        return variant.model_copy(update={"build": variant.build.filled(words)})

    def emulation(self, name: str, device: str = "") -> CAbiVariant:
        """A variant as it is built for the emulator, with the values of a device; empty: of the first."""
        variant = self.variants[name]
        assert isinstance(variant, CAbiVariant)
        return variant.emulated(self.tuned(device or next(iter(self.devices), "sm_89")))

    def tuned(self, device: str) -> tuple[str, ...]:
        """The macros of everything that is tuned: for `cpu`, or a compute capability."""
        chosen = ((tuning, tuning.best_on(device)) for tuning in self.tuning.values())
        return tuple(macro for tuning, values in chosen if values is not None for macro in tuning.defines(values))

    def variants_on(self, device: Device) -> tuple[str, ...]:
        """Names of the variants that run on a device, in the manifest's order."""
        return tuple(name for name, variant in self.variants.items() if variant.device in (device, "any"))

    @property
    def emulated(self) -> tuple[str, ...]:
        """Names of the variants made for a GPU that can be run under the emulator."""
        recipes = {name: getattr(variant, "emulation", None) for name, variant in self.variants.items()}
        return tuple(name for name, recipe in recipes.items() if recipe)


class Workload(Model):
    """Shape, type, attributes, kind of values and seed: everything that fixes a call's inputs."""

    name: str
    """Short description, unique within its target."""
    sizes: dict[str, Annotated[int, Field(ge=0)]]
    attributes: dict[str, bool | int | float | str | None] = Field(default_factory=dict)
    dtype: Dtype
    values: str = "normal"
    """Kind of values: `normal` (unit normals), `wide` (standard deviation 4), `constant` (each tensor one value),
    or one of the target's own."""
    seed: int = 0
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Time that its calls take in the user's program, relative to the other workloads."""

    @property
    def formula_values(self) -> dict[str, object]:
        """What a target's `flops` and `bytes` expressions may read."""
        return {**self.sizes, **self.attributes, "itemsize": ITEM_SIZES[self.dtype]}

    @property
    def base_seed(self) -> int:
        """The seed that gives it its values again, whichever other workloads there are."""
        return self.seed - zlib.crc32(self.name.encode())
