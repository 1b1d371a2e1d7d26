"""An error map in words: which indices of each dimension are wrong, and along which of them the error grows."""

from collections.abc import Iterator, Mapping, Sequence

from loop.model.measurement import Check, MapPart, Span
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
        errors = _errors(parts)
        if len(errors) >= LEAST_PARTS and errors == sorted(errors) and errors[-1] >= GROWS * errors[0]:
            yield f"the error grows along {name}, from {errors[0]:.2g} to {errors[-1]:.2g}"


def _errors(parts: Sequence[MapPart]) -> list[float]:
    """Largest errors of the parts in which something is wrong; none where one of them has no number."""
    found = [part.largest for part in parts if part.wrong]
    finite = [error for error in found if error is not None and error < INFINITE]
    return finite if len(finite) == len(found) else []
