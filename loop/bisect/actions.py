"""A regression that the gate has found: which commit brought it, down to what is in no commit yet."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import write_atomic
from loop.base.errors import LoopError
from loop.base.processes import Tick
from loop.bisect.candidates import read_line
from loop.bisect.kernels import kernel_hunt, own_trees
from loop.bisect.model import Metric
from loop.gate.kernel import extra_sets, workloads
from loop.model.bisect import BisectAnswer, BisectOutput
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from loop.model.verdict import SpeedVerdict
from loop.steps.context import Context, NoArguments, Result, Working
from loop.timing.model import CompareOutput
from loop.timing.readiness import hold_device

LOG = "bisect.log"


@dataclass(frozen=True)
class Regression:
    """What the gate says against a variant that was good."""

    variant: str
    metric: Metric
    good: str
    """Commit of its known good."""
    workloads: tuple[Workload, ...]
    """Where it shows."""


def bisect(context: Context, arguments: NoArguments) -> Working[BisectOutput]:
    """Search between the known good and what is in the checkout for the commit of the first regression."""
    missing: list[str] = []
    found = regressions(context, missing)
    if not found:
        message = missing[0] if missing else "nothing has regressed"
        return Result(BisectOutput(ok=True, message=message, not_exercised=tuple(missing)))
    missing += [f"a search for what regressed {one.variant}: one variant at a time" for one in found[1:]]
    try:
        answer = yield from _search(context, found[0])
    except LoopError as error:
        return Result(BisectOutput(ok=False, message=error.message, hint=error.hint, not_exercised=tuple(missing)))
    return Result(_output(context, found[0], answer, missing))


def regressions(context: Context, missing: list[str]) -> list[Regression]:
    """Variants that were good and are not now; why a search is not possible is added to `missing`."""
    every = {one.name: one for one in workloads(context, [*context.task.plan.workloads, *extra_sets(context)])}
    found = []
    for variant, (metric, names) in {**_slower(context), **_wrong(context)}.items():
        known = context.past.known_good.get(variant)
        if known is None:
            continue
        if known.commit is None:
            missing.append(
                f"a search for what regressed {variant}: the sources of {known.session} were not committed"
            )
            continue
        places = tuple(every[name] for name in names if name in every)
        found.append(Regression(variant, metric, known.commit, places))
    return found


def _slower(context: Context) -> dict[str, tuple[Metric, list[str]]]:
    latest = context.latest("kernel.compare")
    verdicts = CompareOutput.model_validate(latest, strict=False).verdicts if latest else ()
    found: dict[str, tuple[Metric, list[str]]] = {}
    for one in verdicts:
        if isinstance(one, SpeedVerdict) and one.against == "known_good" and one.verdict == "slower":
            found.setdefault(one.variant, ("latency", []))[1].append(one.workload)
    return found


def _wrong(context: Context) -> dict[str, tuple[Metric, list[str]]]:
    latest = context.latest("kernel.verify")
    checked = VerifyOutput.model_validate(latest, strict=False).variants if latest else ()
    failing = {one.variant: [check.workload.name for check in one.checks if not check.passed] for one in checked}
    return {name: ("correctness", list(dict.fromkeys(places))) for name, places in failing.items() if places}


def _search(context: Context, one: Regression) -> Generator[Tick, None, BisectAnswer]:
    line = read_line(context.task.folder, one.good, None)
    with ExitStack() as stack:
        yield from hold_device(context, stack)
        trees = stack.enter_context(own_trees(line, "session"))
        hunt = kernel_hunt(context.bench, line, trees, one.variant, one.metric, one.workloads, context.task.seed)
        return (yield from hunt.run())


def _output(context: Context, one: Regression, answer: BisectAnswer, missing: Sequence[str]) -> BisectOutput:
    names = ", ".join(f"{culprit.short} ({culprit.subject})" for culprit in (*answer.culprits, *answer.range))
    what = f"{answer.outcome.replace('_', ' ')} {names}".strip()
    log = ""
    if context.task.workshop is not None and answer.log:
        log = str(context.task.workshop.notes.parent / LOG)
        write_atomic(Path(log), answer.log)
    return BisectOutput(
        ok=answer.outcome in ("culprit", "several", "no_regression"),
        message=f"{one.variant}, {one.metric}: {what}; {answer.why}",
        not_exercised=tuple(missing),
        learned=(f"{one.variant} regressed with {names}.",) if answer.culprits else (),
        variant=one.variant,
        metric=one.metric,
        answer=answer,
        log=log,
    )
