"""A program that is told of a call by a file, and times itself."""

import json
import math
import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loop.calls.guarded import Unguarded
from loop.calls.guards import Guard
from loop.calls.prepared import Run
from loop.calls.refusal import Refused
from loop.calls.tensors import DTYPES, byte_size

PLAIN = ("name", "path", "shape", "dtype")
"""What a program is told of a tensor."""


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
