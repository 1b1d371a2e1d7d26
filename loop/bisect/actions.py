"""After the gate found a regression: search for its commit, uncommitted changes included."""

import time
from collections.abc import Sequence
from functools import partial

from loop.base.errors import LoopError, WorkFailed
from loop.base.processes import Tick
from loop.bisect.candidates import CommitLine, read_lines
from loop.bisect.hunt import Regression, open_kernel_bisection
from loop.bisect.trying import MOST_FAILING_WORKLOADS, map_ticks
from loop.gate.emulating import too_much
from loop.gate.kernel import distinct_workloads, extra_sets, other_sets, workloads
from loop.model.bisect import BisectOutput
from loop.model.index import SessionRow
from loop.model.output import VerifyOutput
from loop.model.target import CAbiVariant, Workload
from loop.model.verdict import SpeedVerdict
from loop.model.workloads import count_operations, entry_of, format_entry
from loop.steps.context import Context, NoArguments, Result, RunningAction
from loop.store.judgements import wrong_builds
from loop.timing.against_known_good import CompareOutput

ANSWERS = ("culprit", "several", "range")
"""Outcomes that name commits."""


def find_regressions(context: Context) -> tuple[Regression, ...]:
    """Variants that are wrong or slower now, by the finished steps; wrong ones first."""
    regressed: list[Regression] = []
    size = partial(count_operations, context.bench.target)
    for action, emulated in (("kernel.verify", False), ("kernel.emulate", True)):
        latest = context.latest(action)
        for variant in VerifyOutput.model_validate(latest, strict=False).variants if latest else ():
            failed = [check for check in variant.checks if not check.passed]
            places = sorted({check.workload.name: check.workload for check in failed}.values(), key=size)[
                :MOST_FAILING_WORKLOADS
            ]
            if any(check.cause in ("later calls", "remembers") for check in failed):  # Other calls may matter.
                places = _workloads_of_session(context, emulated=emulated)
            if failed:
                regressed.append(Regression(variant.variant, "correctness", tuple(places), emulated))
    latest = context.latest("kernel.compare")
    slower: dict[str, list[str]] = {}
    for verdict in CompareOutput.model_validate(latest, strict=False).verdicts if latest else ():
        if isinstance(verdict, SpeedVerdict) and (verdict.against, verdict.verdict) == ("known_good", "slower"):
            slower.setdefault(verdict.variant, []).append(verdict.workload)
    for name, where in slower.items():
        regressed.append(
            Regression(name, "latency", tuple(w for w in _workloads_of_session(context) if w.name in where))
        )
    return tuple(regressed)


def _workloads_of_session(context: Context, *, emulated: bool = False) -> list[Workload]:
    """All workloads of the session's sets; `emulated`: with the GPU's element types."""
    sets = [*context.task.plan.workloads, *extra_sets(context), *other_sets(context)]
    every = distinct_workloads(workloads(context, sets, device="cuda" if emulated else None))
    return [workload for workload in every if not (emulated and too_much(context.bench.target, workload))]


def choose_lines(context: Context, regression: Regression) -> tuple[list[CommitLine], str]:
    """Lines of commits from a good end to the checkout, the latest good end first; else why none.

    A good end is a commit at which a session found the variant good, or the last commit below its
    uncommitted files. Those files may have made it good, so a search tries its good end first.
    """
    past, variant = context.past, regression.variant
    if not isinstance(context.bench.target.variants.get(variant), CAbiVariant):
        return [], "commits of compiled variants alone are built; `loop bisect --probe exit -- COMMAND` takes any"
    bad = wrong_builds(past.sessions)
    good = [
        row for row in past.sessions if is_good_session(row, regression) and not row.has_judged_build(variant, bad)
    ]
    known = past.known_good.get(variant) if regression.metric == "latency" else None
    commits = [known.commit if known else None, *(row.commit or row.base for row in reversed(good))]
    ready, why = read_lines(context.task.folder, commits)
    if (good or known) and not any(commits):
        why = "the sources of the sessions that found it good were not committed"
    return [line for line in ready if line.candidates], why or "no earlier session found it good"


def is_good_session(row: SessionRow, regression: Regression) -> bool:
    """Whether a session found the variant right, and for a latency regression not slower."""
    name = regression.variant
    chosen: Sequence[str] = row.emulated if regression.emulated else row.variants
    timed = regression.metric == "correctness" or (row.status == "passed" and name not in row.regressed)
    return timed and name in chosen and name in row.right and name not in row.incorrect


def bisect(context: Context, arguments: NoArguments) -> RunningAction[BisectOutput]:
    """Search for the commit that made the first regressed variant slower or wrong."""
    regressed = find_regressions(context)
    missing: list[str] = []
    hint = None
    for place, regression in enumerate(regressed):
        ends, why = choose_lines(context, regression)
        if ends:
            rest = [f"a search for why {other.what}: one at a time" for other in regressed[place + 1 :]]
            return (yield from _search_lines(context, regression, ends, (*missing, *rest)))
        missing.append(f"a search for why {regression.what}: {why}")
        hint = hint or f"name a good revision: {_bisect_command(context, regression, 'REV')}"
    message = missing[0] if missing else "nothing is slower or wrong; what a kernel takes is not searched"
    nothing = BisectOutput(ok=True, message=message, hint=hint, not_exercised=tuple(missing))
    return Result(nothing)


def _search_lines(
    context: Context, regression: Regression, ends: Sequence[CommitLine], missing: tuple[str, ...]
) -> RunningAction[BisectOutput]:
    """The answer from the latest good end; from an earlier one if that one is bad today."""
    begun = time.monotonic()

    def in_time(tick: Tick) -> Tick:
        if time.monotonic() - begun > context.budget_s:
            raise WorkFailed(
                f"{regression.what}: no commit named within {context.budget_s:g} s; what was observed is kept",
                hint=f"it goes on with: {_bisect_command(context, regression, line.good.short_commit)}",
            )
        return tick

    try:
        for line in ends:
            with open_kernel_bisection(regression, line, context.bench, context.task.seed) as hunt:
                answer = yield from map_ticks(hunt.run(), in_time)
            if answer.outcome in ANSWERS or line.commits[-1].commit in answer.skipped:
                break
    except LoopError as error:
        failed = BisectOutput(ok=False, message=error.message, hint=error.hint, not_exercised=missing)
        return Result(failed)
    names = ", ".join(f"{commit.short_commit} ({commit.subject})" for commit in (*answer.culprits, *answer.range))
    what = f"{answer.outcome.replace('_', ' ')} {names}".strip()
    output = BisectOutput(
        ok=answer.outcome in ("culprit", "several", "no_regression"),
        message=f"{regression.variant}, {regression.metric}: {what}; {answer.why}",
        not_exercised=missing,
        learned=(f"{regression.variant} regressed with {names}.",) if answer.culprits else (),
        variant=regression.variant,
        metric=regression.metric,
        answer=answer,
    )
    return Result(output)


def _bisect_command(context: Context, regression: Regression, good: str) -> str:
    signature = context.bench.target.signature
    words = ["--variant", regression.variant, "--metric", regression.metric]
    words += [word for w in regression.workloads for word in ("--workloads", format_entry(entry_of(signature, w)))]
    return context.command("bisect", *words, "--seed", str(context.task.seed), "--good", good)
