"""The command line: parse, call, exit code. Commands are imported when they are called, so that help is quick."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from loop import __version__
from loop.base.errors import ExitCode, LoopError, MachineFailure, Stopped
from loop.base.interrupts import SIGNALS
from loop.cli.decisions import cost_app
from loop.cli.kernels import kernels_app
from loop.cli.options import Device, Json, Seed, Sets, Target, Threads, group, screen_for
from loop.cli.patterns import patterns_app, plan_app
from loop.cli.run import run_app
from loop.cli.sessions import sessions_app
from loop.cli.site import catalog_app

app = group("Run GPU-kernel optimisation sessions, and learn from them.")
GROUPS = {
    "run": run_app,
    "patterns": patterns_app,
    "kernels": kernels_app,
    "sessions": sessions_app,
    "plan": plan_app,
    "cost": cost_app,
    "catalog": catalog_app,
}
for group_name, group_app in GROUPS.items():
    app.add_typer(group_app, name=group_name)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loop {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run GPU-kernel optimisation sessions, and learn from them.

    Start with: loop run session
    """


@app.command()
def status(
    target: Target = None,
    md: Annotated[bool, typer.Option("--md", help="A page of Markdown, for a README or a wiki.")] = False,
    json: Json = False,
) -> None:
    """What runs, what waits for a person, what it cost, keep or stop the GPU, and what comes next.

    Examples:

      loop status

      loop status --md > STATUS.md
    """
    from loop.cli import status_command as standing

    raise typer.Exit(standing.show_status(target, screen_for(), as_json=json, as_markdown=md))


@app.command()
def worktrees(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Those to remove. Default: all left over.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take them away; commits and branches stay.")] = False,
    discard_edits: Annotated[
        bool, typer.Option("--discard-edits", help="Also those with uncommitted edits, which are lost.")
    ] = False,
    target: Target = None,
    json: Json = False,
) -> None:
    """Folders in which loop edits targets; with --remove those go that no session needs any more.

    One with uncommitted edits stays, and is named.

    Examples:

      loop worktrees

      loop worktrees --remove
    """
    from loop.cli import worktrees_command as trees

    request = trees.WorktreesRequest(tuple(names or ()), remove, discard_edits, target, json)
    raise typer.Exit(trees.show_worktrees(request, screen_for()))


@app.command()
def report(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="An id, its beginning, or last.")] = "last",
    form: Annotated[str, typer.Option("--format", help="md, html, json, trace, csv or summary.")] = "md",
    output: Annotated[
        Path | None, typer.Option("--output", help="Write this file instead; a report's figures beside it.")
    ] = None,
    target: Target = None,
    limit: Annotated[int, typer.Option("--limit", help="Of a summary, in bytes.")] = 65_536,
    link: Annotated[str, typer.Option("--link", help="Of a summary: where the whole report is.")] = "",
) -> None:
    """A session's report, rendered again from its record.

    html is one file that needs nothing else; trace opens in Perfetto (ui.perfetto.dev) and chrome://tracing; csv
    has one row a sample that was timed; `loop patterns schema report` describes json.

    A summary is for a job's page or a comment: it is shortened by whole rows, and begins with a mark by which a
    workflow finds its own comment again.

    Examples:

      loop report last > report.md

      loop report last --format html --output report.html

      loop report last --format summary --limit 1000000 >> "$GITHUB_STEP_SUMMARY"
    """
    from loop.session import digest
    from loop.session import report as reports

    if form == "summary":
        if output is not None:
            raise LoopError("a summary goes to stdout", hint="loop report --format summary > FILE")
        raise typer.Exit(digest.summarise(session_id, target, limit, link, screen_for()))
    raise typer.Exit(reports.report(session_id, form, target, output, screen_for()))


@app.command()
def trust(
    path: Annotated[Path | None, typer.Argument(help="Folder of a project. Default: here.")] = None,
    json: Json = False,
) -> None:
    """Show what a project's definitions would run, and allow it.

    Example: loop trust ../my-kernel
    """
    from loop.cli import allow

    raise typer.Exit(allow.trust_project(path, screen_for(), as_json=json))


@app.command(context_settings={"allow_interspersed_args": False})
def bisect(
    command: Annotated[list[str] | None, typer.Argument(help="After --: the command that --probe runs.")] = None,
    good: Annotated[str, typer.Option("--good", help="A revision that is good.")] = "",
    bad: Annotated[str | None, typer.Option("--bad", help="A bad one. Default: what is in the checkout.")] = None,
    metric: Annotated[str, typer.Option("--metric", help="latency or correctness.")] = "latency",
    variant: Annotated[str | None, typer.Option("--variant", help="The variant in question.")] = None,
    workloads: Sets = None,
    probe: Annotated[
        str | None,
        typer.Option("--probe", help="exit (0 good, 125 skip, other bad) or number (last line, lower is better)."),
    ] = None,
    probe_limit_s: Annotated[
        float | None,
        typer.Option(
            "--probe-limit-s",
            min=0.01,
            help="Kill the command then, and skip the commit. Default: ten times what the good end takes.",
        ),
    ] = None,
    target: Target = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    budget_minutes: Annotated[float | None, typer.Option("--budget-minutes", min=0.01, help="Stop then.")] = None,
    json: Json = False,
) -> None:
    """Find the commit that made a kernel slower or wrong, or a command fail.

    Each commit is built by its own recipe in a worktree of loop's own and judged by today's gate, beside the good
    one. What was observed is kept: an interrupted search goes on with the same command.

    With --probe a command judges what is committed, in a worktree of each commit. Exit 126 or 127 (it cannot be
    run) is refused at the good end, and bad elsewhere, as `git bisect run` has it. A commit that takes ten times
    as long as the good end, and over 10 s, is skipped. Where the bad end hangs, an exit probe counts every commit
    that hangs as bad. Two builds of the same source may differ by 1 % or 2 % through the layout of their code:
    loop estimates by how much, and names a range of commits where a single one does not stand out.

    Examples:

      loop bisect --good v1.2 --variant cpu

      loop bisect --good HEAD~40 --bad HEAD --metric correctness --workloads edges

      loop bisect --good HEAD~9 --probe exit -- make test

      loop bisect --good HEAD~9 --probe number -- ./bench.sh
    """
    from loop.bisect import command as search

    request = search.BisectRequest(
        good=good,
        bad=bad,
        metric=metric,
        variant=variant,
        workloads=tuple(workloads or ()),
        probe=probe,
        command=tuple(command or ()),
        probe_limit_s=probe_limit_s,
        target=target,
        device=device,
        threads=threads,
        seed=seed,
        budget_minutes=budget_minutes,
        json=json,
    )
    raise typer.Exit(search.run_bisect(request, screen_for(json)))


@app.command()
def doctor(target: Target = None, device: Device = "auto", json: Json = False) -> None:
    """Check the environment, each failure with the command that mends it.

    Example: loop doctor --device cuda
    """
    from loop.cli import single_steps as kernels

    request = kernels.BenchRequest(target=target, device=device, json=json)
    raise typer.Exit(kernels.doctor(request, screen_for(json)))


WORKING = {"run", "bisect", "kernels", "doctor"}
"""Commands that start processes: they are watched by one of their own."""


def main() -> None:
    """The one door where errors become exit codes: expected, interrupted, bug."""
    if set(sys.argv[1:2]) & WORKING and not {"--help", "-h"} & set(sys.argv):
        from loop.base.supervisor import supervise

        _guarded(supervise)
    for name in SIGNALS:
        signal.signal(name, _interrupted)
    try:
        _guarded(app)
    finally:
        for name in SIGNALS:  # Python gives them their default back while it ends, which is to kill.
            signal.signal(name, signal.SIG_IGN)


def _guarded(work: Callable[[], object]) -> None:
    try:
        work()
    except Stopped as stop:
        sys.exit(stop.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
    except Exception as error:
        told = _told(error)
        screen_for().fail(told)
        sys.exit(told.exit_code)


def _told(error: Exception) -> LoopError:
    """What to tell of an error: the machine's failure, else the user's mistake, else a bug."""
    from loop.base.machine_failures import Folders, behind

    failure = behind(error, Folders.of())
    if failure is not None:
        return failure if isinstance(error, MachineFailure) else failure.then("run the same command again")
    if isinstance(error, LoopError):
        return error
    return LoopError(f"bug in loop: {type(error).__name__}: {error}", _log_bug(), ExitCode.BUG)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise Stopped("interrupted", ExitCode.INTERRUPTED)


def _log_bug() -> str:
    """Put the traceback where it can be found; returns what to do with it."""
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="loop-bug-", suffix=".txt", delete=False) as file:
            traceback.print_exc(file=file)
    except OSError:
        return f"please report it with this: {traceback.format_exc()}"
    return f"please report it with {file.name}"
