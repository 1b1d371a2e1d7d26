"""The session's side of its child processes, judge and workers, and orders that time workers."""

import contextlib
import os
import pickle
import random
import re
import resource
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from pydantic import TypeAdapter

from loop.base.errors import MachineFailure, WorkFailed
from loop.base.own_process import MEMORY_VARIABLE
from loop.base.processes import Child, Tick, Waiting, describe_exit, python_path, run, run_to_end
from loop.calls.arena import CALL_COUNT, DONE_ORDER, LEAVE, ORDER, ORDER_KIND, RUN, WORKER_NS, Arena
from loop.calls.call import Call, Refused
from loop.calls.invocation import LOST_PREFIX, STRAY_PREFIX
from loop.machine.machine import available_memory, cores, count_memory_kills
from loop.model.causes import Cause
from loop.model.dtypes import Device
from loop.workers.judge_messages import CheckEnvironment, PrepareAnswer, SetTarget
from loop.workers.messages import ObeyOrders, RefusalReply, Request
from loop.workers.nursery import PASSIVE_WAITING, THREAD_VARIABLES, ForkedProcess, Nursery

SANITIZER_FLAGS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer",
    "-g1",
)
SANITIZER_LIBRARIES = ("libasan.so", "libubsan.so")  # Preloaded before Python's own libraries.
FAULT_MESSAGE = re.compile(
    r"(?m)^\S+: (runtime error: .*)|^SUMMARY: (\w+Sanitizer: .*)"
    rf"|^({LOST_PREFIX}.*)|^{STRAY_PREFIX}(.*)"
)
FAULT_CAUSES: tuple[Cause, ...] = ("", "sanitizer", "sanitizer", "device lost", "outside")
"""Cause for each group of FAULT_MESSAGE; group 0 is the whole match."""
SOURCE_LOCATION = re.compile(r"^(\S+?):(\d+)(?::\d+)?: runtime error", re.MULTILINE)
START_LIMIT_S, ASK_LIMIT_S = 60.0, 10.0
STOP_LIMIT_S = 0.05  # Seconds to wait for a process to stop after SIGSTOP.
ERROR_TAIL, ERROR_LINE = 2000, 200  # Characters kept of a lost child's stderr, and its last line.
MAX_REPLY_BYTES = 4 << 20  # Longest reply in bytes. It bounds our memory against an endless stream.
HUNG = "no answer for {:g} s: killed"
FORGED = "something else than its worker wrote to the worker's replies"
MIN_MEMORY_BYTES = 1 << 30  # Minimum memory limit of a program in bytes.
R = TypeVar("R")
make_adapter = cache(TypeAdapter)  # To make one takes a millisecond.
LIFE_CHECK_S = 20e-3  # After this wait, check that the worker lives, and let the screen update.
NAP_S = 200e-6  # After that, sleep between polls: below 1 % of the waiting time.
EMPTY_ORDERS, EMPTY_CALLS = 40, 200  # Timed orders without a real call, and empty calls in each.
CallWay = Literal["", "c_abi", "python", "kernel"]
"""How a call is made: not at all, through C, from Python, or as a kernel in a graph."""
UNTIMED_ENVIRONMENT = {**PASSIVE_WAITING, "THP_MEM_ALLOC_ENABLE": "1"}
"""Environment of processes that are never timed: with huge pages, PyTorch has about 1 % of the page
faults. Workers keep the user's default, because they are timed."""


def sanitizer_environment(compiler: str) -> dict[str, str]:
    """Variables for a sanitized build. Raises LoopError if the compiler lacks sanitizers."""
    paths = []
    for name in SANITIZER_LIBRARIES:
        question = [compiler, f"-print-file-name={name}"]
        path = run_to_end(run(question, limit_s=ASK_LIMIT_S)).output.strip()
        if "/" not in path:  # A compiler that does not find the file prints its name.
            raise WorkFailed(f"{compiler} has no {name}", hint="install the compiler's sanitizers")
        paths.append(path)
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    return {"LD_PRELOAD": ":".join(paths), **options}


def parse_fault(errors: str) -> tuple[Cause, str]:
    """Cause and message of a sanitizer or our fault handler in stderr; both empty if none."""
    match = FAULT_MESSAGE.search(errors)
    if match is None:
        return "", ""
    group = match.lastindex or 0  # The pattern's alternative that matched.
    message, cause = match[group], FAULT_CAUSES[group]
    location = SOURCE_LOCATION.search(match[0])
    if location is not None:
        message += f" at {location[1].rpartition('/')[2]}:{location[2]}"
    return cause, message


def read_reply(line: bytes, reply_type: Any) -> Any:
    """Decode a reply of type `reply_type`, or a RefusalReply. Raises ValueError for others."""
    adapter = make_adapter(Union[reply_type, RefusalReply])  # noqa: UP007 - it may be a string
    return adapter.validate_json(line, strict=True)


class WorkerLost(Exception):
    """The child crashed, hung or tampered with replies. `kind` is `crashed`, `hung` or `tampered`,
    `reason` the explanation, `errors` the end of its stderr."""

    def __init__(self, kind: str, reason: str, errors: str, cause: Cause = "") -> None:
        super().__init__(reason)
        self.kind, self.reason, self.errors, self.cause = kind, reason, errors, cause


class Program:
    """One child process and the socket to it. Unusable after WorkerLost."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str],
        handles: Sequence[int] = (),
        tool: Sequence[str] = (),
        nursery: Nursery | None = None,
    ) -> None:
        """`handles`: descriptors the child inherits; `{N}` in an argument becomes the number of the
        Nth. `tool`: command line of a tool that starts it. `nursery`: forks it, if possible."""
        # Requests and replies. A socket, because a variant could open a pipe's end through /proc.
        self._channel, peer = socket.socketpair()
        self._pending = bytearray()  # Bytes of replies that were read but not yet returned.
        self._unanswered: deque[Request[Any]] = deque()
        forked: ForkedProcess | None = None
        with peer:
            if nursery is not None:
                with contextlib.suppress(ConnectionError):  # It has died: start the child directly.
                    forked = nursery.fork(module, arguments, environment, peer.fileno(), *handles)
            numbered_arguments = [argument.format(*handles) for argument in arguments]
            self.child = Child(
                [*tool, sys.executable, "-P", "-m", module, *numbered_arguments],
                env={"PYTHONPATH": python_path(), **environment},
                stdin=peer.fileno(),
                pass_fds=handles,
                dies_by_itself=not tool,
                process=forked,
            )
        self.child.watch(self._channel.fileno())

    def send(self, request: Request[Any]) -> None:
        """Send a request without waiting; `receive` gets its reply."""
        self._unanswered.append(request)
        with contextlib.suppress(ConnectionError):  # The child has died: `receive` reports it.
            self._channel.sendall(pickle.dumps(request))

    def receive(self, limit_s: float, note: str, hung: str = HUNG) -> Waiting[Any]:
        """Wait for the reply to the oldest unanswered request. Raises WorkerLost if the child dies,
        exceeds `limit_s` (`hung`: the message, with a place for it) or sends an invalid reply;
        Refused if it refuses; MachineFailure if a limit of CPU time may have ended it."""
        start_s = self.child.seconds  # Wall time since it was started.
        while b"\n" not in self._pending:
            if self.child.seconds - start_s > limit_s:
                raise self.kill_as_lost("hung", hung.format(limit_s))
            self.child.wait_for_output()
            if not self._read_available() and self.child.code is not None:
                prefix = "ended by itself, " if self.child.code >= 0 else ""
                raise self.kill_as_lost("crashed", f"{prefix}{describe_exit(self.child.code)}")
            yield Tick(note)
            if len(self._pending) > MAX_REPLY_BYTES:
                raise self.kill_as_lost("tampered", FORGED)
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            reply = read_reply(bytes(line), self._unanswered.popleft().reply_type())
        except (ValueError, IndexError) as error:  # An invalid reply, or one without a request.
            raise self.kill_as_lost("tampered", FORGED) from error
        if self._pending and not self._unanswered:
            raise self.kill_as_lost("tampered", FORGED)
        if isinstance(reply, RefusalReply):
            raise Refused(reply.message, reply.cause, reply.code, reply.seed)
        return reply

    def ask(self, request: Request[R], limit_s: float, note: str, hung: str = HUNG) -> Waiting[R]:
        """Send a request, unless it was sent early, and `receive` its reply. Replies to others that
        were sent early are dropped: none may be taken for that of this request."""
        while self._unanswered and self._unanswered[0] != request:
            with contextlib.suppress(Refused):
                yield from self.receive(limit_s, note)
        if not self._unanswered:
            self.send(request)
        reply: R = yield from self.receive(limit_s, note, hung)
        return reply

    @property
    def has_reply(self) -> bool:
        """Whether a whole reply has arrived. Reads what has arrived so far, without waiting."""
        self._read_available()
        return b"\n" in self._pending

    def _read_available(self) -> bool:
        """Read available bytes of replies without waiting; return whether there were any."""
        received = b""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            received = self._channel.recv(1 << 16, socket.MSG_DONTWAIT)
        self._pending += received
        return bool(received)

    def kill_as_lost(self, kind: str, reason: str) -> WorkerLost:
        """Kill the child; return the WorkerLost to raise. A message of a sanitizer or of our fault
        handler in stderr replaces `reason`. MachineFailure: a CPU time limit may have ended it."""
        self.child.kill()
        code = self.child.code
        errors = self.child.errors.text
        is_limited = resource.getrlimit(resource.RLIMIT_CPU)[0] != resource.RLIM_INFINITY
        if is_limited and kind == "crashed" and code in (-signal.SIGXCPU, -signal.SIGKILL):
            raise MachineFailure(f"{reason}: its CPU time is limited", "raise it with `ulimit -t`")
        cause, fault_message = parse_fault(errors)
        if (code or 0) > 0 and errors.strip():
            # The child exited by itself: its last line may say why.
            reason = f"{reason}: {errors.strip().splitlines()[-1][:ERROR_LINE]}"
        return WorkerLost(kind, fault_message or reason, errors[-ERROR_TAIL:], cause)

    def wait_for_end(self, limit_s: float, note: str) -> Waiting[int]:
        """Send no more requests and wait until the child exits; return its exit status. A tool such
        as a profiler writes its results then. Raises WorkerLost after `limit_s`."""
        start_s = self.child.seconds
        self._channel.shutdown(socket.SHUT_WR)
        while self.child.code is None:
            if self.child.seconds - start_s > limit_s:
                raise self.kill_as_lost("hung", f"it did not end within {limit_s:g} s: killed")
            self.child.wait_for_output()
            yield Tick(note)
        return self.child.code

    def close(self) -> None:
        """End the child and close the socket."""
        try:
            self.child.close()
        finally:
            self._channel.close()


def memory_limit(device: Device) -> dict[str, str]:
    """Variables that limit a CPU program to the free memory; empty on a GPU: drivers map more."""
    if device == "cuda":
        return {}
    return {MEMORY_VARIABLE: str(max(available_memory(), MIN_MEMORY_BYTES))}


def thread_environment(threads: int, cores: str = "") -> dict[str, str]:
    """Variables that set every runtime to `threads` threads, each OpenMP thread on its own core;
    two spinning on one core would wait for scheduler slices. `cores`: comma-separated numbers;
    empty: any. The first core is random, so that processes that load at once do not share it."""
    variables = dict.fromkeys(THREAD_VARIABLES, str(threads))
    places = [f"{{{core}}}" for core in cores.split(",")]  # OpenMP's syntax: {2},{3}.
    if len(places) > 1:
        first = random.randrange(len(places))
        variables["OMP_PROC_BIND"] = "true"
        variables["OMP_PLACES"] = ",".join([*places[first:], *places[:first]])
    return variables


class Worker(Program, contextlib.AbstractContextManager["Worker"]):
    """One worker process with its own cores and with shared memory for timed calls."""

    def __init__(
        self,
        threads: int,
        *,
        environment: Mapping[str, str] | None = None,
        tool: Sequence[str] = (),
        nursery: Nursery | None = None,
    ) -> None:
        """`threads`: it gets as many cores. `environment`, `tool`, `nursery`: as in `Program`."""
        self.cores = choose_cores(threads)  # Comma-separated numbers of its cores.
        self._is_paused = False
        self.bells = None if len(os.sched_getaffinity(0)) > threads else socket.socketpair()
        """Sockets of judge and worker to wake each other; None if a core is free to poll from."""
        self.arena = Arena()
        handles = [self.arena.file_descriptor, *([self.bells[1].fileno()] if self.bells else [])]
        try:
            super().__init__(
                "loop.workers.worker_program",
                self.cores,
                *(f"{{{number}}}" for number in range(len(handles))),
                environment={**thread_environment(threads, self.cores), **(environment or {})},
                handles=handles,
                tool=tool,
                nursery=nursery,
            )
        except BaseException:
            self.arena.close()  # Nobody else would: who failed to start it has no worker to close.
            raise

    def pause(self) -> None:
        """Suspend the child's process group, so that it uses no core while others are timed."""
        if self._is_paused or self.child.code is not None:
            return
        self._is_paused = True
        # A busy machine stops the child only when it schedules it. `receive` reports a dead one.
        end_s, pid = time.monotonic() + STOP_LIMIT_S, self.child.process.pid
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGSTOP)
            with open(f"/proc/{pid}/stat", "rb", 0) as file:
                while file.read().rpartition(b")")[2][:2] != b" T" and time.monotonic() < end_s:
                    time.sleep(1e-5)
                    file.seek(0)

    def resume(self) -> None:
        """Continue a stopped child."""
        if self._is_paused:
            self._is_paused = False
            with contextlib.suppress(ProcessLookupError):  # It has died: `receive` reports it.
                os.killpg(self.child.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Continue the child if it is stopped, end it, close its sockets and the shared memory."""
        self.resume()
        try:
            super().close()
        finally:
            self.arena.close()
            for bell in self.bells or ():
                bell.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def choose_cores(threads: int) -> str:
    """Cores for a worker, such as `2,3`: the last ones, as the first serve most interrupts."""
    return ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[-threads:])


class Orders:
    """Sends timed orders to one worker through shared memory, until the worker leaves this mode."""

    def __init__(self, worker: Worker, limit_s: float, note: str) -> None:
        """`limit_s`: for one order. `note`: what the screen shows meanwhile."""
        self.worker, self.limit_s, self.note = worker, limit_s, note

    def enter(self, empty_way: str | None = None) -> None:
        """Make the worker wait for orders with other numbers than the last one's. `empty_way`: its
        orders make empty calls in this way (for floors), or none if ""; None: the staged calls."""
        self.worker.send(ObeyOrders(self.worker.arena.control_words[ORDER], empty_way))

    def leave(self) -> Waiting[tuple[str, ...]]:
        """Return the worker to normal requests; return its functions that the variant replaced."""
        yield from self.give_order(LEAVE)
        replaced: tuple[str, ...] = yield from self.worker.receive(self.limit_s, self.note)
        return replaced

    def give_order(self, operation: int) -> Waiting[float]:
        """Give one order and wait for it; return seconds by the judge's clock. Raises WorkerLost if
        the worker dies or exceeds the limit, Refused if the call fails. The order's number is
        random, so a variant cannot report an order as done in advance."""
        words, clock_ns = self.worker.arena.control_words, time.perf_counter_ns
        number = random.SystemRandom().getrandbits(63) | 1
        words[ORDER_KIND] = operation
        start_ns = clock_ns()
        words[ORDER] = number
        if self.worker.bells:  # They share a core, so neither can poll.
            bell = self.worker.bells[0]
            bell.settimeout(LIFE_CHECK_S)
            bell.send(b"x")
            while True:
                with contextlib.suppress(TimeoutError):
                    bell.recv(1)
                    if words[DONE_ORDER] == number:
                        return (clock_ns() - start_ns) / 1e9
                yield from self._check_worker(clock_ns() - start_ns, number)
        next_check_ns, is_long_wait = start_ns + int(LIFE_CHECK_S * 1e9), False
        while words[DONE_ORDER] != number:
            if clock_ns() > next_check_ns:
                yield from self._check_worker(clock_ns() - start_ns, number)
                next_check_ns, is_long_wait = clock_ns() + int(LIFE_CHECK_S * 1e9), True
            elif is_long_wait:
                time.sleep(NAP_S)
        return (clock_ns() - start_ns) / 1e9

    def _check_worker(self, waited_ns: int, number: int) -> Waiting[None]:
        """Check that the worker still lives; raise WorkerLost or Refused otherwise. After LEAVE,
        the worker replies at once: an answer is no failure if that order is done."""
        yield Tick(self.note)
        has_left = self.worker.has_reply or self.worker.child.code is not None
        words = self.worker.arena.control_words
        if has_left and (words[ORDER_KIND] != LEAVE or words[DONE_ORDER] != number):
            yield from self.worker.receive(self.limit_s, self.note)
            raise WorkerLost("crashed", "it left its orders undone", "")
        if waited_ns / 1e9 > self.limit_s:
            raise self.worker.kill_as_lost("hung", HUNG.format(self.limit_s))

    @contextlib.contextmanager
    def keep_off_worker_cores(self) -> Iterator[None]:
        """Context in which this process runs on other cores than the worker, if there are any."""
        all_cores = os.sched_getaffinity(0)
        worker_cores = {int(core) for core in self.worker.cores.split(",")}
        os.sched_setaffinity(0, all_cores - worker_cores or all_cores)
        try:
            yield
        finally:
            os.sched_setaffinity(0, all_cores)


@dataclass(frozen=True)
class Floors:
    """Times of empty calls in a worker without a variant: no real call can be faster."""

    order_s: float  # Of an order without calls; subtracted from the judge's time of a sample.
    call_s_by_way: Mapping[CallWay, float]  # Way to seconds of one empty call.


def time_empty_orders(worker: Worker, way: CallWay) -> Waiting[list[tuple[float, float]]]:
    """Time EMPTY_ORDERS orders of EMPTY_CALLS calls that do nothing. Each pair: seconds by the
    judge's clock, and by the GPU's (0 without one). Raises Refused if the way lacks its GPU."""
    orders, words = Orders(worker, START_LIMIT_S, "timing empty calls"), worker.arena.control_words
    orders.enter(way)
    words[CALL_COUNT] = EMPTY_CALLS if way else 0
    with orders.keep_off_worker_cores():
        timings = []
        for _ in range(EMPTY_ORDERS):
            judge_s = yield from orders.give_order(RUN)
            timings.append((judge_s, words[WORKER_NS] / 1e9))
    yield from orders.leave()
    return timings


def run_untimed(
    module: str, terms: str, *, limit_s: float, device: Device = "cpu", folder: Path | None = None
) -> str:
    """Run `python -m MODULE TERMS RESULT`; the file TERMS holds `terms`. Returns what it writes to
    RESULT. `folder`: where it runs; None: an empty one. Raises WorkFailed if it writes nothing."""
    env = {"PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"TORCH_COMPILE_DISABLE": "1", **UNTIMED_ENVIRONMENT, **memory_limit(device)}
    with tempfile.TemporaryDirectory(prefix="loop-", ignore_cleanup_errors=True) as scratch:
        terms_file, result_file = Path(scratch) / "terms.json", Path(scratch) / "result.json"
        terms_file.write_text(terms)
        command = [sys.executable, "-m", module, str(terms_file), str(result_file)]
        completed = run_to_end(run(command, limit_s=limit_s, cwd=folder or Path(scratch), env=env))
        if not result_file.is_file():
            last_line = (completed.errors.strip().splitlines() or [completed.ending])[-1]
            raise WorkFailed(f"a process ended without a result: {last_line}")
        return result_file.read_text()


class Unjudged(WorkFailed):
    """This workload cannot be judged, as the reference raises or overflows. Others may be fine."""


@dataclass
class JudgeProcess:
    """One judge process for all benches of a session. It holds one target at a time."""

    target: SetTarget | None = None  # The current target.
    answers: dict[str, tuple[PrepareAnswer, Call]] = field(default_factory=dict)
    """Call key to the request for an answer that the judge holds, and the call with all tensors."""
    device: Device = "cuda"  # On `cpu` the process has a memory limit; GPU drivers map much.
    nursery: Nursery | None = None  # Forks the judge with torch imported; None: start it directly.
    _program: Program | None = None
    _earlier_kills: int = 0  # Processes that the system had already killed for lack of memory.

    def find_answered(self, target: SetTarget, key: str) -> tuple[PrepareAnswer, Call] | None:
        """The entry of `answers` for a call; None if the judge holds no such answer of `target`."""
        return self.answers.get(key) if self.target == target else None

    def start_program(self) -> Program:
        """The running process; starts one if necessary."""
        if self._program is None:
            environment = {**thread_environment(cores()), **UNTIMED_ENVIRONMENT}
            environment |= memory_limit(self.device)
            self._earlier_kills = count_memory_kills()
            module = "loop.workers.judge_program"
            self._program = Program(module, environment=environment, nursery=self.nursery)
        return self._program

    def end(self) -> None:
        """End the process. The next request starts a new one."""
        if self._program is not None:
            self._program.close()
        self._program, self.target = None, None
        self.answers.clear()

    def ask(self, target: SetTarget, request: Request[R], limit_s: float, note: str) -> Waiting[R]:
        """Send a request about a target, and before it the target if the process holds another;
        return the reply. Raises WorkFailed if it is refused or the process dies. Raises
        MachineFailure if the system killed the process for lack of memory."""
        work = note  # Of the request that is under way.
        try:
            judge = self.start_program()
            if self.target != target and not isinstance(request, CheckEnvironment):
                self.answers.clear()  # It forgets the last target's.
                work = "importing torch"
                yield from judge.ask(target, limit_s=START_LIMIT_S, note=work)
                self.target, work = target, note
            return (yield from judge.ask(request, limit_s=limit_s, note=note))
        except WorkerLost as lost:
            self.end()
            message = f"{work}: the judging process was lost: {lost.reason}"
            if lost.kind == "crashed" and count_memory_kills() > self._earlier_kills:
                hint = "free some, or take fewer variants or a smaller workload"
                raise MachineFailure(f"{message}: memory ran out", hint) from lost
            last_line = lost.errors.strip().rpartition("\n")[2]
            raise WorkFailed(message, hint=last_line or None) from lost
        except Refused as refusal:
            if isinstance(request, CheckEnvironment):
                raise WorkFailed(str(refusal), hint="see `loop doctor`") from refusal
            failure = Unjudged if refusal.cause == "raised" else WorkFailed
            # Errors of the target's functions name their workload; others, as of memory, do not.
            message = f"{work}: {refusal}" if refusal.code else str(refusal)
            raise failure(message, hint="look at that function of the target's") from refusal
