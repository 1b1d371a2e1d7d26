"""Where torch is known: values to tensors, tensors to bytes, Python variants as prepared calls."""

import importlib
import inspect
import math
import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor

from loop.calls.allocations import stray_writes
from loop.calls.guarded import Unguarded
from loop.calls.guards import VALUES, Guard, Surroundings, differing, draw, said_bytes, zone_bytes
from loop.calls.prepared import Run
from loop.calls.refusal import Refused
from loop.calls.tensors import extent, gather, scatter, strides_of

TORCH_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
BUNDLED = {
    "attention_reference": "loop.workers.attention:eager",
    "attention_plain": "loop.workers.attention:eager",
    "torch_sdpa": "loop.workers.attention:torch_sdpa",
}
PARTS = ("attention_split_partial", "attention_split_reduce", "attention_partials", "attention_partial_form")
BUNDLED |= {name: f"loop.workers.attention:{name}" for name in PARTS}
"""Functions that a target names without a module. The reference is attention written out, given float64."""
PROPERTIES = (
    "softmax_rows",
    "key_permutation",
    "logit_shift",
    "linear_in_v",
    "causal_prefix",
    "split_merge",
    "by_hand",
)
BUNDLED |= {name: f"loop.workers.attention_properties:{name}" for name in PROPERTIES}
MOVED = {"loop.bench.child.attention": "loop.workers.attention"}
"""Modules of ours that manifests of an earlier release name, and where they are now."""

Function = Callable[..., Any]


def use_threads(threads: int) -> None:
    """Let torch use that many threads, and no gradients."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)


def find(name: str) -> Function:
    """A bundled function by name, or `module:function`."""
    module, colon, function = BUNDLED.get(name, name).partition(":")
    if not colon:
        known = ", ".join(BUNDLED)
        raise Refused(f"unknown function {name}: expected one of {known}, or module:function")
    try:
        return getattr(_import(MOVED.get(module, module)), function)  # type: ignore[no-any-return]
    except Exception as error:
        raise Refused(f"cannot import {name}: {type(error).__name__}: {error}") from error


def _import(name: str) -> ModuleType:
    """A module of the user's: nothing is written beside it."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return importlib.import_module(name)
    finally:
        sys.dont_write_bytecode = before


def make_values(fill: dict[str, Any], stream: numpy.random.RandomState, tensor: dict[str, Any]) -> numpy.ndarray:
    """Seeded values of one input tensor, float32, with the room it has: [elements + room].

    numpy.random.RandomState is frozen by NEP 19: a seed gives the same values in every release.
    """
    shape, scale = tuple(tensor["shape"]), fill["scale"]
    values = numpy.full(shape, scale, dtype=numpy.float32)
    if fill["kind"] == "normal":
        count = math.prod(shape) + tensor["room"]
        values = (stream.standard_normal(count) * scale).astype(numpy.float32)
    elif fill["kind"] == "one_hot" and values.size:
        places = stream.randint(shape[-1], size=(*shape[:-1], 1))
        values = numpy.where(numpy.arange(shape[-1]) == places, numpy.float32(scale), numpy.float32(0))
    if fill["axis"] is not None and values.size:
        values = values.reshape(shape)
        index = [slice(None)] * len(shape)
        index[fill["axis"]] = slice(place := int(stream.randint(shape[fill["axis"]])), place + 1)
        values[tuple(index)] = numpy.nan
    return values.reshape(-1)


def make_tensor(fill: dict[str, Any], seed: int, index: int, tensor: dict[str, Any]) -> Tensor:
    """The values of one input, rounded to its type, flat: what stands in its file.

    With every other seed the ends matter: a greatest or least value is what a loop that ends early leaves out.
    """
    stream = numpy.random.RandomState((seed * 64 + index) % 2**32)
    values = make_values(fill, stream, tensor)
    if seed % 2 and fill["kind"] == "normal" and not tensor["room"]:
        values = extremes_to_ends(values.reshape(tensor["shape"]), stream).reshape(-1)
    return torch.from_numpy(values).to(TORCH_DTYPES[tensor["dtype"]])


def extremes_to_ends(values: numpy.ndarray, stream: numpy.random.RandomState) -> numpy.ndarray:
    """The same values in another order: along each axis the greatest one last, and the least one first.

    Axes come in random order, and each disturbs what the ones before it did.
    """
    for axis in stream.permutation(values.ndim):
        lines = numpy.moveaxis(values, axis, -1)
        for pick, place in ((numpy.argmax, -1), (numpy.argmin, 0)) if lines.size else ():
            where = pick(lines, axis=-1)[..., None]
            found, end = numpy.take_along_axis(lines, where, -1), lines[..., place].copy()
            numpy.put_along_axis(lines, where, end[..., None], -1)
            lines[..., place] = found[..., 0]
    return values


def as_input(made: Any, tensor: dict[str, Any]) -> Tensor:
    """What a target made for one input, rounded to its type, flat. Raises Refused when it is of another shape."""
    if type(made) is not Tensor or list(made.shape) != list(tensor["shape"]):
        got = list(made.shape) if type(made) is Tensor else type(made).__name__
        raise Refused(f"the maker of inputs: expected {tensor['name']} of shape {tensor['shape']}, got {got}")
    return made.reshape(-1).to(TORCH_DTYPES[tensor["dtype"]])


def takes_sizes(function: Function) -> bool:
    """Whether a function of a target asks for the size of each dimension: its inputs do not tell them all."""
    given = function.keywords if isinstance(function, partial) else {}
    try:
        return "sizes" in inspect.signature(function).parameters and "sizes" not in given
    except ValueError:  # A function written in C does not say.
        return False


def window(flat: Tensor, tensor: dict[str, Any]) -> Tensor:
    """The part of a file whose answer the judge knows."""
    shape = tuple(tensor["shape"])
    return flat[tensor["offset"] : tensor["offset"] + math.prod(shape)].reshape(shape)


def write_tensor(path: str, tensor: Tensor) -> None:
    """Write a tensor's bytes, C order."""
    Path(path).write_bytes(bytes_of(tensor))


def read_tensor(tensor: dict[str, Any]) -> Tensor:
    """Read what `write_tensor` wrote; raises Refused when the file has another size."""
    return tensor_of(Path(tensor["path"]).read_bytes(), tuple(tensor["shape"]), tensor["dtype"])


def tensor_of(data: bytes, shape: tuple[int, ...], dtype: str) -> Tensor:
    """A tensor from its bytes."""
    wanted = torch.Size(shape).numel() * TORCH_DTYPES[dtype].itemsize
    if len(data) != wanted:
        raise Refused(f"wrong shape: expected {wanted} bytes, got {len(data)}")
    if not data:
        return torch.empty(shape, dtype=TORCH_DTYPES[dtype])
    return torch.frombuffer(bytearray(data), dtype=TORCH_DTYPES[dtype]).reshape(shape)


class Pool:
    """One input in memory of its own, flat, with a guard zone on either side in the same storage."""

    def __init__(self, tensor: dict[str, Any], layout: str, device: str) -> None:
        self.shape, self.layout = tuple(tensor["shape"]), layout
        self.strides = strides_of(self.shape, layout)
        dtype = TORCH_DTYPES[tensor["dtype"]]
        self.item = dtype.itemsize
        size = extent(self.shape, self.strides) if layout == "strided" else math.prod(self.shape) + tensor["room"]
        zone = zone_bytes(self.shape, self.strides, tensor["dtype"])
        before, self.size = zone + (self.item if layout == "misaligned" else 0), size * self.item
        self.zones = Surroundings(before, zone, tensor["dtype"])
        self._block = torch.empty(before + self.size + zone, dtype=torch.uint8, device=device)
        self._inside = self._block[before : before + self.size]
        self.flat = self._block.view(dtype)[before // self.item :][:size]
        self.turned = 0
        self._original: Tensor | None = None

    def fill(self, values: bytes) -> None:
        """Take these values."""
        self.values = values
        self.zones.know(values)
        self.surround(draw(VALUES))

    def surround(self, guard: Guard) -> None:
        """Write the zones anew, and the values as they were."""
        data = self.values
        if self.layout == "strided":
            data = scatter(data, self.shape, self.strides, self.item, self.zones.fill(guard, self.size))
        before, after = self.zones.renew(guard)
        self._block.copy_(_bytes_tensor(before + data + after))
        self.origin, self.turned, self._original = data, 0, None

    def rotate(self, count: int) -> None:
        """Move the values by `count` elements, round the end."""
        if self._original is None:
            self._original = self.flat.clone()
        left = len(self.flat) - count
        self.flat[:left].copy_(self._original[count:])
        self.flat[left:].copy_(self._original[:count])
        self.turned = count

    @property
    def changed(self) -> bool:
        """Whether its values are others than those it was given."""
        found, turned = bytes_of(self._inside.cpu()), self.turned * self.item
        if found == (self.origin[turned:] + self.origin[:turned] if turned else self.origin):
            return False
        return self.layout != "strided" or gather(found, self.shape, self.strides, self.item) != self.values

    @property
    def stray(self) -> str:
        """What was written outside of its values, in words; empty when nothing was."""
        begin = len(self.zones.before)
        before, after = (bytes_of(zone.cpu()) for zone in (self._block[:begin], self._block[begin + self.size :]))
        return self.zones.stray(before, after) or self._between_rows()

    def _between_rows(self) -> str:
        found = bytes_of(self._inside.cpu()) if self.layout == "strided" else b""
        if not found or found == self.origin:
            return ""
        own = gather(found, self.shape, self.strides, self.item)
        places = differing(found, scatter(own, self.shape, self.strides, self.item, self.origin))
        return f"{said_bytes(places)} between its rows" if places else ""


def _bytes_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


class GuardedPools(Unguarded):
    """The inputs of a call. Zones stay open: a Python variant may copy a tensor's whole storage."""

    def __init__(self, names: Sequence[str], pools: Sequence[Pool], call: Callable[[], Any]) -> None:
        self.names, self.pools, self._call = [f"its input {name}" for name in names], pools, call

    def surround(self, guards: Sequence[Guard]) -> None:
        """Write other bytes around each input, and the values the judge knows into it."""
        for pool, guard in zip(self.pools, guards, strict=True):
            pool.surround(guard)
        if any(pool.flat.is_cuda for pool in self.pools):
            torch.cuda.synchronize()

    def strays(self) -> list[str]:
        """What was written outside of inputs, a sentence each."""
        found = zip(self.names, (pool.stray for pool in self.pools), strict=True)
        return [f"writes outside {name}: {stray}" for name, stray in found if stray]

    def own_strays(self) -> list[str]:
        """What one more call writes outside of tensors that the variant allocates, a sentence each."""
        return stray_writes(self._call)


class TensorCall:
    """One call of a Python function on torch tensors."""

    timed_apart = False

    def __init__(self, function: Function, call: dict[str, Any], device: str, layout: str) -> None:
        self.function, self.device, self.layout, self.call = function, device, layout, call
        self.attributes = call["attributes"]
        self.shape, self.dtype = tuple(call["output"]["shape"]), TORCH_DTYPES[call["output"]["dtype"]]
        self.names = [tensor["name"] for tensor in call["inputs"]]
        self.pools = [Pool(tensor, layout, device) for tensor in call["inputs"]]
        self.guarded = GuardedPools(self.names, self.pools, self._once)
        self.result: Any = None
        self._fill()

    def _fill(self) -> None:
        for pool, tensor in zip(self.pools, self.call["inputs"], strict=True):
            pool.fill(Path(tensor["path"]).read_bytes())

    def refill(self, call: dict[str, Any]) -> None:
        """The same call on the values of other files, at the same addresses."""
        self.call = call
        self._fill()

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as something to run."""
        chosen = [tensor["offset"] for tensor in self.call["inputs"]] if offsets is None else offsets
        views = [
            pool.flat.as_strided(pool.shape, pool.strides, pool.flat.storage_offset() + offset)
            for pool, offset in zip(self.pools, chosen, strict=True)
        ]
        return partial(self._run, views)

    def _once(self) -> Any:
        """The result of one call, which takes no other's place."""
        kept = self.result
        try:
            self.bind()()
            return self.result
        finally:
            self.result = kept

    def _run(self, views: list[Tensor]) -> None:
        self.result = self.function(*views, **self.attributes)

    def jumble(self, draw: random.Random) -> None:
        """Values nobody knows at every address."""
        for pool in self.pools:
            pool.rotate(draw.randrange(max(len(pool.flat), 1)))

    def poison(self, guard: Guard | None = None) -> None:
        """Make the last output NaN and forget it: whoever gives it back once more has not computed it."""
        result, self.result = self.result, None
        if type(result) is Tensor and result.is_floating_point() and not self._is_input(result):
            sizes = [size if stride else 1 for size, stride in zip(result.shape, result.stride(), strict=True)]
            with torch.inference_mode():
                result.as_strided(sizes, result.stride()).fill_(math.nan)

    def _is_input(self, result: Tensor) -> bool:
        """Whether a result stands in the memory of an input."""
        begin = result.untyped_storage().data_ptr()
        return begin in [pool.flat.untyped_storage().data_ptr() for pool in self.pools]

    def output(self) -> bytes:
        """The last output's bytes; raises Refused when it is not a tensor of the promised shape and type."""
        check_result(self.result, self.shape, self.dtype)
        return bytes_of(self.result.detach().cpu())

    def changed(self) -> list[str]:
        """Names of inputs that do not hold what they were filled with."""
        return [name for name, pool in zip(self.names, self.pools, strict=True) if pool.changed]

    def own_seconds(self) -> float | None:
        """Timed from outside."""
        return None


WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types by their size, as which numpy takes the elements of any other, whatever the strides."""


def bytes_of(tensor: Tensor) -> bytes:
    """A tensor's bytes, C order."""
    return tensor.resolve_neg().view(WHOLE[tensor.element_size()]).numpy().tobytes()


def check_result(result: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise Refused unless `result` is a tensor of that shape and type."""
    if type(result) is not Tensor:
        raise Refused(f"wrong result: expected a plain torch.Tensor, got {type(result).__name__}")
    if tuple(result.shape) != shape:
        raise Refused(f"wrong shape: expected {list(shape)}, got {list(result.shape)}")
    if result.dtype != dtype:
        raise Refused(f"wrong type: expected {dtype}, got {result.dtype}")
