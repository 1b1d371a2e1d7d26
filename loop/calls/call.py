"""One call of a target's function as parent and child speak of it: files, shapes and attributes. Plain data."""

import math
import random
from dataclasses import asdict, dataclass, replace
from typing import Any

from loop.model.device import Device, Dtype
from loop.model.target import ITEM_SIZES, OUTPUT, Fill, Signature, Workload
from loop.model.workloads import shape

Value = bool | int | float | str | None
STEP_BYTES = {"cuda": 256, "cpu": 64}
"""Windows into a tensor's file begin at multiples of this: as aligned as memory that CUDA hands out, or as a
line of a processor's cache."""
LEAST_ROOM = 1 << 14
"""Bytes of room at least, so that small tensors too have more than a few windows."""


@dataclass(frozen=True)
class TensorFile:
    """A contiguous tensor in a file, C order.

    With `room`, the file holds that many elements more, and any window of the tensor's size is as good as any
    other: timed calls take a window each, so that none sees the values of the one before.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    dtype: Dtype
    room: int = 0
    offset: int = 0
    """Where the window begins whose answer the judge knows, in elements."""

    @property
    def elements(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Call:
    """Everything a variant needs to compute one output."""

    key: str
    """Name of the workload, and the seed."""
    dtype: Dtype
    """The workload's element type: whose tolerance counts, and which tensors have that are given no other."""
    inputs: tuple[TensorFile, ...]
    output: TensorFile
    attributes: dict[str, Value]
    """By name, for Python variants."""
    numbers: tuple[float | None, ...]
    """In signature order, for C: None stands for NaN."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for a child."""
        return asdict(self)


def make_call(signature: Signature, workload: Workload, folder: str, reader: str) -> Call:
    """The call of `workload`, its inputs in `folder`, its output in a file of `reader`'s own there."""
    stem = f"{folder}/{_file_name(workload)}"

    def type_of(name: str) -> Dtype:
        return signature.types.get(name, workload.dtype)

    inputs = tuple(
        TensorFile(name, f"{stem}-{name}.bin", shape(dimensions, workload), type_of(name))
        for name, dimensions in signature.inputs.items()
    )
    path = f"{stem}-{reader}-output.bin"
    output = TensorFile(OUTPUT, path, shape(signature.output, workload), type_of(OUTPUT))
    return Call(
        f"{workload.name} #{workload.seed}",
        workload.dtype,
        inputs,
        output,
        dict(workload.attributes),
        _numbers(signature, workload),
    )


def step_of(dtype: Dtype, device: Device) -> int:
    """Elements from one window to the next."""
    return STEP_BYTES[device] // ITEM_SIZES[dtype]


def widen(call: Call, fills: tuple[Fill, ...], seed: str, device: Device) -> Call:
    """The same call with room in the files of inputs that are plain normals, and a window drawn from `seed`."""
    draw = random.Random(seed)
    inputs = tuple(_widened(tensor, fill, draw, device) for tensor, fill in zip(call.inputs, fills, strict=True))
    return replace(call, inputs=inputs)


def _widened(tensor: TensorFile, fill: Fill, draw: random.Random, device: Device) -> TensorFile:
    step = step_of(tensor.dtype, device)
    if fill.kind != "normal" or fill.nan_along or tensor.elements == 0:
        return tensor
    steps = -(-max(tensor.elements, LEAST_ROOM // ITEM_SIZES[tensor.dtype]) // step)
    # The values whose answer is known begin anywhere: they are rotated to a window, which is aligned.
    return replace(tensor, room=steps * step, offset=draw.randrange(steps * step + 1))


def _file_name(workload: Workload) -> str:
    return "".join(c if c.isalnum() else "_" for c in workload.name) + f"-{workload.seed}"


def _numbers(signature: Signature, workload: Workload) -> tuple[float | None, ...]:
    return tuple(
        attribute_number(attribute.choices, workload.attributes[name])
        for name, attribute in signature.attributes.items()
    )


def attribute_number(choices: tuple[str, ...], value: Value) -> float | None:
    """An attribute as the double a C kernel is given; None for "not given"."""
    if isinstance(value, str):
        return float(choices.index(value))
    return None if value is None else float(value)
