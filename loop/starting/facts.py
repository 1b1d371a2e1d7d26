"""Calls a user's function as the target's files will, derives facts, and writes target.yaml.

The facts from these trial calls are sizes, output shapes, values and tolerance.
"""

import importlib
import itertools
import json
import math
import re
import sys
import time
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from loop.base.errors import UsageError
from loop.base.own_process import lift_memory_limit, limit_memory
from loop.base.places import MANIFEST
from loop.calls.callee import DTYPE_NAMES, outputs_by_path, same_bits
from loop.calls.own_modules import describe_error
from loop.starting.choices import Call, Choice, Choices
from loop.starting.model import Scalar, TensorSpec

SEED = 7
REFERENCE = "loop_starting_reference"
"""Module name under which the wrapper of the user's function is imported here."""
SIZE = re.compile(r"<(\w+)\.(\d+)>")
Dims = dict[str, int]  # Name of a dimension to its size.
SHIFTS = {"positive": (1, 8), "negative": (1, -8), "far": (30, -240), "shifted": (1, 100)}
"""Kind of values to standard deviation and mean; of others they are 1 and 0."""
HELPERS = {
    "_normal": '''
def _normal(shape, drawn, draw, dtype):
    """Normals; `negative`, `far`: below zero; `positive`: above, as nearly all are within 4 of 8;
    `shifted`: around 100; `ends`: each row's greatest last, least first; `zeros`: some are 0."""
    shifts = {SHIFTS}
    deviation, mean = shifts.get(drawn, (1, 0))
    values = torch.randn(shape, generator=draw, dtype=torch.float64) * deviation + mean
    if drawn == "zeros" and values.numel() > 1:
        rows = values.reshape(-1, shape[-1])
        rows[0, :: 1 if len(rows) > 1 else 2] = 0
        rows[torch.arange(len(rows)), torch.arange(len(rows)) % shape[-1]] = 0
    if drawn == "ends" and values.dim():
        values = values.sort(-1).values
    return values.to(dtype)
''',
    "_whole": '''
def _whole(shape, low, high, drawn, draw, dtype):
    """Whole numbers from `low` to below `high`, both ends among them; `wide`: of the whole type;
    `alike`: one number everywhere; `few`: three numbers, so that many are equal."""
    if drawn == "wide":
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    if drawn == "few":
        low, high = max(low, -1), max(low, -1) + 3
    values = torch.randint(low, max(high, low + 1), shape, generator=draw).flatten()
    if drawn == "alike":
        values[1:] = values[:1]
    elif values.numel() > 1:
        values[0], values[-1] = max(high, low + 1) - 1, low
    return values.reshape(shape).to(dtype)
''',
    "_sorted": '''
def _sorted(shape, high, draw, dtype):
    """Whole numbers from 0 to `high` in order, as offsets are."""
    values = torch.randint(0, high + 1, shape, generator=draw).sort(-1).values
    values[..., 0], values[..., -1] = 0, high
    return values.to(dtype)
''',
    "_mask": '''
def _mask(shape, first, draw):
    """Truth values, of which the first of each row is given."""
    values = torch.rand(shape, generator=draw) < (0.7 if first else 0.3)
    if values.dim():
        values[..., :1] = first
    return values
''',
    "_weights": '''
def _weights(instance, draw, dtype):
    """Random parameters and buffers by name: a constructor's 0s and 1s hide what is ignored."""
    weights = {}
    for name, tensor in {STATE}:
        values = tensor.detach().float()
        spread = float(values.std()) if tensor.numel() > 1 else 0.0
        is_float = tensor.is_floating_point()
        if not is_float or (spread and not isinstance(tensor, torch.nn.Parameter)):
            weights[name] = tensor.detach().to(dtype) if is_float else tensor.detach()
            continue
        noise = torch.randn(tensor.shape, generator=draw)
        mean = float(values.mean()) if tensor.numel() else 0.0
        values = mean + noise * (spread or 0.25 * (abs(mean) or 1))
        weights[name] = (values.abs() if not spread and mean > 0 else values).to(dtype)
    return weights
''',
}
MODULE_CODE = """

@functools.cache
def _make_instance({parameters}):
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return {new}.eval()
"""
OBJECT_CODE = """

def _with_weights(instance, weights):
    vars(instance).update(weights)
    return instance


def _make_instance({parameters}):
    return {new}
"""
STATE_BY_KIND = {
    "module": "(*instance.named_parameters(), *instance.named_buffers())",
    "object": "((name, value) for name, value in vars(instance).items() if torch.is_tensor(value))",
}
"""Kind of subject to what it has instead of `{STATE}`: its tensors by name."""


@dataclass(frozen=True)
class Subject:
    """The user's function or class, and how the target's files call it."""

    module: str
    name: str  # Name in its module, as in `softmax`, `Block` or `Scaler.apply`.
    function: str  # Name of the target's function.
    call: Call
    kind: Literal["function", "module", "object"] = "function"
    """`function`; `module` or `object`: an instance is made, and then called."""
    method: str = ""  # Method of an object to call.
    constructor: Call = field(default_factory=list)
    imports: Sequence[str] = ()  # Import statements that the arguments need.

    @property
    def full_name(self) -> str:
        """`module:function`."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True)
class Outcome:
    """The results of one call."""

    outputs: dict[str, Tensor]
    changed: dict[int, Tensor]  # New value of each input changed in place, by the input's index.

    @property
    def results(self) -> dict[str, Tensor]:
        """Outputs by name, and inputs changed in place as `#0`."""
        return self.outputs | {f"#{number}": tensor for number, tensor in self.changed.items()}

    @property
    def is_finite(self) -> bool:
        """Whether no result holds NaN or infinity."""
        return all(bool(tensor.isfinite().all()) for tensor in self.results.values())

    def equals(self, other: "Outcome") -> bool:
        """Whether another call gave the same results bit by bit; False without results."""
        pairs = [(tensor, other.results.get(name)) for name, tensor in self.results.items()]
        return bool(pairs) and all(b is not None and same_bits(a, b) for a, b in pairs)


class Trial:
    """Choices and sizes with which to call the user's function. It makes the files, and calls."""

    def __init__(self, subject: Subject, choices: Mapping[str, Choice], base: Dims) -> None:
        """`choices`: path of a parameter to its choice; `base`: sizes to call it with. Executes the
        source that the target would get, and registers it as the Python module `REFERENCE`."""
        self.subject, self.choices, self.base = subject, choices, base
        self.inputs = [tensor for choice in choices.values() for tensor in choice.inputs]
        """All input tensors, in the order of the call."""
        # `shifted` changes the first normal input alone: float32 loses too much with all.
        self.first_normal = next((each for each in self.inputs if each.values == "normal"), None)
        is_drawn = all(tensor.values in ("normal", "positive") for tensor in self.inputs)
        self.needs_generator = subject.kind != "function" or not is_drawn
        """Whether a Python function has to make the inputs: loop draws only normal values."""
        self.dims = list(dict.fromkeys(dim for tensor in self.inputs for dim in tensor.dims))
        """Names of all sizes, in order of appearance."""
        self.attributes: dict[str, Scalar] = {}  # Attribute to value; a workload can change them.
        for choice in choices.values():
            self.attributes |= choice.attributes
        self.has_outputs = True  # Whether it returns outputs, besides inputs changed in place.
        self.outcomes: list[tuple[Dims, Outcome]] = []  # Sizes that ran, each with the results.
        self.notes: list[str] = []  # What was guessed from its calls, a sentence each.
        names = _executed_names(self.wrapper(""), "reference")
        self.function = names[subject.function]
        module = sys.modules[REFERENCE] = types.ModuleType(REFERENCE)  # `make` imports it.
        vars(module).update(names)
        self.make = _executed_names(self.generator(REFERENCE), "inputs")["make"]

    def run(
        self,
        sizes: Mapping[str, int],
        *,
        drawn: str = "normal",
        attributes: Mapping[str, Scalar] = {},
        as_float64: bool = False,
        ramp: int = 0,
    ) -> Outcome:
        """Make one call. Raises UsageError for an output that is no tensor of real numbers.
        `drawn`: values of the inputs, as in `_normal`; `attributes`: those that differ from the
        choices; `ramp`: 1 or -1: zeros become tiny values that rise or fall with their position."""
        attributes = {**self.attributes, **attributes}
        inputs = self.make(**sizes, **attributes, drawn=drawn, seed=SEED, dtype=torch.float32)
        arguments = [_copy(value, as_float64=as_float64) for value in inputs]
        for value in arguments if ramp else ():
            if isinstance(value, Tensor) and value.is_floating_point():
                positions = torch.arange(1.0, 1 + value.numel(), dtype=value.dtype)
                positions = positions if ramp > 0 else positions.flip(0)
                value += 1e-300 * positions.reshape(value.shape) * (value == 0)
        before = [_copy(value, as_float64=False) for value in arguments]
        outputs = outputs_by_path(self.function(*arguments, **attributes))
        for name, output in outputs.items():
            if not isinstance(output, Tensor) or output.dtype not in DTYPE_NAMES:
                kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
                message = f"{self.subject.full_name} gives {name} as {kind}: expected real tensors"
                raise UsageError(message, hint="name a function that gives tensors")
        changed: dict[int, Tensor] = {}
        for number, (new, old) in enumerate(zip(arguments, before, strict=True)):
            if isinstance(new, Tensor) and not same_bits(new, old):
                changed[number] = new
        changed_ids = set(map(id, changed.values()))  # Such an input may also be returned.
        names = [name for name, output in outputs.items() if id(output) not in changed_ids]
        return Outcome({name: outputs[name].detach().clone() for name in names}, changed)

    def try_sizes(self, sizes: Mapping[str, int], attributes: Mapping[str, Any] = {}) -> bool:
        """Whether a call runs, as finite as earlier ones, with their outputs: it is kept then."""
        try:
            outcome = self.run(sizes, attributes=attributes)
        except Exception:
            return False
        if self.outcomes and self.outcomes[0][1].outputs.keys() != outcome.outputs.keys():
            return False  # A target has the same outputs on all sizes.
        if not outcome.is_finite and all(earlier.is_finite for _, earlier in self.outcomes):
            return False
        self.outcomes.append((dict(sizes), outcome))
        return True

    def argument_text(self, call: Call) -> str:
        """Arguments as source text, with each `{path}` replaced by the chosen text."""
        text = ", ".join(f"{name}={value}" if name else value for name, value in call)
        for path, choice in self.choices.items():
            text = text.replace("{" + path + "}", choice.text)
        return text

    def _constructor_text(self) -> tuple[str, dict[str, str]]:
        """The constructor's arguments as text, in which a size such as `<x.1>` has its dimension's
        name; and each dimension and attribute in it to its text in the wrapper."""
        text = self.argument_text(self.subject.constructor)
        dims = {tensor.name: tensor.dims for tensor in self.inputs}
        values = {dims[name][int(axis)]: f"<{name}.{axis}>" for name, axis in SIZE.findall(text)}
        values |= {name: name for name in self.attributes if re.search(rf"\b{name}\b", text)}
        return SIZE.sub(lambda match: dims[match[1]][int(match[2])], text), values

    def wrapper(self, title: str) -> str:
        """Source of a module with one function that calls the user's, `title` in its docstring. For
        a class, the function takes `weights` first, and sets them on an instance."""
        subject, make_instance = self.subject, ""
        parameters = [] if subject.kind == "function" else ["weights"]
        parameters += [tensor.name for tensor in self.inputs]
        parameters += ["*", *self.attributes] if self.attributes else []
        owner, dot, member = subject.name.partition(".")
        arguments = self.argument_text(subject.call)
        call = f"_given{dot}{member}({arguments})"
        if subject.kind != "function":
            constructor_arguments, values = self._constructor_text()
            instance = f"_make_instance({', '.join(values.values())})"
            make_instance = MODULE_CODE if subject.kind == "module" else OBJECT_CODE
            new = f"_given({constructor_arguments})"
            make_instance = make_instance.format(parameters=", ".join(values), new=new)
            call = f"_with_weights({instance}, weights).{subject.method}({arguments})"
            if subject.kind == "module":
                call = f"torch.func.functional_call({instance}, weights, (), dict({arguments}))"
        call = SIZE.sub(r"\1.shape[\2]", call)
        imports = "\n".join([*subject.imports, f"from {subject.module} import {owner} as _given"])
        code = f"{call}\n{make_instance}\n{imports}"
        modules = [name for name in ("functools", "torch") if re.search(rf"\b{name}\.", code)]
        header = "".join(f"import {name}\n" for name in modules) + "\n" * bool(modules) + imports
        body = f"return {call}" if self.has_outputs else call  # Else it only changes its inputs.
        return (
            f'"""{title}: {subject.full_name}."""\n\n{header}\n{make_instance}\n\n'
            f"def {subject.function}({', '.join(parameters)}):\n    {body}\n"
        )

    def generator(self, reference: str) -> str:
        """Source of a module whose `make` draws all inputs; `reference`: name of the wrapper's."""
        drawings = [_drawing_call(tensor, self.first_normal) for tensor in self.inputs]
        imports = "import torch"
        if self.subject.kind != "function":
            imports += f"\n\nfrom {reference} import _make_instance"
            arguments = ", ".join(self._constructor_text()[1])
            drawings.insert(0, f"_weights(_make_instance({arguments}), _draw, dtype)")
        used = {drawing.partition("(")[0] for drawing in drawings}
        helpers = "\n".join(text for name, text in HELPERS.items() if name in used)
        helpers = helpers.replace("{STATE}", STATE_BY_KIND.get(self.subject.kind, ""))
        helpers = helpers.replace("{SHIFTS}", str(SHIFTS).replace("'", '"'))
        parameters = ", ".join([*self.dims, *self.attributes, "drawn", "seed", "dtype"])
        body = "".join(f"        {drawing},\n" for drawing in drawings)
        return (
            f'"""Inputs of a call. Mend what `loop init` guessed wrong."""\n\n{imports}\n\n'
            f"{helpers}\n\ndef make({parameters}):\n"
            f'    """All inputs, in the order of the call."""\n'
            f"    _draw = torch.Generator().manual_seed(seed)\n    return (\n{body}    )\n"
        )


def _copy(value: Any, *, as_float64: bool) -> Any:
    """A copy of a tensor or of a dict of weights; `as_float64`: floating-point ones in float64."""
    if isinstance(value, dict):
        return {name: _copy(weight, as_float64=as_float64) for name, weight in value.items()}
    if as_float64 and value.is_floating_point():
        return value.to(torch.float64, copy=True)
    return value.clone()


def _drawing_call(tensor: TensorSpec, first_normal: TensorSpec | None) -> str:
    """Source text that calls the helper which draws a tensor. `first_normal`: as in `Trial`."""
    drawn = "drawn" if tensor is first_normal else '"normal" if drawn == "shifted" else drawn'
    shape = f"({', '.join(tensor.dims)}{',' if len(tensor.dims) == 1 else ''})"
    dtype = f"torch.{tensor.dtype}" if tensor.dtype else "dtype"
    low, high = {"uint8": (0, 256), "int8": (-128, 128)}.get(tensor.dtype, (-100, 101))
    return {
        "normal": f"_normal({shape}, {drawn}, _draw, {dtype})",
        "positive": f'_normal({shape}, "positive", _draw, {dtype})',
        "whole": f"_whole({shape}, {low}, {high}, drawn, _draw, {dtype})",
        "index": f'_whole({shape}, 0, {tensor.high}, "normal", _draw, {dtype})',
        "sorted": f"_sorted({shape}, {tensor.high}, _draw, {dtype})",
        "mask": f"_mask({shape}, True, _draw)",
        "mask_out": f"_mask({shape}, False, _draw)",
    }[tensor.values]


def _executed_names(text: str, name: str) -> dict[str, Any]:
    """Execute the source of a module to be written; returns what it defines. `name`: its name."""
    names: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"{name}.py", "exec"), names)
    return names


LONG_S, MOST_BYTES = 0.5, 16 << 20  # Limits of a timed call: seconds, size of an output.
MOST_EDGES, MOST_VARIED, MOST_SINGLE = 16, 6, 5
"""Most workloads of other sizes, attributes that get another value, values of a single size."""
EDGES = (
    (3, 17, 5, 9), (1,), (33, 3), (65, 31, 7, 2), (5, 1), (1, 67), (2, 129, 3), (128, 64, 32),
    (32, 512),
)  # fmt: skip
"""Sizes at which kernels often fail, over all dimensions: paddings of 1 and 3, powers of two."""
SINGLE_SIZES = (1, 3, 128, 7, 36, 64, 17, 33, 67, 2, 4, 12, 20)
"""Values for a single changed size, used for dimensions that EDGES cannot vary."""
ODD_SIZES = (3, 5)  # A dimension that runs with both is independent of the others.
ENOUGH_EDGES = 5  # With fewer edge sizes that run, dimensions are also changed one at a time.
LONG_SIZE, LONG_CUDA_SIZE = 65_541, 32_773
"""A size beyond 16 bits; a CUDA kernel's: a GPU launches at most 65,535 blocks along y."""
SMALL_SIZES = (5, 4, 2)
"""Other sizes of a call with a long one: the inside of a stencil is empty where they are 2."""
LONG_TRIAL_S, LONG_BYTES = 0.01, 128 << 20
"""Limits of calls with a long size: CPU seconds with a sixteenth of it, further bytes of memory."""
TOLERANCE, TOLERANCE_FACTOR = 1e-4, 4.0
"""Default tolerance; the tolerance as a multiple of the function's own float32 error."""
EXACT_ENOUGH = {"far": TOLERANCE_FACTOR, "shifted": 2.0, "wide": TOLERANCE_FACTOR}
"""Values for which float32 may lose too much: the tolerance needed, as a multiple of the error."""
LARGEST_UNVARIED = 8  # A size given by number up to this one is not varied: a filter's 3, 4 heads.
TIMED_SIZES = {1: (8192,), 2: (1024, 256), 3: (256, 64, 8), 4: (64, 64, 8, 4)}
"""Rank of a tensor to its timed sizes, from the last dimension to the first."""
MORE_DIMS = (32, 32, 8, 4, 2)  # The same for tensors of higher rank.
DIFFERENT_SIZES = (
    (7, 11, 13, 17, 5, 19, 23, 29),
    (8, 16, 24, 32, 40, 48, 56, 64),
    (64, 32, 16, 8, 4, 2, 2, 2),
    (16, 64, 32, 8, 128, 4, 2, 2),
)
"""Sizes of the dimensions, to try row by row. With equal ones, wrong calls run, too."""
WORD = re.compile(r"[A-Za-z]\w{0,63}")
QUANTISED = (torch.int8, torch.uint8)


class Sizes:
    """The dimensions of all inputs, and the sizes to try, time and check."""

    def __init__(self, shapes: Sequence[Sequence[str]], fixed_sizes: Mapping[str, int]) -> None:
        """`shapes`: the dimensions of each input, by name; `fixed_sizes`: those given by number."""
        self.shapes, self.fixed_sizes = shapes, fixed_sizes
        self.names = list(dict.fromkeys(name for shape in shapes for name in shape))
        self.free_dims = [name for name in self.names if name not in fixed_sizes]
        self.candidates: list[dict[str, int]] = []  # Sizes to try in turn, until some run.
        for row in DIFFERENT_SIZES:
            sizes = dict(zip(self.free_dims, itertools.cycle(row), strict=False))
            candidate = {**sizes, **fixed_sizes}
            self.candidates += [] if candidate in self.candidates else [candidate]

    def timed(self, divisor: int) -> dict[str, int]:
        """The timed sizes. Those not given by number are divided by `divisor`, to 8 at least."""
        timed_sizes = {name: self.fixed_sizes.get(name, 0) for name in self.names}
        for name in self.free_dims:
            shapes = [shape for shape in self.shapes if name in shape]
            shape = max(shapes, key=lambda shape: (len(shape), -shape.index(name)))  # Highest rank.
            sizes = TIMED_SIZES.get(len(shape), MORE_DIMS)
            size = sizes[min(len(shape) - 1 - shape.index(name), len(sizes) - 1)]
            timed_sizes[name] = max(size // divisor, min(size, 8))
        return timed_sizes


@dataclass(frozen=True)
class Facts:
    """What target.yaml says of a function, besides its inputs and attributes."""

    outputs: list[TensorSpec]
    updates: dict[str, str]  # Output to the input that the function changes in place to it.
    quick: list[Dims]  # Workloads that are timed.
    edges: list[dict[str, Any]]
    """Workloads that are only checked; an entry `drawn` names other values of the inputs."""
    long: list[dict[str, Any]]
    """Workloads that are only checked, with a size beyond 16 bits; may have an entry `drawn`."""
    tolerance: float


def check_results(trial: Trial, folder: str) -> None:
    """Raise UsageError if calls give different results, or none. Sets `trial.has_outputs`.
    `folder`: that of the user's module."""
    outcome, name = trial.run(trial.base), trial.subject.full_name
    torch.manual_seed(SEED + 1)  # A function that draws numbers now draws others.
    if not outcome.results:
        hint = "name a function that gives tensors"
        raise UsageError(f"{name} gives no tensor, and changes no input", hint)
    repeats, module = [trial.run(trial.base)], sys.modules[trial.subject.module]
    if (module.__file__ or "").startswith(f"{folder}/"):  # A new import may draw other values.
        with suppress(Exception):
            importlib.reload(module)
            repeats.append(Trial(trial.subject, trial.choices, trial.base).run(trial.base))
    if not all(map(outcome.equals, repeats)):
        reason = "it keeps state, or draws numbers, also where it is imported"
        hint = "seed what it draws by an argument, or name a function that draws nothing"
        raise UsageError(f"{name} gives two results on the same inputs: {reason}", hint)
    trial.has_outputs = bool(outcome.outputs)


def gather_facts(
    trial: Trial, sizes: Sizes, choices: Choices, *, is_cuda: bool, tries_long_sizes: bool
) -> Facts:
    """The facts for target.yaml, from a few dozen calls. `is_cuda`: whether the variant is a CUDA
    kernel; `tries_long_sizes`: as in `InitRequest`. `trial.notes` gets each choice and guess."""
    notes = trial.notes
    notes += choices.notes
    shared = list[str]()  # Equal numbers of several tensors, which are one size.
    for dim, size in sizes.fixed_sizes.items():
        names = [tensor.name for tensor in trial.inputs for name in tensor.dims if name == dim]
        owners = ", ".join(dict.fromkeys(names))
        shared += [f"{size} of {owners} is {dim}"] if names[1:] else []
    if shared:
        hint = "letters tell sizes apart, such as --like x=N,M"
        notes.append(f"equal numbers are one size: {', '.join(shared)}; {hint}")
    for path, choice in trial.choices.items():  # Note each choice among several.
        notes += choice.notes
        if len(choices.by_path[path]) > 1 and not choice.inputs and path not in choices.values:
            text = str(choice.attributes.get(choice.text, choice.text))
            text = re.sub(r"<(\w+)\.(\d+)>", r"\1.shape[\2]", text)
            notes.append(f"{path} = {text}, with which it runs; --set {path}=VALUE changes it")
    is_python = choices.kernel_numbers is None  # A kernel may be made for sizes given by number.
    quick, checked = _workloads(trial, sizes, vary_fixed=is_python)
    if sizes.free_dims:
        text = ", ".join(f"{name} {size}" for name, size in quick[0].items())
        notes.append(f"timed with {text}; others go under `quick` in {MANIFEST}")
    # Other values and attributes: at the largest sizes, if possible at such that no tile divides.
    candidates = checked or [trial.base]
    largest = max(candidates, key=lambda dims: min((size % 32 > 0, size) for size in dims.values()))
    value_edges = list(_other_values(trial, largest))
    drawn = {workload["drawn"] for workload in value_edges}
    kind = "wide" if "wide" in drawn else "normal"
    attribute_edges = list(_other_attributes(trial, largest, kind))
    edges = [*checked[:MOST_EDGES], *value_edges, *attribute_edges]
    changed: dict[str, Any] = {}  # All attributes at once.
    for workload in attribute_edges:
        changed |= {name: value for name, value in workload.items() if name in trial.attributes}
    if changed and trial.try_sizes(quick[-1], changed):
        edges.append({**quick[-1], **changed})
    outputs, updates = _outputs(trial)
    long = list[dict[str, Any]]()
    if tries_long_sizes:
        long += _long_sizes(trial, quick[0], sizes, is_cuda=is_cuda)
    else:
        trial.notes.append("no long sizes: the process that tried them crashed")
    kinds = [kind for kind in ("wide", "alike") if kind in drawn]
    long += [{**workload, "drawn": kind} for workload in long[:1] for kind in kinds]
    return Facts(outputs, updates, quick, edges, long, _tolerance(trial, quick[0]))


def _float32_error(trial: Trial, sizes: Dims, drawn: str) -> float:
    """Largest float32 error, relative to 1 + |float64 result|; errors not finite count as 0.
    Raises what the function raises."""
    exact_results, largest = trial.run(sizes, drawn=drawn, as_float64=True).results, 0.0
    for name, result in trial.run(sizes, drawn=drawn).results.items():
        exact = exact_results.get(name)
        is_comparable = exact is not None and exact.shape == result.shape and result.numel() > 0
        if exact is not None and is_comparable and result.is_floating_point():
            error = (result.double() - exact.double()).abs() / (1 + exact.double().abs())
            largest = max(largest, float(error.nan_to_num(0.0, 0.0, 0.0).max()))
    return largest


def _tolerance(trial: Trial, sizes: Dims) -> float:
    """The tolerance: above the default if the function's own float32 error is: a note says so."""
    try:
        error = _float32_error(trial, sizes, "normal")
    except Exception as problem:
        trial.notes.append(f"the reference does not run in float64: {describe_error(problem)}")
        return TOLERANCE
    if TOLERANCE_FACTOR * error <= TOLERANCE:
        return TOLERANCE
    tolerance = 10.0 ** math.ceil(math.log10(TOLERANCE_FACTOR * error))
    trial.notes.append(f"tolerance {tolerance:g}: in float32 the function itself loses {error:.1g}")
    return tolerance


def _workloads(trial: Trial, sizes: Sizes, *, vary_fixed: bool) -> tuple[list[Dims], list[Dims]]:
    """Timed sizes (the largest within the limits, and odd ones), and sizes that are only checked.
    All of them run. `vary_fixed`: whether sizes given by number may vary."""
    base, largest = trial.base, dict[str, int]()
    for divisor in (16, 8, 4, 2, 1) if sizes.free_dims else (1,):
        candidate, began = sizes.timed(divisor), time.monotonic()
        if trial.try_sizes(candidate):
            is_long = time.monotonic() - began > LONG_S
            tensors = trial.outcomes[-1][1].outputs.values()
            is_large = any(tensor.nbytes > MOST_BYTES for tensor in tensors)
            if largest and (is_long or is_large):
                break
            largest = candidate
    largest = largest or base
    names = sizes.names if vary_fixed else sizes.free_dims
    names = [name for name in names if sizes.fixed_sizes.get(name, math.inf) > LARGEST_UNVARIED]
    independent: list[str] = []
    dependent: list[str] = []  # Not every size runs, as with heads and width.
    for name in names:
        odd_runs = [trial.try_sizes({**base, name: size}) for size in ODD_SIZES]
        (independent if all(odd_runs) else dependent).append(name)
    checked: list[Dims] = []
    for numbers in EDGES if independent else ():  # All independent sizes change at once.
        candidate = {**base, **dict(zip(independent, itertools.cycle(numbers), strict=False))}
        checked += [candidate] if candidate not in checked and trial.try_sizes(candidate) else []
    for name in dependent if len(checked) >= ENOUGH_EDGES else names:  # One size changes at a time.
        candidates = [{**base, name: size} for size in SINGLE_SIZES]
        unchecked = [candidate for candidate in candidates if candidate not in checked]
        checked += [*filter(trial.try_sizes, unchecked)][:MOST_SINGLE]
    if sizes.free_dims and base not in checked:
        checked.append(base)
    odd = dict(largest)
    for name in [dim for dim in independent if dim in sizes.free_dims]:
        quarter = largest[name] // 4
        odd[name] = quarter + (1 if quarter % 2 == 0 else 2)  # No tile divides it.
    quick = [largest, odd] if odd != largest and trial.try_sizes(odd) else [largest]
    for name in dependent:
        texts = {True: list[str](), False: list[str]()}  # The sizes that run, and that do not.
        for size in sorted({base[name], *ODD_SIZES, *SINGLE_SIZES}):
            runs = size == base[name]
            runs = runs or any(sizes == {**base, name: size} for sizes, _ in trial.outcomes)
            texts[runs].append(str(size))
        good, bad = (", ".join(texts[runs][:MOST_SINGLE]) for runs in (True, False))
        trial.notes.append(f"only some sizes of {name} run: {good}, but not {bad}")
    if not checked:
        trial.notes.append("no other sizes are checked: name risky ones under `edges`")
    return quick, checked


def _other_values(trial: Trial, sizes: Dims) -> Iterator[dict[str, Any]]:
    """Workloads with other values and finite results. `far` shows a softmax whose maximum starts at
    0, `shifted` a variance in one pass, if float32 is exact enough. `zeros` shows logarithms and
    divisions; left out where the order of equal values decides. `wide` shows a key cut to 16 bits,
    `alike` a counter that overflows, `few` a comparison of numbers that are seldom equal."""
    has_normals = any(tensor.values == "normal" for tensor in trial.inputs)
    kinds = ["negative", "far", "shifted", "ends", "zeros"] if has_normals else []
    whole_types = {tensor.dtype for tensor in trial.inputs if tensor.values == "whole"}
    kinds += ["wide", "alike"] if whole_types - {"int8", "uint8"} else []
    kinds += ["few"] if whole_types else []
    for drawn in kinds:
        with suppress(Exception):
            factor = EXACT_ENOUGH.get(drawn, 0.0)
            error = _float32_error(trial, sizes, drawn) if factor else 0.0
            if drawn == "zeros":
                # Where zeros become tiny values that rise, or fall, indices among the results
                # differ. Integers of 8 bits are quantised values, not indices.
                rising = trial.run(sizes, drawn=drawn, as_float64=True, ramp=1).results
                falling = trial.run(sizes, drawn=drawn, as_float64=True, ramp=-1).results
                names = [name for name, result in rising.items() if result.dtype not in QUANTISED]
                pairs = [(rising[name].double(), falling[name].double()) for name in names]
                if not all(torch.allclose(up, down, 1e-3, 1e-3) for up, down in pairs):
                    continue
            if trial.run(sizes, drawn=drawn).is_finite and factor * error < TOLERANCE:
                yield {**sizes, "drawn": drawn}


def _long_sizes(trial: Trial, timed: Dims, sizes: Sizes, *, is_cuda: bool) -> list[Dims]:
    """Workloads with one size beyond 16 bits, where a `short` overflows; other free sizes are of
    SMALL_SIZES if possible. Of a CUDA kernel only the first is so long, as a block may hold a row:
    others are odd, a little below the `timed` ones, where a wrong end of a row shows. What takes
    time or memory, or does not run, is only beyond 8 bits or left out, which a note says."""
    dims = sizes.free_dims[:1] if is_cuda else sizes.free_dims
    long_size = LONG_CUDA_SIZE if is_cuda else LONG_SIZE
    candidates = [{**trial.base, **dict.fromkeys(sizes.free_dims, size)} for size in SMALL_SIZES]
    small, workloads = next(filter(trial.try_sizes, candidates), trial.base), list[Dims]()
    limit_memory(LONG_BYTES)
    for name in sizes.free_dims:
        # The second if groups have to divide it; the last, beyond 8 bits, if others are too slow.
        choices = [long_size, (long_size // 64 + 1) * 64, 320]
        if name not in dims:
            choices = [timed[name] - 11] if timed[name] > 320 else []
        for size in choices:
            began = time.process_time()
            runs = trial.try_sizes({**small, name: -(-size // 1024) * 64})
            is_fast = time.process_time() - began < LONG_TRIAL_S
            if runs and is_fast and trial.try_sizes({**small, name: size}):
                workloads.append({**small, name: size})
                break
    lift_memory_limit()
    if missing := [name for name in dims if all(each[name] < long_size for each in workloads)]:
        text = f"{', '.join(missing)} below {long_size:,}"
        trial.notes.append(f"{text}: longer ones take too long, or do not run")
    return workloads


def _other_attributes(trial: Trial, sizes: Dims, drawn: str) -> Iterator[dict[str, Any]]:
    """Workloads with another value of each attribute, and with a large count. They have to change
    the outputs, if possible not their shapes; a note names an attribute without one. The results go
    to `trial.outcomes`. `drawn`: values of inputs: `wide` shows a shift that `normal` does not."""
    usual = trial.run(sizes, drawn=drawn)
    shapes = {name: tensor.shape for name, tensor in usual.outputs.items()}
    for name, value in list(trial.attributes.items())[:MOST_VARIED]:
        candidates: list[Scalar] = [0.5 if abs(value) < 0.01 else value * 1.5, 0.25, value / 2]
        if isinstance(value, bool):
            candidates = [not value]
        elif isinstance(value, int):
            candidates = [value + 1, value * 2, value // 2, value - 1, 0, 1, 4 * value + 3]
        effective: list[tuple[bool, Scalar, Outcome]] = []  # Changes shapes; value; results.
        for candidate in candidates:
            with suppress(Exception):
                outcome = trial.run(sizes, drawn=drawn, attributes={name: candidate})
                new_shapes = {name: tensor.shape for name, tensor in outcome.outputs.items()}
                has_all_outputs = new_shapes.keys() == shapes.keys()
                if has_all_outputs and outcome.is_finite and not usual.equals(outcome):
                    effective.append((new_shapes != shapes, candidate, outcome))
        large = [entry for entry in effective if entry[1] == 4 * value + 3 and not entry[0]]
        for _, candidate, outcome in (*large, *sorted(effective, key=lambda entry: entry[0])[:1]):
            trial.outcomes.append((sizes, outcome))
            yield {**sizes, name: candidate} | ({} if drawn == "normal" else {"drawn": drawn})
        if not effective:
            trial.notes.append(f"{name} is always {value!r}: no other value tried changes outputs")


def _outputs(trial: Trial) -> tuple[list[TensorSpec], dict[str, str]]:
    """The outputs; and output to the input that it updates in place, with a note."""
    outcomes = trial.outcomes or [(trial.base, trial.run(trial.base))]
    first = outcomes[0][1]
    sizes_by_dim = {dim: tuple(sizes[dim] for sizes, _ in outcomes) for dim in trial.dims}
    names = {*(tensor.name for tensor in trial.inputs), *trial.attributes, *trial.dims}
    outputs: list[TensorSpec] = []
    updates: dict[str, str] = {}
    for number in first.changed if trial.subject.kind == "function" else ():
        tensor = trial.inputs[number]
        updates[f"new_{tensor.name}"] = tensor.name
        outputs.append(TensorSpec(name=f"new_{tensor.name}", dims=tensor.dims, dtype=tensor.dtype))
        trial.notes.append(f"{tensor.name} is changed in place: `updates` says so")
    for output, result in first.outputs.items():
        name = output if WORD.fullmatch(output) else f"output_{output}".replace(".", "_")
        name = f"{name}_out" if name in names else name
        shapes = [outcome.outputs[output].shape for _, outcome in outcomes]
        dims: list[str] = []  # Of each axis the only dimension that has its size in every call.
        for axis_sizes in zip(*shapes, strict=False):  # Of one axis, in every call.
            equal_dims = [dim for dim, sizes in sizes_by_dim.items() if sizes == axis_sizes]
            dims += equal_dims if len(equal_dims) == 1 else ()
        dtype = DTYPE_NAMES[result.dtype].replace("float32", "")
        known_dims = tuple(dims) if {len(shape) for shape in shapes} == {len(dims)} else ()
        outputs.append(TensorSpec(name=name, dims=known_dims, dtype=dtype))
    return outputs, updates


LEAST_TOLERANCE = {"float32": 0.0, "float16": 1e-2, "bfloat16": 1e-2}
DOUBLE_TOLERANCE = 1e-9
"""Of a kernel that gets nothing but float64: a part of it that computes in float32 loses more."""
WHOLE = re.compile(r"u?int|bool")
DISTRIBUTIONS: dict[str, dict[str, str | int]] = {"zeros": {"kind": "zeros"}}
DISTRIBUTIONS |= {
    kind: {"kind": "normal", "scale": sd, "offset": mean} for kind, (sd, mean) in SHIFTS.items()
}
"""Kind of values to what `values` of target.yaml says of it."""
TEXT = """\
# A target of your own. `loop patterns check {path}` lists every mistake in this file with its line.
{notes}format: 2
name: {name}
function: {function}
signature:                        # dimensions of each tensor by name; `updates`: changed in place
{signature}
{generator}reference: {{python: "{reference}"}}   # what is right, in float64, under torch.no_grad()
baseline: {{python: "{reference}"}}    # what you would otherwise run
tolerance:                        # of one element: atol + rtol * |reference|
{tolerance}
dtypes: {{cpu: float32, cuda: float32}}
# flops: "2*N*M"                  # of one call, for the roofline; bytes, too
{values}workloads:
  quick:                          # timed and checked
{quick}
{edges}
variants:
  {variant}
"""


def manifest(folder: Path, trial: Trial, facts: Facts, variant: str, names: dict[str, str]) -> str:
    """The text of target.yaml. `variant`: the YAML line of the first variant. `names`: `reference`,
    `mine` and `inputs` to the name of that module."""
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.absolute().name.lower()).strip("-_")[:48]
    generator = f'generator: {{python: "{names["inputs"]}:make"}}   # makes the inputs\n'
    edges = "  # edges: [...]                  # sizes at which a kernel may go wrong: 1, 63 and 65"
    if facts.edges:
        edges = "  edges:                          # only checked: add sizes where yours may fail\n"
        edges += "\n".join(_workload_lines(trial, facts.edges))
    if facts.long:
        edges += "\n  long:                           # only checked; if limited, say `takes`\n"
        edges += "\n".join(_workload_lines(trial, facts.long))
    tolerances = {dtype: max(facts.tolerance, least) for dtype, least in LEAST_TOLERANCE.items()}
    if any(tensor.dtype == "float64" for tensor in (*trial.inputs, *facts.outputs)):
        floats = {tensor.dtype for tensor in trial.inputs if not WHOLE.match(tensor.dtype)}
        tolerances["float64"] = DOUBLE_TOLERANCE if floats == {"float64"} else facts.tolerance
    tolerance_lines = []
    for dtype, most in tolerances.items():
        tolerance_lines.append(f"  {dtype}: {_yaml({'atol': most, 'rtol': most})}")
    return TEXT.format(
        path=MANIFEST,
        notes="".join(f"# guessed: {note}\n" for note in trial.notes),
        name=name if name[:1].isalpha() else f"target-{name}".rstrip("-"),
        function=trial.subject.function,
        signature="\n".join(_signature_lines(trial, facts)),
        generator=generator if trial.needs_generator else "",
        reference=f"{names['reference']}:{trial.subject.function}",
        tolerance="\n".join(tolerance_lines),
        values="" if trial.needs_generator else _values_text(trial, facts.edges),
        quick="\n".join(_workload_lines(trial, facts.quick)),
        edges=edges,
        variant=variant,
    )


def _values_text(trial: Trial, edges: Sequence[Mapping[str, Any]]) -> str:
    """The text of `values` in target.yaml: by name, distributions to draw from; or empty."""
    names = [tensor.name for tensor in trial.inputs if tensor.values == "positive"]
    positive = dict.fromkeys(names, DISTRIBUTIONS["positive"])
    values = {"positive": positive} if positive else {}
    kinds = {workload.get("drawn") for workload in edges}
    for kind in ("negative", "far", "shifted", "zeros"):
        if kind in kinds:
            inputs = [trial.first_normal] if kind == "shifted" else trial.inputs
            values[kind] = {each.name: DISTRIBUTIONS[kind] for each in inputs if each} | positive
    lines = [f"  {name}: {_yaml(distributions)}\n" for name, distributions in values.items()]
    return "".join(["values:\n", *lines]) if lines else ""


def _signature_lines(trial: Trial, facts: Facts) -> list[str]:
    """The lines of `signature` in target.yaml."""
    is_function, lines = trial.subject.kind == "function", list[str]()
    inputs = {tensor.name: " ".join(tensor.dims) for tensor in trial.inputs}
    if not is_function:  # A module or another object: `weights` are its tensors.
        others = ", ".join(f"{name} ({dims})" for name, dims in inputs.items())
        lines.append(f"  # inputs: `weights`, parameters and buffers by name; then {others}")
    # Without `outputs`, loop takes those of the reference. With `updates` they have to be there.
    outputs = {tensor.name: " ".join(tensor.dims) or "..." for tensor in facts.outputs}
    if not outputs or ("..." in outputs.values() and not facts.updates):
        outputs = {}
        comment = "those of the reference; name their dimensions where these are sizes"
        lines.append(f"  # outputs: {{output: N M}}       # {comment}")
    tensors = (trial.inputs if is_function else []) + (facts.outputs if outputs else [])
    scalars, drawn = {}, {}
    for name, value in trial.attributes.items():
        scalars[name] = {"kind": "flag" if isinstance(value, bool) else "number", "default": value}
    if trial.needs_generator:
        kinds = ["normal", *SHIFTS, "ends", "zeros", "wide", "alike", "few"]
        drawn = {"drawn": {"kind": "choice", "choices": kinds}}
    fields = {
        "inputs": inputs if is_function else {},
        "sizes": [] if is_function else trial.dims,
        "outputs": outputs,
        "updates": facts.updates,
        "types": {tensor.name: tensor.dtype for tensor in tensors if tensor.dtype},
        "attributes": scalars,
        "parameters": drawn,
    }
    return lines + [f"  {name}: {_yaml(value)}" for name, value in fields.items() if value]


def _workload_lines(trial: Trial, workloads: Iterable[Mapping[str, Scalar | str]]) -> list[str]:
    """A line for each workload. `drawn` is a generator's parameter, or else one of `values`."""
    usual = "positive" if any(tensor.values == "positive" for tensor in trial.inputs) else ""
    lines = []
    for entry in map(dict, workloads):
        if not trial.needs_generator:
            drawn = entry.pop("drawn", usual)
            if drawn == "ends":  # Every second seed of `values` draws these by default.
                continue
            entry |= {"values": drawn} if drawn else {}
        lines.append(f"    - {_yaml(entry)}")
    return lines


def _yaml(value: object) -> str:
    """A value as YAML on one line: JSON, but for 1.0e-05, because YAML takes 1e-05 for a text."""
    return re.sub(r"(?<![\w.])(\d+)e(?=[-+]\d)", r"\1.0e", json.dumps(value))
