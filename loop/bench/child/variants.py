"""The three kinds of variant behind one face: prepare a call, run it, read its output."""

import ctypes
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from loop.bench.child.refusal import Refused
from loop.bench.child.tensors import Buffer, LoopTensor, byte_size, describe


class Prepared(Protocol):
    """A call with its inputs in memory."""

    def run(self) -> None:
        """Compute the output once; returns when it is there."""

    def poison(self) -> None:
        """Make the output NaN, so that an element nobody writes shows."""

    def output(self) -> bytes:
        """The last output's bytes, C order; raises Refused when it cannot be one."""

    def own_seconds(self) -> float | None:
        """Seconds the last run took by the variant's own clock; None when it is timed from outside."""


class Loaded(Protocol):
    """A variant ready to take calls."""

    def prepare(self, call: dict[str, Any]) -> Prepared:
        """Bring a call's inputs into memory."""


def load(request: dict[str, Any]) -> Loaded:
    """The variant a `load` request describes; raises Refused when it does not load."""
    sys.path.insert(0, request["folder"])
    return LOADERS[request["variant"]["kind"]](request)


class Compiled:
    """A shared library behind the C interface."""

    def __init__(self, request: dict[str, Any]) -> None:
        variant = request["variant"]
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

    def prepare(self, call: dict[str, Any]) -> "CompiledCall":
        """Bring a call's inputs into memory."""
        return CompiledCall(self, call)


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

    def __init__(self, variant: Compiled, call: dict[str, Any]) -> None:
        self.variant = variant
        dtype = call["dtype"]
        self.inputs = [Buffer(byte_size(tuple(t["shape"]), dtype)) for t in call["inputs"]]
        for buffer, tensor in zip(self.inputs, call["inputs"], strict=True):
            buffer.fill(Path(tensor["path"]).read_bytes())
        shape = tuple(call["output"]["shape"])
        self.result = Buffer(byte_size(shape, dtype))
        shapes = [tuple(t["shape"]) for t in call["inputs"]]
        described = [describe(b, s, dtype) for b, s in zip(self.inputs, shapes, strict=True)]
        self._inputs = (LoopTensor * len(described))(*described)
        self._output = (LoopTensor * 1)(describe(self.result, shape, dtype))
        numbers = [float("nan") if number is None else number for number in call["numbers"]]
        self._numbers = (ctypes.c_double * max(len(numbers), 1))(*numbers)

    def run(self) -> None:
        """Compute the output once."""
        error = self.variant.entry(self._inputs, self._output, self._numbers, None)
        if error:
            said = (self.variant.explain(error) or b"").decode(errors="replace")
            raise Refused(f"error {error}: {said}")

    def poison(self) -> None:
        """Make the output NaN, so that an element nobody writes shows."""
        self.result.poison()

    def output(self) -> bytes:
        """The last output's bytes; raises Refused when the call wrote elsewhere."""
        if not all(buffer.intact for buffer in (*self.inputs, self.result)):
            raise Refused("wrote outside its output")
        return self.result.read()

    def own_seconds(self) -> float | None:
        """Timed from outside."""
        return None


class Importable:
    """A Python callable on torch tensors: a variant's `module:function`, or one of the target's functions."""

    def __init__(self, request: dict[str, Any]) -> None:
        from loop.bench.child import torch_side

        self.torch_side = torch_side
        self.device = request["device"]
        torch_side.use_threads(request["threads"])
        self.function = torch_side.find(request["variant"]["python"])

    def prepare(self, call: dict[str, Any]) -> Prepared:
        """Bring a call's inputs into memory."""
        return self.torch_side.TensorCall(self.function, call, self.device)


class External:
    """A program that is told of a call by a file, and times itself."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.command = request["variant"]["run"]
        self.folder = request["folder"]

    def prepare(self, call: dict[str, Any]) -> "ExternalCall":
        """Write the file that describes the call."""
        return ExternalCall(self, call)


class ExternalCall:
    """One call of an external program."""

    def __init__(self, variant: External, call: dict[str, Any]) -> None:
        self.variant, self.path = variant, Path(call["output"]["path"])
        self.size = byte_size(tuple(call["output"]["shape"]), call["dtype"])
        self.description = self.path.with_suffix(".call.json")
        self.description.write_text(json.dumps(call))
        self.seconds: float | None = None

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

    def poison(self) -> None:
        """Nothing to do: each run starts without an output file."""

    def output(self) -> bytes:
        """The bytes of the output file."""
        if not self.path.is_file():
            raise Refused("wrote no output file")
        data = self.path.read_bytes()
        if len(data) != self.size:
            raise Refused(f"wrong shape: expected {self.size} bytes of output, got {len(data)}")
        return data

    def own_seconds(self) -> float | None:
        """What the program said of the last run."""
        return self.seconds


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
