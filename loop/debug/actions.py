"""When the gate fails: from which size on it is wrong, where, and on which smallest workload."""

from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from typing import Annotated

from pydantic import Field

from loop.base.processes import Tick
from loop.debug import boundary as boundaries
from loop.debug.causes import NOTHING_WRONG, whereabouts
from loop.debug.probing import Prober, Spent, failing_sides, failing_variants
from loop.debug.shrinking import Failing, shrink
from loop.gate.order import values_key
from loop.model.base import Model
from loop.model.debugging import (
    Boundary,
    BoundaryOutput,
    MapOutput,
    Outcome,
    Smallest,
    SmallestOutput,
    Whereabouts,
)
from loop.model.measurement import Check
from loop.model.tuning import Scalar
from loop.model.workloads import entry_of, spelled
from loop.steps.context import Context, NoArguments, Result, Working

VALUES, MORE = 3, 8
"""Sets of values with which a size has to pass, and those that are tried on either side of a boundary."""


class Effort(Model):
    """How much is tried; the step's budget is divided among the variants that fail."""

    probes: Annotated[int, Field(ge=1, le=10_000)] = 200
    """Workloads a variant and search, at most."""


def smallest(context: Context, arguments: Effort) -> Working[SmallestOutput]:
    """The smallest workload on which each wrong variant still fails, by the gate's own word."""
    output = SmallestOutput(ok=True, message=NOTHING_WRONG)
    pairs = yield from failing_sides(context, failing_variants(context))
    for one, side in pairs:
        limit_s = context.budget_s / len(pairs)
        with closing(Prober(context, one, side, arguments.probes, limit_s)) as prober:
            found = yield from _smallest(prober)
        fields = {"smallest": (*output.smallest, found), "probes": (*output.probes, *prober.asked)}
        output = output.model_copy(update=fields)
    texts = [f"{one.variant} fails on {one.check.workload.name} ({_tried(one)})" for one in output.smallest]
    return Result(output.model_copy(update={"message": "; ".join(texts)}) if texts else output)


def _tried(one: Smallest) -> str:
    end = "nothing smaller among them does" if one.minimal else "the budget ended the search"
    return one.note or f"{one.probes} workloads tried, {end}"


def _smallest(prober: Prober) -> Generator[Tick, None, Smallest]:
    """Shrink, then see in a fresh process that the smallest fails: what does not is not the smallest."""
    best, minimal = yield from _shrunk(prober)
    prober.close()
    probes = len(prober.asked)
    check = yield from prober.look(prober.workload(best))
    steady = prober.probes[values_key(check.workload)].outcome == "fails"
    if not steady:
        best, check = prober.entry, prober.start
    workload = check.workload
    return Smallest(
        variant=prober.failing.variant,
        check=check,
        began=prober.start.workload.name,
        words=spelled(entry_of(prober.context.bench.target.signature, workload)),
        seed=prober.seed,
        probes=probes,
        minimal=minimal and steady,
        note="" if steady else "smaller ones fail at times, or only after other calls",
    )


def _shrunk(prober: Prober) -> Generator[Tick, None, tuple[dict[str, Scalar], bool]]:
    """The last workload that failed, and whether the search came to its end."""
    best = prober.entry
    search = shrink(best, prober.context.bench.target.signature)
    try:
        entry = next(search)
        while True:
            fails = (yield from prober.ask(entry)) == "fails"
            best = dict(entry) if fails else best
            entry = search.send(fails)
    except StopIteration:
        return best, True
    except Spent:
        return best, False


def boundary(context: Context, arguments: Effort) -> Working[BoundaryOutput]:
    """From which size on each wrong variant fails: what shares a shorthand first, then each other dimension."""
    output = BoundaryOutput(ok=True, message=NOTHING_WRONG)
    known = _known(context)
    fickle = [one.variant for one in known.smallest if one.note]
    pairs = yield from failing_sides(
        context, [one for one in failing_variants(context) if one.variant not in fickle]
    )
    for one, side in pairs:
        limit_s = context.budget_s / len(pairs)
        with closing(Prober(context, one, side, arguments.probes, limit_s, known.probes)) as prober:
            found = yield from _boundaries(prober)
        fields = {"boundaries": (*output.boundaries, *found), "probes": (*output.probes, *prober.asked)}
        output = output.model_copy(update=fields)
    texts = [f"{one.variant} {one.text}" for one in output.boundaries]
    texts += [f"{name} does not fail every time: no boundary can be found" for name in fickle]
    return Result(output.model_copy(update={"message": "; ".join(texts)}) if texts else output)


def _known(context: Context) -> SmallestOutput:
    """What the search for the smallest workload found in this session."""
    found = context.latest("debug.smallest")
    return SmallestOutput.model_validate(found) if found else SmallestOutput(ok=True, message=NOTHING_WRONG)


def _boundaries(prober: Prober) -> Generator[Tick, None, list[Boundary]]:
    """One a dimension that is larger than 1, as long as the budget lasts."""
    found = []
    for name in _dimensions(prober):
        tried, by_values = yield from _tried_along(prober, name)
        if len(tried) > 1:
            found.append(_boundary(prober, name, tried, by_values))
    return found


def _dimensions(prober: Prober) -> list[str]:
    """Shorthands first, then the rest, the larger first."""
    signature, entry = prober.context.bench.target.signature, prober.entry
    sizes = {
        name: int(size) for name, size in entry.items() if name in (*signature.shorthand, *signature.dimensions)
    }
    large = [name for name, size in sizes.items() if size > 1]
    return sorted(large, key=lambda name: (name not in signature.shorthand, -sizes[name]))


def _tried_along(prober: Prober, name: str) -> Generator[Tick, None, tuple[dict[int, Outcome], str]]:
    """Sizes of one dimension to what came of each, others as they are; and what depends on the values there."""
    size = int(prober.entry[name])
    tried: dict[int, Outcome] = {size: "fails"}
    search = boundaries.search(size)
    with suppress(Spent):
        try:
            asked = next(search)
            while True:
                tried[asked] = yield from _with_values(prober, name, asked)
                asked = search.send(tried[asked])
        except StopIteration:
            return tried, (yield from _by_values(prober, name, tried))
    return tried, ""


def _with_values(prober: Prober, name: str, size: int) -> Generator[Tick, None, Outcome]:
    """A size fails when it fails with any of several sets of values, and passes when it does with all."""
    outcome: Outcome = "passes"
    for other in range(VALUES):
        outcome = yield from prober.ask({**prober.entry, name: size}, other)
        if outcome != "passes":
            break
    return outcome


def _by_values(prober: Prober, name: str, tried: dict[int, Outcome]) -> Generator[Tick, None, str]:
    """Sizes on either side of a boundary that fail with some sets of values and not with others."""
    texts = []
    for size in boundaries.edges(tried):
        fails = 0
        for other in range(MORE):
            fails += (yield from prober.ask({**prober.entry, name: size}, other)) == "fails"
        if 0 < fails < MORE:
            texts.append(f"{name}={size} fails with {fails} of {MORE} sets of values")
    return ", ".join(texts)


def _boundary(prober: Prober, name: str, tried: dict[int, Outcome], by_values: str) -> Boundary:
    text = boundaries.describe(name, tried)
    return Boundary(
        variant=prober.failing.variant,
        dimension=name,
        around=prober.start.workload.name,
        fails=boundaries.sizes_of(tried, "fails"),
        passes=boundaries.sizes_of(tried, "passes"),
        others=boundaries.sizes_of(tried, "other"),
        text=f"{text}; it depends on the values: {by_values}" if by_values else text,
    )


def error_map(context: Context, arguments: NoArguments) -> Working[MapOutput]:
    """Which indices of the outputs are wrong: where that shows best, and on the smallest failing workload."""
    yield from ()
    found = failing_variants(context)
    small = {one.variant: one.check for one in _known(context).smallest}
    places = [place for one in found for place in _places(context, one, small.get(one.variant))]
    silent = [one for one in found if one.variant not in {place.variant for place in places}]
    texts = [f"{place.variant} on {place.workload}: {place.text}" for place in places]
    texts += [f"{one.variant} gives no output to look at: {one.fault or one.start.message}" for one in silent]
    return Result(MapOutput(ok=True, message="; ".join(texts) or NOTHING_WRONG, places=tuple(places)))


def _places(context: Context, one: Failing, small: Check | None) -> Iterable[Whereabouts]:
    checks = {check.workload.name: check for check in (one.telling, small) if check is not None}
    for name, check in checks.items():
        text = whereabouts(check, context.bench.target.signature)
        if text:
            yield Whereabouts(variant=one.variant, workload=name, text=text)
