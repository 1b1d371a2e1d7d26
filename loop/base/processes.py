"""Runs each command and worker in its own process group, with a time limit and capped output.

A process that exceeds its limit is killed with all its children. `loop` adopts orphans (`prctl(2)`,
PR_SET_CHILD_SUBREAPER), so that daemons stay its children and end with it.

Signals are flags: a handler stores the signal, and the code looks at it at safe points. An
exception from a handler could split a journal write, or be lost while Python forks."""

import atexit
import contextlib
import itertools
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, TypeVar

import psutil

from loop.base.errors import CannotStart, ExitCode, Stopped, WorkFailed
from loop.base.own_process import adopt_orphans, die_with_parent

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME_SIGNAL_S = 1.0  # A second signal within it counts as the first: terminal and parent send one.
TICK_S = 0.1  # Longest time between two ticks of a wait.
HEARTBEAT_S = 30.0  # After so long without output, `loop` repeats what it is doing.
END_CHILDREN_S = 5.0  # Time in which the children of a command that ends are killed.
KILL_WAIT_S = 20  # Seconds to wait for a killed process: its driver first stops its GPU kernels.
READ_REST_S = 0.2  # Time to read what a killed process has left in its pipes.
OUTPUT_CAP = 1 << 20  # Bytes kept of one stream: the first quarter and the last three quarters.
INHERITED_VARIABLES = [
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "SHELL", "TERM",
    "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "PYTHONPATH", "VIRTUAL_ENV",
    "PYTHONNOUSERSITE", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "CUDA_MPS_PIPE_DIRECTORY", "NVIDIA_VISIBLE_DEVICES", "TRITON_CACHE_DIR", "TORCH_HOME",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "LOOP_EMULATOR_SEED",
]  # fmt: skip
"""Environment variables that a child inherits, besides LC_*. Others may contain secrets."""
STARTED_PIDS: set[int] = set()  # Children that were started here. All others are adopted orphans.
_signal_state = SimpleNamespace(is_active=False, number=0, arrived_at=0.0, is_reported=False)
"""`number`: the first signal; 0: none. `is_active`: inside `signals_as_flags`. `is_reported`:
whether Stopped was raised for the signal."""


def store_signal_number(number: int) -> None:
    """Store a signal that another handler caught, so that `raise_if_signalled` reports it."""
    _signal_state.number = number


def _store_signal(number: int, frame: FrameType | None) -> None:
    """Store the first signal. One more, after `SAME_SIGNAL_S`, kills this process and children."""
    if not _signal_state.number:
        _signal_state.number, _signal_state.arrived_at = number, time.monotonic()
    elif time.monotonic() - _signal_state.arrived_at > SAME_SIGNAL_S:
        kill_all_children()
        os._exit(ExitCode.INTERRUPTED)


@contextlib.contextmanager
def signals_as_flags() -> Iterator[None]:
    """Store the first signal in this block as a flag, for `raise_if_signalled`; another kills this
    process and its children. Raises Stopped at once for a signal that another handler stored, and
    at the end for one that was not reported. Inside another such block it changes nothing."""
    if _signal_state.is_active:
        yield
        return
    raise_if_signalled()
    _signal_state.is_active, _signal_state.is_reported = True, False
    previous_handlers = {name: signal.signal(name, _store_signal) for name in SIGNALS}
    try:
        yield
        if not _signal_state.is_reported:
            raise_if_signalled()
    finally:
        _signal_state.is_active, _signal_state.number = False, 0
        for name, handler in previous_handlers.items():
            signal.signal(name, handler)


def raise_if_signalled() -> None:
    """Raise Stopped if a signal has come. Call it only where no work is half done."""
    if _signal_state.number:
        _signal_state.is_reported = True
        name = signal.Signals(_signal_state.number).name
        raise Stopped(f"interrupted by {name}", ExitCode.INTERRUPTED)


@dataclass(frozen=True)
class Tick:
    """A progress note that a generator yields while it waits for a process."""

    note: str  # What it waits for, in a few words.
    is_urgent: bool = False  # Whether to print the note at once, also without a terminal.


Result = TypeVar("Result")
Waiting = Generator[Tick, None, Result]  # Yields ticks while it waits, then returns its result.


@dataclass
class CappedStream:
    """The beginning and the end of a stream, and the number of bytes dropped between them."""

    max_bytes: int = OUTPUT_CAP
    kept: bytearray = field(default_factory=bytearray)
    dropped_bytes: int = 0

    def add(self, read_bytes: bytes) -> None:
        """Append what was read; drop bytes above the cap, behind the first quarter of it."""
        self.kept += read_bytes
        excess_bytes = max(0, len(self.kept) - self.max_bytes)
        del self.kept[self.max_bytes // 4 : self.max_bytes // 4 + excess_bytes]
        self.dropped_bytes += excess_bytes

    @property
    def text(self) -> str:
        """The stream as text, with a line that tells how many bytes were dropped."""
        if not self.dropped_bytes:
            return self.kept.decode(errors="replace")
        head_bytes = self.max_bytes // 4
        gap_line = f"\n... {self.dropped_bytes} bytes left out ...\n".encode()
        return (self.kept[:head_bytes] + gap_line + self.kept[head_bytes:]).decode(errors="replace")


@dataclass(frozen=True)
class Completed:
    """How a process ended."""

    command: tuple[str, ...]
    code: int  # Exit status; negative for a signal.
    output: str  # Standard output, capped.
    errors: str  # Standard error, capped.
    seconds: float
    timed_out: bool

    @property
    def succeeded(self) -> bool:
        """Whether it exited with 0 in time."""
        return self.code == 0 and not self.timed_out

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        return f"killed after {self.seconds:.1f} s" if self.timed_out else describe_exit(self.code)


def describe_exit(code: int) -> str:
    """An exit status in words: `exit 1`; a negative one is a signal: `crashed with SIGSEGV`."""
    if code >= 0:
        return f"exit {code}"
    try:
        return f"crashed with {signal.Signals(-code).name}"
    except ValueError:
        return f"crashed with signal {-code}"


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The allow-listed environment of a child, with `extra` on top."""
    variables = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    variables |= {name: value for name, value in os.environ.items() if name.startswith("LC_")}
    return variables | dict(extra or {})


class Child:
    """A running process and its descendants. As a context manager it kills them all in the end."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        pass_fds: Sequence[int] = (),
        dies_by_itself: bool = False,
        process: Any = None,
    ) -> None:
        """`stdin`, `pass_fds`: descriptors it inherits; no `stdin`: empty input. `dies_by_itself`:
        it calls `die_with_parent`, so we need not be copied (`vfork`): it starts ten times faster.
        `process`: one that runs `command` already, with a `Popen`'s interface; None: start it."""
        self.command = tuple(command)
        self.output, self.errors = CappedStream(), CappedStream()
        self.start_time = time.monotonic()
        if process is None:
            adopt_orphans()
            try:
                process = subprocess.Popen(
                    self.command,
                    cwd=cwd,
                    env=child_environment(env),
                    stdin=subprocess.DEVNULL if stdin is None else stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    pass_fds=tuple(pass_fds),
                    preexec_fn=None if dies_by_itself else die_with_parent,
                )
            except OSError as error:
                program, place = self.command[0], ""
                hint = f"check that `{program}` is installed and on the PATH"
                if cwd is not None and not cwd.is_dir():
                    place, hint = f" in {cwd}", "make the folder"
                message = f"cannot start {program}{place}: {error.strerror or error}"
                raise CannotStart(message, hint) from error
        self.process: Any = process
        STARTED_PIDS.add(self.process.pid)
        self._selector = selectors.DefaultSelector()
        for stream, buffer in ((process.stdout, self.output), (process.stderr, self.errors)):
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, buffer)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def watch(self, fd: int) -> None:
        """End `wait_for_output` also when `fd` has data to read, which is not read."""
        self._selector.register(fd, selectors.EVENT_READ, None)

    def wait_for_output(self, seconds: float = TICK_S) -> None:
        """Add what the child has written to `output` and `errors`; wait for at most `seconds`."""
        if not self._selector.get_map():  # Both pipes are closed: there is nothing to wait for.
            time.sleep(min(seconds, 0.01))
            return
        for key, _ in self._selector.select(seconds):
            if key.data is None:  # From `watch`: it only ends the wait.
                continue
            if data := os.read(key.fd, 1 << 16):
                key.data.add(data)
            else:
                self._selector.unregister(key.fileobj)

    @property
    def code(self) -> int | None:
        """Exit status once it has ended; negative for a signal."""
        status: int | None = self.process.poll()
        return status

    @property
    def seconds(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.start_time

    def kill(self) -> None:
        """Kill the child and its descendants, wait, and read what its pipes still hold. Raises
        WorkFailed if it cannot be killed."""
        kill_trees([self.process.pid])
        try:
            self.process.wait(timeout=KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            raise WorkFailed(
                f"{self.command[0]} (pid {self.process.pid}) cannot be killed",
                hint="it hangs inside the kernel or a driver; a reboot frees the device",
            ) from None
        deadline = time.monotonic() + READ_REST_S
        open_streams = self._selector.get_map()  # Shrinks when a wait has read a pipe to its end.
        while time.monotonic() < deadline:
            if all(key.data is None for key in open_streams.values()):  # Only those of `watch`.
                break
            self.wait_for_output(0.02)

    def close(self) -> None:
        """Kill remaining processes and close the pipes."""
        try:
            self.kill()
        finally:
            STARTED_PIDS.discard(self.process.pid)
            self._selector.close()
            for stream in (self.process.stdout, self.process.stderr):
                stream.close()

    def completed(self, *, timed_out: bool) -> Completed:
        """The result, after the child has ended. `timed_out`: whether its limit killed it."""
        code, output, errors = self.process.returncode, self.output.text, self.errors.text
        return Completed(self.command, code, output, errors, self.seconds, timed_out)


def run(
    command: Sequence[str],
    *,
    limit_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    note: str = "",
) -> Generator[Tick, None, Completed]:
    """Run a command until it ends, or kill it after `limit_s` (`timed_out`). It may fail. Raises
    CannotStart for a missing program, and WorkFailed for one that cannot be killed."""
    with Child(command, cwd=cwd, env=env) as child:
        while child.code is None and child.seconds < limit_s:
            yield Tick(note or command[0])
            child.wait_for_output()
        timed_out = child.code is None
        child.kill()
        return child.completed(timed_out=timed_out)


def output_of(command: Sequence[str], *, limit_s: float, stdin: str = "") -> str | None:
    """What a quick program prints, in English; None if it is missing, fails or takes over `limit_s`
    seconds. It gets the whole environment, unlike a `Child`."""
    try:
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
            errors="replace",
            timeout=limit_s,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def run_to_end(task: Generator[Tick, None, Any]) -> Any:
    """Run a generator of ticks to its end and return its result. The ticks are discarded."""
    while True:
        try:
            next(task)
        except StopIteration as stop:
            return stop.value


def run_side_by_side(tasks: Iterable[Waiting[Result]], max_running: int) -> Waiting[list[Result]]:
    """Run generators in turns, `max_running` at a time; results in order. An error closes all."""
    not_started = enumerate(tasks)
    running = dict(itertools.islice(not_started, max_running))  # Number of a task to the task.
    results: dict[int, Result] = {}
    try:
        while running:
            for number, task in tuple(running.items()):
                try:
                    yield next(task)
                except StopIteration as stop:
                    del running[number]
                    results[number] = stop.value
                    running.update(itertools.islice(not_started, 1))
    finally:
        for task in running.values():
            task.close()
    return [results[number] for number in sorted(results)]


def kill_trees(pids: Sequence[int]) -> None:
    """Kill these session leaders and all their descendants. Waits 3 s at most for the end of the
    descendants, and not for the leaders, which their owner reaps. Raises nothing."""
    for _ in range(3):  # A process may start another one just before it is killed.
        # The processes with these pids, orphans adopted from their sessions, and all descendants.
        family, family_pids = list[psutil.Process](), {*pids}
        for process in psutil.Process().children(recursive=True):  # Parents before children.
            with contextlib.suppress(psutil.Error, OSError):
                is_adopted = process.pid not in STARTED_PIDS and os.getsid(process.pid) in pids
                if is_adopted or process.pid in family_pids or process.ppid() in family_pids:
                    family.append(process)
                    family_pids.add(process.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        others = [process for process in family if process.pid not in pids]
        psutil.wait_procs(others, timeout=1)  # Adopted orphans must be reaped here.
        if not others:
            return


def end_children_at_exit() -> None:
    """Have all descendants killed when this command ends. `kill -9` ends only direct children."""
    adopt_orphans()
    atexit.register(kill_all_children, os.getpid())


def kill_all_children(expected_pid: int | None = None) -> None:
    """Kill all descendants of this process; try for `END_CHILDREN_S` at most. With `expected_pid`,
    do nothing in a process of another number: a fork inherits the handler."""
    deadline = time.monotonic() + END_CHILDREN_S
    while expected_pid in (None, os.getpid()) and time.monotonic() < deadline:
        children = psutil.Process().children(recursive=True)
        if not children:
            return
        for process in children:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


def process_name(pid: int) -> str:
    """`PID-TICKS`, with its start in ticks since boot: unlike a pid, never reused. Empty: ended."""
    try:  # The fields behind the program's name, which may contain anything (proc(5)).
        state_and_more = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except OSError:
        return ""
    has_ended = not state_and_more or state_and_more[0] in ("Z", "X")
    return "" if has_ended else f"{pid}-{state_and_more[19]}"  # Its start time.


def python_path() -> str:
    """PYTHONPATH for a child, so that it imports this copy of `loop`, installed or not."""
    root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
