"""After the gate found a regression: search for its commit, uncommitted changes included."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from loop.base.errors import LoopError, MachineFailure, WorkFailed
from loop.base.processes import Tick
from loop.bisect.hunt import Regression, open_kernel_bisection
from loop.bisect.trying import MOST_FAILING_WORKLOADS, CommitLine, map_ticks, read_commits
from loop.gate import kernel
from loop.model.bisect import BisectOutput
from loop.model.index import SessionRow
from loop.model.measurement import SpeedVerdict
from loop.model.output import VerifyOutput
from loop.model.target import CAbiVariant, PythonVariant, Workload
from loop.model.workloads import count_operations, format_entry, make_entry
from loop.repository.worktree import require_repository
from loop.steps.context import Context, NoArguments, Result, RunningAction
from loop.store.sessions import wrong_builds
from loop.timing.against_known_good import CompareOutput

MOST_GOOD_ENDS = 3  # Commits of earlier sessions that are tried as a good end.


def find_regressions(context: Context) -> tuple[Regression, ...]:
    """Variants that this session found wrong, then those that it found slower, with workloads."""
    regressions: list[Regression] = []
    size = partial(count_operations, context.bench.target)
    for action, emulated in (("kernel.verify", False), ("kernel.emulate", True)):
        verified = context.latest_output(action, VerifyOutput)
        for checks in verified.variants if verified else ():
            failed_checks = [check for check in checks.checks if not check.passed]
            by_name = {check.workload.name: check.workload for check in failed_checks}
            failing = sorted(by_name.values(), key=size)[:MOST_FAILING_WORKLOADS]
            # A kernel that remembers fails only after calls of other workloads.
            if any(check.cause in ("later calls", "remembers") for check in failed_checks):
                failing = _workloads_of_session(context, emulated=emulated)
            if failed_checks:
                regressions += [Regression(checks.variant, "correctness", tuple(failing), emulated)]
    compared = context.latest_output("kernel.compare", CompareOutput)
    slower_workloads: dict[str, list[str]] = {}  # Variant to the names of its slower workloads.
    for verdict in compared.verdicts if compared else ():
        is_known_good = isinstance(verdict, SpeedVerdict) and verdict.against == "known_good"
        if is_known_good and verdict.verdict == "slower":
            slower_workloads.setdefault(verdict.variant, []).append(verdict.workload)
    for variant, names in slower_workloads.items():
        workloads = [w for w in _workloads_of_session(context) if w.name in names]
        regressions.append(Regression(variant, "latency", tuple(workloads)))
    return tuple(regressions)


def _workloads_of_session(context: Context, *, emulated: bool = False) -> list[Workload]:
    """All workloads; `emulated`: in the GPU's types, without those too large for the emulator."""
    target = context.bench.target
    sets = (*context.task.plan.workloads, *kernel.planned_check_sets(context))
    sets = (*sets, *kernel.unplanned_sets(context))
    workloads = kernel.workloads(context, sets, device="cuda" if emulated else None)
    distinct = kernel.distinct_workloads(workloads)
    return [w for w in distinct if not (emulated and kernel.is_too_large_to_emulate(target, w))]


def choose_lines(context: Context, regression: Regression) -> tuple[list[CommitLine], str]:
    """Lines of commits from a good end to the checkout, latest first; and why there are none."""
    past, variant = context.past, regression.variant
    if not isinstance(context.bench.target.variants.get(variant), CAbiVariant | PythonVariant):
        return [], "commits of compiled and of Python variants alone are searched"
    known_good = past.known_good.get(variant) if regression.metric == "latency" else None
    first = known_good.commit if known_good else None
    return lines_from_good_sessions(context.task.folder, regression, past.sessions, first=first)


def lines_from_good_sessions(
    folder: Path,
    regression: Regression,
    rows: Sequence[SessionRow],
    *,
    first: str | None = None,
    bad: str | None = None,
) -> tuple[list[CommitLine], str]:
    """Lines of commits to `bad` (None: the checkout), the latest good end first; and why other good
    ends have none. A good end is a commit at which a session found the variant good, or the last
    commit below its uncommitted files. `rows`: oldest first; `first`: a good end to try first."""
    try:
        require_repository(folder)
    except LoopError as error:
        return [], f"{error.message}; {error.hint}"
    wrong_build_keys, commits, variant = wrong_builds(rows), [first], regression.variant
    for row in reversed(rows):
        was_judged = variant in (row.emulated if regression.emulated else row.variants)
        was_right = variant in row.right and variant not in row.incorrect
        was_fast = row.status == "passed" and variant not in row.regressed
        is_good = was_judged and was_right and (was_fast or regression.metric == "correctness")
        if is_good and not row.has_judged_build(variant, wrong_build_keys):  # By another session.
            commits.append(row.commit or row.base)
    lines, problems = list[CommitLine](), list[str]()
    for commit in filter(None, dict.fromkeys(commits)):
        try:
            lines.append(read_commits(folder, commit, bad))
        except LoopError as error:
            problems.append(error.message)
        if len(lines) == MOST_GOOD_ENDS:
            break
    if len(commits) > 1 and not any(commits):
        problems.append("the sources of the sessions that found it good were not committed")
    return lines, next(iter(problems), "no earlier session found it good")


def bisect(context: Context, arguments: NoArguments) -> RunningAction[BisectOutput]:
    """Find the commit that made the first regressed variant slower or wrong; name the others."""
    regressions = find_regressions(context)
    not_searched, hint = list[str](), None
    for number, regression in enumerate(regressions, 1):
        lines, reason = choose_lines(context, regression)
        if lines:
            for other in regressions[number:]:
                not_searched.append(f"a search for why {other.summary}: one at a time")
            return (yield from _search_lines(context, regression, lines, tuple(not_searched)))
        not_searched.append(f"a search for why {regression.summary}: {reason}")
        hint = hint or f"name a good revision: {_bisect_command(context, regression, 'REV')}"
    message = (*not_searched, "no variant is wrong, or slower than its known good")[0]
    output = BisectOutput(ok=True, message=message, hint=hint, not_exercised=tuple(not_searched))
    return Result(output, idle=True)


def _search_lines(
    context: Context, regression: Regression, lines: list[CommitLine], not_searched: tuple[str, ...]
) -> RunningAction[BisectOutput]:
    """Search the first line of commits; the next one if it blames no commit, unless the bad end
    cannot be tested. `not_searched`: not exercised. Raises WorkFailed after the time budget."""
    deadline = time.monotonic() + context.budget_s

    def check_budget(tick: Tick) -> Tick:
        if time.monotonic() > deadline:
            problem = f"no commit named within {context.budget_s:g} s; what was observed is kept"
            command = _bisect_command(context, regression, line.good.short_commit)
            raise WorkFailed(f"{regression.summary}: {problem}", hint=f"it goes on with: {command}")
        return tick

    try:
        for line in lines:
            with open_kernel_bisection(regression, line, context.bench, context.task.seed) as hunt:
                answer = yield from map_ticks(hunt.run(), check_budget)
            blamed = (*answer.culprits, *answer.range)
            # Another good end does not help if the bad end cannot be tested.
            if blamed or line.commits[-1].commit in answer.skipped:
                break
    except MachineFailure:
        raise  # The session pauses.
    except LoopError as error:
        message, hint = error.message, error.hint
        output = BisectOutput(ok=False, message=message, hint=hint, not_exercised=not_searched)
        return Result(output)
    names = ", ".join(commit.name for commit in blamed)
    outcome_text = f"{answer.outcome.replace('_', ' ')} {names}".strip()
    command = _bisect_command(context, regression, line.good.short_commit)
    output = BisectOutput(
        ok=answer.outcome in ("culprit", "several", "no_regression"),
        hint=f"on a quiet machine: {command} --again" if answer.outcome == "inconclusive" else None,
        message=f"why {regression.summary}: {outcome_text}; {answer.why}",
        not_exercised=not_searched,
        learned=(f"{regression.variant} regressed with {names}.",) if answer.culprits else (),
        variant=regression.variant,
        metric=regression.metric,
        answer=answer,
    )
    return Result(output)


def _bisect_command(context: Context, regression: Regression, good: str) -> str:
    """The `loop bisect` command line that searches for a regression. `good`: revision."""
    options = ["--variant", regression.variant, "--metric", regression.metric]
    for w in regression.workloads:
        options += ["--workloads", format_entry(make_entry(context.bench.target.signature, w))]
    return context.command("bisect", *options, "--seed", str(context.task.seed), "--good", good)
