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
    weights = {}
    for name, tensor in (*made.named_parameters(), *made.named_buffers()):
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
STUB = '''"""What is right. It is given float64 tensors under torch.no_grad(), and returns one."""


def {function}({names}):
    raise RuntimeError("write down in reference.py what is right")
'''


@dataclass(frozen=True)
class Subject:
    """What the user named, as files call it."""

    module: str
    name: str
    """`softmax`, `Block` or `functional.gelu`."""
    function: str
    """What it is called in the target."""
    is_module: bool = False
    """Whether it is a class of torch modules: one is made, and then called."""
    method: str = ""
    """Of the module that is made; empty: it is called itself."""
    constructor: Sequence[Argument] = ()
    call: Sequence[Argument] = ()
    imports: Sequence[str] = ()


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
        return [drawn for option in self.options.values() for drawn in option.inputs]

    @property
    def attributes(self) -> dict[str, Scalar]:
        """All values that a workload can change."""
        return {name: value for option in self.options.values() for name, value in option.attributes.items()}

    @property
    def dims(self) -> list[str]:
        """All sizes, in order of appearance."""
        return list(dict.fromkeys(dim for drawn in self.inputs for dim in drawn.dims))

    def _call(self, arguments: Sequence[Argument]) -> str:
        """Arguments as text, over inputs and attributes."""
        text = ", ".join(argument.rendered() for argument in arguments)
        return TOKEN.sub(lambda one: self.options[one[1]].text if one[1] in self.options else one[0], text)

    @property
    def made(self) -> tuple[str, list[str]]:
        """The constructor's arguments as text, and the sizes and attributes that they are made of."""
        text = self._call(self.subject.constructor)
        sizes = list(dict.fromkeys(SIZE.findall(text)))
        for n, (tensor, axis) in enumerate(sizes):
            text = text.replace(f"<{tensor}.{axis}>", f"size_{n}")
        used = [name for name in self.attributes if re.search(rf"\b{re.escape(name)}\b", text)]
        return text, [*(f"<{tensor}.{axis}>" for tensor, axis in sizes), *used]

    def wrapper(self, title: str) -> str:
        """A module with one function that calls the user's."""
        subject, names = self.subject, [drawn.name for drawn in self.inputs]
        top = subject.name.partition(".")[0]
        takes = ["weights", *names] if subject.is_module else names
        head = ", ".join([*takes, *(["*", *self.attributes] if self.attributes else [])])
        arguments = SIZE.sub(r"\1.shape[\2]", self._call(subject.call))
        making, call = "", f"_given{subject.name[len(top) :]}({arguments})"
        if subject.is_module:
            making, call = self._making()
        lines = [*subject.imports, f"from {subject.module} import {top} as _given"]
        texts = "\n".join((call, making, arguments, *lines))
        needed = [f"import {name}" for name in ("functools", "torch") if re.search(rf"\b{name}\.", texts)]
        imports = "\n".join([*needed, *([""] if needed else []), *lines])
        body = f"return {call}" if self.returns else call
        first = f'"""{title}: {subject.module}:{subject.name}."""'
        return f"{first}\n\n{imports}\n{making}\n\ndef {subject.function}({head}):\n    {body}\n"

    def _making(self) -> tuple[str, str]:
        """How one of a class is made, and how it is called with weights."""
        subject, (text, used) = self.subject, self.made
        parameters = ", ".join(f"size_{n}" if one.startswith("<") else one for n, one in enumerate(used))
        values = SIZE.sub(r"\1.shape[\2]", ", ".join(used))
        by_name = [one for one in subject.call if one.how is inspect.Parameter.KEYWORD_ONLY]
        others = [one for one in subject.call if one not in by_name]
        places, named = (SIZE.sub(r"\1.shape[\2]", self._call(each)) for each in (others, by_name))
        given = f"({places}{',' if places else ''})" + (f", dict({named})" if named else "")
        made = f"_Called(_given({text}))" if subject.method else f"_given({text})"
        making = CALLED.format(method=subject.method) if subject.method else ""
        making += MADE.format(parameters=parameters, made=made)
        return making, f"torch.func.functional_call(_made({values}), weights, {given})"

    def generator(self, reference: str) -> str:
        """A module with `make`, which draws all inputs; `reference`: the module that makes what has weights."""
        texts, imports = [_drawing(drawn) for drawn in self.inputs], "import torch"
        if self.subject.is_module:
            sizes = {f"<{one.name}.{n}>": dim for one in self.inputs for n, dim in enumerate(one.dims)}
            values = ", ".join(sizes.get(name, name) for name in self.made[1])
            imports += f"\n\nfrom {reference} import _made"
            texts.insert(0, f"_weights(_made({values}), _draw, dtype)")
        helpers = "\n".join(
            text for name, text in HELPERS.items() if any(one.startswith(f"{name}(") for one in texts)
        )
        body = "".join(f"        {text},\n" for text in texts)
        names = ", ".join([*self.dims, *self.attributes, "drawn", "seed", "dtype"])
        return (
            f'"""Inputs of a call. Mend what `loop init` guessed wrong."""\n\n{imports}\n\n{helpers}\n\n'
            f'def make({names}):\n    """All inputs, in the order of the call."""\n'
            f"    _draw = torch.Generator().manual_seed(seed)\n    return (\n{body}    )\n"
        )


def _drawing(one: Drawn) -> str:
    shape = f"({', '.join(one.dims)}{',' if len(one.dims) == 1 else ''})"
    dtype = f"torch.{one.dtype}" if one.dtype else "dtype"
    low, high = {"uint8": (0, 256), "int8": (-128, 128)}.get(one.dtype, (-100, 101))
    return {
        "normal": f"_normal({shape}, drawn, _draw, {dtype})",
        "positive": f"_positive({shape}, _draw, {dtype})",
        "whole": f"_whole({shape}, {low}, {high}, _draw, {dtype})",
        "index": f"_whole({shape}, 0, {one.high}, _draw, {dtype})",
        "mask": f"_mask({shape}, True, _draw)",
        "mask_out": f"_mask({shape}, False, _draw)",
    }[one.values]


def executed(text: str, name: str) -> dict[str, Any]:
    """All that such a file defines."""
    space: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"{name}.py", "exec"), space)
    return space
