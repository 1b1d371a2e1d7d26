"""Workloads to calls: where the files of their tensors lie, and what room they have."""

import hashlib
import random

from loop.calls.call import Call, TensorFile, Value, attribute_number, in_a_block, step_of
from loop.model.dtypes import Device, Dtype, Layout, is_floating
from loop.model.functions import Fill
from loop.model.signature import ANY, Signature
from loop.model.target import Target, Workload
from loop.model.workloads import base_seed, fills, shape

EQUAL = ("normal", "constant")
"""Kinds of values that may be the same along an axis."""
LEAST_ROOM = 1 << 14
"""Bytes of room at least, so that small tensors too have more than a few windows."""


DRAWS = 4
"""Sets of values that a target's own generator makes for timed calls."""


PAIR = 2
"""Consecutive seeds under which a module has the same weights: a process that checks both makes it once, and what
a variant remembers of it stays while the values change."""

FRESH = 8_000
"""Added to a seed for values that nothing else is checked on."""


def make_call(target: Target, workload: Workload, folder: str, reader: str, layout: Layout = "contiguous") -> Call:
    """The call of `workload`, its inputs in `folder`, its outputs in a file of `reader`'s own there.

    With a generator its inputs are not known yet, nor its outputs where they depend on them. Where they are to be
    broadcast, their values are the same along an axis.
    """
    apart = layout == "broadcast"
    signature, stem = target.signature, f"{folder}/{file_name(workload)}{'-broadcast' * apart}"
    path = f"{stem}-{reader}-output.bin"

    def file(name: str, path: str, dimensions: str) -> TensorFile:
        dtype: Dtype = signature.types.get(name, workload.dtype)
        return TensorFile(name, path, shape(dimensions, workload), dtype)

    known = signature.inputs if target.generator is None else {}
    inputs = [file(name, f"{stem}-{name}.bin", text) for name, text in known.items()]
    if apart:
        inputs = [_same(*one, workload.seed) for one in zip(inputs, fills(target, workload), strict=False)]
    output, parts, updates = _outputs(signature, [file(*one) for one in _told(signature, path)], path)
    return Call(
        key=f"{workload.name} #{workload.seed}{' broadcast' * apart}",
        dtype=workload.dtype,
        inputs=tuple(inputs),
        output=output,
        attributes={name: workload.attributes[name] for name in signature.attributes},
        numbers=tuple(
            attribute_number(attribute.choices, workload.attributes[name])
            for name, attribute in signature.attributes.items()
        ),
        parts=parts,
        updates=updates,
        structure=f"{stem}-given" if target.generator else "",
        seed=_seed_of_modules(target, workload),
    )


def _same(tensor: TensorFile, fill: Fill, seed: int) -> TensorFile:
    """The same with equal values along its first axis, or along its last with every other seed.

    None of whole numbers, which may be places, and none whose values say more than numbers.
    """
    axes = [axis for axis, size in enumerate(tensor.shape) if size > 1]
    plain = is_floating(tensor.dtype) and fill.kind in EQUAL and fill.nan_along is None
    return tensor.but(same=axes[-(seed % 2)]) if axes and plain else tensor


def finds_outputs(signature: Signature) -> bool:
    """Whether only the reference tells which outputs there are, and of which shapes."""
    return not signature.outputs or ANY in signature.outputs.values()


def _told(signature: Signature, path: str) -> list[tuple[str, str, str]]:
    """Name, file and dimensions of each output that the signature tells."""
    return [] if finds_outputs(signature) else [(name, path, text) for name, text in signature.outputs.items()]


def _outputs(
    signature: Signature, told: list[TensorFile], path: str
) -> tuple[TensorFile, tuple[TensorFile, ...], tuple[int, ...]]:
    """The block of the outputs, its parts, and which inputs these are."""
    if len(told) == 1 and not signature.updates:
        return told[0], (), ()
    block, parts = in_a_block(told, path)
    places, updates = list(signature.inputs), signature.updates
    numbers = tuple(places.index(updates[one.name]) if one.name in updates else -1 for one in parts)
    return block, parts, numbers if updates else ()


def _seed_of_modules(target: Target, workload: Workload) -> int:
    """What stands before each constructor: it tells nothing of the seed that the inputs are drawn by."""
    if target.modules is None:
        return 0
    if target.modules.seed is not None:
        return target.modules.seed
    pair = base_seed(workload) // PAIR
    return int.from_bytes(hashlib.blake2b(f"{workload.name} {pair}".encode(), digest_size=4).digest())


def under_two_seeds(workload: Workload) -> tuple[Workload, Workload]:
    """A workload with values of its own, twice: a module has the same weights under both seeds."""
    first = workload.seed + FRESH - base_seed(workload) % PAIR
    one, other = (workload.model_copy(update={"seed": first + n}) for n in range(PAIR))
    return one, other


def wanted_of(workload: Workload) -> dict[str, Value]:
    """The keywords of a target's generator."""
    return {**workload.sizes, **workload.attributes}


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


def file_name(workload: Workload) -> str:
    """What the names of a workload's files begin with."""
    return "".join(c if c.isalnum() else "_" for c in workload.name) + f"-{workload.seed}"
