"""Which patterns do a few words mean? Each word counts by the weight of the fields that contain it."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from loop.model.index import SessionRow
from loop.model.plan import Pattern

WORD = re.compile(r"[^\W_]+")
EMPTY = frozenset(
    WORD.findall("a an and are as at be by for from i in is it no not of on or that the there this to was with")
)
"""Words that say nothing where others are there."""
MOST_WORDS = 12
"""Words of a question that count: enough for a pasted error message."""


class Hit(NamedTuple):
    """One pattern that was found."""

    key: str
    score: float
    matched: int
    """How many of the words it has."""
    asked: int
    """How many there were."""


def search(question: str, entries: Iterable[tuple[str, Iterable[tuple[float, str]]]]) -> list[Hit]:
    """Entries with all the words, the best first; else those with the most of them.

    `entries`: name and fields, each field a weight and a text. A word at the beginning of another counts half.
    """
    every = list(dict.fromkeys(WORD.findall(question.lower())))
    terms = ([word for word in every if word not in EMPTY] or every)[:MOST_WORDS]
    hits = []
    for key, fields in entries:
        texts = [(weight, set(WORD.findall(text.lower()))) for weight, text in fields]
        scores = []
        for term in terms:
            exact = sum(weight for weight, words in texts if term in words)
            begun = sum(weight for weight, words in texts if any(word.startswith(term) for word in words))
            scores.append((exact + begun) / 2)
        hits.append(Hit(key, sum(scores), sum(score > 0 for score in scores), len(terms)))
    most = max((hit.matched for hit in hits), default=0)
    return sorted((hit for hit in hits if most and hit.matched == most), key=lambda hit: -hit.score)


def pattern_fields(pattern: Pattern, rows: Iterable[SessionRow] = ()) -> list[tuple[float, str]]:
    """What a pattern says, each text with its weight. `rows`: sessions whose failures of its steps count, too."""
    steps = " ".join(f"{step.id} {step.title} {step.action} {step.mend or ''}" for step in pattern.steps)
    failures = " ".join(f.text for row in rows for f in row.failures if f.pattern == pattern.name)
    notes = " ".join(note.note for note in pattern.evidence)
    name = f"{pattern.name} {pattern.title}"
    return [(5.0, name), (8.0, pattern.problem), (8.0, " ".join(pattern.use_when)), (8.0, failures), (2.0, steps),
            (1.0, notes)]  # fmt: skip
