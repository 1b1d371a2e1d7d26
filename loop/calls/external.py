"""A program that is told of a call by its arguments, its environment and a file, and may time itself."""

import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loop.base.linux import unbound_memory
from loop.calls.call import Call, CommandTerms, TensorFile
from loop.calls.guarded import Unguarded
from loop.calls.prepared import Prepared, Run
from loop.calls.refusal import Refused

PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)\}")
"""A value of the call in a word of the command, as in `{N}`; `${N}` is a shell's."""

TOLD = ("key", "dtype", "attributes", "numbers")
"""Fields of a call that a program is told, besides its tensors."""

LONGEST = 120
"""Characters of a program's output that a message repeats."""
CLOCKS_DIFFER = 1.1
"""A program's clock may run so much quicker than ours."""


class External:
    """A program that is told of a call."""

    def __init__(self, terms: CommandTerms, folder: str) -> None:
        self.terms, self.folder = terms, folder

    def prepare(self, call: Call, layout: str = "contiguous") -> "ExternalCall":
        """Write the file that describes the call; files have one layout."""
        return ExternalCall(self, call)


class ExternalCall(Prepared):
    """One call of an external program."""

    timed_apart = True

    def __init__(self, variant: External, call: Call) -> None:
        super().__init__(call, Unguarded())
        self.variant = variant
        self.seconds: float | None = None
        """What it said of its last run."""
        self.refill(call)

    def refill(self, call: Call) -> None:
        """Describe the call in the file that the program reads; its inputs are files of their own."""
        self.call, self.path = call, Path(call.output.path)
        self.description = self.path.with_suffix(".call.json")
        self.inputs = {tensor.name: self.path.with_suffix(f".{tensor.name}.bin") for tensor in call.inputs}
        self.before = {tensor.name: own_values(tensor) for tensor in call.inputs}
        for name, path in self.inputs.items():
            path.write_bytes(self.before[name])
        inputs = [told_of(tensor, self.inputs[tensor.name]) for tensor in call.inputs]
        self.files = {one.name: self.path.with_suffix(f".{one.name}.out") for one in call.parts}
        told = {name: getattr(call, name) for name in TOLD}
        told |= {"inputs": inputs, "output": told_of(call.output, self.path)}
        if call.parts:
            told["parts"] = [told_of(one, self.files[one.name]) for one in call.written]
        self.description.write_text(json.dumps(told))
        values, paths = self._values(), {**self.inputs, call.output.name: self.path, **self.files}
        words = {**paths, **values}
        self.command = [
            PLACEHOLDER.sub(lambda found: str(words.get(found[1], found[0])), word)
            for word in self.variant.terms.run
        ]
        self.environment = {f"LOOP_{name}": value for name, value in values.items()}
        self.environment |= {f"LOOP_PATH_{name}": str(path) for name, path in paths.items()}
        self.environment["LOOP_CALL"] = str(self.description)

    def _values(self) -> dict[str, str]:
        """Sizes and attributes of the call, and its element type, as words: true is 1."""
        shapes = self.variant.terms.shapes
        tensors = (*self.call.inputs, *self.call.outputs)
        sizes = {
            name: str(size)
            for one in tensors
            for name, size in zip(shapes.get(one.name, "").split(), one.shape, strict=False)
        }
        given = {name: "" if value is None else value for name, value in self.call.attributes.items()}
        attributes = {name: str(int(one) if isinstance(one, bool) else one) for name, one in given.items()}
        return {**sizes, **attributes, "dtype": self.call.dtype}

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The program, as something to run."""
        return self.run

    def run(self) -> None:
        """Run the program once; its last line may say `{"seconds": ...}`."""
        for path in (self.path, *self.files.values()):
            path.unlink(missing_ok=True)
        for number in self.call.updated:
            name = self.call.inputs[number].name
            self.inputs[name].write_bytes(self.before[name])
        began = time.perf_counter()
        done = subprocess.run(
            self.command,
            cwd=self.variant.folder,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            preexec_fn=unbound_memory,
        )
        took_s = time.perf_counter() - began
        if done.returncode:
            tail = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise Refused(f"exit {done.returncode}: {' '.join(tail)}")
        self.seconds = own_seconds(done.stdout.decode(errors="replace"), took_s)

    def output(self) -> bytes:
        """The bytes of the output file; of several the block that holds all of them."""
        if not self.call.parts:
            return _written(self.path, self.call.output)
        block = bytearray(self.call.output.size)
        for one in self.call.written:
            block[one.offset : one.offset + one.size] = _written(self.files[one.name], one)
        return self.call.with_updates(bytes(block), self._updated)

    def _updated(self, number: int) -> bytes:
        """What stands in the file of an input that is changed in place."""
        one = self.call.inputs[number]
        return _written(self.inputs[one.name], one)

    def changed(self) -> list[str]:
        """Names of input files that the program wrote to."""
        updated = {self.call.inputs[number].name for number in self.call.updated}
        fixed = {name: path for name, path in self.inputs.items() if name not in updated}
        return [name for name, path in fixed.items() if path.read_bytes() != self.before[name]]


def _written(path: Path, one: TensorFile) -> bytes:
    """What a program wrote of a tensor; raises Refused where it is none of that size."""
    if not path.is_file():
        raise Refused("wrote no output file", "wrong result")
    data = path.read_bytes()
    if len(data) != one.size:
        raise Refused(f"wrong shape: expected {one.size} bytes of {one.name}, got {len(data)}", "wrong result")
    return data


def own_values(tensor: TensorFile) -> bytes:
    """What stands in the window of an input whose answer the judge knows."""
    begin = tensor.offset * tensor.item
    return Path(tensor.path).read_bytes()[begin : begin + tensor.size]


def told_of(tensor: TensorFile, path: Path) -> dict[str, Any]:
    """A tensor as a program is told of it: a file that holds the tensor and nothing else."""
    return {"name": tensor.name, "path": str(path), "shape": tensor.shape, "dtype": tensor.dtype}


def own_seconds(output: str, took_s: float) -> float | None:
    """The `seconds` of the last line of a program's output; None where it states none.

    `took_s`: what the whole program took. Raises Refused where that line states what cannot be a time.
    """
    line = (output.strip().splitlines() or [""])[-1].strip()
    if not line.startswith("{") or not re.search("""["']seconds["']""", line):
        return None
    said = f"the last line of its output is {line[:LONGEST]}"
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refused(f'{said}: "seconds" cannot be read, as the line is no JSON') from error
    if "seconds" not in fields:
        return None
    stated = fields["seconds"]
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not stated > 0:
        raise Refused(f'{said}: "seconds" is not a number above 0')
    if stated > CLOCKS_DIFFER * took_s:
        raise Refused(f'{said}: more "seconds" than the {took_s:.3g} s of the whole program')
    return float(stated)
