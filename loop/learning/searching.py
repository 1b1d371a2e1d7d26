"""Search patterns by words."""

import re
from collections.abc import Mapping, Sequence

from loop.model.index import SessionRow
from loop.model.plan import Pattern

WORD = re.compile(r"[^\W_]+")
SHORTEST_WORD = 3
"""Fewest letters of a word that counts, if any word of the query has so many: `is` is in every text."""


def query_terms(query: str) -> list[str]:
    """The words of a query that count, each once, in small letters."""
    words = list(dict.fromkeys(WORD.findall(query.lower())))
    return [word for word in words if len(word) >= SHORTEST_WORD] or words


def search(terms: Sequence[str], texts: Mapping[str, str]) -> tuple[list[str], int]:
    """Names of the entries with the most of `terms` (see `query_terms`), and how many each has.
    `texts`: name to an entry's text. A term also matches the beginning of a longer word."""
    count_by_name: dict[str, int] = {}
    for name, text in texts.items():
        words = WORD.findall(text.lower())
        count_by_name[name] = sum(any(word.startswith(term) for word in words) for term in terms)
    most = max(count_by_name.values(), default=0)
    return [name for name, count in count_by_name.items() if most and count == most], most


def pattern_text(pattern: Pattern, rows: Sequence[SessionRow]) -> str:
    """The text of a pattern to search. `rows`: sessions whose failures count too."""
    failures = [failure.text for row in rows for failure in row.failures if failure.pattern == pattern.name]
    steps = [f"{step.id} {step.title} {step.action} {step.mend or ''}" for step in pattern.steps]
    notes = [evidence.note for evidence in pattern.evidence]
    return " ".join([pattern.name, pattern.title, pattern.problem, *pattern.use_when, *failures, *steps, *notes])
