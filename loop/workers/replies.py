"""What replies of a worker look like: anything else on the wire was written by something else there. Pure."""

import json
from collections.abc import Callable, Mapping
from typing import Any

MOST_BYTES = 64 << 20
"""No reply is as long: memory of ours that a stream without end may take."""
STATUSES = ("ok", "refused", "bug")
"""What a reply begins with."""
Test = Callable[[Any], bool]
LARGEST = 2**53
"""No count is as large."""


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _count_or_none(value: Any) -> bool:
    return value is None or _count(value)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(one is None or isinstance(one, int | float) for one in value.values())


def _records(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


FORMS: Mapping[str, Mapping[str, Test]] = {
    **{do: {} for do in ("load", "unstage", "prepare", "mark", "once")},
    "call": {
        **dict.fromkeys(("outputs", "digests", "changed", "writes", "broken"), _texts),
        **dict.fromkeys(("flaky", "unwritten"), _flag),
        "reads": _text,
    },
    "stage": {"peak_bytes": _count_or_none},
    "obey": {"broken": _texts, "writes": _texts},
    "count": {"counters": _numbers, "why": _text, "calls": _count},
    "trace": {"kernels": _records},
    "launches": {"launches": _records, "declined": _text},
}
"""Requests that a worker with a variant answers, and what each value of a reply has to be."""


def understood(line: bytes, do: str) -> dict[str, Any] | None:
    """The reply to a request as a worker writes it; None for anything else."""
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(reply, dict) or reply.get("status") not in STATUSES:
        return None
    if reply["status"] == "ok":
        return reply if all(test(reply.get(key)) for key, test in FORMS.get(do, {}).items()) else None
    if reply["status"] == "bug" and do in FORMS:  # Only who does not know a request says so.
        return None
    return reply if _text(reply.get("message")) else None
