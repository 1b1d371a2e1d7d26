"""Logs as coding agents write them, line by line, for tests to put on disk."""

import datetime
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEGUN = datetime.datetime(2026, 3, 22, 10, 0, tzinfo=datetime.UTC)
ENDED = datetime.datetime(2026, 3, 22, 11, 0, tzinfo=datetime.UTC)
"""The session's time."""
HERE = "/home/me/kernel"
"""The folder that the session's target is in."""
OPUS, SONNET, HAIKU = "claude-opus-4-6", "claude-sonnet-4-5-20250929", "claude-haiku-4-5-20251001"
GPT, MINI = "gpt-5-codex", "gpt-5.4-mini"
NOBODY = "wizard-9-xl"
"""A model that no list knows."""
Line = dict[str, Any] | str


def at(minute: float = 30.0) -> str:
    """A time within the session, as agents write it."""
    return (BEGUN + datetime.timedelta(minutes=minute)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def said(
    message: str | None,
    model: str | None,
    tokens: Sequence[int],
    *,
    cwd: str | None = HERE,
    when: str | None = None,
    request: str | None = "",
    uuid: str | None = None,
    usage: dict[str, Any] | None = None,
    side: bool = False,
) -> Line:
    """A block of an answer: input, output, cache read, written for five minutes, written for an hour."""
    read, written, cached, five, hour = (*tokens, 0, 0, 0, 0, 0)[:5]
    counted: dict[str, Any] = {"input_tokens": read, "output_tokens": written}
    if cached:
        counted["cache_read_input_tokens"] = cached
    if five or hour:
        split = {"ephemeral_5m_input_tokens": five, "ephemeral_1h_input_tokens": hour}
        counted |= {"cache_creation_input_tokens": five + hour, "cache_creation": split}
    inner = {"role": "assistant", "id": message, "model": model, "usage": {**counted, **(usage or {})}}
    outer = {"cwd": cwd, "requestId": f"req_{message}" if request == "" else request, "uuid": uuid}
    line = {"type": "assistant", "timestamp": when or at(), "isSidechain": side, "message": inner, **outer}
    line["message"] = {key: value for key, value in inner.items() if value is not None}
    return {key: value for key, value in line.items() if value is not None}


def asked(text: str = "go on") -> Line:
    """What a person said; it holds the word "usage" too."""
    return {"type": "user", "timestamp": at(), "cwd": HERE, "message": {"role": "user", "content": text}}


def meta(cwd: str = HERE, **more: Any) -> Line:
    """The first line of a rollout."""
    payload = {"id": "s1", "cwd": cwd, "originator": "codex_cli_rs", **more}
    return {"timestamp": at(1), "type": "session_meta", "payload": payload}


def turn(model: str | None = GPT, cwd: str = HERE) -> Line:
    """The beginning of a turn, with the model that answers."""
    payload = {"cwd": cwd, "model": model} if model else {"cwd": cwd}
    return {"timestamp": at(2), "type": "turn_context", "payload": payload}


def counted(total: Sequence[int] | None, last: Sequence[int] | None = None, minute: float = 30.0) -> Line:
    """Running totals: tokens read, those of them from a cache, and written; and the last call's own."""
    info = {
        name: {"input_tokens": used[0], "cached_input_tokens": used[1], "output_tokens": used[2],
               "reasoning_output_tokens": used[2] // 2, "total_tokens": used[0] + used[2]}
        for name, used in (("total_token_usage", total), ("last_token_usage", last))
        if used is not None
    }  # fmt: skip
    payload = {"type": "token_count", "info": info or None, "rate_limits": {"primary": {"used_percent": 3.0}}}
    return {"timestamp": at(minute), "type": "event_msg", "payload": payload}


def write(home: Path, files: dict[str, Sequence[Line]]) -> None:
    """Put logs below a home folder. A text is written as it is, without the end of its line."""
    for name, lines in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in lines))
        os.utime(path, (ENDED.timestamp(), ENDED.timestamp()))


@dataclass(frozen=True)
class Fixture:
    """Logs below a home folder, and what they come to."""

    name: str
    files: dict[str, Sequence[Line]]
    dollars: float | None
    """In millionths; None where no price is known."""
    tokens: int
    """All of them, each once."""
    unpriced: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """Words that have to be said."""
