"""The parent's end of a child process that answers requests, judge or worker alike."""

import contextlib
import os
import random
import socket
import sys
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

from loop.base.linux import MEMORY
from loop.base.processes import Child, Tick, describe_exit, python_path
from loop.machine.machine import available_memory
from loop.model.causes import Cause
from loop.model.dtypes import Device
from loop.workers import sanitizers
from loop.workers.nursery import Forked, Nursery, NurseryLost, numbered
from loop.workers.wire import MOST_BYTES, Malformed, No, Request, read_reply, request_line

START_LIMIT_S = 60.0
PADDING_BYTES = 4096
"""The environment lies above the stack. A random size moves the stack, so that one layout is not measured for
ever."""
FORGED = "something else than its worker wrote to the worker's replies"
PASSED_ON = ("LOOP_EMULATOR_SEED",)
"""Variables of the user's that a child sees besides the usual ones: the schedule to replay."""
LEAST_MEMORY = 1 << 30
"""Bytes that a program is always given."""
R = TypeVar("R")


class WorkerLost(Exception):
    """The child crashed or hung as it answered: `kind` says which, `how` in words, `cause` what it said of it."""

    def __init__(self, kind: str, how: str, errors: str, cause: Cause = "") -> None:
        super().__init__(how)
        self.kind, self.how, self.errors, self.cause = kind, how, errors, cause


class Refusal(Exception):
    """The child answered that it cannot do what was asked: `no` says why."""

    def __init__(self, no: No) -> None:
        super().__init__(no.message)
        self.no, self.cause = no, no.cause


class Program:
    """One child process, started by the tool `under` where there is one. Not usable after WorkerLost."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str],
        handles: Sequence[int] = (),
        under: Sequence[str] = (),
        nursery: Nursery | None = None,
    ) -> None:
        """`handles` are descriptors that it inherits; an argument `@N` stands for the number of the Nth."""
        # Unlike a pipe's, the ends of a socket cannot be opened by their names in /proc.
        request_read, self._request, self._reply, reply_write = (
            end.detach() for _ in range(2) for end in socket.socketpair()
        )
        os.set_blocking(self._reply, False)
        self._pending = bytearray()
        self._lines = 0
        """Whole replies in what is pending."""
        self._unanswered: deque[Request[Any]] = deque()
        inherited, words = [reply_write, *handles], ["@0", *arguments]
        try:
            child: Child | None = None
            if nursery is not None:
                with contextlib.suppress(NurseryLost):
                    child = Forked(nursery, [module, *words], environment, request_read, inherited)
            self.child = child or Child(
                [*under, sys.executable, "-P", "-m", module, *numbered(words, inherited)],
                env={"PYTHONPATH": python_path(), **passed_on(), **environment},
                stdin=request_read,
                pass_fds=inherited,
            )
        except BaseException:
            for fd in (self._request, self._reply):
                os.close(fd)
            raise
        finally:
            os.close(request_read)
            os.close(reply_write)
        self.child.watch(self._reply)

    def send(self, request: Request[Any]) -> None:
        """Send a request without waiting for its reply; `receive` takes it up."""
        self._unanswered.append(request)
        with contextlib.suppress(ConnectionError):  # It has died: `receive` says how.
            os.write(self._request, request_line(request).encode())

    def receive(self, limit_s: float, note: str) -> Generator[Tick, None, Any]:
        """The reply to the oldest unanswered request.

        Raises WorkerLost when the child dies or `limit_s` passes, Refusal when it says no.
        """
        begun = self.child.seconds
        while not self._lines:
            if self.child.seconds - begun > limit_s:
                raise self.lost("hung", f"no answer for {limit_s:g} s: killed")
            self.child.pump()
            if not self._take() and self.child.code is not None:
                alone = "ended by itself, " if self.child.code >= 0 else ""
                raise self.lost("crashed", f"{alone}{describe_exit(self.child.code)}")
            yield Tick(note)
            if len(self._pending) > MOST_BYTES:
                raise self.lost("tampered", FORGED)
        line, _, self._pending = self._pending.partition(b"\n")
        self._lines -= 1
        try:
            reply = read_reply(bytes(line), self._unanswered.popleft().reply_type())
        except (Malformed, IndexError) as error:  # Nobody answers what nobody asked.
            raise self.lost("tampered", FORGED) from error
        if self._pending and not self._unanswered:
            raise self.lost("tampered", FORGED)
        if isinstance(reply, No):
            raise Refusal(reply)
        return reply

    def ask(self, request: Request[R], *, limit_s: float, note: str) -> Generator[Tick, None, R]:
        """Send a request and wait for its reply."""
        self.send(request)
        reply: R = yield from self.receive(limit_s, note)
        return reply

    @property
    def has_answered(self) -> bool:
        """Whether a reply is there to be received."""
        self._take()
        return self._lines > 0

    def _take(self) -> bool:
        """Read what has arrived; whether anything had."""
        try:
            data = os.read(self._reply, 1 << 16)
        except (BlockingIOError, ConnectionError):
            return False
        self._pending += data
        self._lines += data.count(b"\n")
        return bool(data)

    def lost(self, kind: str, how: str) -> WorkerLost:
        """Kill the child, and say how it was lost."""
        self.child.kill()
        errors = self.child.errors.text
        cause, last_words = sanitizers.last_words(errors)
        if (self.child.code or 0) > 0:  # It ended by itself, and may have said why.
            how = ": ".join([how, *(line[:200] for line in errors.strip().splitlines()[-1:])])
        return WorkerLost(kind, last_words or how, errors[-2000:], cause)

    def end(self, limit_s: float, note: str) -> Generator[Tick, None, int]:
        """Ask for nothing more and wait until the child has ended by itself; its exit status.

        A tool that it runs under writes its findings then. Raises WorkerLost after `limit_s`.
        """
        begun = self.child.seconds
        self._hang_up()  # It ends when it has read the last request.
        while self.child.code is None:
            if self.child.seconds - begun > limit_s:
                raise self.lost("hung", f"it did not end within {limit_s:g} s: killed")
            self.child.pump()
            yield Tick(note)
        return self.child.code

    def _hang_up(self) -> None:
        """Close the pipe of requests."""
        if self._request >= 0:
            os.close(self._request)
            self._request = -1

    def close(self) -> None:
        """End the child and free its pipes."""
        try:
            self.child.close()
        finally:
            self._hang_up()
            os.close(self._reply)


def passed_on() -> dict[str, str]:
    """Variables of the user's that a child sees besides the usual ones."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def within(device: Device) -> dict[str, str]:
    """Variables that bind a program on a CPU to the memory that there is now, and at least to `LEAST_MEMORY`."""
    return {MEMORY: str(max(available_memory(), LEAST_MEMORY))} if device == "cpu" else {}


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
