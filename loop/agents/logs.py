"""The logs of coding agents on this machine: where they are, and what a session's part of them holds."""

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.agents import claude, codex
from loop.agents.calls import Call, once
from loop.agents.counting import use
from loop.agents.lines import Log
from loop.agents.prices import Price
from loop.model.metering import AiUse

ROLLOUTS = "rollout-*.jsonl"


@dataclass(frozen=True)
class Places:
    """Folders in which agents keep their logs."""

    claude: tuple[Path, ...]
    codex: tuple[Path, ...]

    def __iter__(self) -> Iterator[Path]:
        return iter((*self.claude, *self.codex))


@dataclass(frozen=True)
class Part:
    """Which calls are a session's."""

    folders: tuple[Path, ...]
    """Agents that worked in one of these, or below."""
    begun: datetime.datetime
    ended: datetime.datetime

    def has(self, call: Call) -> bool:
        """Whether a call falls into it."""
        return call.at is not None and self.begun <= call.at <= self.ended and self.in_folder(call)

    def in_folder(self, call: Call) -> bool:
        """Whether the agent worked in one of the folders."""
        where = call.folder
        if where is None:
            return False
        if where.startswith(claude.ENCODED):
            names = [claude.encoded(folder) for folder in self.folders]
            return any(where == name or where.startswith(f"{name}-") for name in names)
        return any(Path(where).is_relative_to(folder) for folder in self.folders)


def places(home: Path, environment: Mapping[str, str]) -> Places:
    """Where the agents say that they keep them, whether there are any or not."""
    own = environment.get("CLAUDE_CONFIG_DIR")
    settings = [Path(own)] if own else [home / ".claude", home / ".config" / "claude"]
    codex_home = Path(environment.get("CODEX_HOME") or home / ".codex")
    return Places(
        claude=tuple(one / "projects" for one in settings),
        codex=tuple(codex_home / name for name in ("sessions", "archived_sessions")),
    )


def read(where: Places, part: Part, price: Price | None) -> AiUse | None:
    """What agents used in a session, by their logs; None where no call is its own."""
    logs: list[Log] = []
    found = once(_calls(where, part.begun, logs))
    mine = [call for call in found if part.has(call)]
    undated = sum(call.at is None and part.in_folder(call) for call in found)
    return use(mine, "logs", price, _notes(logs, undated)) if mine else None


def _calls(where: Places, begun: datetime.datetime, logs: list[Log]) -> Iterator[Call]:
    for path in _since(where.claude, "*.jsonl", begun):
        logs.append(Log(path))
        yield from claude.calls(logs[-1])
    for path in _since(where.codex, ROLLOUTS, begun):
        logs.append(Log(path))
        yield from codex.calls(logs[-1])


def _since(folders: Iterable[Path], pattern: str, begun: datetime.datetime) -> Iterator[Path]:
    """Logs that were written to since then: others hold nothing of the session."""
    for path in (path for folder in folders for path in sorted(folder.rglob(pattern))):
        try:
            if path.stat().st_mtime >= begun.timestamp():
                yield path
        except OSError:
            continue


def _notes(logs: Sequence[Log], undated: int) -> list[str]:
    """What was left out, in sentences."""
    unreadable = sum(log.unreadable for log in logs)
    torn = [log.path.name for log in logs if log.torn]
    gone = [f"{log.path.name} ({log.gone})" for log in logs if log.gone]
    said = {
        f"left out: {unreadable} unreadable line{'s' if unreadable > 1 else ''}": unreadable,
        f"left out: the last line of {', '.join(torn)}, which was still being written": torn,
        f"left out: {', '.join(gone)}": gone,
        f"left out: {undated} call{'s' if undated > 1 else ''} without a time": undated,
    }
    return [words for words, applies in said.items() if applies]
