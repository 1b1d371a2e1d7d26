"""A call through the C interface, its tensors in memory of the host."""

from collections.abc import Callable, Sequence

from loop.calls.call import Call
from loop.calls.guarded import Memory
from loop.calls.guards import Guard
from loop.calls.host_memory import Buffer
from loop.calls.prepared import GuardedCall, Run


class CompiledCall(GuardedCall):
    """One call of a compiled variant."""

    stream: int | None = None
    """CUDA stream that the entry is given."""

    def __init__(self, invoke: Callable[..., None], call: Call, layout: str = "contiguous") -> None:
        super().__init__(call, layout, self.memory)
        self.invoke, self.result = invoke, self.guarded.all[-1]
        self._numbers = call.c_numbers()
        self.before = b""
        """The block of several outputs as it was before the call."""

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        """Memory for one tensor, with zones of so many bytes around it."""
        return Buffer(size, shift, dtype, zone)

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as something to run."""
        windows = zip(self.guarded.inputs, offsets or self.call.offsets, self.call.inputs, strict=True)
        places = [memory.address + offset * tensor.item for memory, offset, tensor in windows]
        inputs, output = self.call.c_inputs(places, self.layout), self.call.c_output(self.result.address)
        invoke, numbers, stream = self.invoke, self._numbers, self.stream
        return lambda: invoke(inputs, output, numbers, stream)

    def poison(self, guard: Guard | None = None) -> None:
        """Make the output NaN, so that an element nobody writes shows, or what `guard` says."""
        self.result.poison(guard)
        self.before = self.result.read() if self.call.parts else b""

    def output(self) -> bytes:
        """The bytes of the last outputs."""
        block = self.result.read()
        self.guarded.between = self.call.strays_between(self.before, block)
        return self.call.with_updates(self.call.clean(block), self.guarded.window)
