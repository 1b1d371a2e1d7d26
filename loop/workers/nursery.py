"""A process that imports torch once and forks judge and torch workers, which saves them seconds.

Program: `python -m loop.workers.nursery CONTROL_FD`. It loads no user code. A forked process first
becomes a child of the session. If the nursery dies, workers start alone."""

import contextlib
import gc
import json
import mmap
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from loop.base.own_process import adopt_orphans, die_with_parent
from loop.base.processes import Child, child_environment, python_path

PASSIVE_WAITING = {"OMP_WAIT_POLICY": "passive"}
"""The judge uses every core between timings; its idle threads must not spin during one."""
FORK_LIMIT_S = 60.0  # Limit in seconds for a fork. The first one waits for torch's import.
POLL_S = 1e-3  # Seconds between two looks at a child that should end.
MAX_ORDER_BYTES, MAX_HANDLES = 1 << 16, 16  # Of one order: its JSON text, and descriptors.
MAX_PAGES = 1 << 16  # Pages of the largest inaccessible mapping before a worker's own.
ADOPTION_LIMIT_S = 10.0  # Seconds until the session must have adopted a forked process.
THREAD_VARIABLES = ("LOOP_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that limit the thread count of each runtime."""


class ForkedProcess:
    """A child process forked by the nursery, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, output: int, errors: int) -> None:
        """`output`, `errors`: descriptors of the pipes to which it writes."""
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = os.fdopen(output, "rb", buffering=0)
        self.stderr: IO[bytes] | None = os.fdopen(errors, "rb", buffering=0)

    def poll(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        if self.returncode is None:
            try:
                ended_pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # Another thread has already collected its status.
                ended_pid, status = self.pid, 0
            if ended_pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the exit status. Raises TimeoutExpired after `timeout` seconds."""
        end_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(POLL_S)
        return code


class Nursery:
    """The session's handle of the nursery process, started on demand. Its children outlive it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: variables of the nursery process, such as its number of threads."""
        self.environment = dict(environment)
        self._child: Child | None = None
        self._control: socket.socket | None = None
        self._is_unusable = False  # Whether it has died: then children start without it.

    def warm_up(self) -> None:
        """Start the process, which imports torch in the background, unless it runs or has died."""
        if self._child is not None or self._is_unusable:
            return
        adopt_orphans()
        self._control, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            self._child = Child(
                [sys.executable, "-P", "-m", "loop.workers.nursery", str(child_end.fileno())],
                env={"PYTHONPATH": python_path(), **PASSIVE_WAITING, **self.environment},
                pass_fds=[child_end.fileno()],
            )

    def fork(
        self, module: str, argv: Sequence[str], env: Mapping[str, str], stdin: int, *handles: int
    ) -> ForkedProcess:
        """Fork a program, with new pipes for its output and errors. `{N}` in `argv` is the number
        of `handles[N]` in the new process. Raises ConnectionError if the nursery has died."""
        self.warm_up()
        order = {"owner": os.getpid(), "module": module, "arguments": argv, "cwd": os.getcwd()}
        message, pid = json.dumps({**order, "environment": child_environment(env)}), 0
        (output, output_end), (errors, errors_end) = os.pipe(), os.pipe()
        try:
            if self._control is not None:
                with contextlib.suppress(OSError):
                    self._control.settimeout(FORK_LIMIT_S)
                    descriptors = [stdin, output_end, errors_end, *handles]
                    socket.send_fds(self._control, [message.encode()], descriptors)
                    pid = int(self._control.recv(64) or b"0")  # Empty: it has died; 0: it failed.
        finally:
            for end in (output_end, errors_end, *([] if pid else [output, errors])):
                os.close(end)
        if not pid:
            self._is_unusable = True
            self.close()
            raise ConnectionError("the nursery is lost")
        return ForkedProcess(pid, output, errors)

    def close(self) -> None:
        """End the process, not those it forked. The next fork starts one; after a loss, none."""
        if self._control is not None:
            self._control.close()
        if self._child is not None:
            self._child.close()
        self._control = self._child = None


def main() -> None:
    """Fork a program for each order until the session closes the control socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    import torch

    from loop.calls import torch_call  # noqa: F401 - what each worker would import
    from loop.workers import judge_program, worker_program  # noqa: F401 - what it can run

    gc.collect()
    gc.freeze()  # Forked processes then share these objects' memory.
    while True:
        message, handles, _, _ = socket.recv_fds(control, MAX_ORDER_BYTES, MAX_HANDLES)
        if not message:
            return
        if os.fork() == 0:
            break
        for handle in handles:
            os.close(handle)
        os.wait()
    # From here on this is the forked process.
    if os.fork():  # Double fork: the orphan is adopted by the session, which is a subreaper.
        os._exit(0)
    order: dict[str, Any] = json.loads(message)
    deadline = time.monotonic() + ADOPTION_LIMIT_S
    while os.getppid() != order["owner"]:
        if time.monotonic() > deadline:
            control.sendall(b"0")
            raise TimeoutError("the session did not adopt it")
        time.sleep(1e-4)
    # Its own environment, folder and handles: it shares only imported modules with the nursery.
    os.setsid()
    die_with_parent()
    os.environ.update(order["environment"])
    os.chdir(order["cwd"])
    for number, handle in enumerate(handles[:3]):
        os.dup2(handle, number)
        os.close(handle)
    control.sendall(str(os.getpid()).encode())
    control.close()
    # Shift later mappings by a random number of pages: each worker measures another memory layout.
    shift_bytes = random.SystemRandom().randrange(1, MAX_PAGES) * mmap.PAGESIZE
    shift = mmap.mmap(-1, shift_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
    torch.set_num_threads(int(order["environment"]["OMP_NUM_THREADS"]))  # It read ours on import.
    arguments = (argument.format(*handles[3:]) for argument in order["arguments"])
    sys.modules[order["module"]].main(*arguments)
    shift.close()


if __name__ == "__main__":
    main()
