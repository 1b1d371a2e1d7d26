"""A compiled call on device memory of exactly its tensors' sizes: by those a sanitizer knows whose a byte is."""

import ctypes
from typing import Any

from loop.calls.cuda.call import DeviceCompiledCall, the_device, the_stream
from loop.calls.cuda.driver import Owned
from loop.calls.guarded import Memory
from loop.calls.guards import Surroundings


class ExactTensor(Memory):
    """Device memory for one tensor, no byte more; nobody has written to it before it is filled."""

    def __init__(self, size: int) -> None:
        super().__init__(size, Surroundings(0, 0))
        self._device = the_device()
        driver = self._device.driver
        address = driver.make("cuMemAlloc_v2", ctypes.c_uint64, max(size, 1))
        self._memory = Owned(driver, address, "cuMemFree_v2")
        self.address = address

    def fill(self, data: bytes) -> None:
        """Put `data` into it."""
        if data:
            copies = self._device.copies
            self._device.driver.call("cuMemcpyHtoDAsync_v2", self.address, data, len(data), copies.handle)
            copies.synchronise()

    def ignore(self, *_: Any, **__: Any) -> Any:
        """Nothing to do: nothing stands around it, and its one call is not looked at."""

    know = surround = poison = rotate = read = read_zones = ignore


class ExactCall(DeviceCompiledCall):
    """One call whose tensors have no neighbours of their own."""

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> ExactTensor:
        """Memory for one tensor; the first also takes the stream."""
        self.stream = the_stream().handle
        return ExactTensor(size)
