"""What the inputs drawn so far cannot show: inputs that never vary, or that are never negative."""

import hashlib

from loop.calls.torch_side import bytes_of
from loop.workers.judge_messages import InputWeaknesses
from loop.workers.target_functions import Inputs

SAMPLED_ELEMENTS = 1 << 16
"""Elements of an input whose digest tells whether the seed changes it."""


class DrawnInputs:
    """Statistics of all inputs drawn so far, over all workloads and seeds."""

    def __init__(self) -> None:
        self.digest_by_call: dict[tuple[str, str], dict[str, bytes]] = {}
        """(input, workload) to a digest of sampled elements for each call key."""
        self.varied_inputs: set[str] = set()
        """Inputs with at least two different values in one call."""
        self.negative_inputs: set[str] = set()
        """Inputs with a negative value. Integer inputs count too: they need not have one."""
        self.all_finite = True

    def record(self, inputs: Inputs) -> None:
        """Record the inputs of one call."""
        key = inputs.call.key
        workload_name = key.rpartition(" #")[0]
        for file, tensor in zip(inputs.call.inputs, inputs.tensors, strict=True):
            values = tensor.detach().reshape(-1)
            if not len(values):
                continue
            sample = values[:: -(-len(values) // SAMPLED_ELEMENTS)]
            digest = hashlib.blake2b(bytes_of(sample.cpu().contiguous())).digest()
            self.digest_by_call.setdefault((file.name, workload_name), {})[key] = digest
            self.all_finite = self.all_finite and bool(sample.float().isfinite().all())
            if file.name not in self.varied_inputs and bool((values != values[0]).any()):
                self.varied_inputs.add(file.name)
            may_be_negative = not values.is_floating_point()
            if file.name not in self.negative_inputs and (may_be_negative or (values.float() < 0).any()):
                self.negative_inputs.add(file.name)

    def summarise(self) -> InputWeaknesses:
        """The inputs that never differ between calls, have a single value, or are never negative."""
        compared, moving = set[str](), set[str]()
        for (name, _), digests in self.digest_by_call.items():
            compared |= {name} if len(digests) > 1 else set()
            moving |= {name} if len(set(digests.values())) > 1 else set()
        names = dict.fromkeys(name for name, _ in self.digest_by_call)
        fixed = [name for name in names if name in compared - moving]
        varied = [name for name in names if name in self.varied_inputs]
        return InputWeaknesses(
            fixed=tuple(fixed),
            single_valued=tuple(name for name in names if name not in (*varied, *fixed)),
            nonnegative=tuple(name for name in varied if name not in self.negative_inputs),
            finite=self.all_finite,
        )
