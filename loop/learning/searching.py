"""Which patterns do a few words mean? Exact words before beginnings and parts.

A word counts by its best match (`QUALITY`), times the weight of the field, summed over fields. An entry with all
words comes before one with some.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from loop.model.index import SessionRow
from loop.model.pattern import Pattern

WORD = re.compile(r"[^\W_]+")
QUALITY = {"exact": 1.0, "beginning": 0.8, "part": 0.5}
EMPTY = frozenset(
    WORD.findall("a an and are as at be by for from i in is it no not of on or that the there this to was with")
)
"""Words that say nothing where others are there."""
Field = tuple[float, str]
NAME, PROBLEM, STEP, NOTE = 5.0, 8.0, 2.0, 1.0
"""Weights: name, problem, steps, evidence."""
MOST_FAILURES = 20
"""Failures of a pattern's steps that are searched, the last ones."""
MOST_WORDS = 12
"""Words of a question that count: enough for a pasted error message."""


class Hit(NamedTuple):
    """One entry that was found."""

    key: str
    score: float
    matched: int
    """How many of the words it has."""
    asked: int
    """How many there were."""


def search(question: str, entries: Iterable[tuple[str, Iterable[Field]]]) -> list[Hit]:
    """Entries (key, fields) with all the words, the best first; else those with the most of them."""
    every = list(dict.fromkeys(WORD.findall(question.lower())))
    terms = ([word for word in every if word not in EMPTY] or every)[:MOST_WORDS]
    hits = []
    for key, fields in entries:
        texts = [(weight, set(WORD.findall(text.lower()))) for weight, text in fields]
        scores = [
            sum(weight * max((quality(word, other) for other in words), default=0.0) for weight, words in texts)
            for word in terms
        ]
        hits.append(Hit(key, sum(scores), sum(score > 0 for score in scores), len(terms)))
    most = max((hit.matched for hit in hits), default=0)
    return sorted((hit for hit in hits if most and hit.matched == most), key=lambda hit: -hit.score)


def quality(word: str, other: str) -> float:
    """How well a word of the question matches a word of a text, 0 to 1."""
    if word == other:
        return QUALITY["exact"]
    if len(word) >= 2 and other.startswith(word):
        return QUALITY["beginning"]
    return QUALITY["part"] if len(word) >= 3 and word in other else 0.0


def pattern_fields(pattern: Pattern, failures: Iterable[str] = ()) -> tuple[Field, ...]:
    """Name, problem, occasions, failures, steps and evidence. `failures`: error signatures of its steps."""
    steps = " ".join(f"{step.id} {step.title} {step.action} {step.mend or ''}" for step in pattern.steps)
    signatures = list(dict.fromkeys(failures))[-MOST_FAILURES:]
    return (
        (NAME, f"{pattern.name} {pattern.title}"),
        (PROBLEM, pattern.problem),
        (PROBLEM, " ".join(pattern.use_when)),
        (PROBLEM, " ".join(signatures)),
        (STEP, steps),
        (NOTE, " ".join(note.note for note in pattern.evidence)),
    )


def failures_of(rows: Iterable[SessionRow]) -> dict[str, list[str]]:
    """Error signatures that sessions met, by the pattern whose step failed."""
    signatures: dict[str, list[str]] = {}
    for row in rows:
        for failure in row.failures:
            signatures.setdefault(failure.pattern, []).append(failure.text)
    return signatures
