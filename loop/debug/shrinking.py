"""From a failing workload to the smallest that still fails. Pure: it names what to try, others try it."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from loop.model.measurement import Check, VariantChecks
from loop.model.signature import Signature
from loop.model.tuning import Scalar

Entry = Mapping[str, Scalar]
Search = Generator[Entry, bool, None]
"""Yields workloads and is sent whether each still fails. The last that did is what was looked for."""


@dataclass(frozen=True)
class Failing:
    """A variant that is not right: the one failure that is looked into."""

    variant: str
    build_id: str | None
    kind: str
    """What kind of failure it is, as `kind_of` says."""
    start: Check
    """The smallest workload known to fail so: a search begins there."""
    telling: Check
    """Where right and wrong elements are most evenly divided: there their pattern shows best."""


def kind_of(check: Check) -> str:
    """`wrong`, `hung`, `refused: error 3`: failures of one kind are taken for one fault. Empty when it passed.

    A shape that is declined with an error is no smaller form of a wrong answer, nor is an answer with all elements
    within their tolerance.
    """
    if check.passed:
        return ""
    if check.status == "wrong":
        return "wrong" if check.wrong else "inexact"
    code = check.fault.code if check.fault else ""
    return ": ".join(filter(None, (check.status, code or check.cause)))


def failing(checks: VariantChecks, signature: Signature) -> Failing | None:
    """The kind of failure that most workloads show, and between which of them to look; None when all is right."""
    failed = [check for check in checks.checks if not check.passed]
    if not failed:
        return None
    kinds = [kind_of(check) for check in failed]
    most = max(dict.fromkeys(kinds), key=kinds.count)
    alike = [check for check in failed if kind_of(check) == most]

    def effort(check: Check) -> tuple[bool, bool, int]:
        """Inputs as they usually lie first, then sizes that a shorthand covers, then small ones."""
        sizes = check.workload.sizes
        same = all(len({sizes[name] for name in names}) == 1 for names in signature.shorthand.values())
        return check.inputs != "contiguous", not same, prod(sizes.values())

    def unevenness(check: Check) -> tuple[bool, bool, float, int]:
        share = check.wrong / check.total if check.total else 1.0
        plain = check.workload.values == "normal"
        return check.inputs != "contiguous", not plain, abs(share - 0.5), -check.total

    return Failing(
        variant=checks.variant,
        build_id=checks.build_id,
        kind=most,
        start=min(alike, key=effort),
        telling=min(alike, key=unevenness),
    )


def shrink(entry: Entry, signature: Signature) -> Search:
    """Plainer values, flags down, then each dimension lowered; again and again, until nothing changes.

    Dimensions that share a shorthand go together first. A dimension is tried from 1 up in doublings, which are the
    quick ones, and then halved down to the smallest size above a size that does not fail: one less passes.
    """
    words = {word: names for word, names in signature.shorthand.items() if word in entry}
    sizes = {name: entry[word] for word, names in words.items() for name in names}
    now: Entry = {**sizes, **{name: value for name, value in entry.items() if name not in words}}
    before: Entry = {}
    while now != before:
        before = now
        for key in [key for key in now if key not in (*signature.dimensions, "dtype")]:
            plainer = {name: value for name, value in now.items() if name != key}
            now = plainer if (yield plainer) else now
        for names in _knobs(now, signature):
            now = yield from _lower(now, names)


def _knobs(entry: Entry, signature: Signature) -> Iterator[tuple[str, ...]]:
    """Dimensions to be lowered: those of one size and shorthand together, then each by itself, largest first."""
    together = signature.shorthand.values()
    yield from (names for names in together if len({entry[name] for name in names}) == 1)
    yield from ((name,) for name in sorted(signature.dimensions, key=lambda name: -int(entry[name])))


def _lower(entry: Entry, names: Iterable[str]) -> Generator[Entry, bool, Entry]:
    low, high = 0, max(int(entry[name]) for name in names)
    for size in doublings(high):
        smaller = {**entry, **dict.fromkeys(names, size)}
        if (yield smaller):
            entry, high = smaller, size
            break
        low = size
    while high - low > 1:
        middle = (low + high) // 2
        smaller = {**entry, **dict.fromkeys(names, middle)}
        if (yield smaller):
            entry, high = smaller, middle
        else:
            low = middle
    return entry


def doublings(end: int) -> Iterator[int]:
    """1, 2, 4, ... below `end`."""
    size = 1
    while size < end:
        yield size
        size *= 2
