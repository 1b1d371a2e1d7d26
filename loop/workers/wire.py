"""Messages on the wire: to lines of JSON, and strictly back.

A line that is no message of the expected type was written by something else than its sender. Pure, and without
any library: a worker starts in milliseconds.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Generic, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from loop.calls.plain import Plain
from loop.model.causes import Cause

MOST_BYTES = 64 << 20
"""No reply is as long: memory of ours that a stream without end may take."""
LARGEST = 2**64
"""No number on the wire is as large."""
MOST_COUNTED = 2**53
"""No count is as large."""
Count = NewType("Count", int)
"""A number of things, which is never negative."""
R = TypeVar("R")


class Malformed(ValueError):
    """A line is no message of its type."""


class Request(Plain, Generic[R]):
    """What a program is asked; `R` is the type of its reply."""

    @classmethod
    def reply_type(cls) -> Any:
        """The type of its reply."""
        return get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]


class Done(Plain):
    """It is done, and there is nothing to tell of it."""


class No(Plain):
    """A reply that says no."""

    message: str
    cause: Cause = "unusable"
    code: str = ""
    """The variant's own error number, as in `error 3`, or the type of its exception."""
    seed: int | None = None
    """The emulator's seed that gives its fault again."""


def request_line(request: Request[Any]) -> str:
    """A request as a line: the name of its type goes with it."""
    return json.dumps({"do": type(request).__name__, **vars(request)}, default=vars) + "\n"


def reply_line(reply: object) -> str:
    """A reply as a line. What is no Unicode in it is left to whoever encodes the line."""
    fields = {"status": "refused" if isinstance(reply, No) else "ok", **vars(reply)}
    return json.dumps(fields, ensure_ascii=False, default=vars) + "\n"


def read_request(line: str, known: Mapping[str, type]) -> Any:
    """The request that a line holds, of those that are known by name. Raises Malformed for any other."""
    name, fields = _fields(line, "do")
    if name not in known:
        raise Malformed(f"unknown request {name}")
    return read(known[name], fields)


def read_reply(line: bytes, kind: Any) -> Any:
    """A reply of this type, or No. Raises Malformed for anything else."""
    status, fields = _fields(line, "status")
    if status not in ("ok", "refused"):
        raise Malformed(f"unknown status {status}")
    return read(kind if status == "ok" else No, fields)


def _fields(line: str | bytes, tag: str) -> tuple[str, dict[str, Any]]:
    """What the line says that it is, and the rest."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)) from error
    if not isinstance(found, dict) or not isinstance(found.get(tag), str):
        raise Malformed(f"no {tag} in it")
    return found.pop(tag), found


@cache
def hints(kind: type) -> dict[str, Any]:
    """The fields of a message, or of plain data in it, with their types."""
    return {name: one for name, one in get_type_hints(kind).items() if name in kind.__annotations__}


def read(kind: Any, value: Any) -> Any:
    """What JSON holds, as a type that messages have. Raises Malformed for anything else."""
    reader = READERS.get(get_origin(kind))
    if reader is not None:
        return reader(get_args(kind), value)
    if isinstance(kind, type) and issubclass(kind, Plain):
        return _read_fields(kind, value)
    if hasattr(kind, "model_validate"):  # A noun of `loop.model`, as the judge gives and is given some.
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise Malformed(str(error)) from error
    if kind is Any or _fits(kind, value):
        return value
    raise _no(kind, value)


def _no(kind: Any, value: Any) -> Malformed:
    return Malformed(f"no {kind}: {value!r:.100}")


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value is of a type without parts."""
    if type(value) is int:
        return 0 <= value <= MOST_COUNTED if kind is Count else kind in (int, float) and abs(value) < LARGEST
    return type(value) is kind


def _read_fields(kind: Any, value: Any) -> Any:
    wanted = hints(kind)
    if type(value) is not dict or value.keys() != wanted.keys():
        raise _no(kind, value)
    return kind(**{name: read(one, value[name]) for name, one in wanted.items()})


def _read_items(parts: tuple[Any, ...], value: Any) -> Any:
    if type(value) is not list:
        raise _no(tuple, value)
    return tuple(read(parts[0], item) for item in value)


def _read_values(parts: tuple[Any, ...], value: Any) -> Any:
    if type(value) is not dict:
        raise _no(dict, value)
    return {name: read(parts[1], item) for name, item in value.items()}


def _read_word(words: tuple[Any, ...], value: Any) -> Any:
    if type(value) is not str or value not in words:
        raise _no(words, value)
    return value


def _read_any(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        try:
            return read(kind, value)
        except Malformed:
            continue
    raise _no(kinds, value)


READERS: Mapping[Any, Callable[[tuple[Any, ...], Any], Any]] = {
    tuple: _read_items,
    dict: _read_values,
    Literal: _read_word,
    Union: _read_any,
    UnionType: _read_any,
}
"""How types with parts are read."""
