"""What a wrong output is as if, and where it is wrong."""

from collections.abc import Iterator, Mapping, Sequence

from loop.debug.probing import HANG_S, failing_sides, failing_variants
from loop.debug.shrinking import Failing
from loop.gate.verify import Job, verify
from loop.model.debugging import CausesOutput, Explanation
from loop.model.measurement import Check, MapPart, Span
from loop.model.output import VerifyOutput, outputs_of
from loop.model.signature import Signature
from loop.model.target import Workload
from loop.steps.context import Context, NoArguments, Result, Working

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


MOST = 3
"""Workloads that a variant is looked at on: what explains one alone may be chance."""
LARGEST = 1 << 20
"""Elements of an output that is looked at; each fault costs a reference in float64."""
NOTHING = "no wrong output to explain"


def causes(context: Context, arguments: NoArguments) -> Working[CausesOutput]:
    """Which known fault explains the outputs of each wrong variant: of its target, or of any kernel."""
    found = [one for one in failing_variants(context) if one.kind == "wrong"]
    made = []
    for one, side in (yield from failing_sides(context, found)):
        chosen = _chosen(context, one)
        job = Job(side, chosen, layouts=False, call_limit_s=HANG_S, suspected=True)
        (checks,) = yield from verify(context.bench, [job])
        wrong = [check for check in checks.checks if check.wrong]
        if wrong:
            made.append(_cause(context, one.variant, wrong))
    texts = [f"{one.variant}: {one.text}" for one in made]
    return Result(CausesOutput(ok=True, message="; ".join(texts) or NOTHING, causes=tuple(made)))


def _cause(context: Context, variant: str, wrong: Sequence[Check]) -> Explanation:
    """The faults that explain every check that is telling; those that explain whole outputs before others."""
    telling, place = [check for check in wrong if check.fits is not None], ""
    as_if = _common(telling, whole=True)
    if not as_if and (as_if := _common(telling, whole=False)):
        partly = next(check for check in telling if not set(as_if) <= set(_named(check, whole=True)))
        place = whereabouts(partly, context.bench.target.signature).partition(";")[0]
    workloads = tuple(check.workload.name for check in telling)
    return Explanation(variant=variant, workloads=workloads, as_if=as_if, where=place)


def _common(telling: Sequence[Check], *, whole: bool) -> tuple[str, ...]:
    each = [_named(check, whole=whole) for check in telling]
    return tuple(as_if for as_if in each[0] if all(as_if in named for named in each)) if each else ()


def _named(check: Check, *, whole: bool) -> list[str]:
    """What explains an output, or all of it."""
    return [as_if for as_if, all_of_it in (check.fits or {}).items() if all_of_it or not whole]


def _chosen(context: Context, one: Failing) -> tuple[Workload, ...]:
    """Where it fails: the most telling first, then those with most wrong elements; usual values before others."""
    checked = [
        check
        for output in outputs_of(context.finished, VerifyOutput)
        for checks in output.variants
        if checks.variant == one.variant
        for check in checks.checks
        if check.wrong and check.inputs == "contiguous"
    ]
    rest = sorted(checked, key=lambda check: (check.workload.values != "normal", -check.wrong))
    small = [check for check in (one.telling, *rest) if check.total <= LARGEST] or [one.telling]
    return tuple({check.workload.name: check.workload for check in small}.values())[:MOST]
