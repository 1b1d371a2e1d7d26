"""A process that has imported torch and forks judge and workers: as fresh as a started one, in no time.

`python -m loop.workers.nursery CONTROL` is its program: it loads nothing of anybody's, and forks a judge or a
worker for each order. A forked process becomes a child of the session, with a session id of its own, before it
loads anything.
Linux only; elsewhere, and where the nursery is lost, workers are started one by one.
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

from loop.base.processes import Child, adopt_orphans, die_with_parent, environment, python_path

PATIENT = {"OMP_WAIT_POLICY": "passive"}
"""The judge works on every core while nobody is timed; its idle threads must not spin when somebody is."""
FORK_LIMIT_S = 60.0
"""For the first worker: torch is imported before it."""
REAPED_S = 1e-3
LONGEST, MOST_HANDLES = 1 << 16, 16
PAGE_BYTES, MOST_PAGES = 4096, 1 << 16
ADOPTED_S = 10.0


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


THREADS = ("LOOP_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that hold every runtime to a number of threads."""
EARLY: list["Nursery"] = []
"""A nursery that began before anybody knew what it is for; a bench on a GPU takes it."""


class Nursery:
    """The process, started when it is first needed. The processes that it forked outlive its end."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._child: Child | None = None
        self._control: socket.socket | None = None
        self._lost = sys.platform != "linux"

    @classmethod
    def early(cls) -> "Nursery":
        """The one nursery that begins before it is known what it is for: torch is imported while we are."""
        if not EARLY:
            threads = str(max(1, len(os.sched_getaffinity(0)) - 1))
            EARLY.append(cls(dict.fromkeys(THREADS, threads)))
            EARLY[0].warm_up()
        return EARLY[0]

    def warm_up(self) -> None:
        """Start it if it does not run: it imports torch while something else is done."""
        if self._child is not None or self._lost:
            return
        adopt_orphans()
        self._control, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far_end:
            self._child = Child(
                [sys.executable, "-P", "-m", "loop.workers.nursery", str(far_end.fileno())],
                env={"PYTHONPATH": python_path(), **PATIENT, **self.environment},
                pass_fds=[far_end.fileno()],
            )

    def fork(self, order: Mapping[str, object], handles: Sequence[int]) -> int:
        """The pid of a worker that has these descriptors as its first ones. ConnectionError where it is lost."""
        self.warm_up()
        if self._control is None:
            raise ConnectionError("the nursery is lost")
        whole, pid = json.dumps({"owner": os.getpid(), **order}), 0
        with contextlib.suppress(OSError):
            self._control.settimeout(FORK_LIMIT_S)
            socket.send_fds(self._control, [whole.encode()], list(handles))
            pid = int(self._control.recv(64) or b"0")
        if not pid:
            self._lost = True
            self.close()
            raise ConnectionError("the nursery is lost")
        return pid

    def close(self) -> None:
        """End it; the next worker starts another one."""
        if self._control is not None:
            self._control.close()
        if self._child is not None:
            self._child.close()
        self._control = self._child = None


class Forked(Child):
    """A child that a nursery forked."""

    def __init__(
        self, nursery: Nursery, command: Sequence[str], env: Mapping[str, str], stdin: int, handles: Sequence[int]
    ) -> None:
        self._nursery = nursery
        super().__init__(command, env=env, stdin=stdin, pass_fds=handles)

    def _start(
        self, cwd: Path | None, env: Mapping[str, str] | None, stdin: int | None, pass_fds: Sequence[int]
    ) -> ForkedProcess:
        assert stdin is not None
        output, output_end = os.pipe()
        errors, errors_end = os.pipe()
        module, *words = self.command
        order = {"module": module, "arguments": words, "cwd": os.getcwd(), "environment": environment(env)}
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


def number_descriptors(words: Sequence[str], handles: Sequence[int]) -> list[str]:
    """Arguments of a worker, with the number of the Nth descriptor for `@N`."""
    return [str(handles[int(word[1:])]) if word.startswith("@") else word for word in words]


def main() -> None:
    """Fork programs until the parent is gone. Their access to our memory is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    import torch

    from loop.calls import torch_call  # noqa: F401 - what each worker would import
    from loop.workers import judge_program, worker_program

    gc.collect()
    gc.freeze()
    while True:
        data, handles, _, _ = socket.recv_fds(control, LONGEST, MOST_HANDLES)
        if not data:
            return
        if os.fork() == 0:
            break
        for handle in handles:
            os.close(handle)
        os.wait()
    if os.fork():  # Leave by a second fork, so that the session adopts what is left.
        os._exit(0)
    order: dict[str, Any] = json.loads(data)
    try:  # Share nothing with the nursery any more, but what it imported.
        end = time.monotonic() + ADOPTED_S
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
    # What is loaded from now on moves by a random number of pages, so that one layout is not measured for ever.
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    private_anonymous = 0x22
    libc.mmap(None, random.SystemRandom().randrange(1, MOST_PAGES) * PAGE_BYTES, 0, private_anonymous, -1, 0)
    torch.set_num_threads(int(order["environment"]["OMP_NUM_THREADS"]))  # It read our number on import.
    programs = {module.__name__: module.main for module in (judge_program, worker_program)}
    programs[order["module"]](number_descriptors(order["arguments"], handles[3:]))


if __name__ == "__main__":
    main()
