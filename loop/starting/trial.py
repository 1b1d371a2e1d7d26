"""A user's function as the files of a first target call it: reference, variant, generator."""

import re
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from loop.base.errors import UsageError
from loop.calls.callee import outputs_by_path
from loop.calls.torch_side import DTYPE_NAMES, same_bits
from loop.starting.choices import Call, Choice
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
    """Normals; `negative`, `far`: below zero; `positive`: above zero, for nearly all are within 4 of 8;
    `shifted`: around 100; `ends`: each row's greatest last, its least first; `zeros`: some are 0."""
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
    """Whole numbers from `low` to below `high`: both ends are among them; `wide`: of the whole type;
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
    """Parameters and buffers by name, at random: what a constructor leaves at 0 or 1 hides what is ignored."""
    weights = {}
    for name, tensor in {STATE}:
        values = tensor.detach().float()
        spread = float(values.std()) if tensor.numel() > 1 else 0.0
        if not tensor.is_floating_point() or (spread and not isinstance(tensor, torch.nn.Parameter)):
            weights[name] = tensor.detach().to(dtype) if tensor.is_floating_point() else tensor.detach()
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
    "object": "((name, tensor) for name, tensor in vars(instance).items() if isinstance(tensor, torch.Tensor))",
}
"""Kind of subject to what it has instead of `{STATE}`: its tensors by name."""


@dataclass(frozen=True)
class Subject:
    """The user's function or class, and how the target's files call it."""

    module: str
    name: str
    """Name in its module, as in `softmax`, `Block` or `Scaler.apply`."""
    function: str
    """Name of the target's function."""
    call: Call
    kind: Literal["function", "module", "object"] = "function"
    """`function`; `module` or `object`: an instance is made, and then called."""
    method: str = ""
    """Method of an object to call."""
    constructor: Call = field(default_factory=list)
    imports: Sequence[str] = ()
    """Import statements that the arguments need."""

    @property
    def full_name(self) -> str:
        """`module:function`."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True)
class Outcome:
    """The results of one call."""

    outputs: dict[str, Tensor]
    changed: dict[int, Tensor]
    """Index of each input that the call changed in place, to its new value."""

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
        return bool(pairs) and all(second is not None and same_bits(first, second) for first, second in pairs)


class Trial:
    """A way to call the user's function: a choice for every parameter. It makes the target's files,
    and calls."""

    def __init__(self, subject: Subject, choices: Mapping[str, Choice]) -> None:
        """`choices`: path of a parameter to its choice. Executes the source that the target would get, and
        registers it as the Python module `REFERENCE`."""
        self.subject, self.choices = subject, choices
        self.inputs = [tensor for choice in choices.values() for tensor in choice.inputs]
        """All input tensors, in the order of the call."""
        self.dims = list(dict.fromkeys(dim for tensor in self.inputs for dim in tensor.dims))
        """Names of all sizes, in order of appearance."""
        self.attributes: dict[str, Scalar] = {}
        """Attribute to its value; a workload can change them."""
        for choice in choices.values():
            self.attributes |= choice.attributes
        self.has_outputs = True
        """Whether the function returns outputs, besides inputs that it changes in place."""
        self.outcomes: list[tuple[Dims, Outcome]] = []
        """Sizes that ran, each with the results."""
        self.notes: list[str] = []
        """What was guessed from its calls, a sentence each."""
        names = _executed_names(self.wrapper(""), "reference")
        self.function = names[subject.function]
        module = sys.modules[REFERENCE] = types.ModuleType(REFERENCE)  # The source of `make` imports it.
        vars(module).update(names)
        self.make_inputs = _executed_names(self.generator(REFERENCE), "inputs")["make"]

    @property
    def first_normal(self) -> TensorSpec | None:
        """The first input of normal values; None without one. `shifted` changes this one alone, because float32
        loses too much with shifted weights."""
        return next((tensor for tensor in self.inputs if tensor.values == "normal"), None)

    @property
    def needs_generator(self) -> bool:
        """Whether the target needs a Python function that makes its inputs: loop draws only normal values."""
        is_drawn = all(tensor.values in ("normal", "positive") for tensor in self.inputs)
        return self.subject.kind != "function" or not is_drawn

    def run(
        self,
        sizes: Mapping[str, int],
        *,
        drawn: str = "normal",
        attributes: Mapping[str, Scalar] = {},
        as_float64: bool = False,
        ramp: int = 0,
    ) -> Outcome:
        """Make one call. Raises UsageError for an output that is no tensor of real numbers. `drawn`: values of
        the inputs, as in the source of `_normal`; `attributes`: those that differ from the choices; `ramp`: 1 or
        -1, to replace zeros by tiny values that rise or fall with their position."""
        attributes = {**self.attributes, **attributes}
        inputs = self.make_inputs(**sizes, **attributes, drawn=drawn, seed=SEED, dtype=torch.float32)
        arguments = [_copy(value, as_float64=as_float64) for value in inputs]
        for value in arguments if ramp else ():
            if isinstance(value, Tensor) and value.is_floating_point():
                positions = torch.arange(1.0, 1 + value.numel(), dtype=value.dtype).reshape(value.shape)
                value += 1e-300 * (positions if ramp > 0 else 1 + value.numel() - positions) * (value == 0)
        before = [_copy(value, as_float64=False) for value in arguments]
        outputs = outputs_by_path(self.function(*arguments, **attributes))
        for name, output in outputs.items():
            if not isinstance(output, Tensor) or output.dtype not in DTYPE_NAMES:
                kind = output.dtype if isinstance(output, Tensor) else type(output).__name__
                message = f"{self.subject.full_name} gives {name} as {kind}: expected tensors of real numbers"
                raise UsageError(message, hint="name a function that gives tensors")
        changed: dict[int, Tensor] = {}
        for number, (new, old) in enumerate(zip(arguments, before, strict=True)):
            if isinstance(new, Tensor) and not same_bits(new, old):
                changed[number] = new
        changed_ids = {id(tensor) for tensor in changed.values()}  # Such an input may also be returned.
        returned = {name: tensor for name, tensor in outputs.items() if id(tensor) not in changed_ids}
        return Outcome({name: tensor.detach().clone() for name, tensor in returned.items()}, changed)

    def try_sizes(self, sizes: Mapping[str, int], attributes: Mapping[str, Any] = {}) -> bool:
        """Whether a call runs, is as finite as earlier ones and has their outputs. If so, `outcomes` gets it."""
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
        """The constructor's arguments as text, in which a size such as `<x.1>` has the name of its dimension; and
        each dimension and attribute in it to its text in the wrapper."""
        text = self.argument_text(self.subject.constructor)
        dims = {tensor.name: tensor.dims for tensor in self.inputs}
        values = {dims[tensor][int(axis)]: f"<{tensor}.{axis}>" for tensor, axis in SIZE.findall(text)}
        values |= {name: name for name in self.attributes if re.search(rf"\b{re.escape(name)}\b", text)}
        return SIZE.sub(lambda match: dims[match[1]][int(match[2])], text), values

    def wrapper(self, title: str) -> str:
        """Source of a module with one function that calls the user's. `title`: begins its docstring.
        For a class, the function takes `weights` first, and sets them on an instance."""
        subject, make_instance = self.subject, ""
        parameters = [] if subject.kind == "function" else ["weights"]
        parameters += [tensor.name for tensor in self.inputs]
        parameters += ["*", *self.attributes] if self.attributes else []
        top_name, dot, inner_name = subject.name.partition(".")
        arguments = self.argument_text(subject.call)
        call = f"_given{dot}{inner_name}({arguments})"
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
        imports = "\n".join([*subject.imports, f"from {subject.module} import {top_name} as _given"])
        code = f"{call}\n{make_instance}\n{imports}"
        modules = [name for name in ("functools", "torch") if re.search(rf"\b{name}\.", code)]
        import_text = "".join(f"import {name}\n" for name in modules) + "\n" * bool(modules) + imports
        body = f"return {call}" if self.has_outputs else call  # Else it only changes its inputs.
        return (
            f'"""{title}: {subject.full_name}."""\n\n{import_text}\n{make_instance}\n\n'
            f"def {subject.function}({', '.join(parameters)}):\n    {body}\n"
        )

    def generator(self, reference: str) -> str:
        """Source of a module whose `make` draws all inputs; `reference`: module with `_make_instance`."""
        drawings = [_drawing_call(tensor, is_first=tensor is self.first_normal) for tensor in self.inputs]
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
            f'"""Inputs of a call. Mend what `loop init` guessed wrong."""\n\n{imports}\n\n{helpers}\n\n'
            f'def make({parameters}):\n    """All inputs, in the order of the call."""\n'
            f"    _draw = torch.Generator().manual_seed(seed)\n    return (\n{body}    )\n"
        )


def _copy(value: Any, *, as_float64: bool) -> Any:
    """A copy of a tensor or of a dict of weights; `as_float64`: floating-point tensors in float64."""
    if isinstance(value, dict):
        return {name: _copy(weight, as_float64=as_float64) for name, weight in value.items()}
    if as_float64 and value.is_floating_point():
        return value.to(torch.float64, copy=True)
    return value.clone()


def _drawing_call(tensor: TensorSpec, *, is_first: bool) -> str:
    """Source text that calls the helper which draws a tensor. `is_first`: whether it is `first_normal`."""
    drawn = "drawn" if is_first else '"normal" if drawn == "shifted" else drawn'
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
    """Execute a module's source text. Returns the names that it defines. `name`: of the module, in tracebacks."""
    names: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"{name}.py", "exec"), names)
    return names
