"""What this processor reaches, measured: multiply-adds a second, and bytes a second from a working set.

A datasheet's figure hangs on a clock that a virtual machine does not tell, and on which cache the data are in.
Measured anew in each session: a figure of another day is not compared with today's.
"""

import json
import os
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import content_hash
from loop.base.errors import WorkFailed
from loop.base.owners import stranger
from loop.base.processes import Completed, Tick, run
from loop.base.remarks import remark
from loop.machine.machine import compiler_version, processor_flags
from loop.model.dtypes import Dtype

SOURCE = Path(__file__).with_name("roof.c")
COMPILERS = ("g++", "gcc", "clang++", "clang")
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-pthread")
TRIAL_MS = 10
LIMIT_S = 20.0


@dataclass(frozen=True)
class MachineRoof:
    """What nothing on this processor does much better than."""

    flops_per_s: float
    """Multiply-adds, counted as two operations each, in the processor's vector units."""
    bytes_per_s: float
    """Read by all threads together from a working set of that size, over and over."""
    most_flops_per_s: float = 0.0
    """The same in the best moment of each thread: how busy the machine was makes no difference."""
    most_bytes_per_s: float = 0.0
    """Likewise."""


def measure_roof(cache: Path, dtype: Dtype, threads: int, working_set: int) -> Generator[Tick, None, MachineRoof]:
    """The roof for so many threads and a working set of so many bytes. Raises LoopError with the reason.

    Types of two bytes are measured as float32: few processors multiply them in units of their own.
    """
    program = yield from _program(cache)
    kind = "double" if dtype == "float64" else "float"
    command = [str(program), kind, str(threads), str(working_set), str(TRIAL_MS)]
    done = yield from run(command, limit_s=LIMIT_S, note="measuring what the processor reaches")
    if not done.ok:
        raise WorkFailed(f"the roof of this machine could not be measured: {done.how}")
    figures = json.loads(done.output)
    return MachineRoof(**figures)


def _program(cache: Path) -> Generator[Tick, None, Path]:
    """The measuring program, compiled for this very processor once."""
    compiler = next((name for name in COMPILERS if compiler_version(name)), None)
    if compiler is None:
        raise WorkFailed("the roof of this machine could not be measured: there is no C compiler")
    parts = [SOURCE.read_text(), compiler_version(compiler) or "", *FLAGS, *sorted(processor_flags())]
    program = cache / "tools" / f"roof-{content_hash(parts)[:16]}"
    if why := stranger(program):
        remark(f"{program} is not used: {why}")
    if why or not program.exists():
        yield from _compile(compiler, program)
    return program


def _compile(compiler: str, program: Path) -> Generator[Tick, None, None]:
    """Compile into a temporary file, then rename it: another session may do the same."""
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        binary = Path(folder) / program.name
        command = [compiler, *FLAGS, str(SOURCE), "-o", str(binary)]
        done: Completed = yield from run(
            command, limit_s=LIMIT_S, note="compiling the program that measures roofs"
        )
        if not done.ok:
            raise WorkFailed(f"the roof of this machine could not be measured: {compiler} {done.how}")
        os.replace(binary, program)
