"""Workloads to calls: where the files of their tensors lie, and what room they have."""

import random

from loop.calls.call import Call, TensorFile, attribute_number, step_of
from loop.model.dtypes import Device, Dtype
from loop.model.functions import Fill
from loop.model.signature import OUTPUT, Signature
from loop.model.target import Workload
from loop.model.workloads import shape

LEAST_ROOM = 1 << 14
"""Bytes of room at least, so that small tensors too have more than a few windows."""


def make_call(signature: Signature, workload: Workload, folder: str, reader: str) -> Call:
    """The call of `workload`, its inputs in `folder`, its output in a file of `reader`'s own there."""
    stem = f"{folder}/{_file_name(workload)}"

    def file(name: str, path: str, dimensions: str) -> TensorFile:
        dtype: Dtype = signature.types.get(name, workload.dtype)
        return TensorFile(name, path, shape(dimensions, workload), dtype)

    return Call(
        key=f"{workload.name} #{workload.seed}",
        dtype=workload.dtype,
        inputs=tuple(file(name, f"{stem}-{name}.bin", text) for name, text in signature.inputs.items()),
        output=file(OUTPUT, f"{stem}-{reader}-output.bin", signature.output),
        attributes={name: workload.attributes[name] for name in signature.attributes},
        numbers=tuple(
            attribute_number(attribute.choices, workload.attributes[name])
            for name, attribute in signature.attributes.items()
        ),
    )


def widen(call: Call, fills: tuple[Fill, ...], seed: str, device: Device) -> Call:
    """The same call with room in the files of inputs that are plain normals, and a window drawn from `seed`."""
    draw = random.Random(seed)
    inputs = tuple(_widened(tensor, fill, draw, device) for tensor, fill in zip(call.inputs, fills, strict=True))
    return call.but(inputs=inputs)


def _widened(tensor: TensorFile, fill: Fill, draw: random.Random, device: Device) -> TensorFile:
    step = step_of(tensor.dtype, device)
    if fill.kind != "normal" or fill.nan_along or tensor.elements == 0:
        return tensor
    steps = -(-max(tensor.elements, LEAST_ROOM // tensor.item) // step)
    # The values whose answer is known begin anywhere: they are rotated to a window, which is aligned.
    return tensor.but(room=steps * step, offset=draw.randrange(steps * step + 1))


def _file_name(workload: Workload) -> str:
    return "".join(c if c.isalnum() else "_" for c in workload.name) + f"-{workload.seed}"
