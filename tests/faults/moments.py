"""Run `loop` and cause a fault at the n-th moment at which it touches a folder or starts a process.

`python -m tests.faults.moments N WHAT LOG -- WORDS` runs `loop WORDS`. Each moment appends a byte to LOG, so that
the number of moments of an undisturbed run can be counted. WHAT is done once, in the process that touches:

- `fill FOLDER`: a file takes all room of a file system.
- `lock FOLDER`: the folder is mounted over itself, read-only.
- `fail FOLDER ERRNO`: every later try of this process to open a file there for writing fails.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096
FILLER = "filler"
TOUCHES = ("os.mkdir", "os.rename", "os.remove", "subprocess.Popen")


def mount(source: str, folder: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), str(folder).encode(), kind.encode(), flags, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))


def fill(folder: Path) -> None:
    """Take all room of the folder's file system."""
    with contextlib.suppress(OSError), (folder / FILLER).open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass


def lock(folder: Path) -> None:
    """Make a folder read-only; files that are open for writing stay so."""
    mount(str(folder), folder, flags=MS_BIND)
    mount("none", folder, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


class Moments:
    """Counts the moments, and acts at one of them."""

    def __init__(self, number: int, words: Sequence[str], log: Path, folders: Sequence[Path]) -> None:
        self.left, self.words, self.folders = number, words, folders
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.inside = False
        self.failing: tuple[Path, int] | None = None

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """For sys.addaudithook."""
        if self.inside or not self.touches(event, arguments):
            return
        self.inside = True
        try:
            self.left -= 1
            if self.left == 0:
                self.act()
            with contextlib.suppress(OSError):
                os.write(self.log, b".")
        finally:
            self.inside = False
        if self.failing and event != "subprocess.Popen" and _below(arguments[0], self.failing[0]):
            raise OSError(self.failing[1], os.strerror(self.failing[1]), arguments[0])

    def touches(self, event: str, arguments: tuple[Any, ...]) -> bool:
        """Whether an audit event writes below the folders, or starts a process."""
        if event == "open":
            writes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            return bool(writes) and any(_below(arguments[0], folder) for folder in self.folders)
        return event in TOUCHES

    def act(self) -> None:
        fault, *rest = self.words
        if fault == "fail":
            self.failing = (Path(rest[0]), int(rest[1]))
        elif fault in ACTS:
            ACTS[fault](*map(Path, rest))


ACTS: dict[str, Callable[..., None]] = {"fill": fill, "lock": lock, "nothing": lambda: None}


def _below(path: object, folder: Path) -> bool:
    return isinstance(path, str | bytes | Path) and Path(os.fsdecode(path)).is_relative_to(folder)


def main() -> None:
    """Run the command with the hook."""
    at = sys.argv.index("--")
    number, *words = sys.argv[1:at]
    folders = [Path(os.environ[name]) for name in ("LOOP_SESSIONS", "LOOP_CACHE", "LOOP_STATE", "TMPDIR")]
    log = Path(words.pop())
    from loop.cli import main as loop

    sys.argv = ["loop", *sys.argv[at + 1 :]]
    sys.addaudithook(Moments(int(number), words, log, folders).hook)
    loop()


if __name__ == "__main__":
    main()
