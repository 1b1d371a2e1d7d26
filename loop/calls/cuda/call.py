"""A compiled variant on a CUDA device: its tensors in device memory, timed by graph replay. No torch."""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from loop.calls.call import Refused, refuse_late
from loop.calls.compiled import CompiledCall
from loop.calls.cuda.driver import RED_ZONE, Device, DeviceBuffer, Owned, Stream, take_back_l2
from loop.calls.cuda.graph import late_work
from loop.calls.invocation import Run
from loop.calls.memory import VALUES, Guard, Memory, Surroundings, draw


@functools.cache
def the_device() -> Device:
    """This process's device: the first that is visible."""
    return Device()


@functools.cache
def the_stream() -> Stream:
    """The stream that variants are given."""
    return the_device().stream()


class DeviceTensor(Memory):
    """Device memory for one tensor."""

    def __init__(self, size: int, shift: int = 0, dtype: str = "float32", zone: int = RED_ZONE) -> None:
        self.shift = shift
        self._memory: DeviceBuffer = the_device().memory(size + shift, zone)
        self._twice: DeviceBuffer | None = None
        self.address = self._memory.address + shift
        before, after = self._memory.zones
        super().__init__(size, Surroundings(before + shift, after, dtype))
        self.surround(draw(VALUES))

    def fill(self, data: bytes) -> None:
        """Put `data` into it, and remember it."""
        self._memory.write(self.address, data)
        self.data, self._twice, self.turned = data, None, 0

    def take(self, origin: DeviceBuffer, offset: int) -> None:
        """Fill it from the byte `offset` of another buffer on."""
        self._memory.copy_from(origin, self.size, offset)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()

    def rotate(self, count: int) -> None:
        """Move what it was filled with by `count` bytes, round the end."""
        self.turned = count
        if self.shift:
            self._memory.write(self.address, self.data[count:] + self.data[:count])
            return
        if self._twice is None:
            self._twice = the_device().memory(2 * self.size)
            self._twice.fill(self.data + self.data)
        self._memory.copy_from(self._twice, self.size, count)

    def poison(self, guard: Guard | None = None) -> None:
        """Make every element NaN, or what the guard says."""
        if guard is None:
            self._memory.poison()
        else:
            self._memory.write(self.address, self.between(guard))

    def surround(self, guard: Guard) -> None:
        """Write both zones anew."""
        before, after = self.zones.renew(guard)
        self._memory.write(self.address - len(before), before)
        self._memory.write(self.address + self.size, after)

    def read(self) -> bytes:
        """The tensor's bytes."""
        return self._memory.read()[self.shift :]

    def read_zones(self) -> tuple[bytes, bytes]:
        """What stands in both zones."""
        before, after = self._memory.read_zones(self.shift)
        return before, after


class DeviceCompiledCall(CompiledCall):
    """One call of a compiled CUDA variant."""

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        """Device memory for one tensor; the first also takes the stream."""
        self.stream = the_stream().handle
        return DeviceTensor(size, shift, dtype, zone)

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs. Made alone it waits until the stream is done."""
        return _Launch(super().bind(offsets))

    def output(self) -> bytes:
        """The last output's bytes.

        Raises Refused when work went on elsewhere after the stream was done, and when the variant has lines of the
        second-level cache kept for it: values of one call would wait there for the next.
        """
        the_stream().synchronise()
        kept = take_back_l2(the_device().driver, the_stream().handle)
        if kept:
            said = f"left a window of {kept} bytes that the L2 cache keeps on the stream it was given"
            raise Refused(said, "cache kept")
        data = super().output()
        refuse_late(late_work(the_device(), the_stream()))
        return data


class _Launch:
    """A launch on the stream; as something to run it also waits."""

    def __init__(self, launch: Run) -> None:
        self.launch = launch

    def __call__(self) -> None:
        self.launch()
        the_stream().synchronise()


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
