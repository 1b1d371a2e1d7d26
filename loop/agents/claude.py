"""Claude Code's logs: `projects/<folder>/<conversation>.jsonl`, those of sub-agents among them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loop.agents.calls import Call, count, inner, moment, text
from loop.agents.lines import Log
from loop.model.metering import Tokens

AGENT = "claude-code"


def calls(log: Log) -> Iterator[Call]:
    """Every line of a log that tells of a call; several may tell of one."""
    for number, line in log.objects(b'"usage"'):
        message = inner(line, "message")
        if line.get("type") != "assistant" or not isinstance(message.get("usage"), dict):
            continue
        with log.odd(number):
            call = _call(line, message, f"{log.path}:{number}", log.path)
            if call.tokens.total:
                yield call


def _call(line: Mapping[str, Any], message: Mapping[str, Any], place: str, path: Path) -> Call:
    usage = inner(message, "usage")
    return Call(
        agent=AGENT,
        key=text(message, "id") or text(line, "requestId") or text(line, "uuid") or place,
        at=moment(line.get("timestamp")),
        folder=text(line, "cwd") or f"{ENCODED}{_project(path)}",
        model=text(message, "model") or "a model without a name",
        tokens=tokens(usage),
        listed=(usage.get("speed") or "standard", usage.get("service_tier") or "standard") == ("standard",) * 2,
    )


def tokens(usage: Mapping[str, Any]) -> Tokens:
    """The tokens of a call. Cache reads and writes stand beside `input_tokens`, not within.

    Writes for five minutes and for an hour are told apart by `cache_creation`; older logs lack it, and wrote for
    five minutes.
    """
    creation = inner(usage, "cache_creation")
    hour = count(creation, "ephemeral_1h_input_tokens")
    five = count(creation, "ephemeral_5m_input_tokens")
    return Tokens(
        input=count(usage, "input_tokens"),
        output=count(usage, "output_tokens"),
        cache_read=count(usage, "cache_read_input_tokens"),
        cache_write=max(five, count(usage, "cache_creation_input_tokens") - hour),
        cache_write_1h=hour,
        searches=count(inner(usage, "server_tool_use"), "web_search_requests"),
    )


ENCODED = "projects:"
"""Before the name of a log's folder, where a line does not say in which folder the agent worked."""


def encoded(folder: Path) -> str:
    """The folder of the logs of agents that work in `folder`: its path, all but letters and digits a `-`."""
    return ENCODED + "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in str(folder))


def _project(path: Path) -> str:
    """The folder's name right below `projects`, also for the logs of sub-agents further down."""
    parts = path.parts
    return parts[parts.index("projects") + 1] if "projects" in parts[:-1] else path.parent.name
