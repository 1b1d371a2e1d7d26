"""Calls of language models, as agents' logs tell of them; and how tokens are read from what they wrote."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loop.model.metering import Tokens


class Odd(ValueError):
    """A line that is not what such a log writes; it is counted as unreadable, never guessed at."""


@dataclass(frozen=True)
class Call:
    """One call of a model."""

    agent: str
    """`claude-code` or `codex`."""
    key: str
    """What is the same on every line that tells of this call."""
    at: datetime.datetime | None
    """When it was answered; None where the log does not say."""
    folder: str | None
    """Where the agent worked."""
    model: str
    """Its name, as the log writes it."""
    tokens: Tokens
    """What it read and wrote."""
    listed: bool = True
    """Whether list prices hold for it: a faster or a batch tier has prices of its own."""


def once(calls: Iterable[Call]) -> list[Call]:
    """Each call once: of several lines that tell of the same, the one with most output.

    An agent writes a line for each block of an answer, with the tokens so far; a resumed conversation begins with
    a copy of the earlier one, in another file.
    """
    best: dict[tuple[str, str], Call] = {}
    for call in calls:
        key = (call.agent, call.key)
        known = best.get(key)
        if known is None or call.tokens.output > known.tokens.output:
            best[key] = call
    return list(best.values())


def count(fields: Mapping[str, Any], name: str) -> int:
    """A number of tokens; 0 where none is told. Raises Odd for what is no number of anything."""
    value = fields.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Odd(f"{name}: expected a number of tokens, got {value!r}")
    return value


def inner(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping within another; an empty one where there is none."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def text(fields: Mapping[str, Any], name: str) -> str | None:
    """A text that is not empty, if there is one."""
    value = fields.get(name)
    return value if isinstance(value, str) and value else None


def moment(value: object) -> datetime.datetime | None:
    """A time as ISO 8601 writes it, in UTC where it names no zone; None where it is none."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
