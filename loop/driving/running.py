"""The process of a job: it runs one command, holds the job's lock meanwhile, and notes how the command ended."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from loop.base.documents import write_atomic
from loop.base.linux import die_with_parent
from loop.base.locks import locked
from loop.base.screen import TALKS

WHAT, LOCK, OUT, TALK, PID, CODE = "job.json", "lock", "out", "talk", "pid", "code"
"""Files of a job: its command, the lock of its process, stdout, stderr, the command's process, its exit code."""


def main(folder: Path) -> None:
    """Run the command of a job to its end."""
    what = json.loads((folder / WHAT).read_text())
    command = [sys.executable, "-P", "-c", "from loop.cli import main; main()", *what["words"]]
    with locked(folder / LOCK), (folder / OUT).open("wb") as out, (folder / TALK).open("wb") as talk:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=talk,
            cwd=what["cwd"],
            env={**os.environ, TALKS: "1"},
            preexec_fn=lambda: die_with_parent(signal.SIGTERM),
        )
        write_atomic(folder / PID, str(child.pid))
        write_atomic(folder / CODE, str(child.wait()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
