"""Tensors of a compiled CUDA variant as arrays: copies on the host."""

import numpy

from loop.calls.call import LoopTensor, make_loop_tensor, strides_of
from loop.calls.cuda.driver import DeviceMemory
from loop.calls.cuda.stage import the_device
from loop.mistakes.arrays import ELEMENT_NAMES, ELEMENT_TYPES, Array, HostArrays


class DeviceArrays(HostArrays):
    """Copies contiguous GPU tensors to the host and back. Fails during graph capture."""

    def __init__(self) -> None:
        self.device_memory: dict[tuple[int, int], DeviceMemory] = {}
        """Device memory for arguments of the variant without its mistake, by (argument number, bytes)."""
        self.original_bytes: dict[int, bytes] = {}
        """Address to the bytes of a tensor when `to_array` read it."""
        self.fill = lambda address, value, size: the_device().write(address, bytes([value]) * size)

    def to_array(self, tensor: LoopTensor, stream: int | None) -> Array:
        """Copy a GPU tensor to a host array and remember its bytes, for `write_back`."""
        the_device().driver.call("cuStreamSynchronize", stream)
        array = numpy.empty(tuple(tensor.sizes[: tensor.rank]), ELEMENT_TYPES[tensor.dtype][1])
        data = self.original_bytes[tensor.data or 0] = the_device().read(tensor.data or 0, array.nbytes)
        array[...] = numpy.frombuffer(data, array.dtype).reshape(array.shape)
        return array

    def to_tensor(self, number: int, array: Array) -> LoopTensor:
        """Copy an array to device memory, which is reused for each argument `number` and size."""
        raw_bytes = array.tobytes()
        if (number, len(raw_bytes)) not in self.device_memory:
            self.device_memory[number, len(raw_bytes)] = DeviceMemory(the_device(), len(raw_bytes))
        memory = self.device_memory[number, len(raw_bytes)]
        memory.write(0, raw_bytes)
        strides = strides_of(array.shape, "contiguous")
        return make_loop_tensor(memory.address, array.shape, strides, ELEMENT_NAMES[array.dtype])

    def read_back(self, tensor: LoopTensor, array: Array, stream: int | None) -> None:
        """Copy the variant's output from the GPU to its array."""
        array[...] = self.to_array(tensor, stream)

    def write_back(self, tensor: LoopTensor, array: Array) -> None:
        """Copy an array to its tensor on the GPU, if the mistake changed it."""
        data = array.tobytes()
        if data != self.original_bytes[tensor.data or 0]:
            the_device().write(tensor.data, data)
