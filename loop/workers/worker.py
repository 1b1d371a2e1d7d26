"""A child process that answers requests: the parent's end of it."""

import contextlib
import functools
import json
import os
import random
import socket
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from loop.base.errors import LoopError
from loop.base.linux import Roused, stay_out
from loop.base.processes import Child, Tick, describe_exit, python_path
from loop.calls.arena import Arena
from loop.calls.bell import Bell
from loop.workers import sanitizers
from loop.workers.kin import Kin
from loop.workers.replies import MOST_BYTES, understood

START_LIMIT_S = 60.0
PADDING_BYTES = 4096
"""The environment lies above the stack: one of a random size moves the stack, so that no layout is measured for
ever."""

FORGED = "something else than its worker wrote to the worker's replies"
PASSED_ON = ("LOOP_EMULATOR_SEED",)
"""Variables of the user's that a worker sees besides the usual ones: the schedule to replay."""


class WorkerLost(Exception):
    """The worker crashed or hung while it answered: `kind` says which, `how` in words."""

    def __init__(self, kind: str, how: str, errors: str) -> None:
        super().__init__(how)
        self.kind, self.how, self.errors = kind, how, errors


class Refusal(Exception):
    """The worker answered that it cannot do what was asked; the message says why."""

    def __init__(self, message: str, how: str = "unusable") -> None:
        super().__init__(message)
        self.how = how
        """`declined`: the variant said no in so many words; `raised`: another exception of its own; `unusable`:
        what the worker found of its outcome."""


class Worker:
    """One child process, started by the tool `under` where there is one. Not usable after WorkerLost.

    One that is `pinned` keeps to cores of its own, and shares memory with us: its calls can be timed. One that is
    `unprivileged` gains no rights by what it starts: not on a GPU, whose driver may start a setuid program.
    """

    def __init__(
        self,
        threads: int,
        *,
        pinned: bool = False,
        environment: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
        unprivileged: bool = False,
    ) -> None:
        request_read, self._request = _channel()
        self._reply, reply_write = _channel()
        os.set_blocking(self._reply, False)
        self._pending, self._paused = bytearray(), False
        self._searched = 0
        """Bytes of what is pending that hold no line end."""
        self._asked: deque[str] = deque()
        """Requests that are still to be answered."""
        self.cores = _cores(threads, pinned)
        """Numbers of the cores it keeps to, with commas; empty where the system chooses."""
        self.arena = Arena()
        self.bell = None if _spare_cores(threads) else Bell()
        """How we sleep while it works; None where we have a core of our own to watch from."""
        try:
            self.child = Child(
                [*under, sys.executable, "-P", "-m", "loop.workers", str(reply_write), *self._shared()],
                env={
                    **thread_environment(threads, self.cores),
                    "PYTHONPATH": python_path(),
                    **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
                    **(environment or {}),
                },
                stdin=request_read,
                pass_fds=[reply_write, self.arena.handle, *(self.bell.handles if self.bell else ())],
                first=functools.partial(stay_out, unprivileged=unprivileged),
            )
        except BaseException:
            for fd in (self._request, self._reply):
                os.close(fd)
            self._unshare()
            raise
        finally:
            os.close(request_read)
            os.close(reply_write)
        self.kin = Kin(self.child.process.pid, self.child.tag)
        self._roused = Roused(self.child.process.pid)
        self.child.watch(self._reply)

    def _shared(self) -> list[str]:
        """What the child has to know of cores, memory and bell."""
        handles = self.bell.handles if self.bell else ()
        return [self.cores, str(self.arena.handle), ",".join(map(str, handles))]

    def _unshare(self) -> None:
        self.arena.close()
        if self.bell:
            self.bell.close()

    def send(self, do: str, **fields: Any) -> None:
        """Send a request without waiting for its reply; `receive` takes it up."""
        self._asked.append(do)
        with contextlib.suppress(ConnectionError):  # It has died: `receive` says how.
            os.write(self._request, (json.dumps({"do": do, **fields}) + "\n").encode())

    def receive(self, limit_s: float, note: str) -> Generator[Tick, None, dict[str, Any]]:
        """The reply to the oldest unanswered request.

        Raises WorkerLost when the child dies or `limit_s` passes, Refusal when it says no.
        """
        begun = self.child.seconds
        while not self._has_line():
            if self.child.seconds - begun > limit_s:
                raise self.lost("hung", f"no answer for {limit_s:g} s: killed")
            self.child.pump()
            self._rouse()
            if not self._take() and self.child.code is not None:
                raise self.lost("crashed", describe_exit(self.child.code))
            yield Tick(note)
            if len(self._pending) > MOST_BYTES:
                raise self.lost("tampered", FORGED)
        line, _, self._pending = self._pending.partition(b"\n")
        self._searched = 0
        reply = understood(bytes(line), self._asked.popleft() if self._asked else "")
        if reply is None or (self._pending and not self._asked):  # Nobody answers what nobody asked.
            raise self.lost("tampered", FORGED)
        return _reply(reply)

    @property
    def has_answered(self) -> bool:
        """Whether a reply is there to be received."""
        self._take()
        return self._has_line()

    def _has_line(self) -> bool:
        """Whether a whole reply is pending; no byte is looked at twice."""
        found = self._pending.find(b"\n", self._searched) >= 0
        self._searched = self._searched if found else len(self._pending)
        return found

    def ask(self, do: str, *, limit_s: float, note: str, **fields: Any) -> Generator[Tick, None, dict[str, Any]]:
        """Send a request and wait for its reply."""
        self.send(do, **fields)
        return (yield from self.receive(limit_s, note))

    def pause(self) -> None:
        """Stop the child and whatever it started, so that nothing of it runs while another side is timed."""
        if not self._paused and self.child.code is None:
            self._paused = True
            self.kin.stop()

    def resume(self) -> None:
        """Let it go on."""
        if self._paused:
            self._paused = False
            self.kin.resume()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """While it lasts nothing of the child runs."""
        was_paused = self._paused
        self.pause()
        try:
            yield
        finally:
            if not was_paused:
                self.resume()

    def stray(self) -> str:
        """How the child escaped the cores it was pinned to; empty when it did not, or where nobody can tell.

        Read from outside: whatever runs in the child, or was started by it, cannot hide it.
        """
        return self.kin.beyond({int(core) for core in self.cores.split(",") if core})

    @property
    def is_paused(self) -> bool:
        """Whether it should stand still."""
        return self._paused

    def _take(self) -> bool:
        """Take over what has arrived; whether anything had."""
        try:
            data = os.read(self._reply, 1 << 16)
        except (BlockingIOError, ConnectionError):
            return False
        self._pending += data
        return bool(data)

    def _rouse(self) -> None:
        """Have it go on where not we have stopped it: a kernel can stop the judge, and other workers."""
        if not self._paused:
            self._roused.rouse()

    def lost(self, kind: str, how: str) -> WorkerLost:
        """Kill the child, and say how it was lost."""
        self.child.kill()
        errors = self.child.errors.text
        return WorkerLost(kind, sanitizers.told(errors) or how, errors[-2000:])

    def end(self, limit_s: float, note: str) -> Generator[Tick, None, int]:
        """Ask for nothing more and wait until the child has ended by itself; its exit status.

        A tool that it runs under writes its findings then. Raises WorkerLost after `limit_s`.
        """
        begun = self.child.seconds
        self._hang_up()
        while self.child.code is None:
            if self.child.seconds - begun > limit_s:
                raise self.lost("hung", f"it did not end within {limit_s:g} s: killed")
            self.child.pump()
            yield Tick(note)
        return self.child.code

    def _hang_up(self) -> None:
        """Close the pipe of requests: the child ends when it has read the last one."""
        if self._request >= 0:
            os.close(self._request)
            self._request = -1

    def close(self) -> None:
        """End the child and free its pipes."""
        self.resume()
        try:
            self.child.close()
        finally:
            self._hang_up()
            os.close(self._reply)
            self._unshare()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _channel() -> tuple[int, int]:
    """Two ends of a connection. Unlike a pipe's they cannot be opened by their names in /proc."""
    one, other = socket.socketpair()
    return one.detach(), other.detach()


def _reply(reply: dict[str, Any]) -> dict[str, Any]:
    if reply["status"] == "refused":
        raise Refusal(str(reply.get("message")), str(reply.get("how", "unusable")))
    if reply["status"] != "ok":
        raise LoopError(f"worker: {reply.get('message')}", exit_code=3)
    return reply


def thread_environment(threads: int, cores: str = "") -> dict[str, str]:
    """Variables that hold every runtime to that many threads, and each OpenMP thread to a core of its own.

    Two threads that spin for each other on one core, because something else ran on the other for a moment, take
    scheduler slices instead of microseconds. Which core the first thread has is left to chance: processes that
    load at once do not all load there.
    """
    names = ("LOOP_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    places = [f"{{{core}}}" for core in cores.split(",")]
    first = random.randrange(len(places))
    bound = {"OMP_PROC_BIND": "true", "OMP_PLACES": ",".join([*places[first:], *places[:first]])}
    padding = {"LOOP_PADDING": "." * random.randrange(PADDING_BYTES)}
    return {**dict.fromkeys(names, str(threads)), **(bound if len(places) > 1 else {}), **padding}


def _spare_cores(threads: int) -> int:
    """Cores that a worker with so many threads leaves to us."""
    given = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(0, given - threads)


def _cores(threads: int, pinned: bool) -> str:
    """The cores a pinned worker keeps to, as `2,3`: the last ones, for the first serve most interrupts."""
    if not pinned or not hasattr(os, "sched_getaffinity"):
        return ""
    return ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[-threads:])
