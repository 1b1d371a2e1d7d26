"""What this processor reaches: multiply-adds and bytes a second, measured by a program that is compiled once."""

import json
import os
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import content_hash
from loop.base.errors import WorkFailed, remark
from loop.base.places import stranger
from loop.base.processes import Tick, run
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
    why = stranger(program)
    if why:
        remark(f"{program} is not used: {why}")
    elif program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        binary = Path(folder) / program.name  # Renamed when it is whole: another session may do the same.
        command = [compiler, *FLAGS, str(SOURCE), "-o", str(binary)]
        note = "compiling the program that measures roofs"
        done = yield from run(command, limit_s=LIMIT_S, note=note)
        if not done.ok:
            raise WorkFailed(f"the roof of this machine could not be measured: {compiler} {done.how}")
        os.replace(binary, program)
    return program
