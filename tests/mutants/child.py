"""One variant, mutated or not, on its workloads: the process that may hang or crash. No torch."""

import ctypes
import json
import math
import os
import resource
import sys
from pathlib import Path
from typing import Any

import numpy

from loop.calls.call import DTYPES, LoopTensor
from tests.mutants.workloads import Array, Workload, load, strides, takes, widened

GUARD, POISON = 0xFFFF, 0x7FFF
"""NaN between and around the elements of a tensor, and another NaN in an output's elements."""
MARGIN = 64
"""Elements of guard on either side."""
CPU_LIMIT_S, MEMORY_LIMIT = 40, 8 << 30
"""Without a mistake a variant takes seconds. What hangs ends by itself, also when nobody waits for it any more."""
EXTRA = 4
"""Floats of a row of partials beside its features."""


class Killed(Exception):
    """What showed the mistake."""

    def __init__(self, how: str, detail: str = "") -> None:
        super().__init__(how)
        self.how, self.detail = how, detail


class Memory:
    """A tensor [B, H, S, D] of two-byte elements, with strides of its own."""

    def __init__(self, one: Workload, tensor: int, bits: Array | None) -> None:
        shape = (one.batches, one.heads_of(tensor), one.queries if tensor in (0, 3) else one.keys, one.depth)
        steps = strides(one, tensor)
        reach = sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
        extent = 1 + reach if math.prod(shape) else 0
        self.all = numpy.full(extent + 3 * MARGIN, GUARD, numpy.uint16)
        begin = -self.all.ctypes.data // 2 % MARGIN + MARGIN + (one.layout == "odd")
        self.view = numpy.lib.stride_tricks.as_strided(self.all[begin:], shape, tuple(2 * step for step in steps))
        self.view[...] = POISON if bits is None else bits
        address = self.all.ctypes.data + 2 * begin if extent else 0  # As PyTorch has it.
        self.described = describe(address, one.dtype, shape, steps)

    def untouched_outside(self) -> bool:
        """Whether nothing but elements was written; forgets the elements."""
        self.view[...] = GUARD
        return bool((self.all == GUARD).all())


def describe(address: int, dtype: str, shape: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    """The LoopTensor of memory."""
    tensor = LoopTensor(address, DTYPES[dtype][0], len(shape))
    for axis, (size, step) in enumerate(zip(shape, steps, strict=True)):
        tensor.sizes[axis], tensor.strides[axis] = size, step
    return tensor


class Variant:
    """A library, called on workloads one after the other."""

    def __init__(self, library: Path, name: str, launches: Path) -> None:
        self.library, self.launches = ctypes.CDLL(str(library), mode=os.RTLD_NOW), launches
        self.name = name.partition("@")[0]
        self.library.loop_error.restype = ctypes.c_char_p
        os.environ["LOOP_EMULATOR_LAUNCHES"] = str(launches)

    def run(self, one: Workload, arrays: dict[str, Array], seed: int) -> None:
        """Call it; raises Killed when anything about it is wrong."""
        os.environ["LOOP_EMULATOR_SEED"] = str(seed)
        self.launches.unlink(missing_ok=True)
        memory = [Memory(one, n, arrays[name]) for n, name in enumerate("qkv")]
        output = Memory(one, 3, None)
        numbers = (float(one.causal), float(one.right), math.nan if one.scale is None else one.scale)
        if one.ranges:
            self.call_passes(one, memory, output, numbers)
        else:
            self.call(f"attention_{self.name}", memory, output.described, numbers)
        compare(widened(numpy.ascontiguousarray(output.view), one.dtype), arrays)
        if not output.untouched_outside():
            raise Killed("out of bounds", "writes between the rows of the output")
        lines = self.launches.read_text().splitlines() if self.launches.exists() else []
        if conflicts := sum(json.loads(line)["conflicts"] for line in lines):
            raise Killed("conflicts", f"{conflicts} bank conflicts of ldmatrix")

    def call(self, entry: str, memory: list[Memory], output: Any, numbers: tuple[float, ...]) -> None:
        """Call an entry on inputs and an output."""
        self.invoke(entry, [one.described for one in memory], output, numbers)

    def call_passes(self, one: Workload, memory: list[Memory], output: Memory, numbers: tuple[float, ...]) -> None:
        """split_k's passes, by way of partials that are NaN before."""
        shape = (one.ranges, one.batches, one.heads, one.queries, one.depth + EXTRA)
        partials = numpy.full(shape, math.nan, numpy.float32)
        steps = tuple(step // 4 for step in partials.strides)
        described = describe(partials.ctypes.data, "float32", shape, steps)
        self.call("attention_split_partial", memory, described, numbers)
        self.invoke("attention_split_reduce", [described], output.described, numbers)

    def invoke(self, entry: str, tensors: list[Any], output: Any, numbers: tuple[float, ...]) -> None:
        """Raises Killed when the entry returns an error."""
        inputs, outputs = (LoopTensor * len(tensors))(*tensors), (LoopTensor * 1)(output)
        error = getattr(self.library, entry)(inputs, outputs, (ctypes.c_double * 3)(*numbers), None)
        if error:
            said = (self.library.loop_error(error) or b"").decode(errors="replace")
            raise Killed(kind(said), said)


KINDS = (
    ("race:", "race"),
    ("of the same launch", "race"),
    ("has not been waited for", "unfinished copy"),
    ("is still on its way", "unfinished copy"),
    ("says that they have ended", "early overwrite"),
    ("once more than the", "phase"),
    ("waits for a parity", "phase"),
    ("comes to named barrier", "barrier"),
    ("no mbarrier", "mbarrier"),
    ("makes an mbarrier", "mbarrier"),
    ("where an mbarrier lies", "mbarrier"),
    ("over an mbarrier", "mbarrier"),
    ("fence.proxy.async", "missing fence"),
    ("without wgmma.fence", "missing fence"),
    ("uses sums of the product", "unfinished product"),
    ("before it had ended", "unfinished product"),
    ("before they had ended", "unfinished product"),
    ("nobody held them", "unfinished product"),
    ("of what its descriptor describes", "descriptor"),
    ("by a descriptor", "descriptor"),
    ("other descriptors", "descriptor"),
    ("nobody has written", "uninitialised"),
    ("divergence:", "divergence"),
    ("deadlock:", "deadlock"),
    ("spins:", "hang"),
    ("outside all tensors", "out of bounds"),
    ("touches bytes", "out of bounds"),
    ("not a multiple of", "misaligned"),
    ("writes to its input", "out of bounds"),
)


def kind(said: str) -> str:
    """What the emulator found, in a word or two."""
    return next((name for words, name in KINDS if words in said), "refused")


def compare(output: Array, arrays: dict[str, Array]) -> None:
    """As the bench's judge does it: raises Killed when an element, or all of them together, err too much."""
    reference, allowed = arrays["reference"], arrays["allowed"]
    with numpy.errstate(invalid="ignore"):
        error = abs(output - reference)
    right = (error <= allowed) | (output == reference) | (numpy.isnan(output) & numpy.isnan(reference))
    if not right.all():
        raise Killed("wrong values", f"{int((~right).sum())} of {right.size} elements")
    finite = error[numpy.isfinite(error)]
    if finite.size and (finite.max() > arrays["largest"] or finite.mean() > arrays["mean"]):
        raise Killed("wrong values", f"errors up to {finite.max():.2g}, {finite.mean():.2g} in the mean")


def main() -> None:
    """`child LIBRARY VARIANT FOLDER LAUNCHES`: one line of JSON a workload of the folder, then the verdict."""
    library, name, folder, launches = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    variant = Variant(Path(library), name, Path(launches))
    for number, file in enumerate(sorted(Path(folder).glob("*.npz"))):
        one, arrays = load(file)
        if not takes(variant.name, one):
            continue
        tell(workload=one.name)
        try:
            variant.run(one, arrays, seed=number + 1)
        except Killed as killed:
            return tell(killed=killed.how, detail=killed.detail)
    return tell(survived=True)


def tell(**facts: object) -> None:
    """A line of JSON, at once: a crash must not lose it."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
