"""`loop patterns list`: a row per pattern, read from YAML without models, so that it is quick.

Mistakes in a pattern are reported by `loop patterns check`, and by commands that run the pattern.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from loop.base.errors import ExitCode
from loop.base.places import Project, find_project, shipped
from loop.base.screen import Screen
from loop.cli.names import load_unchecked

SEARCHED_SESSIONS = 50
"""How many sessions a search for words includes, because their error messages may match."""


class PatternRow(TypedDict):
    """A row of the list of patterns."""

    name: str
    number: int
    title: str
    problem: str
    use_when: list[str]
    priority: str
    steps: int


class PatternList(TypedDict):
    """What `loop patterns list --json` prints. Results of a search are sorted, best first."""

    schema_version: int
    patterns: list[PatternRow]


def list_patterns(words: Sequence[str], target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Print all patterns, or the matches of `words`, best first. Returns 1 if none matches."""
    here = find_project(target, Path.cwd())
    if words:
        rows = _search(" ".join(words), here, screen)
        if not rows and not as_json:
            screen.say(f"no pattern mentions {' '.join(words)!r}; `loop patterns list` shows all")
            return ExitCode.GATE_FAILED
    else:
        folders = [folder for folder in (shipped("patterns"), here.definitions_folder("patterns")) if folder]
        paths = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
        try:  # A project's own pattern replaces a bundled one of its name.
            row_by_name = {row["name"]: row for row in (pattern_row(load_unchecked(path)) for path in paths)}
            rows = sorted(row_by_name.values(), key=lambda row: int(row["number"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):  # Say where it is.
            from loop.library import definitions

            patterns = definitions.patterns(here).values()
            rows = [pattern_row(read.value.model_dump(mode="json")) for read in patterns]
    if as_json:
        from loop.base.documents import to_json

        answer: PatternList = {"schema_version": 1, "patterns": rows}
        screen.data(to_json(answer))
        return ExitCode.OK
    cells = [(row["number"], row["priority"], row["name"], row["steps"], row["problem"]) for row in rows]
    screen.table(("#", "", "pattern", "steps", "answers"), cells)
    screen.say("how one stands, and by which runs: loop patterns show NAME")
    return ExitCode.OK


def _search(question: str, here: Project, screen: Screen) -> list[PatternRow]:
    """Patterns that contain all words of a question; if none does, those with most of them, best first."""
    from loop.learning.searching import pattern_fields, search
    from loop.library import definitions
    from loop.store import index

    patterns = definitions.patterns(here)
    earlier = index.rows(here.sessions, last=SEARCHED_SESSIONS)
    hits = search(question, [(name, pattern_fields(read.value, earlier)) for name, read in patterns.items()])
    if hits and hits[0].matched_words < hits[0].query_words:
        screen.say(f"no pattern has all of these words; with {hits[0].matched_words} of {hits[0].query_words}:")
    return [pattern_row(patterns[hit.key].value.model_dump(mode="json")) for hit in hits]


def pattern_row(pattern: Mapping[str, Any]) -> PatternRow:
    """The row of a pattern. `pattern`: its fields, as in the YAML file."""
    return {
        "name": pattern["name"],
        "number": pattern["number"],
        "title": pattern["title"],
        "problem": pattern["problem"],
        "use_when": pattern["use_when"],
        "priority": pattern.get("priority", "P2"),
        "steps": len(pattern["steps"]),
    }
