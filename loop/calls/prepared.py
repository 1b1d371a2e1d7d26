"""What a worker makes ready, whatever kind of variant computes it: a call, and a variant that takes calls."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from loop.calls.call import Call
from loop.calls.guarded import Guarded, MakeMemory, Memory, Unguarded
from loop.calls.guards import Guard
from loop.calls.host_memory import Buffer

Run = Callable[[], None]


class Prepared(ABC):
    """A call with its inputs in memory, ready to be made again and again."""

    timed_apart = False
    """Whether it times itself and has no windows."""

    def __init__(self, call: Call, guarded: Unguarded) -> None:
        self.call, self.guarded = call, guarded
        """What is computed; its tensors, with what stands around them."""

    @abstractmethod
    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as something to run; None: the windows whose answer the judge
        knows."""

    def jumble(self, draw: random.Random) -> None:
        """Values nobody knows at every address, for a call whose output is not looked at."""

    @abstractmethod
    def refill(self, call: Call) -> None:
        """The same call on the values of other files, at the same addresses."""

    def poison(self, guard: Guard | None = None) -> None:
        """Make the output NaN, so that an element nobody writes shows, or what `guard` says."""

    @abstractmethod
    def output(self) -> bytes:
        """The last output's bytes, C order; raises Refused when it cannot be one."""

    @abstractmethod
    def changed(self) -> list[str]:
        """Names of inputs that do not hold what they were filled with."""


class GuardedCall(Prepared):
    """A call whose inputs lie in memory of ours."""

    guarded: Guarded

    def __init__(self, call: Call, layout: str, make: MakeMemory, guard: type[Guarded] = Guarded) -> None:
        super().__init__(call, guard(call, layout, make))
        self.layout = layout

    def refill(self, call: Call) -> None:
        """The same call on the values of other files, at the same addresses."""
        self.call = call
        self.guarded.fill(call)

    def jumble(self, draw: random.Random) -> None:
        """Values nobody knows at every address."""
        for memory, tensor in zip(self.guarded.inputs, self.call.inputs, strict=True):
            if memory.size:
                memory.rotate(draw.randrange(memory.size // tensor.item) * tensor.item)

    def changed(self) -> list[str]:
        """Names of inputs that do not hold what they were filled with."""
        fixed = (n for n in range(len(self.call.inputs)) if n not in self.call.updated)
        return [self.call.inputs[n].name for n in fixed if self.guarded.changed(n)]


class Loaded(Protocol):
    """A variant ready to take calls."""

    def prepare(self, call: Call, layout: str = "contiguous") -> Prepared:
        """Bring a call's inputs into memory, laid out as `loop.calls.tensors.strides_of` says."""


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
