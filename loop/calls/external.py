"""Variants that are programs.

A call is described by arguments and by a JSON file. A program may time itself.
"""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from loop.base.own_process import lift_memory_limit
from loop.calls.call import Call, CommandTerms, Refused, TensorFile
from loop.calls.invocation import Places, Prepared, Run, Stage

PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)\}")
"""A placeholder such as `{N}` in a word of the command; `${N}` is left to the shell."""
CALL_FIELDS = ("key", "dtype", "attributes", "numbers")
"""Fields of a call that its JSON description contains besides the tensors."""
MAX_LINE_CHARS = 120  # Maximum length of a program's output line in a message.
MAX_CLOCK_RATIO = 1.1  # A program's stated time may be so many times our measured time at most.


class External:
    """A variant that is a program."""

    device = "cpu"

    def __init__(self, terms: CommandTerms, folder: str) -> None:
        self.terms, self.folder = terms, folder

    def prepare(self, call: Call, layout: str = "contiguous") -> "ExternalCall":
        """Write the call's files. The layout is ignored, because files are contiguous."""
        return ExternalCall(self, call)

    def stage(self, places: Places, slowdown: float) -> "ProgramStage":
        """Write the call's files, and prepare timed runs. `slowdown` has no effect on a program."""
        return ProgramStage(self.prepare(places.call), places)


class ExternalCall(Prepared):
    """One call of a program, whose files it writes."""

    is_program = True

    def __init__(self, variant: External, call: Call) -> None:
        super().__init__(call)
        self.variant = variant
        self.stated_s: float | None = None  # Time that the last run stated, if any.
        self.refill(call)  # Writes its input files.

    def refill(self, call: Call) -> None:
        """Write a file for each input and the call's description; set `command`, `environment`."""
        self.call, path = call, Path(call.output.path)
        self.input_paths = [path.with_suffix(f".{tensor.name}.bin") for tensor in call.inputs]
        self.output_paths = [path]
        if call.several_outputs:
            names = [output.name for output in call.separate_outputs]
            self.output_paths = [path.with_suffix(f".{name}.out") for name in names]
        self.input_bytes = [tensor.read_window() for tensor in call.inputs]
        for file, data in zip(self.input_paths, self.input_bytes, strict=True):
            file.write_bytes(data)
        description: dict[str, Any] = {name: getattr(call, name) for name in CALL_FIELDS}
        description["inputs"] = list(map(describe_file, call.inputs, self.input_paths))
        description["output"] = describe_file(call.output, path)
        if call.several_outputs:
            parts = map(describe_file, call.separate_outputs, self.output_paths)
            description["parts"] = list(parts)
        description_path = path.with_suffix(".call.json")
        description_path.write_text(json.dumps(description))
        names = [tensor.name for tensor in (*call.inputs, *call.separate_outputs)]
        # Placeholder to text: path of a tensor, size of a dimension, attribute (true is 1), type.
        texts = dict(zip(names, map(str, [*self.input_paths, *self.output_paths]), strict=True))
        for tensor in (*call.inputs, *call.outputs):
            dimensions = self.variant.terms.shapes.get(tensor.name, "").split()
            texts |= zip(dimensions, map(str, tensor.shape), strict=False)
        for name, value in call.attributes.items():
            number = int(value) if isinstance(value, bool) else value
            texts[name] = "" if number is None else str(number)
        texts["dtype"] = call.dtype
        self.environment = {"LOOP_CALL": str(description_path)}
        self.command = []
        for word in self.variant.terms.run:  # An unknown placeholder stays as it is.
            self.command.append(PLACEHOLDER.sub(lambda match: texts.get(match[1], match[0]), word))

    def bind(self) -> Run:
        return self.run

    def run(self) -> None:
        """Run the program once. Raises Refused if it fails, or states an invalid time."""
        for path in self.output_paths:
            path.unlink(missing_ok=True)
        for number in self.call.updated_inputs:  # The last run changed these files.
            self.input_paths[number].write_bytes(self.input_bytes[number])
        begin_s = time.perf_counter()
        try:
            completed = subprocess.run(
                self.command,
                cwd=self.variant.folder,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                preexec_fn=lift_memory_limit,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise Refused(f"cannot run {self.command[0]}: {error.strerror}") from error
        measured_s = time.perf_counter() - begin_s
        if status := completed.returncode:
            ending = f"exit {status}" if status > 0 else f"killed by signal {-status}"
            last_line = completed.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise Refused(": ".join([ending, *last_line]))
        self.stated_s = stated_seconds(completed.stdout.decode(errors="replace"), measured_s)

    def read_separate_outputs(self) -> list[bytes]:
        """As in `Prepared`: from the output files."""
        return list(map(_read_output, self.output_paths, self.call.separate_outputs))

    def read_input(self, number: int) -> bytes:
        return _read_output(self.input_paths[number], self.call.inputs[number])

    def changed_inputs(self) -> list[str]:
        """Names of inputs whose files the program changed, except those it may update."""
        read_only = [n for n in range(len(self.input_paths)) if n not in self.call.updated_inputs]
        changed = [n for n in read_only if self.input_paths[n].read_bytes() != self.input_bytes[n]]
        return [self.call.inputs[n].name for n in changed]


class ProgramStage(Stage):
    """Timed runs of a program. Its input files have values whose answer the judge knows."""

    def __init__(self, prepared: ExternalCall, places: Places) -> None:
        self.prepared, self.places = prepared, places

    def run(self, count: int) -> int:
        """Run the program once, whatever `count`. Returns the nanoseconds it states; 0: none."""
        self.prepared.run()
        stated_s = self.prepared.stated_s
        return max(1, round(stated_s * 1e9)) if stated_s else 0

    def copy_results(self) -> None:
        """Copy the program's output into shared memory. Raises Refused if it changed an input."""
        if changed := self.prepared.changed_inputs():
            raise Refused(f"changed its input {', '.join(changed)}", "changed input")
        data, begin = self.prepared.read_output(), self.places.output_offsets[0]
        self.places.memory[begin : begin + len(data)] = data


def _read_output(path: Path, tensor: TensorFile) -> bytes:
    """Bytes of a tensor's file. Raises Refused if the file is missing or has another size."""
    if not path.is_file():
        raise Refused("wrote no output file", "wrong result")
    data = path.read_bytes()
    if len(data) != tensor.nbytes:
        expected = f"expected {tensor.nbytes} bytes of {tensor.name}"
        raise Refused(f"wrong shape: {expected}, got {len(data)}", "wrong result")
    return data


def describe_file(tensor: TensorFile, path: Path) -> dict[str, Any]:
    """JSON that tells a program of a tensor. `path`: the program's own file, not `tensor.path`."""
    return {"name": tensor.name, "path": str(path), "shape": tensor.shape, "dtype": tensor.dtype}


def stated_seconds(output: str, measured_s: float) -> float | None:
    """The time that a program states as `{"seconds": ...}` in the last line of its output; None if
    it states none. `measured_s`: our measured time of the whole program. Raises Refused if the
    stated time is no positive number, or above `MAX_CLOCK_RATIO` times that. `output`: stdout."""
    line = (output.strip().splitlines() or [""])[-1].strip()
    if not line.startswith("{") or not re.search("""["']seconds["']""", line):
        return None
    try:
        seconds = json.loads(line).get("seconds")
    except (ValueError, RecursionError):
        seconds = ""
    if seconds is None:
        return None
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= MAX_CLOCK_RATIO * measured_s:
        expected = f"a JSON object with a number up to the {measured_s:.3g} s of the whole program"
        actual = f"expected {expected}, got {line[:MAX_LINE_CHARS]}"
        raise Refused(f'"seconds" in its last line of output: {actual}')
    return float(seconds)
