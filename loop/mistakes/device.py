"""Tensors of a compiled CUDA variant as arrays: copies on the host."""

import numpy

from loop.calls.call import LoopTensor, make_loop_tensor, strides_of
from loop.calls.cuda.driver import DeviceMemory
from loop.calls.cuda.stage import the_device
from loop.mistakes.arrays import NAMES, RAW, Array, OnHost


class OnDevice(OnHost):
    """Copies contiguous GPU tensors to the host and back. Fails during graph capture."""

    def __init__(self) -> None:
        self.rooms: dict[tuple[int, int], DeviceMemory] = {}
        """Device memory for the real variant's arguments, by (argument number, bytes)."""
        self.before: dict[int, bytes] = {}
        """Address to the bytes of a tensor when `look` read it."""
        self.fill = lambda address, value, size: the_device().write(address, bytes([value]) * size)

    def look(self, tensor: LoopTensor, stream: int | None) -> Array:
        """Copy a GPU tensor to a host array and remember its bytes."""
        the_device().driver.call("cuStreamSynchronize", stream)
        array = numpy.empty(tuple(tensor.sizes[: tensor.rank]), RAW[tensor.dtype][1])
        data = self.before[tensor.data or 0] = the_device().read(tensor.data or 0, array.nbytes)
        array[...] = numpy.frombuffer(data, array.dtype).reshape(array.shape)
        return array

    def place(self, number: int, array: Array) -> LoopTensor:
        """Copy an array to device memory, as argument `number` of the real variant."""
        data = array.tobytes()
        if (number, len(data)) not in self.rooms:
            self.rooms[number, len(data)] = the_device().allocate(len(data))
        room = self.rooms[number, len(data)]
        room.write(0, data)
        strides = strides_of(array.shape, "contiguous")
        tensor: LoopTensor = make_loop_tensor(room.address, array.shape, strides, NAMES[array.dtype])
        return tensor

    def take(self, tensor: LoopTensor, array: Array, stream: int | None) -> None:
        array[...] = self.look(tensor, stream)

    def give(self, tensor: LoopTensor, array: Array) -> None:
        data = array.tobytes()
        if data != self.before[tensor.data or 0]:
            the_device().write(tensor.data, data)
