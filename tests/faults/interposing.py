"""Points at which a process stops, or its system call fails, without a change to `loop`."""

import atexit
import contextlib
import functools
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("interposed.c")
REACHED_S = 90.0  # A command that has not come to its point by then never will.


@dataclass(frozen=True)
class Point:
    """The `number`-th call on files of a pattern, and the moment of the fault in that call."""

    call: str
    """open (for writing), write, fsync, rename, link, mkdir, truncate or unlink."""
    pattern: str
    """Pattern of the whole path for fnmatch(3); `*` also matches `/`."""
    number: int = 1
    moment: str = "before"
    """before, half (of what is written) or after."""

    @property
    def text(self) -> str:
        """The point in the form that the library parses."""
        return f"{self.call}|{self.pattern}|{self.number}|{self.moment}"


@functools.cache
def library() -> Path:
    """The library that is loaded before libc; compiled once for all cases of a run."""
    folder = Path(tempfile.mkdtemp(prefix="loop-interposed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "interposed.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", path, SOURCE, "-ldl"], check=True)
    return path


def stopping(point: Point, mark: Path) -> dict[str, str]:
    """Variables that make a process wait at the point until `let_go`."""
    mark.mkdir()
    return {"LD_PRELOAD": str(library()), "FAULT_POINT": point.text, "FAULT_MARK": str(mark)}


def failing(point: Point, mark: Path, number: int) -> dict[str, str]:
    """Variables that make the call fail once, with this errno."""
    return {**stopping(point, mark), "FAULT_ERROR": str(number)}


def reached(mark: Path, process: subprocess.Popen[bytes]) -> bool:
    """Wait until a process stands at the point; False if the command ends, or time runs out, before."""
    end = time.monotonic() + REACHED_S
    while not (mark / "hit").exists():
        if process.poll() is not None or time.monotonic() > end:
            return (mark / "hit").exists()
        time.sleep(0.005)
    return True


def at_point(mark: Path) -> int:
    """The process that stands at the point; 0 if it is not known yet."""
    with contextlib.suppress(OSError, ValueError):
        return int((mark / "hit").read_text())
    return 0


def let_go(mark: Path) -> None:
    (mark / "go").touch()
