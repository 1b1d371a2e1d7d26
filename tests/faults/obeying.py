"""How long a command takes to end after a signal, on a machine that may be busy."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.faults.world import Running

HUNG_S = 60.0  # Seconds after which not even a busy machine excuses a command.


@dataclass
class Ending:
    """The moment at which a command gets its signal to end."""

    running: Running
    at: float
    used_s: float
    """Processor time that it had used by then."""

    def ended(self, folder: Path, within_s: float) -> str:
        """Wait for its end and note its seconds; "" if it ended within the limit.

        On a busy machine it is enough that its processor time is within the limit.
        """
        if self.running.process.returncode is not None:  # It had ended before.
            return ""
        _, status, usage = os.wait4(self.running.process.pid, 0)
        self.running.process.returncode = os.waitstatus_to_exitcode(status)
        took_s = time.monotonic() - self.at
        used_s = max(0.0, usage.ru_utime + usage.ru_stime - self.used_s)
        (folder / "figure-seconds until it ended").write_text(f"{took_s:.3f}")
        (folder / "figure-processor seconds until it ended").write_text(f"{used_s:.3f}")
        late = min(took_s, used_s) > within_s or took_s > HUNG_S
        return f"ended after {took_s:.1f} s, {used_s:.1f} s of them on a processor" if late else ""


def begin_ending(running: Running) -> Ending:
    """Note the time, and the processor time that the command and its descendants have used so far."""
    used = 0.0
    with contextlib.suppress(psutil.Error):
        command = psutil.Process(running.process.pid)
        used = sum(map(_used_s, (command, *command.children(recursive=True))))
    return Ending(running, time.monotonic(), used)


def _used_s(process: psutil.Process) -> float:
    """Processor time of a process and of those below it that have ended."""
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0
