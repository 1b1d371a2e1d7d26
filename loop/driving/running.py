"""The process of a job: it runs one command and notes how that ended.

Whoever begins it gives it the job's lock, which is held until it ends; the command does not inherit it.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from loop.base.documents import write_atomic
from loop.base.linux import die_with_parent
from loop.base.screen import TALKS

WHAT, LOCK, OUT, TALK, PID, CODE = "job.json", "lock", "out", "talk", "pid", "code"
"""Files of a job: its command, its lock, stdout, stderr, the command's process with its start, its exit code."""


def main(folder: Path) -> None:
    """Run the command of a job to its end."""
    what = json.loads((folder / WHAT).read_text())
    command = [sys.executable, "-P", "-c", "from loop.cli import main; main()", *what["words"]]
    with (folder / OUT).open("wb") as out, (folder / TALK).open("wb") as talk:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=talk,
            cwd=what["cwd"],
            env={**os.environ, TALKS: "1"},
            preexec_fn=lambda: die_with_parent(signal.SIGTERM),
        )
        write_atomic(folder / PID, f"{child.pid} {psutil.Process(child.pid).create_time():.2f}")
        write_atomic(folder / CODE, str(child.wait()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
