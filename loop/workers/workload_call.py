"""Turns workloads into calls (files of tensors, windows) and into the judge's requests."""

import hashlib
import random
import re

from loop.calls.call import STEP_BYTES, Call, TensorFile, Value, place_outputs
from loop.model.dtypes import Device, Dtype, Layout, is_floating
from loop.model.target import Fill, Signature, Target, Workload
from loop.workers.judge_messages import PrepareAnswer

BROADCASTABLE_KINDS = ("normal", "constant")  # Kinds of values that may be constant along an axis.
MIN_ROOM_BYTES = 1 << 14  # Minimum room in bytes, so that small tensors have several windows too.
GENERATOR_DRAWS = 4  # Input sets that a target's own generator draws for timed calls.
SEEDS_PER_MODULE = 2
"""Number of consecutive seeds with the same module weights. A process that checks both builds the
module once, so a variant's cached weights stay valid while the inputs change."""
UNCHECKED_SEED_OFFSET = 8_000  # Added to a seed for inputs that no check uses.


def make_answer_request(
    target: Target, workload: Workload, call: Call, secret: str, device: Device, with_windows: bool
) -> PrepareAnswer:
    """Make the judge's request for a workload. `secret` decides which values get a known answer, so
    that no variant can predict them. `with_windows`: prepare several windows or draws."""
    generator = random.Random(f"{secret} {workload.seed}")
    if target.generator is not None:
        draws = GENERATOR_DRAWS if with_windows else 1
        device = "cpu" if target.checker else device  # A checker gets the generator's CPU tensors.
        position = generator.randrange(draws)
        return PrepareAnswer(call, workload, draws=draws, draw_position=position, device=device)
    inputs = list(call.inputs)
    for n, fill in enumerate(input_fills(target, workload) if with_windows else ()):
        # Files of normal values get extra elements: timed calls read windows with other values.
        if fill.kind == "normal" and not fill.nan_along and inputs[n].elements:
            step = STEP_BYTES[device] // inputs[n].itemsize
            room_elements = max(inputs[n].elements, MIN_ROOM_BYTES // inputs[n].itemsize)
            extra_elements = -(-room_elements // step) * step
            # The known values may begin anywhere: rotating the file moves them to a window.
            offset = generator.randrange(extra_elements + 1)
            inputs[n] = inputs[n].replace(extra_elements=extra_elements, offset=offset)
    return PrepareAnswer(call.replace(inputs=tuple(inputs)), workload)


def make_call(
    target: Target, workload: Workload, folder: str, owner: str, layout: Layout = "contiguous"
) -> Call:
    """Make the call of a workload: its tensors as files in `folder`. `owner`: name of the
    side in the output file's name. If the target has a generator, the inputs are still unknown, and
    possibly the outputs. Layout `broadcast`: input values are constant along one axis."""
    is_broadcast = layout == "broadcast"
    suffix = "-broadcast" if is_broadcast else ""
    signature, stem = target.signature, f"{folder}/{file_stem(workload)}{suffix}"

    def make_file(name: str, path: str, dimensions: str) -> TensorFile:
        """A tensor's file. `dimensions`: as in the signature, `B H Sq D`."""
        dtype: Dtype = signature.types.get(name, workload.dtype)
        shape = tuple(workload.sizes[dimension] for dimension in dimensions.split())
        updated = find_updated_input(signature, name)
        return TensorFile(name, path, shape, dtype, updated_input=updated)

    inputs = []
    fills = input_fills(target, workload) if target.generator is None else ()
    for (name, dimensions), fill in zip(signature.inputs.items(), fills, strict=False):
        file = make_file(name, f"{stem}-{name}.bin", dimensions)
        # Constant along the first axis, or along the last for every other seed. Integers may be
        # indices, and other kinds of values mean more than numbers: they stay as they are.
        axes = [axis for axis, size in enumerate(file.shape) if size > 1]
        is_ordinary = fill.kind in BROADCASTABLE_KINDS and fill.nan_along is None
        if is_broadcast and axes and is_floating(file.dtype) and is_ordinary:
            file = file.replace(constant_axis=axes[-(workload.seed % 2)])
        inputs.append(file)
    output_path, output_files = f"{stem}-" + re.sub(r"\W", "_", owner) + "-output.bin", []
    if not signature.has_unknown_outputs:
        for name, dimensions in signature.outputs.items():
            output_files.append(make_file(name, output_path, dimensions))
    output, parts = place_outputs(output_files, output_path)
    seed = target.modules.seed if target.modules else 0  # Set before each constructor.
    if seed is None:  # Hashed, so that a module cannot infer the inputs' seed.
        text = f"{workload.name} {workload.base_seed // SEEDS_PER_MODULE}"
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())
    attributes = {name: workload.attributes[name] for name in signature.attributes}
    return Call(
        key=f"{workload.name} #{workload.seed}{' broadcast' if is_broadcast else ''}",
        dtype=workload.dtype,
        inputs=tuple(inputs),
        output=output,
        attributes=attributes,
        numbers=attribute_numbers(signature, attributes),
        several_outputs=parts,
        seed=seed,
    )


def find_updated_input(signature: Signature, output_name: str) -> int:
    """Position of the input that an output updates in place; -1: none."""
    source = signature.updates.get(output_name)
    return -1 if source is None else list(signature.inputs).index(source)


def attribute_numbers(signature: Signature, values: dict[str, Value]) -> tuple[float | None, ...]:
    """Attributes as C gets them, in the order of the signature."""
    attributes = signature.attributes.items()
    return tuple(attribute.as_number(values[name]) for name, attribute in attributes)


def file_stem(workload: Workload) -> str:
    """Common beginning of the names of a workload's files."""
    return re.sub(r"\W", "_", workload.name) + f"-{workload.seed}"


def input_fills(target: Target, workload: Workload) -> tuple[Fill, ...]:
    """The fill of each input of a workload, in the signature's order."""
    names = target.signature.inputs
    if workload.values == "constant":  # Different constants, so that swapped inputs are noticed.
        return tuple(Fill(kind="constant", scale=0.25 * (index + 1)) for index in range(len(names)))
    if workload.values == "wide":
        return tuple(Fill(scale=4.0) for _ in names)
    fill_by_input = target.values.get(workload.values, {})
    return tuple(fill_by_input.get(name, Fill()) for name in names)
