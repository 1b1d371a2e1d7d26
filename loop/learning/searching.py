"""Which things do a few words mean? Exact words before beginnings and parts.

A word counts by the best it is found as (`QUALITY`), times the weight of the field it is found in, added up over
fields. What has all words comes before what has some. The catalogue's page searches by the same rule (site.js).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from loop.model.index import SessionRow
from loop.model.pattern import Pattern

WORD = re.compile(r"[^\W_]+")
QUALITY = {"exact": 1.0, "beginning": 0.8, "part": 0.5}
EMPTY = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "i", "in", "is", "it", "no", "not"),
        *("of", "on", "or", "that", "the", "there", "this", "to", "was", "with"),
    )
)
"""Words that say nothing where others are there."""
Field = tuple[float, str]
NAME, PROBLEM, STEP, NOTE = 5.0, 8.0, 2.0, 1.0
"""Weights: what a thing is called, what it is for, what it does, what was noted of it."""
MOST_FAILURES = 20
"""Failures of a pattern's steps that are looked through, the last ones."""
MOST_WORDS = 12
"""Words of a question that are looked for: an error message that was pasted has enough in these."""


@dataclass(frozen=True)
class Entry:
    """One thing that can be found."""

    key: str
    """What it is called."""
    fields: tuple[Field, ...]
    """Its texts, each with its weight."""


@dataclass(frozen=True)
class Hit:
    """One thing that was found."""

    key: str
    score: float
    matched: int
    """How many of the words it has."""
    asked: int
    """How many there were."""


def words(text: str) -> list[str]:
    """The words of a text, in small letters, each part of a name by itself."""
    return WORD.findall(text.lower())


def asked_words(question: str) -> list[str]:
    """What is looked for: each word once, without those that say nothing."""
    all_words = list(dict.fromkeys(words(question)))
    telling = [word for word in all_words if word not in EMPTY]
    return (telling or all_words)[:MOST_WORDS]


def search(question: str, entries: Iterable[Entry]) -> list[Hit]:
    """Entries with all the words, the best first; where none has all, those with the most of them."""
    wanted = asked_words(question)
    hits = []
    for entry in entries:
        texts = [(weight, set(words(text))) for weight, text in entry.fields]
        scores = [
            sum(weight * max((quality(word, other) for other in there), default=0.0) for weight, there in texts)
            for word in wanted
        ]
        hits.append(Hit(entry.key, sum(scores), sum(score > 0 for score in scores), len(wanted)))
    most = max((hit.matched for hit in hits), default=0)
    best = [hit for hit in hits if hit.matched == most and most]
    return sorted(best, key=lambda hit: -hit.score)


def quality(word: str, other: str) -> float:
    """How well a word of the question is found in a word of a text, 0 to 1."""
    if word == other:
        return QUALITY["exact"]
    if len(word) >= 2 and other.startswith(word):
        return QUALITY["beginning"]
    if len(word) >= 3 and word in other:
        return QUALITY["part"]
    return 0.0


def pattern_fields(pattern: Pattern, failures: Iterable[str] = ()) -> tuple[Field, ...]:
    """Name, problem, occasions, failures, steps and evidence. `failures`: signatures that its steps ended with."""
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
    """Signatures of the failures that sessions met, by the pattern whose step it was."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for failure in row.failures:
            found.setdefault(failure.pattern, []).append(failure.text)
    return found
