"""`loop bisect`: which commit made a kernel slower or wrong, or made a command fail."""

import contextlib
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

from loop.base.documents import to_json, to_plain
from loop.base.errors import ExitCode, LoopError, MachineFailure, Stopped, UsageError
from loop.base.processes import raise_if_signalled, signals_as_flags
from loop.bisect.actions import lines_from_good_sessions
from loop.bisect.hunt import Bisection, Regression, open_kernel_bisection, open_worktree
from loop.bisect.trying import COMMAND_LIMIT_S, CommandProbe, read_commits
from loop.gate.kernel import is_too_large_to_emulate
from loop.library.definitions import require_named_target
from loop.library.trust import read_sender
from loop.model.base import Printed
from loop.model.bisect import UNCOMMITTED, BisectAnswer, Metric
from loop.model.target import CAbiVariant, PythonVariant
from loop.model.workloads import expand_sets, is_supported
from loop.report import format as say
from loop.report.findings import basis_lines, blamed_lines, headline, show_command
from loop.report.screen import Screen
from loop.repository.worktree import require_repository
from loop.steps import setting as settings
from loop.store import sessions

EXIT = {"culprit": 0, "several": 0, "no_regression": 0, "range": 1, "inconclusive": 1, "refused": 2}
"""Exit code of the process for each outcome."""


@dataclass(frozen=True)
class BisectRequest:
    """The arguments of `loop bisect`."""

    good: str
    bad: str | None = None  # None: the checkout, with uncommitted changes.
    metric: str = "latency"
    variant: str | None = None
    workloads: Sequence[str] = ()
    probe: str | None = None  # `exit`: the exit code of `command` decides, not the gate.
    command: Sequence[str] = ()
    probe_limit_s: float | None = None  # Limit on the command; a slower commit is skipped.
    target: Path | None = None
    device: str = "auto"
    threads: int | None = None
    seed: int = 0
    budget_minutes: float | None = None
    again: bool = False  # Whether to measure anew what earlier searches saved.
    json: bool = False


class Bisected(Printed, BisectAnswer):
    """The answer of a search, as JSON."""


def run_bisect(request: BisectRequest, screen: Screen) -> int:
    """Run the search and print the answer; returns the exit code. An error of request or search
    has exit code 2, and for `--json` the answer `refused`. Raises Stopped: signal or budget."""
    try:
        with signals_as_flags(), ExitStack() as stack:
            if request.probe:
                bisection = _open_command_bisection(request, stack)
            else:
                bisection = _open_kernel_bisection(request, screen, stack)
            bisection.prober.emptied = set() if request.again else None
            is_dirty = bisection.line.commits[-1].commit == UNCOMMITTED
            count = say.count(len(bisection.line.candidates) - is_dirty, "commit")
            changes = " and uncommitted changes" if is_dirty else ""
            screen.say(f"{count}{changes} after {bisection.line.good.name}")
            answer = run_with_progress(bisection, request.budget_minutes, screen)
    except LoopError as error:
        if error.exit_code not in (ExitCode.USAGE, ExitCode.GATE_FAILED):
            raise
        why = f"{error.message} ({error.hint})" if error.hint else error.message
        error.partial_results = to_plain(Bisected(outcome="refused", why=why))
        error.exit_code = EXIT["refused"]
        raise
    except Stopped as stop:
        command = "the same command without --again" if request.again else "the same command"
        screen.say(f"{stop}; what was observed is kept: {command} goes on")
        raise
    if request.json:
        screen.data(to_json(to_plain(Bisected(**dict(answer)))))
    else:
        screen = screen.on_stdout()
    screen.say(headline(answer))
    for text in (*blamed_lines(answer), *basis_lines(answer)):
        screen.say(f"  {text.replace('`', '')}")  # Backticks are for a report.
    if advice := give_advice(answer, request, bisection):
        screen.say(f"  next: {advice}")
    return EXIT[answer.outcome]


def give_advice(answer: BisectAnswer, request: BisectRequest, bisection: Bisection) -> str:
    """The next command for this answer, or what to do; empty if there is nothing."""
    line, prober = bisection.line, bisection.prober
    bad_end = line.commits[-1]
    if answer.outcome in ("culprit", "several"):
        return show_command(commit.commit for commit in answer.culprits)
    if answer.outcome == "range":
        skipped = [commit for commit in answer.range if commit.commit in answer.skipped]
        untried = f"; {say.count(len(skipped), 'commit')} could not be tried" if skipped else ""
        return f"read them: {show_command(commit.commit for commit in answer.range)}{untried}"
    if answer.outcome == "inconclusive" and bad_end.commit in prober.wrong_commits:
        return "the same command with --metric correctness"
    build_or_reason = prober.builder.build_by_tree.get(bad_end.tree) if prober.builder else None
    if isinstance(build_or_reason, str) and not request.bad:
        return f"mend it ({build_or_reason}), then the same command"
    for name, end in (("good", line.good), ("bad", bad_end)):
        if answer.outcome == "inconclusive" and end.commit in answer.skipped:
            return f"name another {name} end, one that can be tried: --{name} REV"
    if answer.outcome == "inconclusive":
        if answer.probes and answer.probes[-1].status == "lost":  # It tries again what was lost.
            return "the same command on a quieter machine; what was observed is kept"
        return "the same command with --again, on a quieter machine: it measures all commits anew"
    if answer.swapped and not request.good:  # The good end is that of an earlier session.
        return f"nothing regressed since {line.good.short_commit}: name a better one, --good REV"
    if answer.swapped:
        return f"are they swapped? --good {request.bad or 'HEAD'} --bad {request.good}"
    if answer.outcome == "no_regression":
        if bad_end.commit == UNCOMMITTED:
            return "the same command with --bad HEAD, if the uncommitted changes mend it"
        return "loop doctor: compare the environment with the one in which it was seen"
    return ""


def _open_kernel_bisection(request: BisectRequest, screen: Screen, stack: ExitStack) -> Bisection:
    """A search for what made a kernel slower or wrong, closed by `stack`. If the variant is
    emulated here, the search is for correctness. Raises LoopError for an unclear request."""
    if read_sender() is None:  # A job that another machine sent always names its target.
        require_named_target(request.target, Path.cwd(), "search")
    metrics = get_args(Metric)
    if request.metric not in metrics:
        raise UsageError(f"unknown metric {request.metric!r}", f"--metric {' or '.join(metrics)}")
    setting = settings.trusted_setting(request.target, screen)
    setting = settings.with_stated_workloads(setting, request.workloads)
    target, metric = setting.target, cast(Metric, request.metric)
    requested = [request.variant] if request.variant else ()
    device = settings.choose_device(request.device, target, requested)
    names = settings.choose_variants(requested, target, device)
    names = names or settings.choose_emulated(requested, target, device)
    compiled = [name for name in names if isinstance(target.variants[name], CAbiVariant)]
    python = [name for name in names if isinstance(target.variants[name], PythonVariant)]
    built_names = compiled or python
    if len(built_names) != 1:
        number = f"several ({', '.join(built_names)})" if built_names else "none"
        raise UsageError(f"one built variant is searched, there are {number}", "--variant NAME")
    (name,) = built_names
    variant, emulated = target.variants[name], name not in target.variants_on(device)
    if emulated:
        metric = "correctness"
        untimed = "runs under the emulator, which is not timed"
        screen.say(f"{name} {untimed}: the search is for where it became wrong")
    default_sets = tuple(target.workloads) if metric == "correctness" else ()
    sets = settings.choose_sets(request.workloads or default_sets, target)
    dtypes = target.dtypes["cuda" if emulated else device]
    workloads = expand_sets(target, sets, dtypes, request.seed)
    supported = [workload for workload in workloads if is_supported(variant, workload)]
    workloads = tuple(supported) or workloads  # If none is supported, the gate says so.
    if emulated:
        workloads = tuple(w for w in workloads if not is_too_large_to_emulate(target, w))
    left_out = tuple(name for name in target.workloads if name not in sets)
    regression = Regression(name, metric, workloads, emulated=emulated)
    folder, sessions_root = setting.project.target, setting.project.sessions
    if request.good:
        line = read_commits(folder, request.good, request.bad)
    else:  # From the last session that found the variant good.
        require_repository(folder)
        rows = sessions.rows(sessions_root, last=sessions.RECENT_SESSIONS, target=target.name)
        lines, _ = lines_from_good_sessions(folder, regression, rows, bad=request.bad)
        if not lines:
            why = f"no good revision to begin from: no session found {name} good at another commit"
            raise UsageError(why, hint=f"loop bisect --variant {name} --metric {metric} --good REV")
        line = lines[0]
    threads = settings.choose_threads(request.threads)
    bench = stack.enter_context(settings.open_bench(setting, device, threads))
    opening = open_kernel_bisection(regression, line, bench, request.seed)
    return replace(stack.enter_context(opening), sets=sets, left_out=left_out)


def _open_command_bisection(request: BisectRequest, stack: ExitStack) -> Bisection:
    """A search in any repository, judged by a command in the current or the target's folder."""
    if request.probe != "exit":
        raise UsageError(f"unknown probe {request.probe!r}", hint="--probe exit")
    if not request.command:
        raise UsageError("no command to run", hint="loop bisect --good REV --probe exit -- COMMAND")
    folder, here = (request.target or Path.cwd()).absolute(), Path.cwd().resolve()
    line = read_commits(folder, request.good, request.bad or "HEAD")
    tree = stack.enter_context(open_worktree(line))
    if here.is_relative_to(line.top):  # There the command runs.
        tree = replace(tree, target=tree.root / here.relative_to(line.top))
    limit_s = request.probe_limit_s or COMMAND_LIMIT_S
    return Bisection(line, CommandProbe(request.command, tree, limit_s))


def run_with_progress(bisection: Bisection, minutes: float | None, screen: Screen) -> BisectAnswer:
    """Run the search to its end, with progress. Raises Stopped at a signal or after `minutes`."""
    started, printed_count = time.monotonic(), 0
    with contextlib.closing(bisection.run()) as ticks, signals_as_flags():
        while True:
            raise_if_signalled()
            answer: BisectAnswer | None = None
            probes = tuple(bisection.probes)
            try:
                screen.status(f"  {next(ticks).note} ({say.seconds(time.monotonic() - started)})")
            except StopIteration as stop:
                answer = stop.value
                probes = stop.value.probes  # With those of merged branches.
            except MachineFailure as failure:
                raise failure.with_instruction("run the same command: it goes on") from failure
            elapsed_s = time.monotonic() - started
            for number, probe in enumerate(probes[printed_count:], printed_count + 1):
                text = f"{number}: {probe.commit[:12]} {probe.describe(bisection.prober.metric)}"
                screen.say(f"  {text} ({probe.why}; {say.seconds(elapsed_s)})")
            printed_count = len(probes)
            if answer is not None:
                return answer
            if minutes is not None and elapsed_s > 60 * minutes:
                raise Stopped(f"over its budget of {minutes:g} min", ExitCode.OVER_BUDGET)
