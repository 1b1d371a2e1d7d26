"""Commands of `loop` with folders of their own, and programs that run beside them."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOOP = str(Path(sys.executable).with_name("loop"))
TOO_LONG = 124  # Exit code of a command that takes longer than its limit.


@dataclass(frozen=True)
class Finished:
    """One command: its exit code, its output on both streams, and its seconds."""

    code: int
    text: str
    seconds: float


class Rig:
    """Runs commands of `loop` with state, and the named `places` (cache, sessions), in a folder of their own."""

    def __init__(self, folder: Path, *places: str) -> None:
        self.folder = folder
        self.environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
        for name in ("state", *places):
            (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            self.environment[f"LOOP_{name.upper()}"] = str(folder / name)

    def run(self, *words: str, cwd: Path | None = None, limit_s: float = 900, **environment: str) -> Finished:
        """Run a command with more variables; its code is TOO_LONG beyond its limit."""
        begun = time.monotonic()
        try:
            child = subprocess.run(
                [LOOP, *words],
                capture_output=True,
                text=True,
                timeout=limit_s,
                env={**self.environment, **environment},
                cwd=cwd,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Finished(TOO_LONG, "", limit_s)
        return Finished(child.returncode, child.stdout + child.stderr, time.monotonic() - begun)


@contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """While the block lasts, `count` programs keep a core busy each."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()
