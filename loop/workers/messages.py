"""Requests to workers and their replies. Without pydantic, because that delays a worker's start."""

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from loop.base.processes import die_with_parent, limit_memory
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
    code: str = ""
    """The variant's own error number, such as `error 3`, or the exception's type."""
    seed: int | None = None
    """Seed with which the emulator reproduces the fault; None without one."""


Answers = Mapping[type[Request[Any]], Callable[[Any], object]]
"""Type of a request to the function that answers it."""


def serve(answers: Answers, reply_fd: int, respond: Callable[[Answers, Request[Any]], object]) -> None:
    """Read requests from standard input and write replies to `reply_fd`, until the input ends. Standard input is
    then /dev/null, so a variant cannot read requests. `respond` makes a reply, by `answers`."""
    limit_memory()
    die_with_parent()  # Needed while this process is stopped (SIGSTOP) and cannot see end of file.
    os.set_inheritable(reply_fd, False)
    types_by_name = {request_type.__name__: request_type for request_type in answers}
    requests_fd, null_fd = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_fd, 0)
    os.close(null_fd)
    # Invalid Unicode, such as half a file name in an error, becomes question marks.
    replies = os.fdopen(reply_fd, "w", encoding="utf-8", errors="replace")
    with os.fdopen(requests_fd, "r") as requests, replies:
        for line in requests:
            message = json.loads(line)
            replies.write(reply_line(respond(answers, read_typed(types_by_name[message.pop("request")], message))))
            replies.flush()


def answer_request(answers: Answers, request: Request[Any]) -> object:
    """Answer one request; a refusal or an exception becomes a RefusalReply."""
    try:
        return answers[type(request)](request)
    except Refused as error:
        return RefusalReply(str(error)[:MAX_ERROR_CHARACTERS], error.cause, error.code, error.seed)
    except NotImplementedError as error:  # Equivalent to the error number of a C kernel.
        return RefusalReply(describe_error(error), "declined", type(error).__name__)
    except Exception as error:
        return RefusalReply(describe_error(error), "raised", type(error).__name__)


def request_line(request: Request[Any]) -> str:
    """Encode a request as one JSON line with the name of its type."""

    def fields(value: Any) -> dict[str, Any]:
        """Fields of a Plain object, or of a pydantic model."""
        return dict(value) if hasattr(value, "model_validate") else vars(value)

    return json.dumps({"request": type(request).__name__, **vars(request)}, default=fields) + "\n"


def reply_line(reply: object) -> str:
    """Encode a reply as one JSON line. The writer replaces invalid Unicode."""
    if isinstance(reply, RefusalReply):
        message = {"status": "refused", **vars(reply)}
    else:
        message = {"status": "ok", "reply": reply}
    return json.dumps(message, ensure_ascii=False, default=vars) + "\n"


def read_reply(line: bytes, reply_type: Any) -> Any:
    """Decode a reply of type `reply_type`, or a RefusalReply. Anything else raises ValueError or
    RecursionError: a candidate may have written it."""
    message = json.loads(line)
    status = message.pop("status", None) if isinstance(message, dict) else None
    if status == "refused":
        return read_typed(RefusalReply, message)
    if status != "ok" or message.keys() != {"reply"}:
        raise ValueError(f"unknown status {status!r:.100}")
    return read_typed(reply_type, message["reply"])


@cache
def field_types(message_type: type) -> dict[str, Any]:
    """Names and types of a message's own fields, without those of its base classes."""
    hints = get_type_hints(message_type)
    return {name: hints[name] for name in hints if name in message_type.__annotations__}


def read_typed(expected: Any, value: Any) -> Any:
    """Convert JSON to an expected type, such as a message, a tuple or `int | None`; strictly: no
    other type is converted, but an int may stand for a float. Raises ValueError if it does not match."""
    arguments, origin = get_args(expected), get_origin(expected)
    if origin is tuple and type(value) is list:
        return tuple(read_typed(arguments[0], item) for item in value)
    if origin is dict and type(value) is dict:
        return {name: read_typed(arguments[1], item) for name, item in value.items()}
    if origin is Literal and type(value) is str and value in arguments:
        return value
    if origin in (Union, UnionType):
        for alternative in arguments:
            with contextlib.suppress(ValueError):
                return read_typed(alternative, value)
    elif isinstance(expected, type) and issubclass(expected, Plain):
        types: dict[str, Any] = field_types(expected)  # type: ignore[arg-type]
        if type(value) is dict and value.keys() == types.keys():
            fields = {name: read_typed(types[name], value[name]) for name in types}
            return expected(**fields)
    elif hasattr(expected, "model_validate"):  # A pydantic model, only in the judge's messages.
        return expected.model_validate(value)
    elif expected is Any or type(value) is expected or (type(value) is int and expected is float):
        return value
    raise ValueError(f"no {expected}: {value!r:.100}")


Mistake = dict[str, Any]
"""The mistake that a negative control makes, as terms of `loop.proving.prove`."""
ObserveMode = Literal["mark", "trace", "once"]
"""How to observe a call: `Observe` explains the words."""


class Load(Request[None]):
    """Load a variant, after sealing the functions that time it."""

    variant: Terms
    folder: str
    threads: int
    device: Device
    slowdown_share: float = 0.0
    """Slow each call down by this share of its time (positive control)."""
    mistake: Mistake | None = None


class CallRange(Plain):
    """Numbers of the first and last call of a check that gave one output."""

    first_call: int
    last_call: int


class Computed(Plain):
    """Result of the calls of one check."""

    output_files: tuple[str, ...]
    """Files of the distinct outputs."""
    changed_inputs: tuple[str, ...]
    """Inputs that the variant wrote to."""
    stray_writes: tuple[str, ...]
    """Out-of-bounds writes, a sentence each."""
    replaced_functions: tuple[str, ...]
    """Functions of the worker that the variant replaced."""
    digests: tuple[str, ...] = ()
    stray_reads: str = ""
    """Tensors that are read out of bounds, if the output depends on that read; empty for none."""
    depends_on_prefill: bool = False
    """Whether the output depends on its memory's contents before the call."""
    call_ranges: tuple[CallRange, ...] = ()
    """First and last call of each output."""

    @property
    def is_nondeterministic(self) -> bool:
        """Whether equal inputs gave different outputs."""
        return len(self.digests) > 1


class Compute(Request[Computed]):
    """Compute one output, normally at least twice, and check the guard zones."""

    call: Call
    layout: Layout = "contiguous"
    is_hurried: bool = False
    may_run_once: bool = False
    """Whether one call is enough if it is slow."""
    mistake: Mistake | None = None
    """A mistake to inject into this check only; None for none."""


class StageCall(Request[int | None]):
    """Lay a call out in shared memory, and make it once. Reply: its peak bytes; None if unknown."""

    call: Call
    shared_bytes: int
    """Bytes of shared memory."""
    input_offsets: tuple[int, ...]
    """Byte offset of each input's values in shared memory."""
    output_offsets: tuple[int, ...]
    """Byte offset of the output of each call."""
    window_starts: tuple[int, ...]
    """First element of the window in each input."""
    rotations: tuple[int, ...]
    """Bytes by which each input is rotated."""


class ObeyOrders(Request[tuple[str, ...]]):
    """Carry out the judge's orders until LEAVE. Reply: functions that the variant replaced."""

    last_order: int
    """Number of the previous order."""
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
    """Make a call under a tool; reply with the kernels, in launch order. After a warm-up: `mark`, one
    between a profiler's marks; `trace`, one by torch's profiler. `once`: one without guard zones."""

    call: Call
    how: ObserveMode


class DryLaunches(Plain):
    """Kernel launches of a call, from a dry run."""

    launches: tuple[dict[str, Any], ...]
    """Records of the emulator: launches, and remarks on their configuration between them."""
    entry_error: str
    """Error message that the entry returned; empty for none."""


class ListLaunches(Request[DryLaunches]):
    """List the kernels a call would launch, by a dry run in a process that loads nothing else."""

    variant: Terms
    path: str
    """File to which the library writes its launches."""
    call: Call
