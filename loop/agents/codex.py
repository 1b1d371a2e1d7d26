"""Codex's logs: `sessions/<year>/<month>/<day>/rollout-*.jsonl`, whose `token_count` events are running totals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loop.agents.calls import Call, Odd, count, inner, moment, text
from loop.agents.lines import Log
from loop.model.metering import Tokens

AGENT = "codex"
NAMELESS = "a model without a name"
FIELDS = ("input_tokens", "cached_input_tokens", "output_tokens")
Usage = tuple[int, int, int]
"""Tokens read, those of them that came from a cache, and tokens written (thoughts included)."""


@dataclass
class State:
    """What the lines so far said."""

    model: str = NAMELESS
    folder: str | None = None
    total: Usage | None = None


def calls(log: Log) -> Iterator[Call]:
    """What was used between one event and the next; an event that repeats the last total tells of nothing new."""
    state = State()
    for number, line in log.objects(b""):
        payload = inner(line, "payload")
        if line.get("type") in ("session_meta", "turn_context"):
            state.model = text(payload, "model") or state.model
            state.folder = text(payload, "cwd") or state.folder
        elif line.get("type") == "event_msg" and payload.get("type") == "token_count":
            with log.odd(number):
                used = _used(state, inner(payload, "info"))
                if used is not None and any(used):
                    yield _call(state, line.get("timestamp"), used, f"{log.path}:{number}")


def _call(state: State, at: object, used: Usage, place: str) -> Call:
    """A forked conversation begins with its parent's events: same time and total, same call."""
    return Call(
        agent=AGENT,
        key=f"{at} {state.total}" if isinstance(at, str) else place,
        at=moment(at),
        folder=state.folder,
        model=state.model,
        tokens=tokens(used),
    )


def tokens(used: Usage) -> Tokens:
    """Tokens of a call: what came from a cache stands within what was read."""
    read, cached, written = used
    if cached > read:
        raise Odd(f"{cached} of {read} tokens from a cache")
    return Tokens(input=read - cached, cache_read=cached, output=written)


def _used(state: State, info: Mapping[str, Any]) -> Usage | None:
    """What came on top of the total before; what the event says of the last call, where totals do not tell.

    The first total of a log may have been carried over from another; a total that is smaller began anew.
    """
    total, last = _usage(info, "total_token_usage"), _usage(info, "last_token_usage")
    if total is None:
        return last
    before, state.total = state.total, total
    if before == total:
        return None
    if before is None or any(now < then for now, then in zip(total, before, strict=True)):
        return last or total
    return (total[0] - before[0], total[1] - before[1], total[2] - before[2])


def _usage(info: Mapping[str, Any], name: str) -> Usage | None:
    fields = inner(info, name)
    if not fields:
        return None
    read, cached, written = (count(fields, field) for field in FIELDS)
    return read, cached, written
