"""What was found, in the words of `git bisect log`: `git bisect replay` takes it."""

from collections.abc import Iterator, Mapping

from loop.bisect.candidates import Line
from loop.model.bisect import UNCOMMITTED, Candidate


def bisect_log(line: Line, first_bad: int, skipped: Mapping[str, str], *, certain: bool = True) -> str:
    """The log of a search that ended at a candidate: its number among the ends, 0 being the good one.

    Commits before it are good, it and those after it bad, those that could not be tried skipped. What is in no
    commit is left out: git knows nothing of it.
    """
    return "\n".join(_lines(line, first_bad, skipped, certain=certain)) + "\n"


def _lines(line: Line, first_bad: int, skipped: Mapping[str, str], *, certain: bool) -> Iterator[str]:
    known = [(number, one) for number, one in enumerate(line.ends) if one.commit != UNCOMMITTED]
    last, bad = known[-1]
    yield "git bisect start --first-parent"
    yield from _said("bad", bad)
    yield from _said("good", line.good)
    for number, one in known[1:last]:
        word = "skip" if one.commit in skipped else "bad" if number >= first_bad else "good"
        if word == "skip" or number in (first_bad - 1, first_bad):
            yield from _said(word, one)
    if certain and first_bad < len(line.ends) and line.ends[first_bad].commit != UNCOMMITTED:
        yield f"# first bad commit: [{line.ends[first_bad].commit}] {line.ends[first_bad].subject}"


def _said(word: str, one: Candidate) -> Iterator[str]:
    yield f"# {word}: [{one.commit}] {one.subject}"
    yield f"git bisect {word} {one.commit}"
