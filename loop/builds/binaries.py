"""Tools that read what a compiler made: names of symbols, and symbols of libraries."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

from loop.base.processes import Completed, Tick, run
from loop.builds.python_builds import same_statements
from loop.model.measurement import Build

LIMIT_S = 60.0
NAMES_AT_A_TIME = 500
STATIC = re.compile(r"__nv_static_(\d+)_")
"""How nvcc prefixes kernels with internal linkage in relocatable code: a number, then so many characters."""
BINUTILS = "install binutils (Debian and Ubuntu: `apt-get install binutils`)"


def demangle(symbols: Sequence[str]) -> Generator[Tick, None, dict[str, str]]:
    """Symbol to its name in C++; to itself where there is no c++filt."""
    plain = {}
    for symbol in symbols:
        prefix = STATIC.match(symbol)
        plain[symbol] = symbol[prefix.end() + int(prefix[1]) + 1 :] if prefix else symbol
    if not symbols or shutil.which("c++filt") is None:
        return plain
    names: list[str] = []
    for first in range(0, len(symbols), NAMES_AT_A_TIME):
        some = [plain[symbol] for symbol in symbols[first : first + NAMES_AT_A_TIME]]
        completed = yield from run(["c++filt", *some], limit_s=LIMIT_S, note="reading names")
        names += completed.output.splitlines()
    return dict(zip(symbols, names, strict=True)) if len(names) == len(symbols) else plain


def defined_names(library: Path) -> Generator[Tick, None, tuple[str, ...] | None]:
    """Demangled names of everything that a library defines, exported or not; None where there is no nm."""
    if shutil.which("nm") is None:
        return None
    names: dict[str, None] = {}
    for more in ([], ["-D"]):  # A stripped library has its dynamic symbols left.
        text = yield from whole_output(["nm", "-C", "--defined-only", *more, str(library)], "reading symbols")
        rows = (line.split(maxsplit=2) for line in (text or "").splitlines())
        names |= {row[2]: None for row in rows if len(row) > 2}
    return tuple(names)


def whole_output(command: Sequence[str], note: str) -> Generator[Tick, None, str | None]:
    """All that a command prints, however long; None where it fails."""
    with tempfile.TemporaryDirectory(prefix="loop-reading-") as folder:
        file = Path(folder) / "output"
        to_file = ["sh", "-c", 'exec "$@" > "$0"', str(file), *command]
        done: Completed = yield from run(to_file, limit_s=LIMIT_S, env={"LC_ALL": "C"}, note=note)
        return file.read_text(errors="replace") if done.ok else None


def same_code(first: Path, second: Path, ids: tuple[str, str] = ("", "")) -> bool:
    """Whether two libraries are the same bytes without symbol tables, debug sections and the linker's own id.

    `ids`: the build ids that they carry, where these differ. Raises OSError or subprocess.SubprocessError where
    they cannot be read.
    """
    with tempfile.TemporaryDirectory() as scratch:
        bare = [Path(scratch) / name for name in ("one", "other")]
        for library, into in zip((first, second), bare, strict=True):
            command = ["objcopy", "--strip-all", "--remove-section=.note.gnu.build-id", str(library), str(into)]
            subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
        read = [path.read_bytes().replace(id_.encode(), b"") for path, id_ in zip(bare, ids, strict=True)]
        return read[0] == read[1]


def is_same_build(first: Build, second: Build) -> bool:
    """Whether two builds differ in comments, names and debug information alone; false where one cannot be read."""
    paths = Path(first.library), Path(second.library)
    try:
        return same_code(*paths, (first.build_id, second.build_id)) if first.compiled else same_statements(*paths)
    except (OSError, subprocess.SubprocessError):
        return False
