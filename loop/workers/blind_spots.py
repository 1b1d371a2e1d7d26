"""What the inputs of a target cannot show: inputs that never vary, or that the reference does not read."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from loop.calls.call import Call, Refused, Value
from loop.calls.torch_side import Function, bytes_of, make_instance, same_bits
from loop.model.measurement import InputWeaknesses, Shown
from loop.model.signature import Attribute
from loop.workers.asking import Inputs, TargetFunctions
from loop.workers.judge_messages import FindBlindSpots

EXAMPLE_PREFIX = " (as with "
SAMPLED_ELEMENTS = 1 << 16
"""Elements of an input to examine first; the rest only if the sample shows no negative value."""


class DrawnInputs:
    """Statistics of all inputs drawn so far, over all workloads and seeds."""

    def __init__(self) -> None:
        self.sample_digests: dict[tuple[str, str], dict[str, bytes]] = {}
        """(input, workload) to a digest of sampled elements for each call key."""
        self.varied_inputs: set[str] = set()
        """Inputs with at least two different values in one call."""
        self.negative_inputs: set[str] = set()
        """Inputs with a negative value. Integer inputs count too, because they need none."""
        self.all_finite = True

    def record(self, inputs: Inputs) -> None:
        """Record the inputs of one call."""
        for file, tensor in zip(inputs.call.inputs, inputs.tensors, strict=True):
            if not tensor.numel():
                continue
            flat = tensor.detach().reshape(-1)
            sample = flat[:: -(-flat.numel() // SAMPLED_ELEMENTS)]
            digest = hashlib.blake2b(bytes_of(sample.cpu().contiguous())).digest()
            self.sample_digests.setdefault((file.name, inputs.call.key.rpartition(" #")[0]), {})[
                inputs.call.key
            ] = digest
            self.all_finite = self.all_finite and bool(sample.float().isfinite().all())
            for part in (sample, flat):
                if file.name not in self.varied_inputs and _has_two_values(part):
                    self.varied_inputs.add(file.name)
                if file.name not in self.negative_inputs and (
                    not part.is_floating_point() or (part.float() < 0).any()
                ):
                    self.negative_inputs.add(file.name)

    def summarise(self) -> InputWeaknesses:
        """Summarise which inputs vary, change with the seed, or become negative."""
        shown: dict[str, set[Shown]] = {name: set() for name, _ in self.sample_digests}
        for (name, _), digests in self.sample_digests.items():
            if len(digests) > 1:
                shown[name].add("fixed" if len(set(digests.values())) == 1 else "moves")
        for name, words in shown.items():
            words |= {"varies"} if name in self.varied_inputs else set()
            words |= {"negative"} if name in self.negative_inputs else set()
        return InputWeaknesses(
            shown={name: tuple(sorted(words)) for name, words in shown.items()}, finite=self.all_finite
        )


def _has_two_values(tensor: Tensor) -> bool:
    """Whether a flat tensor has two different values."""
    return bool((tensor != tensor[0]).any())


def find_blind_spots(
    asking: TargetFunctions, reference: Function, drawn: DrawnInputs, request: FindBlindSpots
) -> InputWeaknesses:
    """Report what inputs cannot show; if `request` has calls, also unread inputs."""
    looked = drawn.summarise()
    with contextlib.suppress(Refused, RuntimeError):  # The reference may need the judging device.
        if request.pair:
            inputs, other = (asking.make_inputs(call) for call in request.pair)
            return _add_unread_inputs(looked, asking, reference, inputs, other.tensors)
    return looked


def _add_unread_inputs(
    looked: InputWeaknesses, asking: TargetFunctions, reference: Function, inputs: Inputs, others: Sequence[Tensor]
) -> InputWeaknesses:
    """Change one input or attribute at a time; report those that change no output of the reference.
    Also reports outputs that nothing changes, and weights that are still all 0 or all 1. `others`:
    the inputs under another seed."""
    call, tensors, moved = inputs.call, inputs.tensors, set[str]()

    def outputs(values: list[Tensor], changed: Call, *, exact: bool) -> dict[str, Tensor]:
        results, _ = asking.compute_outputs("reference", reference, values, changed, exact=exact)
        return {name: output.clone() for name, output in results.items()}

    try:
        exact, right = True, outputs(tensors, call, exact=True)
    except Refused:
        exact, right = False, outputs(tensors, call, exact=False)

    def reads(values: list[Tensor], changed: Call) -> bool | None:
        """Whether a change alters an output; None if the reference rejects the change."""
        try:
            now = outputs(values, changed, exact=exact)
        except (Refused, RuntimeError):
            return None
        differ = {name for name, output in now.items() if not same_bits(output, right[name])}
        moved.update(differ)
        return bool(differ)

    read: dict[str, bool | None] = {}
    for n, (file, tensor) in enumerate(zip(call.inputs, tensors, strict=True)):
        if (changed := _change_input(tensor, others[n])) is not None:
            read[file.name] = reads([*tensors[:n], changed, *tensors[n + 1 :]], call)
    ignored = []  # Attributes whose other values change no output.
    for name in call.attributes:
        values = alternative_values(call.attributes[name], asking.signature.attributes[name])
        calls = [call.replace(attributes={**call.attributes, name: value}) for _, value in values]
        answers = [reads(tensors, changed) for changed in calls]
        ignored += [name] if False in answers and True not in answers else []
    initial = []  # Weights that are all 1 or all 0.
    module = make_instance(reference, asking.arguments, call.seed) if asking.are_classes else None
    for name, weight in module.state_dict().items() if isinstance(module, torch.nn.Module) else ():
        flat = weight.reshape(-1)
        if flat.is_floating_point() and len(flat) and not _has_two_values(flat) and float(flat[0]) in (0.0, 1.0):
            initial.append(name)
    tried = any(answer is not None for answer in read.values())
    unmoved = [name for name in right if tried and name not in moved]
    unread = [name for name, answer in read.items() if answer is False]
    changes = {"ignored": tuple(ignored), "unmoved": tuple(unmoved), "initial": tuple(initial)}
    changes["unread"] = tuple(unread) if set(unmoved) != set(right) else ()
    return looked.model_copy(update=changes)


def _change_input(tensor: Tensor, other: Tensor) -> Tensor | None:
    """New values for an input: the other seed's, or modified ones; None if there are none."""
    if not tensor.numel() or tensor.shape != other.shape:
        return None
    if not same_bits(tensor, other):
        return other
    if tensor.dtype == torch.bool:
        return ~tensor
    if tensor.is_floating_point():
        return (tensor.double() * 1.25 + 0.5).to(tensor.dtype)
    rolled = tensor.reshape(-1).roll(1).reshape(tensor.shape)
    return None if same_bits(rolled, tensor) else rolled


def alternative_values(value: Value, attribute: Attribute) -> Iterator[tuple[str, Value]]:
    """Yield (words, value) of an attribute's alternatives: choices, default, neutral values."""
    if isinstance(value, bool | str):
        for choice in attribute.choices or (True, False):
            if choice != value:
                yield f"were {str(choice).lower()}", choice
        return
    default = attribute.default if isinstance(attribute.default, int | float) else 0
    for number in dict.fromkeys((default, 0, 1, -1, 1 << 30, None)):
        other = number if number is None or isinstance(value, int) else float(number)
        if other != value:
            yield f"were ignored{EXAMPLE_PREFIX}{'none' if other is None else f'{other:.3g}'})", other
