"""Turns workloads into calls (files of tensors, windows) and targets into the judge's requests."""

import hashlib
import random
from pathlib import Path

from loop.calls.call import Call, FunctionTerms, TensorFile, attribute_number, place_in_block, window_step
from loop.machine.machine import cores
from loop.model.dtypes import Device, Dtype, Layout, is_floating
from loop.model.signature import ANY, Fill, Signature
from loop.model.target import Component, Target, Workload
from loop.model.workloads import input_fills, tensor_shape
from loop.workers.judge_messages import PrepareAnswer, SetTarget

BROADCASTABLE_KINDS = ("normal", "constant")
"""Kinds of values that may be constant along an axis."""
MIN_ROOM_BYTES = 1 << 14
"""Minimum room in bytes, so that small tensors have several windows too."""
GENERATOR_DRAWS = 4
"""Input sets that a target's own generator draws for timed calls."""
SEEDS_PER_MODULE = 2
"""Number of consecutive seeds with the same module weights. A process that checks both builds the
module once, so a variant's cached weights stay valid while the inputs change."""
UNCHECKED_SEED_OFFSET = 8_000
"""Added to a seed for inputs that no check uses."""


def make_target_request(target: Target, component: Component | None, folder: Path) -> SetTarget:
    """Make the judge's Begin request for a target, or for one component of it."""
    signature, tensors = target.signature, {**target.signature.inputs, **target.signature.outputs}
    # A component inherits updates and types of the whole target, also for tensors it lacks.
    fewer = {
        "updates": {name: source for name, source in signature.updates.items() if name in signature.outputs},
        "types": {name: dtype for name, dtype in signature.types.items() if name in tensors},
        "words": {},
    }
    own = ("reference", "plain", "generator", "modules", "checker", "faults")
    return SetTarget(
        folder=str(folder),
        threads=cores(),
        signature=signature.model_copy(update=fewer),
        input_maker=component.inputs if component else None,
        canonical_form=component.form if component else None,
        tolerance_by_dtype=dict(target.tolerance.items()),
        **{name: getattr(target, name) for name in own},
    )


def only_output_dimensions(signature: Signature) -> str:
    """Dimensions of the only output; empty if there are several or the signature names none."""
    return signature.output_dimensions if len(signature.outputs) == 1 else ""


def make_answer_request(
    target: Target, workload: Workload, call: Call, secret: str, device: Device, *, with_windows: bool
) -> PrepareAnswer:
    """Make the judge's request for a workload's inputs and right answer. `secret` decides which
    values get a known answer. `wide`: prepare several windows or draws for timing."""
    finds, secret = has_unknown_outputs(target.signature), f"{secret} {workload.seed}"
    request = PrepareAnswer(
        call, (), workload.seed, is_run_twice=False, has_unknown_outputs=finds, generator_arguments={}
    )
    if target.generator is not None:
        draws = GENERATOR_DRAWS if with_windows else 1
        return request.replace(
            generator_arguments={**workload.sizes, **workload.attributes},
            draws=draws,
            draw_position=random.Random(secret).randrange(draws),
            device="cpu" if target.checker else device,  # A checker gets the generator's CPU tensors.
        )
    filled = input_fills(target, workload)
    return request.replace(fills=filled, call=add_windows(call, filled, secret, device) if with_windows else call)


def make_function_terms(target: Target, name: str) -> FunctionTerms:
    """Terms for loading a target's function, or its class if the target has modules."""
    modules = target.modules
    if modules is None:
        return FunctionTerms(name)
    arguments = modules.arguments.python if modules.arguments else ""
    return FunctionTerms(name, is_class=True, arguments=arguments, may_change_state=modules.state == "free")


def make_call(
    target: Target, workload: Workload, folder: str, output_owner: str, layout: Layout = "contiguous"
) -> Call:
    """Make the call of a workload: inputs in `folder`, outputs in a file for `reader`. If the
    target has a generator, the inputs are still unknown, and possibly the outputs. Layout
    `broadcast`: input values are constant along one axis."""
    apart = layout == "broadcast"
    signature, stem = target.signature, f"{folder}/{file_stem(workload)}{'-broadcast' * apart}"
    path = f"{stem}-{output_owner}-output.bin"

    def file(name: str, path: str, dimensions: str) -> TensorFile:
        dtype: Dtype = signature.types.get(name, workload.dtype)
        return TensorFile(name, path, tensor_shape(dimensions, workload), dtype)

    known = signature.inputs if target.generator is None else {}
    inputs = [file(name, f"{stem}-{name}.bin", text) for name, text in known.items()]
    if apart:
        # Equal along the first axis, or the last with every other seed. Not of whole numbers, which may be places,
        # and not of values that say more than numbers.
        for n, (tensor, fill) in enumerate(zip(inputs, input_fills(target, workload), strict=False)):
            axes = [axis for axis, size in enumerate(tensor.shape) if size > 1]
            if axes and is_floating(tensor.dtype) and fill.kind in BROADCASTABLE_KINDS and fill.nan_along is None:
                inputs[n] = tensor.replace(constant_axis=axes[-(workload.seed % 2)])
    outputs = {} if has_unknown_outputs(signature) else signature.outputs
    files = [file(name, path, text) for name, text in outputs.items()]
    parts, updates = tuple[TensorFile, ...](), tuple[int, ...]()
    if len(files) == 1 and not signature.updates:
        output = files[0]
    else:
        output, parts = place_in_block(files, path)
    if signature.updates and parts:
        places = list(signature.inputs)
        sources = [signature.updates.get(part.name) for part in parts]
        updates = tuple(-1 if source is None else places.index(source) for source in sources)
    seed = target.modules.seed if target.modules else 0  # Set before each constructor.
    if seed is None:  # Hashed, so that a module cannot infer the inputs' seed.
        text = f"{workload.name} {workload.base_seed // SEEDS_PER_MODULE}"
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())
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
        seed=seed,
    )


def has_unknown_outputs(signature: Signature) -> bool:
    """Whether only the reference knows the outputs or their shapes."""
    return not signature.outputs or ANY in signature.outputs.values()


def reseed_twice(workload: Workload) -> tuple[Workload, Workload]:
    """The workload with two new seeds, under which a module has the same weights."""
    first = workload.seed + UNCHECKED_SEED_OFFSET - workload.base_seed % SEEDS_PER_MODULE
    return workload.model_copy(update={"seed": first}), workload.model_copy(update={"seed": first + 1})


def add_windows(call: Call, fills: tuple[Fill, ...], seed: str, device: Device) -> Call:
    """Give input files of normal values room for more windows; `seed` places the known window."""
    draw, inputs = random.Random(seed), []
    for tensor, fill in zip(call.inputs, fills, strict=True):
        if fill.kind == "normal" and not fill.nan_along and tensor.elements:
            step = window_step(tensor.dtype, device)
            room = -(-max(tensor.elements, MIN_ROOM_BYTES // tensor.itemsize) // step) * step
            # The known values may begin anywhere, because a rotation moves them to an aligned window.
            tensor = tensor.replace(extra_elements=room, offset=draw.randrange(room + 1))
        inputs.append(tensor)
    return call.replace(inputs=tuple(inputs))


def file_stem(workload: Workload) -> str:
    """Common beginning of the names of a workload's files."""
    return "".join(c if c.isalnum() else "_" for c in workload.name) + f"-{workload.seed}"
