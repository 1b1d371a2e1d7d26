"""The parent's end of a child process that answers requests, judge or worker alike."""

import contextlib
import os
import random
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from loop.base.errors import WorkFailed
from loop.base.processes import MEMORY, Child, Tick, describe_exit, is_stopped, python_path, run, run_to_end
from loop.calls.arena import Arena, Bell
from loop.calls.invocation import LOST, STRAY
from loop.machine.machine import available_memory
from loop.model.causes import Cause
from loop.model.dtypes import Device
from loop.model.target import CAbiVariant
from loop.workers.messages import No, Request, read_reply, request_line
from loop.workers.nursery import THREADS, Forked, Nursery, number_descriptors

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g1")
LIBRARIES = ("libasan.so", "libubsan.so")
"""They have to be loaded before Python's own libraries."""
LAST_WORDS = re.compile(
    rf"^\S+: (runtime error: .*)|^SUMMARY: (\w+Sanitizer: .*)|^({LOST}.*)|^{STRAY}(.*)", re.MULTILINE
)
CAUSES: tuple[Cause, ...] = ("", "sanitizer", "sanitizer", "device lost", "outside")
"""The cause that each group of it stands for."""
PLACE = re.compile(r"^(\S+?):(\d+)(?::\d+)?: runtime error", re.MULTILINE)
START_LIMIT_S, ASK_LIMIT_S = 60.0, 10.0
STILL_S = 0.05
"""Seconds that we wait for a process to stop."""
PADDING_BYTES = 4096
"""The environment lies above the stack. A random size moves the stack, so that one layout is not measured for
ever."""
MOST_BYTES = 4 << 20
"""No reply is as long: the memory that an endless stream may take here."""
FORGED = "something else than its worker wrote to the worker's replies"
PASSED_ON = ("LOOP_EMULATOR_SEED",)
"""Variables of the user's that a child sees besides the usual ones: the schedule to replay."""
LEAST_MEMORY = 1 << 30
"""Bytes that a program is always given."""
R = TypeVar("R")


def sanitized_build(variant: CAbiVariant) -> CAbiVariant:
    """The variant as it is built with the sanitizers."""
    recipe = variant.build.model_copy(update={"flags": (*variant.build.flags, *FLAGS)})
    return variant.model_copy(update={"build": recipe})


def environment(compiler: str) -> dict[str, str]:
    """What a process needs that loads such a build. Raises LoopError when the compiler has no sanitizers."""
    paths = []
    for name in LIBRARIES:
        answer = run_to_end(run([compiler, f"-print-file-name={name}"], limit_s=ASK_LIMIT_S))
        paths.append(answer.output.strip())
        if "/" not in paths[-1]:
            raise WorkFailed(f"{compiler} has no {name}", hint="install the compiler's sanitizers")
    return {"LD_PRELOAD": ":".join(paths), "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}


def last_words(errors: str) -> tuple[Cause, str]:
    """What a sanitizer, or the process itself, said before it ended, in a line; empty when none did."""
    match = LAST_WORDS.search(errors)
    if match is None:
        return "", ""
    place = PLACE.search(match[0])
    where = f" at {place[1].rpartition('/')[2]}:{place[2]}" if place else ""
    return CAUSES[match.lastindex or 0], f"{match[match.lastindex or 0]}{where}"


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
        self._unanswered: deque[Request[Any]] = deque()
        inherited, words = [reply_write, *handles], ["@0", *arguments]
        try:
            child: Child | None = None
            if nursery is not None:
                with contextlib.suppress(ConnectionError):  # It is lost: workers are started one by one.
                    child = Forked(nursery, [module, *words], environment, request_read, inherited)
            self.child = child or Child(
                [*under, sys.executable, "-P", "-m", module, *number_descriptors(words, inherited)],
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
        while b"\n" not in self._pending:
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
        try:
            reply = read_reply(bytes(line), self._unanswered.popleft().reply_type())
        except (ValueError, RecursionError, IndexError) as error:  # Nobody answers what nobody asked.
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
        return b"\n" in self._pending

    def _take(self) -> bool:
        """Read what has arrived; whether anything had."""
        try:
            data = os.read(self._reply, 1 << 16)
        except (BlockingIOError, ConnectionError):
            return False
        self._pending += data
        return bool(data)

    def lost(self, kind: str, how: str) -> WorkerLost:
        """Kill the child, and say how it was lost."""
        self.child.kill()
        errors = self.child.errors.text
        cause, words = last_words(errors)
        if (self.child.code or 0) > 0:  # It ended by itself, and may have said why.
            how = ": ".join([how, *(line[:200] for line in errors.strip().splitlines()[-1:])])
        return WorkerLost(kind, words or how, errors[-2000:], cause)

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
        try:
            self.child.close()
        finally:
            self._hang_up()
            os.close(self._reply)


def passed_on() -> dict[str, str]:
    """Variables of the user's that a child sees besides the usual ones."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def memory_bounds(device: Device) -> dict[str, str]:
    """Variables that bind a program on a CPU to the memory that there is now, and at least to `LEAST_MEMORY`."""
    return {MEMORY: str(max(available_memory(), LEAST_MEMORY))} if device == "cpu" else {}


def thread_environment(threads: int, cores: str = "") -> dict[str, str]:
    """Variables that hold every runtime to that many threads, and each OpenMP thread to a core of its own.

    Two threads that spin for each other on one core take scheduler slices instead of microseconds. The first core
    is left to chance: processes that load at once do not all load there.
    """
    variables = dict.fromkeys(THREADS, str(threads))
    places = [f"{{{core}}}" for core in cores.split(",")]
    if len(places) > 1:
        first = random.randrange(len(places))
        variables |= {"OMP_PROC_BIND": "true", "OMP_PLACES": ",".join([*places[first:], *places[:first]])}
    return {**variables, "LOOP_PADDING": "." * random.randrange(PADDING_BYTES)}


class Worker(Program):
    """One worker process. It keeps to cores of its own, and shares memory with us: its calls can be timed."""

    def __init__(
        self,
        threads: int,
        *,
        environment: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
        nursery: Nursery | None = None,
    ) -> None:
        self.cores = timed_cores(threads)
        """Numbers of the cores it keeps to, with commas; empty where the system chooses."""
        self._paused = False
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.bell = None if available > threads else Bell()
        """How we sleep while it works; None where we have a core of our own to watch from."""
        self.arena = Arena()
        handles = [self.arena.handle, *(self.bell.handles if self.bell else ())]
        try:
            super().__init__(
                "loop.workers.worker_program",
                *(self.cores, *(f"@{number}" for number in range(1, 1 + len(handles)))),
                environment={**thread_environment(threads, self.cores), **(environment or {})},
                handles=handles,
                under=under,
                nursery=nursery,
            )
        except BaseException:
            self._unshare()
            raise

    def _unshare(self) -> None:
        self.arena.close()
        if self.bell:
            self.bell.close()

    def pause(self) -> None:
        """Stop the child's process group, so that nothing of it runs while another side is timed."""
        if self._paused or self.child.code is not None:
            return
        self._paused = True
        self._signal(signal.SIGSTOP)
        end = time.monotonic() + STILL_S  # On a busy machine it has to be given a core first.
        while not is_stopped(self.child.process.pid) and time.monotonic() < end:
            time.sleep(1e-5)

    def resume(self) -> None:
        """Let it go on."""
        if self._paused:
            self._paused = False
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # It has died: `receive` says how.
            os.killpg(self.child.process.pid, number)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """While it lasts nothing of the child runs."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def close(self) -> None:
        """End the child, and free its pipes and the memory that we share."""
        self.resume()
        try:
            super().close()
        finally:
            self._unshare()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def timed_cores(threads: int) -> str:
    """The cores that a worker keeps to, as `2,3`: the last ones, for the first serve most interrupts."""
    if not hasattr(os, "sched_getaffinity"):
        return ""
    return ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[-threads:])
