"""What workers are asked, and what they reply. No pydantic: a worker starts in tens of milliseconds."""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from loop.base.processes import bound_memory, die_with_parent
from loop.calls.call import Call, Plain, Refused, Terms
from loop.calls.own_modules import FOLDERS
from loop.model.causes import Cause
from loop.model.dtypes import Device, Layout

LONGEST = 1000
"""Characters of a message that are passed on: an exception may hold a whole tensor."""
R = TypeVar("R")


class Request(Plain, Generic[R]):
    """What a program is asked; `R` is the type of its reply."""

    @classmethod
    def reply_type(cls) -> Any:
        """The type of its reply."""
        return get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]


class No(Plain):
    """A reply that says no."""

    message: str
    cause: Cause = "unusable"
    code: str = ""
    """The variant's own error number, as in `error 3`, or the type of its exception."""
    seed: int | None = None
    """The emulator's seed that gives its fault again."""


Answers = Mapping[type[Request[Any]], Callable[[Any], object]]
"""Type of a request to the function that answers it."""


def serve(answers: Answers, reply_fd: int, respond: Callable[[Answers, Request[Any]], object]) -> None:
    """Answer requests from standard input until they end. Standard input is empty for a variant that reads it."""
    bound_memory()
    die_with_parent()  # Also while we are stopped and could not see that requests ended.
    os.set_inheritable(reply_fd, False)
    known = {kind.__name__: kind for kind in answers}
    own_input, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # What is no Unicode, such as half a file name in an error, becomes question marks.
    replies = os.fdopen(reply_fd, "w", encoding="utf-8", errors="replace")
    with os.fdopen(own_input, "r") as requests, replies:
        for line in requests:
            replies.write(reply_line(respond(answers, read_request(line, known))))
            replies.flush()


def answer(answers: Answers, request: Request[Any]) -> object:
    """The reply to one request; No where it is refused."""
    try:
        return answers[type(request)](request)
    except Refused as error:
        return No(str(error)[:LONGEST], error.cause, error.code, error.seed)
    except Exception as error:
        declined = isinstance(error, NotImplementedError)  # As an error number of a C kernel does.
        return No(describe_error(error), "declined" if declined else "raised", type(error).__name__)


def describe_error(error: Exception) -> str:
    """An exception in one line: type, first line of its text, and where in the target's own files."""
    folders = FOLDERS or [sys.path[0] or os.curdir]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if any(map(Path(frame.filename).is_relative_to, folders))]
    text = str(error)[:LONGEST].strip().splitlines()
    place = f" ({Path(own[-1].filename).resolve().name}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}{f': {text[0]}' if text else ''}{place}"


def request_line(request: Request[Any]) -> str:
    """A request as a line: the name of its type goes with it."""

    def fields(value: Any) -> dict[str, Any]:
        """Of plain data, or of a noun of `loop.model`."""
        return dict(value) if hasattr(value, "model_validate") else vars(value)

    return json.dumps({"request": type(request).__name__, **vars(request)}, default=fields) + "\n"


def reply_line(reply: object) -> str:
    """A reply as a line. What is no Unicode in it is left to whoever encodes the line."""
    refused = isinstance(reply, No)
    fields = {"status": "refused" if refused else "ok", **(vars(reply) if refused else {"reply": reply})}
    return json.dumps(fields, ensure_ascii=False, default=vars) + "\n"


def read_request(line: str, known: Mapping[str, type[Request[Any]]]) -> Any:
    """The request in a line, of those that are known by name."""
    message = json.loads(line)
    return read_typed(known[message.pop("request")], message)


def read_reply(line: bytes, kind: Any) -> Any:
    """A reply of this type, or No. Raises ValueError, or RecursionError, for anything else."""
    message = json.loads(line)
    status = message.pop("status", None) if isinstance(message, dict) else None
    if status == "refused":
        return read_typed(No, message)
    if status != "ok" or message.keys() != {"reply"}:
        raise ValueError(f"unknown status {status!r:.100}")
    return read_typed(kind, message["reply"])


@cache
def field_types(kind: type) -> dict[str, Any]:
    """The fields of a message, or of plain data in it, with their types."""
    return {name: hint for name, hint in get_type_hints(kind).items() if name in kind.__annotations__}


def read_typed(kind: Any, value: Any) -> Any:
    """JSON as a type that messages have. Raises ValueError for anything else."""
    parts, origin = get_args(kind), get_origin(kind)
    if origin is tuple and type(value) is list:
        return tuple(read_typed(parts[0], item) for item in value)
    if origin is dict and type(value) is dict:
        return {name: read_typed(parts[1], item) for name, item in value.items()}
    if origin is Literal and type(value) is str and value in parts:
        return value
    if origin in (Union, UnionType):
        for part in parts:
            with contextlib.suppress(ValueError):
                return read_typed(part, value)
    elif isinstance(kind, type) and issubclass(kind, Plain):
        fields: dict[str, Any] = field_types(kind)  # type: ignore[arg-type]
        if type(value) is dict and value.keys() == fields.keys():
            return kind(**{name: read_typed(hint, value[name]) for name, hint in fields.items()})
    elif hasattr(kind, "model_validate"):  # A noun of `loop.model`, as the judge gives and is given some.
        return kind.model_validate(value)
    elif kind is Any or type(value) is kind or (type(value) is int and kind is float):
        return value
    raise ValueError(f"no {kind}: {value!r:.100}")


Mistake = dict[str, Any]
"""The mistake that a control makes on purpose, in the words of `loop.proving.prove`."""
How = Literal["mark", "trace", "once"]
"""How a call is observed."""


class Load(Request[None]):
    """Load a variant, once what it is timed with is sealed."""

    variant: Terms
    folder: str
    threads: int
    device: Device
    slow: float = 0.0
    """Share of its time by which every call is made longer on purpose."""
    mistake: Mistake | None = None


class Turn(Plain):
    """The first and the last call of a check that gave an output."""

    first: int
    last: int


class Computed(Plain):
    """What the calls of one check came to."""

    outputs: tuple[str, ...]
    """Files of the outputs that differ."""
    changed: tuple[str, ...]
    """Inputs that were written to."""
    writes: tuple[str, ...]
    """Writes outside of tensors, a sentence each."""
    broken: tuple[str, ...]
    """Functions of the worker that the variant has replaced."""
    digests: tuple[str, ...] = ()
    reads: str = ""
    """The tensors outside which something is read on which the output depends."""
    unwritten: bool = False
    """Whether the output depends on what stood in its memory before."""
    turns: tuple[Turn, ...] = ()
    """Which calls gave each output."""

    @property
    def flaky(self) -> bool:
        """Whether the same values gave different outputs."""
        return len(self.digests) > 1


class Compute(Request[Computed]):
    """Compute one output, twice at least, and look at what surrounds it."""

    call: Call
    layout: Layout = "contiguous"
    hurried: bool = False
    once: bool = False
    """Whether one call is enough where it is slow."""
    mistake: Mistake | None = None
    """What this call alone does wrong."""


class StageCall(Request[int | None]):
    """Take a call's place in the shared memory, and make it once.

    The reply: memory that the call took at its peak, in bytes; None where the system does not tell.
    """

    call: Call
    size: int
    """Bytes of the shared memory."""
    inputs: tuple[int, ...]
    """Where each input's pool begins there, in bytes."""
    slots: tuple[int, ...]
    """Where the output of each call begins."""
    window: tuple[int, ...]
    turns: tuple[int, ...]
    """Bytes by which each input is rotated."""


class Obey(Request[tuple[str, ...]]):
    """Carry out the judge's orders about the staged call, or about `empty` ones, until one says to leave.

    The reply: functions of the worker that the variant has replaced.
    """

    last: int
    """The number of the last order before."""
    empty: str | None = None
    """How empty calls are made; empty for orders without a call."""


class Unstage(Request[None]):
    """Let go of the staged call."""


class Kernel(Plain):
    """One launch, as torch's profiler saw it."""

    kernel: str
    us: float | None
    registers: int | None


class Observe(Request[tuple[Kernel, ...]]):
    """Bring a call into memory and make it under a tool; the launches that were seen, in their order.

    `mark`: one call between the marks that a profiler waits for. `trace`: one under torch's own profiler. Before
    these it is made once. `once`: one call without guard zones.
    """

    call: Call
    how: How


class Launched(Plain):
    """What a call would launch."""

    launches: tuple[dict[str, Any], ...]
    """Each as the emulator tells it, and between them remarks on their choice."""
    declined: str
    """The error that the entry returned, in its words; empty where it returned none."""


class Launches(Request[Launched]):
    """Say which kernels a call would launch, by an emulated library in a dry run: load nothing else there."""

    variant: Terms
    path: str
    """The file to which the library writes."""
    call: Call
