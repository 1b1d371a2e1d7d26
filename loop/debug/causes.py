"""Which part of a wrong variant is wrong, what its output is as if, and where it is wrong."""

from collections.abc import Generator, Iterator, Mapping, Sequence

from loop.base.processes import Tick
from loop.calls.call import LibraryTerms
from loop.debug.probing import HANG_S, failing_sides, failing_variants
from loop.debug.shrinking import Failing
from loop.gate.kernel import compile_all
from loop.gate.verify import Job, verify
from loop.model.debugging import CausesOutput, ComponentChecks, ComponentsOutput, Explanation
from loop.model.measurement import Check, MapPart, Span
from loop.model.output import VerifyOutput, outputs_of
from loop.model.signature import Signature
from loop.model.target import CAbiVariant, Component, Workload
from loop.model.workloads import expand
from loop.steps.context import Context, NoArguments, Result, Working
from loop.workers.bench import Side

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


NOTHING_WRONG = "no variant failed a check: no cause to look for"


def components(context: Context, arguments: NoArguments) -> Working[ComponentsOutput]:
    """Each component of the variants that are wrong; what only repeats a wrong one before it is left out."""
    found = failing_variants(context)
    checked: list[ComponentChecks] = []
    missing: list[str] = []
    texts: list[str] = []
    for _, side in (yield from failing_sides(context, found)):
        mine, without = yield from looked_into(context, side)
        checked, missing = [*checked, *mine], [*missing, *without]
        texts += described(side.name, mine, without)
    return Result(
        ComponentsOutput(
            ok=True,
            message="; ".join(texts) if found else NOTHING_WRONG,
            not_exercised=tuple(missing),
            components=tuple(checked),
            wrong=tuple(one.component for one in checked if one.checks.first_failure),
        )
    )


def looked_into(context: Context, side: Side) -> Generator[Tick, None, tuple[list[ComponentChecks], list[str]]]:
    """The components of a variant, and those that could not be looked at, with the reason."""
    parts = {n: p for n, p in context.bench.target.components.items() if side.name in p.variants}
    checked: list[ComponentChecks] = []
    missing = [] if parts else [f"components of {side.name}: target.yaml names none"]
    for name, part in parts.items():
        if part.signature is None and any(one.checks.first_failure for one in checked):
            continue
        alone = yield from _side(context, side, part)
        if isinstance(alone, str):
            missing.append(f"{name} of {side.name}: {alone}")
        else:
            checked.append((yield from _check(context, name, part, alone)))
    return checked, missing


def _side(context: Context, side: Side, part: Component) -> Generator[Tick, None, Side | str]:
    """The variant's library entered at a component, or why there is none."""
    assert isinstance(side.terms, LibraryTerms)
    if part.flags:
        bench, name = context.bench, side.name
        variant = (bench.emulations if side.emulated else bench.compiled)([name])[name]
        made, failed = yield from compile_all(context, {name: _flagged(variant, part.flags)})
        if failed:
            return f"no build with {' '.join(part.flags)}: {failed[0].message}"
        side = bench.side(name, made[0], emulated=side.emulated)
        assert isinstance(side.terms, LibraryTerms)
    return side.renamed(side.name, terms=side.terms.but(entry=part.entry_in(side.name)))


def _flagged(variant: CAbiVariant, flags: Sequence[str]) -> CAbiVariant:
    build = variant.build.model_copy(update={"flags": (*variant.build.flags, *flags)})
    return variant.model_copy(update={"build": build})


def _check(context: Context, name: str, part: Component, side: Side) -> Generator[Tick, None, ComponentChecks]:
    bench = context.bench
    usual = bench.target.dtypes["cuda" if side.emulated else bench.device]
    dtype = usual if usual in side.dtypes else side.dtypes[0]
    judged, alone = bench.part(part), side.renamed(f"{side.name} {name}")
    workloads = expand(judged.target, judged.target.workloads, dtype, context.task.seed)
    (checks,) = yield from verify(judged, [Job(alone, workloads, layouts=False)])
    return ComponentChecks(component=name, variant=side.name, title=part.title, checks=checks)


def described(variant: str, checked: Sequence[ComponentChecks], missing: Sequence[str]) -> list[str]:
    """What the components say of a variant; with one missing, that the others are right clears nothing."""
    texts = [f"{one.component} of {variant} {one.outcome}" for one in checked if one.checks.first_failure]
    if checked and not texts:
        so = "" if missing else ", so the fault lies in how they are put together"
        texts.append(f"{variant}: right by itself: {', '.join(one.component for one in checked)}{so}")
    return [*texts, *missing]
