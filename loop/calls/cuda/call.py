"""A compiled variant on a CUDA device: its tensors in device memory. No torch."""

import functools
from collections.abc import Sequence

from loop.calls.call import Refused, refuse_late
from loop.calls.compiled import CompiledCall
from loop.calls.cuda.driver import RED_ZONE, Device, DeviceBuffer, Stream, take_back_l2
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
    """Device memory for one tensor; without a zone it is exactly as large, and as it was allocated."""

    def __init__(self, size: int, shift: int = 0, dtype: str = "float32", zone: int = RED_ZONE) -> None:
        self._memory: DeviceBuffer = the_device().memory(size + shift, zone)
        self.address = self._memory.address + shift
        before, after = self._memory.zones
        super().__init__(size, Surroundings(before + shift, after, dtype))
        self.surround(draw(VALUES))

    def write(self, offset: int, data: bytes) -> None:
        self._memory.write(self.address + offset, data)

    def read(self, offset: int, size: int) -> bytes:
        return self._memory.read_at(self.address + offset, size)

    def poison(self, guard: Guard | None = None) -> None:
        self._memory.poison() if guard is None else super().poison(guard)

    def take(self, origin: DeviceBuffer, offset: int) -> None:
        """Fill it from the byte `offset` of another buffer on."""
        self._memory.copy_from(origin, self.size, offset)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


class DeviceCompiledCall(CompiledCall):
    """One call of a compiled CUDA variant."""

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        self.stream = the_stream().handle
        return DeviceTensor(size, shift, dtype, zone)

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs. Made alone it waits until the stream is done."""
        launch = super().bind(offsets)

        def launch_and_wait() -> None:
            launch()
            the_stream().synchronise()

        return launch_and_wait

    def output(self) -> bytes:
        """The last output's bytes.

        Raises Refused when work went on elsewhere after the stream was done, and when the variant has lines of the
        second-level cache kept for it: values of one call would wait there for the next.
        """
        the_stream().synchronise()
        kept_bytes = take_back_l2(the_device().driver, the_stream().handle)
        if kept_bytes:
            message = f"left a window of {kept_bytes} bytes that the L2 cache keeps on the stream it was given"
            raise Refused(message, "cache kept")
        data = super().output()
        refuse_late(late_work(the_device(), the_stream()))
        return data


class ExactCall(DeviceCompiledCall):
    """One call whose tensors have no neighbours of their own."""

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        return super().memory(size, 0, dtype, 0)
