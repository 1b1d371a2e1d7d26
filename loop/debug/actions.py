"""The smallest workload on which a wrong variant still fails."""

from collections.abc import Generator
from contextlib import closing
from typing import Annotated

from pydantic import Field

from loop.base.processes import Tick
from loop.debug.probing import NOTHING_WRONG, FailureProber, SearchSpent, failing_sides, failing_variants
from loop.debug.shrinking import kind_of, shrink
from loop.model.base import Model
from loop.model.debugging import Smallest, SmallestOutput
from loop.model.tuning import Scalar
from loop.model.workloads import entry_of, spelled
from loop.steps.context import Context, Result, Working


class Effort(Model):
    """How much is tried; the step's budget is divided among the variants that fail."""

    probes: Annotated[int, Field(ge=1, le=10_000)] = 200
    """Workloads a variant and search, at most."""


def smallest(context: Context, arguments: Effort) -> Working[SmallestOutput]:
    """The smallest workload on which each wrong variant still fails, by the gate's own word."""
    output = SmallestOutput(ok=True, message=NOTHING_WRONG)
    pairs = yield from failing_sides(context, failing_variants(context))
    for failing, side in pairs:
        limit_s = context.budget_s / len(pairs)
        with closing(FailureProber(context, failing, side, arguments.probes, limit_s)) as prober:
            smallest = yield from _smallest(prober)
        output = output.model_copy(update={"smallest": (*output.smallest, smallest)})
    texts = []
    for smallest in output.smallest:
        end = "nothing smaller among them does" if smallest.minimal else "the budget ended the search"
        tried = smallest.note or f"{smallest.probes} workloads tried, {end}"
        texts.append(f"{smallest.variant} fails on {smallest.check.workload.name} ({tried})")
    return Result(output.model_copy(update={"message": "; ".join(texts)}) if texts else output)


def _smallest(prober: FailureProber) -> Generator[Tick, None, Smallest]:
    """Shrink the failing workload, then check in a fresh process that the smallest one fails."""
    best, minimal = yield from _shrunk(prober)
    prober.close()
    probes = prober.asked
    check = yield from prober.look(prober.workload(best))
    steady = kind_of(check) == prober.failing.kind
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


def _shrunk(prober: FailureProber) -> Generator[Tick, None, tuple[dict[str, Scalar], bool]]:
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
    except SearchSpent:
        return best, False
