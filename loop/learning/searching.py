"""Search patterns by words. A word scores the weight of each field that contains it."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from loop.model.index import SessionRow
from loop.model.plan import Pattern

WORD = re.compile(r"[^\W_]+")
COMMON_WORDS = frozenset(
    WORD.findall("a an and are as at be by for from i in is it no not of on or that the there this to was with")
)
"""Common words, ignored if the query has other words."""
MOST_QUERY_WORDS = 12
"""Most words of a query that count: enough for a pasted error message."""


class Hit(NamedTuple):
    """A pattern found by a search."""

    key: str
    score: float
    matched_words: int
    """Number of query words that it contains."""
    query_words: int
    """Number of query words."""


def search(query: str, entries: Iterable[tuple[str, Iterable[tuple[float, str]]]]) -> list[Hit]:
    """Entries with all query words, best first; if there are none, those with the most words.

    `entries`: name and fields, each a weight and a text. A match of a word's beginning counts half.
    """
    query_words = list(dict.fromkeys(WORD.findall(query.lower())))
    terms = [word for word in query_words if word not in COMMON_WORDS] or query_words
    terms = terms[:MOST_QUERY_WORDS]
    hits = []
    for key, fields in entries:
        texts = [(weight, set(WORD.findall(text.lower()))) for weight, text in fields]
        scores = []
        for term in terms:
            score = 0.0
            for weight, words in texts:
                score += weight / 2 if term in words else 0.0
                score += weight / 2 if any(word.startswith(term) for word in words) else 0.0
            scores.append(score)
        hits.append(Hit(key, sum(scores), sum(score > 0 for score in scores), len(terms)))
    most = max((hit.matched_words for hit in hits), default=0)
    return sorted((hit for hit in hits if most and hit.matched_words == most), key=lambda hit: -hit.score)


def pattern_fields(pattern: Pattern, rows: Iterable[SessionRow] = ()) -> list[tuple[float, str]]:
    """Searchable texts of a pattern with weights. `rows`: sessions whose failures count too."""
    steps = " ".join(f"{step.id} {step.title} {step.action} {step.mend or ''}" for step in pattern.steps)
    failures = " ".join(f.text for row in rows for f in row.failures if f.pattern == pattern.name)
    notes = " ".join(note.note for note in pattern.evidence)
    name = f"{pattern.name} {pattern.title}"
    return [(5.0, name), (8.0, pattern.problem), (8.0, " ".join(pattern.use_when)), (8.0, failures), (2.0, steps),
            (1.0, notes)]  # fmt: skip
