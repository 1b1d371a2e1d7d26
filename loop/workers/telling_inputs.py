"""What the inputs of a target cannot show: inputs that never vary, or that the reference does not read."""

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from loop.calls.call import Call, Value
from loop.calls.refusal import Refused
from loop.calls.torch_side import Function, bytes_of, same_bits
from loop.workers.asking import Asking, Given
from loop.workers.judge_messages import Look, Looked

AS_WITH = " (as with "
SAMPLE = 1 << 16
"""Elements of an input that are looked at first: where they show a negative one, the others are not."""


class Drawn:
    """What was drawn of each input, over all workloads and seeds so far."""

    def __init__(self) -> None:
        self.samples: dict[tuple[str, str], dict[str, bytes]] = {}
        """Input and workload to the digest of a sample, by the call."""
        self.varied: set[str] = set()
        self.negative: set[str] = set()
        """Inputs that had two values in one call, and a negative one."""

    def note(self, given: Given) -> None:
        """Take down what the inputs of a call are."""
        for file, tensor in zip(given.call.inputs, given.tensors, strict=True):
            if not tensor.numel():
                continue
            flat = tensor.detach().reshape(-1)
            some = flat[:: -(-flat.numel() // SAMPLE)]
            digest = hashlib.blake2b(bytes_of(some.cpu().contiguous())).digest()
            key = given.call.key
            self.samples.setdefault((file.name, key.rpartition(" #")[0]), {})[key] = digest
            if file.name not in self.varied and (_varies(some) or _varies(flat)):
                self.varied.add(file.name)
            if file.name not in self.negative and (_may_be_negative(some) or _may_be_negative(flat)):
                self.negative.add(file.name)

    def looked(self) -> Looked:
        """What these inputs could not show."""
        names = list(dict.fromkeys(name for name, _ in self.samples))
        single = [name for name in names if name not in self.varied]
        several: dict[str, list[bool]] = {}
        for (name, _), digests in self.samples.items():
            if len(digests) > 1:
                several.setdefault(name, []).append(len(set(digests.values())) == 1)
        fixed = [name for name, same in several.items() if all(same)]
        single = [name for name in single if name not in fixed]
        positive = [name for name in names if name not in self.negative and name in self.varied]
        return Looked(tuple(fixed), tuple(single), tuple(positive))


def _varies(tensor: Tensor) -> bool:
    return bool((tensor != tensor[0]).any())


def _may_be_negative(tensor: Tensor) -> bool:
    """Whether a value is below zero; whole numbers and truth values need none."""
    return not tensor.is_floating_point() or bool((tensor.float() < 0).any())


def looked(asking: Asking, reference: Function, drawn: Drawn, request: Look) -> Looked:
    """What inputs could not show; with calls also what the reference does not read."""
    found = drawn.looked()
    if not request.calls:
        return found
    try:
        one, other = (asking.inputs(call) for call in request.calls)
        return found.but(**_Reading(asking, reference, one).found(other.tensors))
    except (Refused, RuntimeError):  # It runs nowhere but where it was judged.
        return found


class _Reading:
    """What of a call the reference reads: whatever is changed there changes an output."""

    def __init__(self, asking: Asking, reference: Function, given: Given) -> None:
        self.asking, self.reference, self.given = asking, reference, given
        try:
            self.exact, self.right = True, self._outputs(given.tensors, given.call, exact=True)
        except Refused:
            self.exact, self.right = False, self._outputs(given.tensors, given.call, exact=False)
        self.moved: set[str] = set()
        """Outputs that were changed by something."""

    def found(self, others: Sequence[Tensor]) -> dict[str, tuple[str, ...]]:
        """Names of what is not read, of outputs that nothing changes, and of weights nobody has trained."""
        call, tensors = self.given.call, self.given.tensors
        reads = {
            file.name: self._reads([*tensors[:n], changed, *tensors[n + 1 :]], call)
            for n, (file, tensor) in enumerate(zip(call.inputs, tensors, strict=True))
            if (changed := _changed(tensor, others[n])) is not None
        }
        ignored = [name for name in call.attributes if self._ignores(name)]
        tried = any(one is not None for one in reads.values())
        unmoved = [name for name in self.right if tried and name not in self.moved]
        unread = [name for name, one in reads.items() if one is False]
        return {
            "unread": tuple(unread) if set(unmoved) != set(self.right) else (),
            "ignored": tuple(ignored),
            "unmoved": tuple(unmoved),
            "initial": tuple(self._initial()),
        }

    def _ignores(self, name: str) -> bool:
        """Whether an attribute changes no output: some other value of it can be tried, and none does."""
        call, choices = self.given.call, self.asking.shapes.choices.get(name, ())
        calls = [
            call.but(attributes={**call.attributes, name: to})
            for _, to in other_values(call.attributes[name], choices)
        ]
        answers = [read for one in calls if (read := self._reads(self.given.tensors, one)) is not None]
        return bool(answers) and not any(answers)

    def _reads(self, tensors: list[Tensor], call: Call) -> bool | None:
        """Whether a change changes an output; None where the reference refuses it."""
        try:
            found = self._outputs(tensors, call, exact=self.exact)
        except (Refused, RuntimeError):
            return None
        differ = {name for name, one in found.items() if not same_bits(one, self.right[name])}
        self.moved |= differ
        return bool(differ)

    def _outputs(self, tensors: list[Tensor], call: Call, *, exact: bool) -> dict[str, Tensor]:
        found, _ = self.asking.outputs("reference", self.reference, tensors, call, exact=exact)
        return {name: one.clone() for name, one in found.items()}

    def _initial(self) -> Iterator[str]:
        if self.asking.terms.is_class:
            made = self.asking.modules.made(self.reference, self.asking.arguments, self.given.call.seed)
            state = made.state_dict() if isinstance(made, torch.nn.Module) else {}
            floating = {k: one.reshape(-1) for k, one in state.items() if torch.is_floating_point(one)}
            yield from (k for k, one in floating.items() if one.numel() and _is_initial(one))


def _is_initial(flat: Tensor) -> bool:
    return not _varies(flat) and float(flat[0]) in (0.0, 1.0)


def _changed(tensor: Tensor, other: Tensor) -> Tensor | None:
    """Other values for an input: those of another seed, else its own changed; None where there are none."""
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


def other_values(value: Value, choices: Sequence[str]) -> Iterator[tuple[str, Value]]:
    """Other values of an attribute, and as if what: another choice, or what stands for none of it."""
    if isinstance(value, bool | str):
        yield from ((f"were {str(one).lower()}", one) for one in choices or (True, False) if one != value)
        return
    whole = isinstance(value, int)
    for one in (0, 1, -1, 1 << 30, None):
        to = one if one is None or whole else float(one)
        if to != value:
            yield f"were ignored{AS_WITH}{'none' if to is None else f'{to:.3g}'})", to
