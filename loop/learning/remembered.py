"""What earlier sessions say of a failure, in a line: where it was seen, and what had changed when it was gone."""

from collections.abc import Iterator

from loop.model.memory import Cure, Memory
from loop.model.snapshot import Change
from loop.report import format as say

SHOWN = 3
"""Files, or facts, that are named before the rest is counted."""
HASH = 12


def sentence(memory: Memory, change: Change | None = None) -> str:
    """`seen before: session X (and 2 more); cured in session Y by ...`. `change`: what it changed in files."""
    more = len(memory.sessions) - 1
    where = f"seen before: session {memory.sessions[0]}" + (f" (and {more} more)" if more else "")
    if memory.cure is None:
        return f"{where}; no session has got past it yet"
    return f"{where}; {cured(memory.cure, change)}{_usually(memory)}"


def _usually(memory: Memory) -> str:
    """What had changed at several cures: of one alone nothing can be told from what merely changed too."""
    often = [(name, times) for name, times in memory.suspects if times > 1][:SHOWN]
    named = ", ".join(
        f"{'files of the target' if name == 'sources' else name} at {times}" for name, times in often
    )
    return f"; of {len(memory.cures)} cures changed: {named}" if named else ""


def cured(cure: Cure, change: Change | None = None) -> str:
    """Which session got past it, and what is on record as having changed."""
    where = "gone when that was resumed" if cure.session == cure.failed else f"cured in session {cure.session}"
    found = list(_changed(cure, change))
    return f"{where} by {'; '.join(found)}" if found else f"{where}, with nothing changed that is on record"


def _changed(cure: Cure, change: Change | None) -> Iterator[str]:
    yield from cure.environment[:SHOWN]
    if len(cure.environment) > SHOWN:
        yield say.count(len(cure.environment) - SHOWN, "more fact")
    if change is not None and change.files:
        yield f"{_files(change)}{_lines(change)}"
    elif cure.sources:
        yield "other files of the target"
    if cure.commits is not None:
        yield f"commits {cure.commits[0][:HASH]}..{cure.commits[1][:HASH]}"


def _files(change: Change) -> str:
    more = len(change.files) - SHOWN
    return ", ".join(change.files[:SHOWN]) + (f" and {say.count(more, 'more file')}" if more > 0 else "")


def _lines(change: Change) -> str:
    lines = [line for line in change.patch.splitlines() if not line.startswith(("+++ ", "--- "))]
    added, gone = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f" (+{added} -{gone} lines)" if added or gone else ""
