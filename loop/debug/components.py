"""Each component of a wrong variant by itself."""

from collections.abc import Generator, Sequence

from loop.base.processes import Tick
from loop.calls.call import LibraryTerms
from loop.debug.probing import NOTHING_WRONG, failing_sides, failing_variants
from loop.gate.kernel import compile_all
from loop.gate.verify import Job, verify
from loop.model.debugging import ComponentChecks, ComponentsOutput
from loop.model.target import Component
from loop.model.workloads import expand
from loop.steps.context import Context, NoArguments, Result, Working
from loop.workers.bench import Side


def components(context: Context, arguments: NoArguments) -> Working[ComponentsOutput]:
    """Each component of the variants that are wrong; what only repeats a wrong one before it is left out."""
    failing = failing_variants(context)
    checked: list[ComponentChecks] = []
    missing: list[str] = []
    texts: list[str] = []
    for _, side in (yield from failing_sides(context, failing)):
        mine, without = yield from looked_into(context, side)
        checked, missing = [*checked, *mine], [*missing, *without]
        texts += described(side.name, mine, without)
    return Result(
        ComponentsOutput(
            ok=True,
            message="; ".join(texts) if failing else NOTHING_WRONG,
            not_exercised=tuple(missing),
            components=tuple(checked),
            wrong=tuple(component.component for component in checked if component.checks.first_failure),
        )
    )


def looked_into(context: Context, side: Side) -> Generator[Tick, None, tuple[list[ComponentChecks], list[str]]]:
    """The components of a variant, and those that could not be looked at, with the reason."""
    parts = {n: p for n, p in context.bench.target.components.items() if side.name in p.variants}
    checked: list[ComponentChecks] = []
    missing = [] if parts else [f"components of {side.name}: target.yaml names none"]
    for name, part in parts.items():
        if part.signature is None and any(component.checks.first_failure for component in checked):
            continue
        alone = yield from _side(context, side, part)
        if isinstance(alone, str):
            missing.append(f"{name} of {side.name}: {alone}")
        else:
            checked.append((yield from _check(context, name, part, alone)))
    return checked, missing


def _side(context: Context, side: Side, part: Component) -> Generator[Tick, None, Side | str]:
    """The variant's library entered at a component, or a sentence on why that is impossible."""
    assert isinstance(side.terms, LibraryTerms)
    if part.flags:
        bench, name = context.bench, side.name
        variant = (bench.emulations if side.emulated else bench.compiled)([name])[name]
        recipe = variant.build.model_copy(update={"flags": (*variant.build.flags, *part.flags)})
        flagged = variant.model_copy(update={"build": recipe})
        built, failed = yield from compile_all(context, {name: flagged})
        if failed:
            return f"no build with {' '.join(part.flags)}: {failed[0].message}"
        side = bench.side(name, built[0], emulated=side.emulated)
        assert isinstance(side.terms, LibraryTerms)
    return side.renamed(side.name, terms=side.terms.but(entry=part.entry_in(side.name)))


def _check(context: Context, name: str, part: Component, side: Side) -> Generator[Tick, None, ComponentChecks]:
    bench = context.bench
    usual = bench.target.dtypes["cuda" if side.emulated else bench.device]
    dtype = usual if usual in side.dtypes else side.dtypes[0]
    judged, alone = bench.part(part), side.renamed(f"{side.name} {name}")
    workloads = expand(judged.target, judged.target.workloads, dtype, context.task.seed)
    (checks,) = yield from verify(judged, [Job(alone, workloads, layouts=False)])
    return ComponentChecks(component=name, variant=side.name, title=part.title, checks=checks)


def described(variant: str, checked: Sequence[ComponentChecks], missing: Sequence[str]) -> list[str]:
    """What the components say of a variant. A component that is missing clears nothing."""
    texts = [
        f"{component.component} of {variant} {component.outcome}"
        for component in checked
        if component.checks.first_failure
    ]
    if checked and not texts:
        so = "" if missing else ", so the fault lies in how they are put together"
        texts.append(f"{variant}: right by itself: {', '.join(component.component for component in checked)}{so}")
    return [*texts, *missing]
