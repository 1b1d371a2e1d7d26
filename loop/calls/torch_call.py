"""Calls of Python functions on torch tensors, on the host or on a CUDA device."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from loop.calls.allocations import stray_writes
from loop.calls.call import Call
from loop.calls.callee import Callee, in_block, outputs_of, part_of, spoil
from loop.calls.guarded import Guarded, Memory
from loop.calls.guards import Guard, Surroundings
from loop.calls.prepared import GuardedCall, Run
from loop.calls.refusal import Refused, refuse_late
from loop.calls.tensors import POISON
from loop.calls.torch_side import TORCH_DTYPES, bytes_of, same_bits


class TorchMemory(Memory):
    """One input in memory of its own, with a guard zone on either side in the same storage."""

    def __init__(self, size: int, shift: int, dtype: str, zone: int, device: str) -> None:
        before, kind = zone + shift, TORCH_DTYPES[dtype]
        super().__init__(size, Surroundings(before, zone, dtype))
        self._block = torch.empty(before + size + zone, dtype=torch.uint8, device=device)
        self._parts = torch.split(self._block, [before, size, zone])
        self.flat = self._block.view(kind)[before // kind.itemsize :][: size // kind.itemsize]
        self.address = self.flat.data_ptr()
        self._origin = self._parts[1][:0]
        """What it was filled with, where it lies: large tensors go to a device once."""

    @property
    def whole(self) -> Tensor:
        """The tensor as bytes."""
        return self._parts[1]

    def poison(self, guard: Guard | None = None) -> None:
        """Make every element NaN, or what the guard says."""
        if guard is None:
            self._parts[1].fill_(POISON)
        else:
            self._parts[1].copy_(_bytes_tensor(self.zones.fill(guard, self.size)))

    def fill(self, data: bytes) -> None:
        """Put `data` into it, and remember it."""
        if data is not self.data:
            self.data, self._origin = data, _bytes_tensor(data).to(self._block.device)
        self.rotate(0)

    def rotate(self, count: int) -> None:
        """Move what it was filled with by `count` bytes, round the end."""
        self.turned = count
        for place, source in self._turned():
            place.copy_(source)

    @property
    def changed(self) -> bool:
        """Whether it holds anything else than it was filled with, rotated as it was last."""
        return not all(torch.equal(place, source) for place, source in self._turned())

    def _turned(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The tensor's bytes in two parts, each with what it was filled with there."""
        whole, rest = self._parts[1], self.size - self.turned
        yield whole[:rest], self._origin[self.turned :]
        yield whole[rest:], self._origin[: self.turned]

    def surround(self, guard: Guard) -> None:
        """Write both zones anew."""
        for place, zone in zip(self._parts[::2], self.zones.renew(guard), strict=True):
            place.copy_(_bytes_tensor(zone))

    def read(self) -> bytes:
        """The tensor's bytes."""
        return bytes_of(self._parts[1].cpu())

    def read_zones(self) -> tuple[bytes, bytes]:
        """What stands in both zones."""
        return bytes_of(self._parts[0].cpu()), bytes_of(self._parts[2].cpu())


def _bytes_tensor(data: bytes) -> Tensor:
    """Bytes as a tensor that is only read: it lies where they do."""
    with warnings.catch_warnings(action="ignore"):
        return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


class GuardedInputs(Guarded):
    """The inputs of a call. Zones stay open: a Python variant may copy a tensor's whole storage."""

    prefills = False
    once: Callable[[], Any]
    """Makes the call."""

    def surround(self, guards: Sequence[Guard]) -> None:
        """Write other bytes around each input, and the values the judge knows into it."""
        super().surround(guards)
        if any(isinstance(memory, TorchMemory) and memory.flat.is_cuda for memory in self.inputs):
            torch.cuda.synchronize()

    def own_strays(self) -> list[str]:
        """What one more call writes outside of tensors that the variant allocates, a sentence each."""
        return stray_writes(self.once)


class GuardedOutputs(GuardedInputs):
    """Inputs, and the block of outputs that a function is passed."""

    prefills = True


class TensorCall(GuardedCall):
    """One call of a Python function on torch tensors."""

    guarded: GuardedInputs

    def __init__(self, callee: Callee, call: Call, device: str, layout: str) -> None:
        self.callee, self.device = callee, device
        super().__init__(call, layout, self.memory, GuardedOutputs if callee.terms.passed else GuardedInputs)
        self.guarded.once = self._once
        self.pools = [memory.flat for memory in self.guarded.inputs if isinstance(memory, TorchMemory)]
        self.passed: list[Tensor] = []
        if callee.terms.passed:
            block = self.guarded.all[-1]
            assert isinstance(block, TorchMemory)
            self.passed = [part_of(block.whole, one) for one in call.written]
        self.result: Any = None
        self._last: tuple[list[Tensor], bytes] | None = None
        """Copies of outputs where they lie, and their bytes: the next ones are mostly the same."""

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        """Memory for one tensor, with zones of so many bytes around it."""
        return TorchMemory(size, shift, dtype, zone, self.device)

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as something to run."""
        placed = zip(self.pools, self.call.inputs, self.guarded.strides, offsets or self.call.offsets, strict=True)
        views = [
            flat.as_strided(tensor.shape, strides, flat.storage_offset() + offset)
            for flat, tensor, strides, offset in placed
        ]
        return partial(self._run, self.callee.bind(views, self.passed))

    def _once(self) -> Any:
        """The result of one call, which takes no other's place."""
        kept = self.result
        try:
            self.bind()()
            return self.result
        finally:
            self.result = kept

    def _run(self, bound: Callable[[], Any]) -> None:
        self.result = bound()

    def poison(self, guard: Guard | None = None) -> None:
        """Make the last outputs NaN and forget them: whoever gives them back once more has not computed them."""
        self.callee.restore()
        result, self.result = self.result, None
        if self.passed:
            self.guarded.all[-1].poison(guard)
        elif not self._holds_input(result):
            spoil(result)

    def _holds_input(self, result: Any) -> bool:
        """Whether a result stands in the memory of an input."""
        inputs = [flat.untyped_storage().data_ptr() for flat in self.pools]
        found = outputs_of(result).values()
        return any(type(one) is Tensor and one.untyped_storage().data_ptr() in inputs for one in found)

    def output(self) -> bytes:
        """The last outputs' bytes; raises Refused when they are no tensors of the promised shapes and types."""
        tensors = self.passed or self.callee.outputs(self.result)
        if self._last is None or not all(map(same_bits, self._last[0], tensors)):
            self._last = [one.detach().clone() for one in tensors], in_block(self.call, tensors)
        return self.call.with_updates(self._last[1], self.guarded.window)

    def changed(self) -> list[str]:
        """Names of inputs, and of what a module holds, that are not what they were."""
        return [*super().changed(), *self.callee.changed]


def need_device() -> None:
    """Raise Refused where this torch has no GPU, saying why."""
    if torch.version.cuda is None:
        raise Refused(f"torch {torch.__version__} is a CPU build: it computes nothing on a GPU")
    if torch.cuda.is_available():
        return
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        raise Refused(f"torch {torch.__version__} finds no GPU: {str(error).strip().splitlines()[0]}") from error


class DeviceCall(TensorCall):
    """One call of a Python function on device tensors."""

    def output(self) -> bytes:
        """The last output's bytes. Raises Refused when work went on elsewhere after the stream was done."""
        torch.cuda.current_stream().synchronize()
        data = super().output()
        begin = perf_counter()
        torch.cuda.synchronize()
        refuse_late(perf_counter() - begin)
        return data
