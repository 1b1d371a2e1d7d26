"""Search patterns by words."""

import re
from collections.abc import Mapping, Sequence

from loop.model.index import SessionRow
from loop.model.plan import Pattern

WORD = re.compile(r"[^\W_]+")
COMMON_WORDS = frozenset(
    WORD.findall("a an and are as at be by for from i in is it no not of on or that the there this to was with")
)
"""Common words, ignored if the query has other words."""
MOST_QUERY_WORDS = 12
"""Most words of a query that count: enough for a pasted error message."""


def query_terms(query: str) -> list[str]:
    """The words of a query that count, in small letters; common words only if there are no others."""
    words = list(dict.fromkeys(WORD.findall(query.lower())))
    return ([word for word in words if word not in COMMON_WORDS] or words)[:MOST_QUERY_WORDS]


def search(terms: Sequence[str], texts: Mapping[str, tuple[str, str]]) -> tuple[list[str], int]:
    """Names of the entries that have the most of these words, and how many each has; first those with more in the
    title. `texts`: name to title and further text. A word also matches the beginning of a longer one."""

    def count_matches(text: str) -> int:
        words = WORD.findall(text.lower())
        return sum(any(word.startswith(term) for word in words) for term in terms)

    count_by_name = {name: count_matches(f"{title} {text}") for name, (title, text) in texts.items()}
    most = max(count_by_name.values(), default=0)
    names = [name for name, count in count_by_name.items() if most and count == most]
    return sorted(names, key=lambda name: -count_matches(texts[name][0])), most


def pattern_texts(pattern: Pattern, rows: Sequence[SessionRow]) -> tuple[str, str]:
    """A pattern's title, and further text to search. `rows`: sessions whose failures count too."""
    failures = [failure.text for row in rows for failure in row.failures if failure.pattern == pattern.name]
    steps = [f"{step.id} {step.title} {step.action} {step.mend or ''}" for step in pattern.steps]
    notes = [evidence.note for evidence in pattern.evidence]
    text = " ".join([pattern.problem, *pattern.use_when, *failures, *steps, *notes])
    return f"{pattern.name} {pattern.title}", text
