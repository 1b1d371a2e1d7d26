"""Where in an output it is wrong: on one workload, and which indices on all of them."""

from collections.abc import Iterator, Mapping, Sequence

from loop.model.measurement import Check, Span
from loop.model.signature import Signature

GROWS = 2.0
"""An error that never falls along a dimension and ends so many times as large as it began grows with it."""
LEAST_PARTS = 3
INFINITE = 1e300


def whereabouts(check: Check, signature: Signature) -> str:
    """`query rows 64 to 127 of 128, all heads; the error grows along Sq, from 0.1 to 0.2`; empty without a map."""
    places = [_span(name, span, signature.words) for name, span in check.spans.items() if span.size > 1]
    if not check.spans:
        return ""
    partly = [text for text in places if not text.startswith("all ")]
    everywhere = [text for text in places if text.startswith("all ")]
    return "; ".join([", ".join([*partly, *everywhere]) or "its one element", *_growths(check)])


def _span(name: str, span: Span, words: Mapping[str, str]) -> str:
    known = words.get(name)
    if span.count == span.size:
        return f"all {known}" if known else f"all of {name}"
    subject = known or name
    if span.count == 1:
        return (
            f"{known} {span.first} alone, of {span.size}"
            if known
            else f"only at {name} = {span.first} of {span.size}"
        )
    if span.count == span.last - span.first + 1:
        return f"{subject} {span.first} to {span.last} of {span.size}"
    return f"{span.count} of {span.size} {known or f'of {name}'} between {span.first} and {span.last}"


def _growths(check: Check) -> Iterator[str]:
    for name, parts in check.map.items():
        largest = [part.largest for part in parts if part.count]
        errors = [error for error in largest if error is not None and error < INFINITE]
        if len(errors) < len(largest):  # A part without a number says nothing of growth.
            continue
        if len(errors) >= LEAST_PARTS and errors == sorted(errors) and errors[-1] >= GROWS * errors[0]:
            yield f"the error grows along {name}, from {errors[0]:.2g} to {errors[-1]:.2g}"


LEAST_SIZES = 2
"""Sizes of a dimension that are needed to tell a place that moves with the size from one that stays."""
BLOCKS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Blocks whose last, partial one may be wrong, beside those of 2 and 3."""


def common_place(checks: Sequence[Check], signature: Signature) -> str:
    """`the last W % 8 of W`: which indices are wrong on all of these; empty where no rule fits."""
    texts: list[str] = []
    for name in checks[0].spans if checks else ():
        spans = [check.spans[name] for check in checks if name in check.spans and check.spans[name].size > 1]
        partial = [span for span in spans if span.count < span.size]
        if partial and len({span.size for span in spans}) >= LEAST_SIZES:
            texts += _place(name, signature.words.get(name, f"indices of {name}"), spans)
    return ", ".join(texts)


def _place(name: str, words: str, spans: Sequence[Span]) -> Iterator[str]:
    """The first rule that fits the wrong indices of every size."""
    if all(span.count == span.last - span.first + 1 for span in spans):
        yield from _stretch(name, words, spans)
    elif all(span.count == (span.last - span.first) // 2 + 1 for span in spans):
        yield f"every other of {words}, from {min(span.first for span in spans)} on"


def _stretch(name: str, words: str, spans: Sequence[Span]) -> Iterator[str]:
    """The same where wrong indices follow each other, by where they begin and end."""
    begin, to_end = {span.first for span in spans}, all(span.last == span.size - 1 for span in spans)
    block = next((n for n in BLOCKS if all(span.first == span.size // n * n for span in spans)), 0)
    rules = {
        f"only the last of {words}": all(span.count == 1 for span in spans),
        f"{words} from {spans[0].first} on": len(begin) == 1,
        f"the last {name} % {block} of {words}: a partial block of {block}": block > 0,
        f"the second half of {words}": all(span.first == span.size // 2 for span in spans),
    }
    ends = {span.last for span in spans}
    if to_end:
        yield from [text for text, fits in rules.items() if fits][:1]
    elif len(begin) == len(ends) == 1:
        yield f"only the first of {words}" if ends == {0} else f"{words} {spans[0].first} to {spans[0].last}"
