"""Variants that cheat, in Python and in C: right when they are checked, and quicker, if possible, when timed.

An honest call spins for `WORK_S` and doubles its input. A cheat that gains no time does no harm.
"""

from pathlib import Path

from loop.model.target import Workload
from loop.workers.bench import Bench
from tests.targets import compiled, importable, open_bench, write_target

WORK_S = 1e-3
BIG = Workload.model_validate({"name": "big", "sizes": {"N": 64, "M": 64}, "dtype": "float32"})
PYTHON = sorted((Path(__file__).parent / "cheats_python").glob("*.py"))  # Families, and common code.
C = Path(__file__).with_name("cheats_c.cpp")
FLAGS = ["-std=c++17", "-O1", "-pthread"]
REMAINS = ("precomputes_and_mends",)  # Cheats that gain: docs/promises.md describes them, under "A kernel cheats".
HONEST = ("honest", "quick")
QUICK = ("last_of_sample", "short_samples", "one_memory")
"""Cheats with so little work that a sample holds several calls: they are timed beside `quick`."""


def names(path: Path, start: str, end: str) -> list[str]:
    """Names of the cheats of a file, in its order."""
    lines = path.read_text().splitlines()
    entries = [line.removeprefix(start).partition(end)[0] for line in lines if line.startswith(start)]
    return [name for name in entries if name not in HONEST]


PYTHON_CHEATS = {name: path.stem for path in PYTHON for name in names(path, "def cheat_", "(")}
"""Name of a cheat to its module."""
C_CHEATS = names(C, "CHEAT(", ")")


def honest_like(name: str) -> str:
    """The honest variant beside which a cheat is timed."""
    short = name.removeprefix("c_")
    return ("c_" if name != short else "") + HONEST[short in QUICK]


def open_cheats(folder: Path, cache: Path) -> Bench:
    """A bench for the tiny target with honest variants and all cheats; those in C begin with `c_`."""
    recipe = {"compiler": "g++", "flags": FLAGS}
    terms = {"sources": ["cheats.cpp"], "build": recipe}
    modules = dict.fromkeys(HONEST, "cheats_common") | PYTHON_CHEATS
    variants = {name: importable(f"cheat_{name}", module=module) for name, module in modules.items()}
    variants |= {f"c_{name}": compiled(f"cheat_{name}", **terms) for name in (*HONEST, *C_CHEATS)}
    target = write_target(folder, variants)
    for path in PYTHON:
        (folder / path.name).write_text(path.read_text())
    (folder / "cheats.cpp").write_text(C.read_text())
    return open_bench(folder, target, cache)
