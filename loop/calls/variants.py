"""The three kinds of variant behind one face: prepare a call, run it, read its output."""

import ctypes
import importlib
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from loop.calls.guarded import Guarded, Memory, Unguarded
from loop.calls.guards import Guard
from loop.calls.host_memory import Buffer
from loop.calls.refusal import Declined, Refused
from loop.calls.tensors import DTYPES, LoopTensor, byte_size, describe, strides_of

Run = Callable[[], None]


class Prepared(Protocol):
    """A call with its inputs in memory, ready to be made again and again."""

    call: dict[str, Any]
    """What is computed."""
    timed_apart: bool
    """Whether it times itself and has no windows."""

    @property
    def guarded(self) -> Unguarded:
        """Its tensors, with what stands around them."""

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as something to run; None: the windows whose answer the judge
        knows."""

    def jumble(self, draw: random.Random) -> None:
        """Values nobody knows at every address, for a call whose output is not looked at."""

    def refill(self, call: dict[str, Any]) -> None:
        """The same call on the values of other files, at the same addresses."""

    def poison(self, guard: Guard | None = None) -> None:
        """Make the output NaN, so that an element nobody writes shows, or what `guard` says."""

    def output(self) -> bytes:
        """The last output's bytes, C order; raises Refused when it cannot be one."""

    def changed(self) -> list[str]:
        """Names of inputs that do not hold what they were filled with."""

    def own_seconds(self) -> float | None:
        """Seconds the last run took by the variant's own clock; None when it is timed from outside."""


class Loaded(Protocol):
    """A variant ready to take calls."""

    def prepare(self, call: dict[str, Any], layout: str = "contiguous") -> Prepared:
        """Bring a call's inputs into memory, laid out `contiguous`, `strided` or `misaligned`."""


def ready(request: dict[str, Any]) -> None:
    """Import what is needed to call a variant of that kind, before anything of the variant's own is."""
    if request["variant"]["kind"] == "python":
        from loop.calls import torch_side

        torch_side.use_threads(request["threads"])
        if request["device"] == "cuda":
            importlib.import_module("loop.calls.torch_device").need_device()


def load(request: dict[str, Any]) -> Loaded:
    """The variant a `load` request describes; raises Refused when it does not load."""
    sys.path.insert(0, request["folder"])
    return LOADERS[request["variant"]["kind"]](request)


class Compiled:
    """A shared library behind the C interface."""

    def __init__(self, request: dict[str, Any]) -> None:
        variant = request["variant"]
        self.device: str = variant["device"]
        try:
            self.library = ctypes.CDLL(variant["library"], mode=os.RTLD_NOW)
        except OSError as error:
            raise Refused(f"does not load: {error}") from error
        check_build_id(self.library, variant["build_id"])
        self.entry = self._function(variant["entry"], ctypes.c_int)
        self.entry.argtypes = [
            ctypes.POINTER(LoopTensor),
            ctypes.POINTER(LoopTensor),
            ctypes.POINTER(ctypes.c_double),
            ctypes.c_void_p,
        ]
        self.explain = self._function("loop_error", ctypes.c_char_p)
        self.explain.argtypes = [ctypes.c_int]

    def _function(self, name: str, result: Any) -> Any:
        try:
            function = getattr(self.library, name)
        except AttributeError as error:
            raise Refused(
                f"the library exports no `{name}`: declare it with LOOP_EXPORT from loop_kernel.h"
            ) from error
        function.restype = result
        return function

    def prepare(self, call: dict[str, Any], layout: str = "contiguous") -> "CompiledCall":
        """Bring a call's inputs into memory: the host's, or the device's."""
        if self.device == "cuda":
            from loop.calls.cuda.call import DeviceCompiledCall

            return DeviceCompiledCall(self, call, layout)
        return CompiledCall(self, call, layout)

    def invoke(self, inputs: Any, output: Any, numbers: Any, stream: int | None) -> None:
        """Call the entry; raises Refused with the library's own words when it returns an error."""
        error = self.entry(inputs, output, numbers, stream)
        if error:
            said = (self.explain(error) or b"").decode(errors="replace")
            raise Declined(f"error {error}: {said}")


def check_build_id(library: ctypes.CDLL, expected: str) -> None:
    """Raise Refused unless the binary says that it was built from what is on disk."""
    try:
        function = library.loop_build_id
    except AttributeError as error:
        raise Refused("the binary has no build id: include loop_kernel.h in its sources") from error
    function.restype = ctypes.c_char_p
    found = (function() or b"").decode(errors="replace")
    if found != expected:
        raise Refused(f"stale binary: built from {found[:12] or 'nothing known'}, the sources are {expected[:12]}")


class CompiledCall:
    """One call of a compiled variant."""

    timed_apart = False
    stream: int | None = None
    """CUDA stream that the entry is given."""

    def __init__(self, variant: Compiled, call: dict[str, Any], layout: str = "contiguous") -> None:
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


class Importable:
    """A Python callable on torch tensors: a variant's `module:function`, or one of the target's functions."""

    def __init__(self, request: dict[str, Any]) -> None:
        from loop.calls import torch_side

        self.torch_side = torch_side
        self.device = request["device"]
        self.function = torch_side.find(request["variant"]["python"])

    def prepare(self, call: dict[str, Any], layout: str = "contiguous") -> Prepared:
        """Bring a call's inputs into memory."""
        return self.torch_side.tensor_call(self.function, call, self.device, layout)


class External:
    """A program that is told of a call by a file, and times itself."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.command = request["variant"]["run"]
        self.folder = request["folder"]

    def prepare(self, call: dict[str, Any], layout: str = "contiguous") -> "ExternalCall":
        """Write the file that describes the call; files have one layout."""
        return ExternalCall(self, call)


class ExternalCall:
    """One call of an external program."""

    timed_apart = True

    def __init__(self, variant: External, call: dict[str, Any]) -> None:
        self.variant, self.path, self.guarded = variant, Path(call["output"]["path"]), Unguarded()
        self.size = byte_size(tuple(call["output"]["shape"]), call["output"]["dtype"])
        self.description = self.path.with_suffix(".call.json")
        self.seconds: float | None = None
        """What it said of its last run."""
        self.refill(call)

    def refill(self, call: dict[str, Any]) -> None:
        """Describe the call in the file that the program reads; its inputs are files of their own."""
        self.call = call
        inputs = [self._own_file(tensor, DTYPES[tensor["dtype"]][1]) for tensor in call["inputs"]]
        self.inputs = {tensor["name"]: Path(tensor["path"]) for tensor in inputs}
        self.before = {name: path.read_bytes() for name, path in self.inputs.items()}
        self.path = Path(call["output"]["path"])
        output = {key: call["output"][key] for key in PLAIN}
        self.description.write_text(json.dumps({**call, "inputs": inputs, "output": output}))

    def _own_file(self, tensor: dict[str, Any], item: int) -> dict[str, Any]:
        """An input as a program is told of it: a file that holds the tensor and nothing else."""
        begin = tensor["offset"] * item
        data = Path(tensor["path"]).read_bytes()[begin : begin + math.prod(tensor["shape"]) * item]
        path = self.path.with_suffix(f".{tensor['name']}.bin")
        path.write_bytes(data)
        return {**{key: tensor[key] for key in PLAIN}, "path": str(path)}

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The program, as something to run."""
        return self.run

    def run(self) -> None:
        """Run the program once; its last line may say `{"seconds": ...}`."""
        self.path.unlink(missing_ok=True)
        done = subprocess.run(
            self.variant.command,
            cwd=self.variant.folder,
            env={**os.environ, "LOOP_CALL": str(self.description)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            tail = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise Refused(f"exit {done.returncode}: {' '.join(tail)}")
        self.seconds = own_seconds(done.stdout.decode(errors="replace"))

    def jumble(self, draw: random.Random) -> None:
        """Nothing to do: a program is a new process each time."""

    def poison(self, guard: Guard | None = None) -> None:
        """Nothing to do: each run starts without an output file."""

    def output(self) -> bytes:
        """The bytes of the output file."""
        if not self.path.is_file():
            raise Refused("wrote no output file")
        data = self.path.read_bytes()
        if len(data) != self.size:
            raise Refused(f"wrong shape: expected {self.size} bytes of output, got {len(data)}")
        return data

    def changed(self) -> list[str]:
        """Names of input files that the program wrote to."""
        return [name for name, path in self.inputs.items() if path.read_bytes() != self.before[name]]

    def own_seconds(self) -> float | None:
        """What the program said of the last run."""
        return self.seconds


PLAIN = ("name", "path", "shape", "dtype")
"""What a program is told of a tensor."""


def own_seconds(output: str) -> float | None:
    """The `seconds` of the last line of a program's output, when there is one."""
    lines = output.strip().splitlines()
    try:
        said = json.loads(lines[-1])["seconds"] if lines else None
    except (ValueError, KeyError, TypeError):
        return None
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 < said < math.inf:
        return None
    return float(said)


LOADERS: dict[str, Callable[[dict[str, Any]], Loaded]] = {
    "c_abi": Compiled,
    "python": Importable,
    "command": External,
}
