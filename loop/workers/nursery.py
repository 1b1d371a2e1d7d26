"""A process that has imported torch and forks judge and workers: as fresh as a started one, in no time.

A forked process becomes a child of ours, in a session of its own, before it loads
anything. Linux only; elsewhere, and where the nursery is lost, workers are started one by one.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from loop.base.linux import adopt_orphans
from loop.base.processes import Child, environment, python_path

PROGRAM = "loop.workers.nursery_program"
PATIENT = {"OMP_WAIT_POLICY": "passive"}
"""The judge works on every core while nobody is timed; its idle threads must not spin when somebody is."""
FORK_LIMIT_S = 60.0
"""For the first worker: torch is imported before it."""
REAPED_S = 1e-3


class ForkedProcess:
    """A child of ours that another process forked, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, output: int, errors: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = os.fdopen(output, "rb", buffering=0)
        self.stderr: IO[bytes] | None = os.fdopen(errors, "rb", buffering=0)

    def poll(self) -> int | None:
        """Exit status once it has ended; negative for a signal."""
        if self.returncode is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # Somebody else waited for it.
                ended, status = self.pid, 0
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. Raises TimeoutExpired after so many seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(REAPED_S)
        return code


class Forked(Child):
    """A child that a nursery forked."""

    def __init__(
        self,
        nursery: "Nursery",
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int,
        pass_fds: Sequence[int],
    ) -> None:
        self._nursery = nursery
        super().__init__(command, env=env, stdin=stdin, pass_fds=pass_fds)

    def _start(
        self, cwd: Path | None, env: Mapping[str, str] | None, stdin: int | None, pass_fds: Sequence[int]
    ) -> ForkedProcess:
        assert stdin is not None
        output, output_end = os.pipe()
        errors, errors_end = os.pipe()
        try:
            module, *words = self.command
            order: dict[str, object] = {"module": module, "arguments": words, "cwd": os.getcwd()}
            order["environment"] = environment(env)
            pid = self._nursery.fork(order, (stdin, output_end, errors_end, *pass_fds))
        except BaseException:
            os.close(output)
            os.close(errors)
            raise
        finally:
            os.close(output_end)
            os.close(errors_end)
        return ForkedProcess(pid, output, errors)


class NurseryLost(Exception):
    """It cannot be asked, or did not answer."""


class Nursery:
    """The process, started when it is first needed. The processes that it forked outlive its end."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._child: Child | None = None
        self._control: socket.socket | None = None
        self._lost = sys.platform != "linux"

    def warm_up(self) -> None:
        """Start it if it does not run: it imports torch while something else is done."""
        if self._child is not None or self._lost:
            return
        adopt_orphans()
        self._control, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far_end:
            self._child = Child(
                [sys.executable, "-P", "-m", PROGRAM, str(far_end.fileno())],
                env={"PYTHONPATH": python_path(), **PATIENT, **self.environment},
                pass_fds=[far_end.fileno()],
            )

    def fork(self, order: Mapping[str, object], handles: Sequence[int]) -> int:
        """The pid of a worker that has these descriptors as its first ones. Raises NurseryLost."""
        self.warm_up()
        if self._control is None:
            raise NurseryLost
        whole = json.dumps({"owner": os.getpid(), **order})
        pid = b""
        with contextlib.suppress(OSError):
            self._control.settimeout(FORK_LIMIT_S)
            socket.send_fds(self._control, [whole.encode()], list(handles))
            pid = self._control.recv(64)
        if not int(pid or b"0"):
            self._lost = True
            self.close()
            raise NurseryLost
        return int(pid)

    def close(self) -> None:
        """End it; the next worker starts another one."""
        if self._control is not None:
            self._control.close()
        if self._child is not None:
            self._child.close()
        self._control = self._child = None


def numbered(words: Sequence[str], handles: Sequence[int]) -> list[str]:
    """Arguments of a worker, with the number of the Nth descriptor for `@N`."""
    return [str(handles[int(word[1:])]) if word.startswith("@") else word for word in words]
