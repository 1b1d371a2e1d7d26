"""A Python variant's own tensors with guard zones around them: what its kernels write beyond them shows.

PyTorch hands every factory call to a dispatch mode, also those of C++ extensions. Memory that a variant kept from
an earlier call, and what operators allocate inside, has no zones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from loop.bench.child.guards import HIGH, Surroundings, draw, zone_bytes
from loop.bench.child.tensors import extent

FACTORIES = {
    getattr(torch.ops.aten, name)
    for name in (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like"),
        *("new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"),
    )
}


@dataclass
class _Guarded:
    """A tensor that was handed out, and its zones."""

    tensor: Tensor
    block: Tensor
    form: tuple[Any, ...]
    zones: Surroundings

    @property
    def stray(self) -> str:
        """What was written outside of it, in words; a tensor that was resized since then is passed over."""
        if form_of(self.tensor) != self.form:
            return ""
        before, after = len(self.zones.before), len(self.zones.after)
        ends = self.block[:before], self.block[len(self.block) - after :]
        return self.zones.stray(*(end.cpu().numpy().tobytes() for end in ends))


class GuardedAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it lasts, tensors that are made stand between zones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[_Guarded] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The result of an operator; of a factory, in memory of ours."""
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket not in FACTORIES or type(result) is not Tensor or not self._takes(result):
            return result
        return self._guarded(result)

    def _takes(self, result: Tensor) -> bool:
        plain = result.layout == torch.strided and result.device.type in ("cpu", "cuda") and result.numel() > 0
        if not plain or result.dtype.is_complex or result.is_quantized or min(result.stride(), default=1) < 0:
            return False
        if result.device.type == "cuda":
            return not torch.cuda.is_current_stream_capturing()
        return not result.is_pinned()

    def _guarded(self, result: Tensor) -> Tensor:
        shape, strides, item = tuple(result.shape), tuple(result.stride()), result.element_size()
        zone, size = zone_bytes(shape, strides, "float32"), extent(shape, strides) * item
        zones = Surroundings(zone, zone + -size % 8)  # `view` takes whole elements of any type.
        before, after = zones.renew(draw(HIGH))
        block = torch.empty(zone + size + len(after), dtype=torch.uint8, device=result.device)
        block[:zone].copy_(_bytes(before))
        block[zone + size :].copy_(_bytes(after))
        tensor = block.view(result.dtype).as_strided(shape, strides, zone // item).copy_(result)
        self.made.append(_Guarded(tensor, block, form_of(tensor), zones))
        return tensor


def form_of(tensor: Tensor) -> tuple[Any, ...]:
    """What tells whether a tensor still covers the memory it was given."""
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), tensor.data_ptr()


def _bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def stray_writes(call: Callable[[], Any]) -> list[str]:
    """What one call writes outside of tensors that it made, a sentence each.

    Nothing is said of a call that does not work this way.
    """
    mode = GuardedAllocations()
    try:
        with mode:
            result = call()
    except Exception:
        return []
    if any(one.tensor.is_cuda for one in mode.made):
        torch.cuda.synchronize()
    found = [(one, stray) for one in mode.made if (stray := one.stray)]
    return [f"writes outside {_name(one.tensor, result)}: {stray}" for one, stray in found]


def _name(tensor: Tensor, result: Any) -> str:
    if type(result) is Tensor and result.data_ptr() == tensor.data_ptr():
        return "its output"
    return f"a tensor {list(tensor.shape)} that it allocated"
