"""Points at which a process is stopped or a system call of its fails, without a line in the product."""

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
    """The k-th call on files of a pattern, and whether it has been made when the fault comes."""

    call: str
    """open (for writing), write, fsync, rename, link, mkdir, truncate or unlink."""
    pattern: str
    """Of the whole path, as fnmatch(3) has it; `*` goes across folders."""
    number: int = 1
    moment: str = "before"
    """before, half (of what is written) or after."""

    @property
    def text(self) -> str:
        """As the library reads it."""
        return f"{self.call}|{self.pattern}|{self.number}|{self.moment}"


@functools.cache
def library() -> Path:
    """What is loaded before libc; compiled once for all cases of a run."""
    folder = Path(tempfile.mkdtemp(prefix="loop-interposed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = folder / "interposed.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", made, SOURCE, "-ldl"], check=True)
    return made


def stopping(point: Point, mark: Path) -> dict[str, str]:
    """Variables with which a process waits at the point until it is let go."""
    mark.mkdir()
    return {"LD_PRELOAD": str(library()), "FAULT_POINT": point.text, "FAULT_MARK": str(mark)}


def failing(point: Point, mark: Path, number: int) -> dict[str, str]:
    """Variables with which the call fails once, with an errno."""
    return {**stopping(point, mark), "FAULT_ERROR": str(number)}


def reached(mark: Path, process: subprocess.Popen[bytes]) -> bool:
    """Wait until some process stands at the point; False where the command ended without coming there."""
    end = time.monotonic() + REACHED_S
    while not (mark / "hit").exists():
        if process.poll() is not None or time.monotonic() > end:
            return (mark / "hit").exists()
        time.sleep(0.005)
    return True


def at_point(mark: Path) -> int:
    """The process that stands there; 0 where it is not known yet."""
    with contextlib.suppress(OSError, ValueError):
        return int((mark / "hit").read_text())
    return 0


def let_go(mark: Path) -> None:
    (mark / "go").touch()
