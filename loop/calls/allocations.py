"""A Python variant's own tensors with guard zones around them: what its kernels write beyond them shows.

PyTorch hands every factory call to a dispatch mode, also those of C++ extensions. Memory that a variant kept from
an earlier call, and what operators allocate inside, has no zones.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from loop.calls.memory import HIGH, Surroundings, draw, zone_bytes
from loop.calls.tensors import extent

NAMES = "empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like"
NAMES += " new_ones full full_like new_full"
FACTORIES = {getattr(torch.ops.aten, name) for name in NAMES.split()}


class _Bytes(NamedTuple):
    """Bytes of a device inside a block, as NVIDIA's array interface describes them."""

    block: Tensor
    begin: int
    size: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        address = self.block.data_ptr() + self.begin
        return {"shape": (self.size,), "typestr": "|u1", "data": (address, False), "version": 3}


def inside(block: Tensor, begin: int, size: int) -> Tensor:
    """Some bytes of a block as a tensor whose storage ends where they end: it cannot be resized."""
    if block.is_cuda:
        return torch.as_tensor(_Bytes(block, begin, size), device=block.device)
    kind: Any = type("_Array", (ctypes.c_char * size,), {})
    array = kind.from_address(block.data_ptr() + begin)
    array.block = block  # It has to outlive the tensor.
    return torch.frombuffer(array, dtype=torch.uint8)


class GuardedAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it lasts, new tensors stand between zones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocated: list[tuple[tuple[int, ...], int, Tensor, Surroundings]] = []
        """Of each tensor that was handed out: shape, address, the block that it lies in, and its zones there."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch asks: no, since it would import its compiler for it, which takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The result of an operator; of a factory, in memory of ours."""
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket not in FACTORIES or type(result) is not Tensor or not self._takes(result):
            return result
        shape, strides, item = tuple(result.shape), tuple(result.stride()), result.element_size()
        zone, size = zone_bytes(shape, strides, "float32"), extent(shape, strides) * item
        zones = Surroundings(zone, zone)
        block = torch.empty(zone + size + zone, dtype=torch.uint8, device=result.device)
        for place, data in zip((0, zone + size), zones.renew(draw(HIGH)), strict=True):
            block[place : place + zone].copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        tensor = inside(block, zone, size).view(result.dtype).as_strided(shape, strides).copy_(result)
        self.allocated.append((shape, tensor.data_ptr(), block, zones))
        return tensor

    def _takes(self, result: Tensor) -> bool:
        plain = result.layout == torch.strided and result.device.type in ("cpu", "cuda") and result.numel() > 0
        if not plain or result.dtype.is_complex or result.is_quantized or min(result.stride(), default=1) < 0:
            return False
        return not (torch.cuda.is_current_stream_capturing() if result.is_cuda else result.is_pinned())


def stray_writes(call: Callable[[], Any]) -> list[str]:
    """What one call writes outside of tensors that it made, a sentence each.

    Nothing where the call raises while its new tensors stand between guard zones.
    """
    mode = GuardedAllocations()
    try:
        with mode:
            result = call()
    except Exception:
        return []
    if any(block.is_cuda for _, _, block, _ in mode.allocated):
        torch.cuda.synchronize()
    sentences = []
    for shape, address, block, zones in mode.allocated:
        before, after = block[: len(zones.before)], block[len(block) - len(zones.after) :]
        if stray := zones.stray(before.cpu().numpy().tobytes(), after.cpu().numpy().tobytes()):
            is_output = type(result) is Tensor and result.data_ptr() == address
            name = "its output" if is_output else f"a tensor {list(shape)} that it allocated"
            sentences.append(f"writes outside {name}: {stray}")
    return sentences
