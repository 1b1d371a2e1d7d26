"""A process that imports torch once and forks the judge and torch workers, which saves seconds for
each.

Program: `python -m loop.workers.nursery CONTROL_FD`. It loads no user code. A forked process
becomes a child of the session with its own session id before it loads anything. Linux only.
Elsewhere, or after the nursery dies, workers start one by one.
"""

import contextlib
import ctypes
import gc
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from loop.base.processes import Child, adopt_orphans, child_environment, die_with_parent, python_path

PASSIVE_WAITING = {"OMP_WAIT_POLICY": "passive"}
"""The judge uses every core between timings; its idle threads must not spin during one."""
FORK_LIMIT_S = 60.0
"""Limit in seconds for a fork. The first one waits for torch's import."""
POLL_S = 1e-3
MAX_ORDER_BYTES, MAX_HANDLES = 1 << 16, 16
PAGE_BYTES, MAX_PAGES = 4096, 1 << 16
ADOPTION_LIMIT_S = 10.0


class ForkedProcess:
    """A child process forked by the nursery, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, output: int, errors: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = os.fdopen(output, "rb", buffering=0)
        self.stderr: IO[bytes] | None = os.fdopen(errors, "rb", buffering=0)

    def poll(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        if self.returncode is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # Another thread has already collected its status.
                ended, status = self.pid, 0
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status. Raises TimeoutExpired after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(POLL_S)
        return code


THREADS = ("LOOP_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that limit the thread count of each runtime."""
EARLY_NURSERY: list["Nursery"] = []
"""At most one nursery, started before the target is known. A bench on a GPU uses it."""


class Nursery:
    """The session's handle of the nursery process, started on demand. Its children outlive it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._child: Child | None = None
        self._control: socket.socket | None = None
        self._is_unusable = sys.platform != "linux"

    @classmethod
    def start_early(cls) -> "Nursery":
        """Start the shared nursery before the target is known, to import torch meanwhile."""
        if not EARLY_NURSERY:
            threads = str(max(1, len(os.sched_getaffinity(0)) - 1))
            EARLY_NURSERY.append(cls(dict.fromkeys(THREADS, threads)))
            EARLY_NURSERY[0].warm_up()
        return EARLY_NURSERY[0]

    def warm_up(self) -> None:
        """Start the process if it does not run; it imports torch in the background."""
        if self._child is not None or self._is_unusable:
            return
        adopt_orphans()
        self._control, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far_end:
            self._child = Child(
                [sys.executable, "-P", "-m", "loop.workers.nursery", str(far_end.fileno())],
                env={"PYTHONPATH": python_path(), **PASSIVE_WAITING, **self.environment},
                pass_fds=[far_end.fileno()],
            )

    def fork(self, order: Mapping[str, object], handles: Sequence[int]) -> int:
        """Fork a program and return its pid. Raises ConnectionError if the nursery has died.
        `order`: module, arguments, folder and environment. `handles`: file descriptors it inherits,
        standard ones first."""
        self.warm_up()
        if self._control is None:
            raise ConnectionError("the nursery is lost")
        whole, pid = json.dumps({"owner": os.getpid(), **order}), 0
        with contextlib.suppress(OSError):
            self._control.settimeout(FORK_LIMIT_S)
            socket.send_fds(self._control, [whole.encode()], list(handles))
            pid = int(self._control.recv(64) or b"0")
        if not pid:
            self._is_unusable = True
            self.close()
            raise ConnectionError("the nursery is lost")
        return pid

    def close(self) -> None:
        """End the nursery. The next fork starts another."""
        if self._control is not None:
            self._control.close()
        if self._child is not None:
            self._child.close()
        self._control = self._child = None


class ForkedChild(Child):
    """A child forked by a nursery instead of started as a new interpreter."""

    def __init__(
        self, nursery: Nursery, command: Sequence[str], env: Mapping[str, str], stdin: int, handles: Sequence[int]
    ) -> None:
        self._nursery = nursery
        super().__init__(command, env=env, stdin=stdin, pass_fds=handles)

    def _start(
        self, cwd: Path | None, env: Mapping[str, str] | None, stdin: int | None, pass_fds: Sequence[int]
    ) -> ForkedProcess:
        """Fork the program with new pipes for its output and errors."""
        assert stdin is not None
        output, output_end = os.pipe()
        errors, errors_end = os.pipe()
        module, *words = self.command
        order = {"module": module, "arguments": words, "cwd": os.getcwd(), "environment": child_environment(env)}
        try:
            pid = self._nursery.fork(order, (stdin, output_end, errors_end, *pass_fds))
        except BaseException:
            os.close(output)
            os.close(errors)
            raise
        finally:
            os.close(output_end)
            os.close(errors_end)
        return ForkedProcess(pid, output, errors)


def insert_descriptors(arguments: Sequence[str], handles: Sequence[int]) -> list[str]:
    """Replace each argument `@N` by the number of descriptor N."""
    return [str(handles[int(word[1:])]) if word.startswith("@") else word for word in arguments]


def main() -> None:
    """Fork a program for each order until the session closes the control socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    import torch

    from loop.calls import torch_call  # noqa: F401 - what each worker would import
    from loop.workers import judge_program, worker_program

    gc.collect()
    gc.freeze()
    while True:
        data, handles, _, _ = socket.recv_fds(control, MAX_ORDER_BYTES, MAX_HANDLES)
        if not data:
            return
        if os.fork() == 0:
            break
        for handle in handles:
            os.close(handle)
        os.wait()
    if os.fork():  # Double fork: the orphan is adopted by the session, which is a subreaper.
        os._exit(0)
    order: dict[str, Any] = json.loads(data)
    try:  # From here on, share only the imported modules with the nursery.
        end = time.monotonic() + ADOPTION_LIMIT_S
        while os.getppid() != order["owner"]:
            if time.monotonic() > end:
                raise TimeoutError("the session did not adopt it")
            time.sleep(1e-4)
        os.setsid()
        die_with_parent()
        os.environ.update(order["environment"])
        os.chdir(order["cwd"])
        for place, handle in enumerate(handles[:3]):
            os.dup2(handle, place)
            os.close(handle)
    except BaseException:
        control.sendall(b"0")
        raise
    control.sendall(str(os.getpid()).encode())
    control.close()
    # Shift later mappings by a random number of pages: each worker measures another memory layout.
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    private_anonymous = 0x22
    libc.mmap(None, random.SystemRandom().randrange(1, MAX_PAGES) * PAGE_BYTES, 0, private_anonymous, -1, 0)
    torch.set_num_threads(int(order["environment"]["OMP_NUM_THREADS"]))  # torch read ours on import.
    programs = {module.__name__: module.main for module in (judge_program, worker_program)}
    programs[order["module"]](insert_descriptors(order["arguments"], handles[3:]))


if __name__ == "__main__":
    main()
