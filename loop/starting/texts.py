"""The Python files of a first target: the reference, a variant that begins as it, and a generator of inputs."""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loop.starting.slots import Argument, Drawn, Option, Scalar

TOKEN, SIZE = re.compile(r"\{([A-Za-z_][\w.]*)\}"), re.compile(r"<(\w+)\.(\d+)>")
HELPERS = {
    "_normal": '''
def _normal(shape, drawn, draw, dtype):
    """Normals; `negative`, `far`: below zero; `ends`: each row's greatest last, its least first."""
    values = torch.randn(shape, generator=draw)
    if drawn == "negative":
        values = values - 8
    if drawn == "far":
        values = values * 30 - 240
    if drawn == "ends" and values.dim():
        values = values.sort(-1).values
    return values.to(dtype)
''',
    "_positive": '''
def _positive(shape, draw, dtype):
    """Values above zero, for nearly all are within 4 of 8."""
    return (torch.randn(shape, generator=draw) + 8).to(dtype)
''',
    "_whole": '''
def _whole(shape, low, high, draw, dtype):
    """Whole numbers from `low` to below `high`: both ends are among them."""
    values = torch.randint(low, max(high, low + 1), shape, generator=draw).flatten()
    if values.numel() > 1:
        values[0], values[-1] = max(high, low + 1) - 1, low
    return values.reshape(shape).to(dtype)
''',
    "_distinct": '''
def _distinct(shape, high, draw, dtype):
    """Different whole numbers from 0 to below `high`: each is written once."""
    return torch.randperm(high, generator=draw)[: torch.Size(shape).numel()].reshape(shape).to(dtype)
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
def _weights(made, draw, dtype):
    """Parameters and buffers by name, at random: what a constructor leaves at 0 or 1 hides what is ignored."""
    found = {}
    for name, one in {STATE}:
        values = one.detach().float()
        spread = float(values.std()) if one.numel() > 1 else 0.0
        if not one.is_floating_point() or (spread and not isinstance(one, torch.nn.Parameter)):
            found[name] = one.detach().to(dtype) if one.is_floating_point() else one.detach()
            continue
        noise = torch.randn(one.shape, generator=draw)
        mean = float(values.mean()) if one.numel() else 0.0
        values = mean + noise * (spread or 0.25 * (abs(mean) or 1))
        found[name] = (values.abs() if not spread and mean > 0 else values).to(dtype)
    return found
''',
}
MADE = """

@functools.cache
def _made({parameters}):
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return {made}.eval()
"""
CALLED = """

class _Called(torch.nn.Module):
    def __init__(self, given):
        super().__init__()
        self.given = given

    def forward(self, *inputs, **named):
        return self.given.{method}(*inputs, **named)
"""
WITH = """

def _with(made, weights):
    vars(made).update(weights)
    return made
"""
STATES = {
    "module": "(*made.named_parameters(), *made.named_buffers())",
    "object": "((name, one) for name, one in vars(made).items() if isinstance(one, torch.Tensor))",
}


@dataclass(frozen=True)
class Subject:
    """What the user named, as files call it."""

    module: str
    name: str
    """`softmax`, `Block` or `Scaler.apply`."""
    function: str
    """What it is called in the target."""
    kind: str = "function"
    """`function`; `module` or `object`: one is made, and then called."""
    method: str = ""
    """Of the one that is made; empty: it is called itself."""
    constructor: Sequence[Argument] = ()
    call: Sequence[Argument] = ()
    imports: Sequence[str] = ()

    @property
    def top(self) -> str:
        """What is imported of the module."""
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Hypothesis:
    """What every parameter is given."""

    subject: Subject
    options: Mapping[str, Option]
    returns: bool = True
    """Whether the function gives anything besides what it changes in place."""

    @property
    def inputs(self) -> list[Drawn]:
        """All tensors, in the order of the call."""
        return [tensor for option in self.options.values() for tensor in option.inputs]

    @property
    def attributes(self) -> dict[str, Scalar]:
        """All values that a workload can change."""
        return {name: value for option in self.options.values() for name, value in option.attributes.items()}

    def _call(self, arguments: Sequence[Argument]) -> str:
        """Arguments as text, over inputs and attributes."""
        text = ", ".join(argument.rendered() for argument in arguments)
        return TOKEN.sub(lambda match: self.options[match[1]].text if match[1] in self.options else match[0], text)

    @property
    def made(self) -> tuple[str, list[str]]:
        """The constructor's arguments as text, and the names of those that it is made of, in place of sizes."""
        text = self._call(self.subject.constructor)
        names = list(dict.fromkeys(SIZE.findall(text)))
        for n, (tensor, axis) in enumerate(names):
            text = text.replace(f"<{tensor}.{axis}>", f"size_{n}")
        used = [attribute for attribute in self.attributes if re.search(rf"\b{re.escape(attribute)}\b", text)]
        return text, [*(f"<{tensor}.{axis}>" for tensor, axis in names), *used]

    def wrapper(self, title: str) -> str:
        """A module with one function that calls the user's."""
        subject, names = self.subject, [tensor.name for tensor in self.inputs]
        attributes = list(self.attributes)
        parameters = ["weights", *names] if subject.kind != "function" else names
        head = ", ".join([*parameters, *(["*", *attributes] if attributes else [])])
        arguments = SIZE.sub(r"\1.shape[\2]", self._call(subject.call))
        making = ""
        if subject.kind == "function":
            done = f"_given{subject.name[len(subject.top) :]}({arguments})"
        else:
            making, done = self._making()
        result = f"return {done}" if self.returns else done
        lines = [*subject.imports, f"from {subject.module} import {subject.top} as _given"]
        texts = "\n".join((done, making, arguments, *lines))
        head_lines = [f"import {name}" for name in ("functools", "torch") if re.search(rf"\b{name}\.", texts)]
        imports = "\n".join(head_lines) + "\n\n" + "\n".join(lines) if head_lines else "\n".join(lines)
        top = f'"""{title}: {subject.module}:{subject.name}."""\n\n{imports}\n{making}'
        return f"{top}\n\ndef {subject.function}({head}):\n    {result}\n"

    def _making(self) -> tuple[str, str]:
        """How one of a class is made, and how it is called with weights."""
        subject, (text, used) = self.subject, self.made
        parameters = ", ".join(f"size_{n}" if value.startswith("<") else value for n, value in enumerate(used))
        values = SIZE.sub(r"\1.shape[\2]", ", ".join(used))
        construction = f"_given({text})"
        if subject.kind == "object":
            arguments = SIZE.sub(r"\1.shape[\2]", self._call(subject.call))
            making = f"{WITH}\n\ndef _made({parameters}):\n    return {construction}\n"
            return making, f"_with(_made({values}), weights).{subject.method}({arguments})"
        by_name = [argument for argument in subject.call if argument.how is inspect.Parameter.KEYWORD_ONLY]
        others = [argument for argument in subject.call if argument not in by_name]
        places, named = (SIZE.sub(r"\1.shape[\2]", self._call(arguments)) for arguments in (others, by_name))
        call_arguments = f"({places}{',' if places else ''})" + (f", dict({named})" if named else "")
        construction = f"_Called({construction})" if subject.method else construction
        making = CALLED.format(method=subject.method) if subject.method else ""
        return making + MADE.format(parameters=parameters, made=construction), (
            f"torch.func.functional_call(_made({values}), weights, {call_arguments})"
        )

    def generator(self, reference: str) -> str:
        """A module with `make`, which draws all inputs; `reference`: the module that makes what has weights."""
        subject, dims = self.subject, self.dims
        texts = [self._drawing(tensor) for tensor in self.inputs]
        lines = ["    _draw = torch.Generator().manual_seed(seed)"]
        imports = ["import torch"]
        if subject.kind != "function":
            _, used = self.made
            values = ", ".join(self._size(value) if value.startswith("<") else value for value in used)
            imports.append(f"\nfrom {reference} import _made")
            texts.insert(0, f"_weights(_made({values}), _draw, dtype)")
        helpers = "\n".join(
            text.replace("{STATE}", STATES.get(subject.kind, ""))
            for name, text in HELPERS.items()
            if any(drawing.startswith(f"{name}(") for drawing in texts)
        )
        body = "".join(f"        {drawing},\n" for drawing in texts)
        names = ", ".join([*dims, *self.attributes, "drawn", "seed", "dtype"])
        return (
            '"""Inputs of a call. Mend what `loop init` guessed wrong."""\n\n'
            + "\n".join(imports)
            + f"\n\n{helpers}\n\n"
            f'def make({names}):\n    """All inputs, in the order of the call."""\n'
            + "\n".join(lines)
            + f"\n    return (\n{body}    )\n"
        )

    @property
    def dims(self) -> list[str]:
        """All sizes, in order of appearance."""
        return list(dict.fromkeys(dim for tensor in self.inputs for dim in tensor.dims))

    def _size(self, text: str) -> str:
        """The name of a size that stands as `<x.2>`."""
        match = SIZE.fullmatch(text)
        assert match is not None
        return next(tensor.dims[int(match[2])] for tensor in self.inputs if tensor.name == match[1])

    def _drawing(self, tensor: Drawn) -> str:
        shape = f"({', '.join(tensor.dims)}{',' if len(tensor.dims) == 1 else ''})"
        dtype = f"torch.{tensor.dtype}" if tensor.dtype else "dtype"
        if tensor.values == "whole":
            low, high = {"uint8": (0, 256), "int8": (-128, 128)}.get(tensor.dtype, (-100, 101))
            return f"_whole({shape}, {low}, {high}, _draw, {dtype})"
        return {
            "normal": f"_normal({shape}, drawn, _draw, {dtype})",
            "positive": f"_positive({shape}, _draw, {dtype})",
            "index": f"_whole({shape}, 0, {tensor.high}, _draw, {dtype})",
            "distinct": f"_distinct({shape}, {tensor.high}, _draw, {dtype})",
            "sorted": f"_sorted({shape}, {tensor.high}, _draw, {dtype})",
            "mask": f"_mask({shape}, True, _draw)",
            "mask_out": f"_mask({shape}, False, _draw)",
        }[tensor.values]


def stub(function: str, names: Sequence[str]) -> str:
    """A reference that is still to be written."""
    return (
        '"""What is right. It is given float64 tensors under torch.no_grad(), and returns one."""\n\n\n'
        f"def {function}({', '.join(names)}):\n"
        f'    raise RuntimeError("write down in reference.py what is right")\n'
    )


def executed(text: str, name: str) -> dict[str, Any]:
    """All that such a file defines."""
    space: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"{name}.py", "exec"), space)
    return space
