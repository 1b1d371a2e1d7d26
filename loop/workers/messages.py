"""Requests to workers and their replies. Without pydantic, because that delays a worker's start."""

import contextlib
import json
import os
import pickle
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, get_args

from loop.base.own_process import die_with_parent, limit_memory
from loop.calls.call import Call, Plain, Refused, Terms
from loop.calls.own_modules import MAX_ERROR_CHARACTERS, describe_error
from loop.model.causes import Cause
from loop.model.dtypes import Device, Layout

R = TypeVar("R")


class Request(Plain, Generic[R]):
    """A request to a program; `R` is the type of the reply."""

    @classmethod
    def reply_type(cls) -> Any:
        """The type of its reply: R of its base class `Request[R]`."""
        return get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]


class RefusalReply(Plain):
    """A reply that refuses the request."""

    message: str
    cause: Cause = "unusable"
    code: str = ""  # The variant's own error number, such as `error 3`, or the exception's type.
    seed: int | None = None  # Seed with which the emulator reproduces the fault; None without one.


def serve(answer: Callable[[Request[Any]], object]) -> None:
    """Read pickled requests from the socket that is standard input, and write replies of `answer`
    to it as lines of JSON, until no more come. An exception becomes a RefusalReply. For code in
    between, standard input is /dev/null, so a variant cannot read requests."""
    limit_memory()
    die_with_parent()  # Needed while this process is stopped (SIGSTOP) and cannot see end of file.
    channel_fd, null_fd = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_fd, 0)
    os.close(null_fd)
    # Invalid Unicode, such as half a file name in an error, becomes question marks.
    replies = os.fdopen(os.dup(channel_fd), "w", encoding="utf-8", errors="replace")
    with os.fdopen(channel_fd, "rb") as requests, replies, contextlib.suppress(EOFError):
        while True:
            request = pickle.load(requests)
            try:
                reply = answer(request)
            except Refused as error:
                message = str(error)[:MAX_ERROR_CHARACTERS]
                reply = RefusalReply(message, error.cause, error.code, error.seed)
            except Exception as error:
                # NotImplementedError is like the error number by which a C kernel declines.
                cause: Cause = "declined" if isinstance(error, NotImplementedError) else "raised"
                reply = RefusalReply(describe_error(error), cause, type(error).__name__)
            replies.write(reply_line(reply))
            replies.flush()


def reply_line(reply: object) -> str:
    """Encode a reply as one JSON line. The writer replaces invalid Unicode."""
    return json.dumps(reply, ensure_ascii=False, default=vars) + "\n"


Mistake = dict[str, Any]  # The mistake of a negative control, as in `Control.mistake_settings`.
ObserveMode = Literal["mark", "trace", "once"]  # How to observe a call: see `Observe`.


class Load(Request[None]):
    """Load a variant, after sealing the functions that time it."""

    variant: Terms
    folder: str
    threads: int
    device: Device
    slowdown_share: float = 0.0


class CallRange(Plain):
    """Numbers of the first and last call of a check that gave the same output."""

    first_call: int
    last_call: int


class Computed(Plain):
    """Result of the calls of one check."""

    changed_inputs: tuple[str, ...]
    stray_writes: tuple[str, ...]  # Out-of-bounds writes, a sentence each.
    replaced_functions: tuple[str, ...]
    digests: tuple[str, ...] = ()  # Of the distinct outputs, not of those in enclosures.
    stray_reads: str = ""  # Tensors read out of bounds, if the output depends on it; or empty.
    depends_on_prefill: bool = False  # Whether the output depends on its memory's old contents.
    float_unit_change: str = ""  # How the calls left the floating-point unit; empty if as usual.
    call_ranges: tuple[CallRange, ...] = ()
    """One for each distinct output; that of range N is in the file `<path of call.output>.N`."""


class Compute(Request[Computed]):
    """Compute one output, normally at least twice, and check the guard zones."""

    call: Call
    layout: Layout = "contiguous"
    is_hurried: bool = False
    may_run_once: bool = False  # Whether one call is enough if it is slow.
    mistake: Mistake | None = None  # A mistake to inject into this check only; None for none.


class StageCall(Request[None]):
    """Lay a call out in shared memory, and make it once."""

    call: Call  # Its inputs are in shared memory, not rotated.
    calls: int  # Number of calls whose outputs have room there.
    window_starts: tuple[int, ...]  # First element of the window in each input.


class ObeyOrders(Request[tuple[str, ...]]):
    """Carry out the judge's orders until LEAVE. Reply: functions that the variant replaced."""

    last_order: int
    empty_way: str | None = None
    """How to make empty calls; an empty string: orders without calls; None: use the staged call."""


class Unstage(Request[None]):
    """Release the staged call."""


class Kernel(Plain):
    """One kernel launch as torch's profiler recorded it."""

    name: str
    us: float | None
    registers: int | None


class Observe(Request[tuple[Kernel, ...]]):
    """Make a call under a tool; reply with its kernels in launch order. After a warm-up: `mark`,
    one between profiler marks; `trace`, one under torch's profiler. `once`: without guard zones."""

    call: Call
    how: ObserveMode


class DryLaunches(Plain):
    """Kernel launches of a call, from a dry run."""

    launches: tuple[dict[str, Any], ...]
    """Records of the emulator: launches, and remarks on their configuration between them."""
    entry_error: str  # Error message that the entry returned; empty for none.


class ListLaunches(Request[DryLaunches]):
    """List the kernels a call would launch, by a dry run in a process that loads nothing else."""

    variant: Terms
    path: str  # File to which the library writes its launches.
    call: Call
