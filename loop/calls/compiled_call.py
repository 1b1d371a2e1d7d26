"""A call through the C interface, its tensors in memory of the host."""

import ctypes
import random
from collections.abc import Sequence
from typing import Any, Protocol

from loop.calls.guarded import Guarded, Memory
from loop.calls.guards import Guard
from loop.calls.host_memory import Buffer
from loop.calls.prepared import Run
from loop.calls.tensors import DTYPES, LoopTensor, describe, strides_of


class Invoked(Protocol):
    """A library whose entry can be called."""

    def invoke(self, inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """Call the entry; raises Refused with the library's own words when it returns an error."""


class CompiledCall:
    """One call of a compiled variant."""

    timed_apart = False
    stream: int | None = None
    """CUDA stream that the entry is given."""

    def __init__(self, variant: Invoked, call: dict[str, Any], layout: str = "contiguous") -> None:
        self.variant, self.call, self.layout = variant, call, layout
        self.dtypes = [tensor["dtype"] for tensor in call["inputs"]]
        self.items = [DTYPES[dtype][1] for dtype in self.dtypes]
        self.names = [tensor["name"] for tensor in call["inputs"]]
        self.shapes = [tuple(tensor["shape"]) for tensor in call["inputs"]]
        self.strides = [strides_of(shape, layout) for shape in self.shapes]
        self.guarded = Guarded(call, layout, self.memory)
        self.inputs, self.result = self.guarded.inputs, self.guarded.output
        shape, dtype = tuple(call["output"]["shape"]), call["output"]["dtype"]
        self._output = shape, strides_of(shape, "contiguous"), dtype
        numbers = [float("nan") if number is None else number for number in call["numbers"]]
        self._numbers = (ctypes.c_double * max(len(numbers), 1))(*numbers)

    def memory(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        """Memory for one tensor, with zones of so many bytes around it."""
        return Buffer(size, shift, dtype, zone)

    def refill(self, call: dict[str, Any]) -> None:
        """The same call on the values of other files, at the same addresses."""
        self.call = call
        self.guarded.fill(call)

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as something to run."""
        chosen = [tensor["offset"] for tensor in self.call["inputs"]] if offsets is None else offsets
        places = [
            buffer.address + offset * item
            for buffer, offset, item in zip(self.inputs, chosen, self.items, strict=True)
        ]
        described = map(describe, places, self.shapes, self.strides, self.dtypes)
        inputs = (LoopTensor * len(places))(*described)
        output = (LoopTensor * 1)(describe(self.result.address, *self._output))
        invoke, numbers, stream = self.variant.invoke, self._numbers, self.stream
        return lambda: invoke(inputs, output, numbers, stream)

    def jumble(self, draw: random.Random) -> None:
        """Values nobody knows at every address."""
        for buffer, item in zip(self.inputs, self.items, strict=True):
            if buffer.size:
                buffer.rotate(draw.randrange(buffer.size // item) * item)

    def poison(self, guard: Guard | None = None) -> None:
        """Make the output NaN, so that an element nobody writes shows, or what `guard` says."""
        self.result.poison(guard)

    def output(self) -> bytes:
        """The last output's bytes."""
        return self.result.read()

    def changed(self) -> list[str]:
        """Names of inputs that do not hold what they were filled with."""
        return [name for n, name in enumerate(self.names) if self.guarded.changed(n)]

    def own_seconds(self) -> float | None:
        """Timed from outside."""
        return None
