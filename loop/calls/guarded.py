"""The tensors of one call with what stands around them: written before a call, looked at after it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from loop.calls.call import Call
from loop.calls.faults import Place
from loop.calls.guards import VALUES, Guard, Surroundings, differing, draw, said_bytes, zone_bytes
from loop.calls.tensors import extent, gather, scatter, strides_of


class Memory(ABC):
    """Memory for one tensor between two zones, of the host or of a device."""

    address: int
    reach = (0, 0)
    """Addresses of the host around it where nothing else is."""

    def __init__(self, size: int, zones: Surroundings) -> None:
        self.size, self.zones, self.data = size, zones, b""
        self.turned = 0
        """Bytes by which what it was filled with is rotated."""

    @abstractmethod
    def fill(self, data: bytes) -> None:
        """Put `data` (of exactly the tensor's size) into it, and remember it."""

    @abstractmethod
    def rotate(self, count: int) -> None:
        """Move what it was filled with by `count` bytes, round the end: other values at every address."""

    def poison(self, guard: Guard | None = None) -> None:
        """Make every element NaN, or what the guard says; nothing where it never holds an output."""

    @abstractmethod
    def surround(self, guard: Guard) -> None:
        """Write both zones anew."""

    @abstractmethod
    def read(self) -> bytes:
        """The tensor's bytes."""

    @abstractmethod
    def read_zones(self) -> tuple[bytes, bytes]:
        """What stands in both zones."""

    def know(self, data: bytes) -> None:
        """Learn what numbers like the tensor's own are."""
        self.zones.know(data)

    def between(self, guard: Guard) -> bytes:
        """Contents for the gaps of a tensor whose rows do not lie together, of its own size."""
        return self.zones.fill(guard, self.size)

    @property
    def changed(self) -> bool:
        """Whether it holds anything else than it was filled with, rotated as it was last."""
        found, turned = self.read(), self.turned
        return found != (self.data[turned:] + self.data[:turned] if turned else self.data)

    @property
    def stray(self) -> str:
        """What was written outside the tensor, in words; empty when nothing was."""
        return self.zones.stray(*self.read_zones())

    def enclose(self, *, at_end: bool) -> bool:
        """Put the tensor at the end, or the beginning, of pages outside which every access faults.

        False where the memory is not of that kind; then nothing has changed.
        """
        return False

    def release(self) -> None:
        """Let accesses outside be again."""


MakeMemory = Callable[[int, int, str, int], Memory]
"""Memory of so many bytes, misaligned by so many, for a type, with zones of so many bytes."""


class Unguarded:
    """Tensors whose memory is not ours: nothing stands around them, and nothing is seen."""

    names: Sequence[str] = ()
    """The tensors that have zones, as in `its input x`."""
    prefills = False
    """Whether what stands in the output before a call is ours to choose."""

    def surround(self, guards: Sequence[Guard]) -> None:
        """Write other bytes around each tensor, and the values the judge knows into the inputs."""

    def strays(self) -> list[str]:
        """What was written outside of tensors, a sentence each."""
        return []

    def enclose(self, *, at_end: bool) -> bool:
        """Put each tensor at the end, or the beginning, of memory outside which every access faults.

        False where the memory is not of that kind; then nothing has changed.
        """
        return False

    def release(self) -> None:
        """Let accesses outside of tensors be again; the next call needs `surround`."""

    def places(self) -> Sequence[Place]:
        """Where each tensor stands, if that is memory of the host and ours."""
        return ()

    def own_strays(self) -> list[str]:
        """What one more call writes outside of tensors that the variant allocates, a sentence each."""
        return []


class Guarded(Unguarded):
    """Inputs of a call; and its output, where a call writes to memory that it is given."""

    prefills = True
    between = ""
    """What the last call wrote between its outputs, in words."""

    def __init__(self, call: Call, layout: str, make: MakeMemory) -> None:
        self.layout = layout
        self.strides = [tensor.strides(layout) for tensor in call.inputs]
        self.spread = [tensor.strides(layout) != tensor.strides("contiguous") for tensor in call.inputs]
        """Whether an input's elements lie otherwise than in its file."""
        self.names: tuple[str, ...] = tuple(f"its input {tensor.name}" for tensor in call.inputs)
        self.tensors = call.inputs
        self.inputs = [self._memory(make, n) for n in range(len(call.inputs))]
        self.all = tuple(self.inputs)
        if self.prefills:
            zone = zone_bytes(call.output.shape, strides_of(call.output.shape, "contiguous"), call.output.dtype)
            self.names += ("its output",)
            self.all += (make(call.output.size, 0, call.output.dtype, zone),)
        self.fill(call)

    def _memory(self, make: MakeMemory, n: int) -> Memory:
        tensor, strides = self.tensors[n], self.strides[n]
        zone = zone_bytes(tensor.shape, strides, tensor.dtype)
        if self.spread[n]:
            return make(extent(tensor.shape, strides) * tensor.item, 0, tensor.dtype, zone)
        return make(tensor.pool_size, tensor.item if self.layout == "misaligned" else 0, tensor.dtype, zone)

    def fill(self, call: Call) -> None:
        """Take the values of a call's files."""
        self.values = [Path(tensor.path).read_bytes() for tensor in call.inputs]
        for memory, data in zip(self.inputs, self.values, strict=True):
            memory.know(data)
        self.surround([draw(VALUES) for _ in self.all])

    def surround(self, guards: Sequence[Guard]) -> None:
        """Write other bytes around each tensor, and the values the judge knows into the inputs."""
        for memory, guard in zip(self.all, guards, strict=True):
            memory.surround(guard)
        self._restore(guards[: len(self.inputs)])

    def _restore(self, guards: Sequence[Guard]) -> None:
        for n, (memory, data, guard) in enumerate(zip(self.inputs, self.values, guards, strict=True)):
            memory.fill(self._laid_out(n, data, memory.between(guard)) if self.spread[n] else data)

    def _laid_out(self, n: int, data: bytes, between: bytes) -> bytes:
        return scatter(data, self.tensors[n].shape, self.strides[n], self.tensors[n].item, between)

    def _own(self, n: int) -> bytes:
        """The bytes of an input's elements, of all that stands in its memory."""
        return gather(self.inputs[n].read(), self.tensors[n].shape, self.strides[n], self.tensors[n].item)

    def window(self, n: int) -> bytes:
        """What stands in an input now, in the window whose answer the judge knows."""
        if self.spread[n]:
            return self._own(n)
        begin = self.tensors[n].offset * self.tensors[n].item
        return self.inputs[n].read()[begin : begin + self.tensors[n].size]

    def changed(self, n: int) -> bool:
        """Whether an input was written to; its gaps are none of its elements."""
        return self.inputs[n].changed and (not self.spread[n] or self._own(n) != self.values[n])

    def strays(self) -> list[str]:
        """What was written outside of tensors, a sentence each."""
        found = [self._between_rows(n) or memory.stray for n, memory in enumerate(self.all)]
        said = [f"writes outside {name}: {stray}" for name, stray in zip(self.names, found, strict=True) if stray]
        return [*said, *([self.between] if self.between else [])]

    def _between_rows(self, n: int) -> str:
        """What was written to the gaps of an input that has any."""
        if n == len(self.inputs) or not self.spread[n] or not self.inputs[n].changed:
            return ""
        found, expected = self.inputs[n].read(), self._laid_out(n, self._own(n), self.inputs[n].data)
        return f"{said_bytes(differing(found, expected))} between its rows" if found != expected else ""

    def enclose(self, *, at_end: bool) -> bool:
        """Put each tensor at the end, or the beginning, of memory outside which every access faults."""
        if not all(memory.enclose(at_end=at_end) for memory in self.all):
            return False
        self._restore([draw(VALUES) for _ in self.inputs])
        return True

    def release(self) -> None:
        """Let accesses outside of tensors be again; the next call needs `surround`."""
        for memory in self.all:
            memory.release()

    def places(self) -> list[Place]:
        """Where each tensor stands."""
        named = zip(self.names, self.all, strict=True)
        return [Place(name, one.address, one.address + one.size, one.reach) for name, one in named]
