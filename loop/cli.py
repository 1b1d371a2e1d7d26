"""The command line: parse, call, exit code. Commands are imported when they are called, so that help is quick."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from loop import __version__
from loop.errors import ExitCode, LoopError, Stopped


def _app(text: str) -> typer.Typer:
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


app = _app("Run GPU-kernel optimisation sessions, and learn from them.\n\nStart with: loop run session")
run_app = _app("Run a session or a single pattern.")
patterns_app = _app("Browse and check the pattern catalogue.")
kernels_app = _app("Build, verify and measure kernels without a session.")
sessions_app = _app("Look at recorded sessions.")
plan_app = _app("Look at session plans.")
for name, sub_app in {
    "run": run_app,
    "patterns": patterns_app,
    "kernels": kernels_app,
    "sessions": sessions_app,
    "plan": plan_app,
}.items():
    app.add_typer(sub_app, name=name)

Target = Annotated[
    Path | None, typer.Option("--target", help="Folder with a target.yaml. Default: ./target.yaml, else bundled.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Variants = Annotated[list[str] | None, typer.Option("--variant", help="Only this variant; may be repeated.")]
VariantNames = Annotated[list[str] | None, typer.Argument(help="Variants; all of the device when none is named.")]
Threads = Annotated[int | None, typer.Option("--threads", help="CPU threads of each process. Default: all cores.")]
Seed = Annotated[int, typer.Option("--seed", help="Base of all input seeds.")]
Sets = Annotated[list[str] | None, typer.Option("--workloads", help="Workload set; may be repeated.")]


def _screen(as_json: bool = False) -> Any:
    """A screen; with --json, talk is left out unless somebody watches."""
    from loop.screen import Screen

    return Screen(quiet=as_json and not sys.stderr.isatty())


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


@run_app.command("session")
def run_session(
    plan: Annotated[str, typer.Argument(help="Name of a plan; see `loop plan list`.")] = "baseline",
    target: Target = None,
    device: Device = "auto",
    variant: Variants = None,
    threads: Threads = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Base of all input seeds. Default: fresh.")] = None,
    budget_minutes: Annotated[
        float | None, typer.Option("--budget-minutes", min=0.01, help="Stop then, and report.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Go on with this session (an id, or last).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the chain with time and cost; run nothing.")
    ] = False,
    json: Json = False,
    events: Annotated[bool, typer.Option("--events", help="Each event as a line of JSON on stdout.")] = False,
) -> None:
    """Walk a plan: build, verify, measure, report.

    Examples:

      loop run session

      loop run session quick --variant cpu

      loop run session --target ../my-kernel --json

      loop run session --resume last
    """
    from loop.commands import session

    request = session.SessionRequest(
        plan=plan,
        target=target,
        device=device,
        variants=tuple(variant or ()),
        threads=threads,
        seed=seed,
        budget_minutes=budget_minutes,
        dry_run=dry_run,
        json=json,
        events=events,
    )
    screen = _screen(json or events)
    if resume is not None:
        raise typer.Exit(session.resume_session(resume, request, screen))
    raise typer.Exit(session.run_session(request, screen))


@run_app.command("pattern")
def run_pattern(
    name: Annotated[str, typer.Argument(help="Name of a pattern; see `loop patterns list`.")],
    target: Target = None,
    device: Device = "auto",
    variant: Variants = None,
    threads: Threads = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the chain with time and cost; run nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Run one pattern as a session of its own.

    Example: loop run pattern baseline-first --variant cpu
    """
    from loop.commands import session

    request = session.SessionRequest(
        pattern=name,
        target=target,
        device=device,
        variants=tuple(variant or ()),
        threads=threads,
        dry_run=dry_run,
        json=json,
    )
    raise typer.Exit(session.run_session(request, _screen(json)))


@patterns_app.command("list")
def patterns_list(target: Target = None, json: Json = False) -> None:
    """All patterns, a row each.

    Example: loop patterns list --json
    """
    from loop.commands import catalogue

    raise typer.Exit(catalogue.list_patterns(target, _screen(), as_json=json))


@patterns_app.command("show")
def patterns_show(name: str, target: Target = None, json: Json = False) -> None:
    """One pattern in full.

    Example: loop patterns show baseline-first
    """
    from loop.commands import catalogue

    raise typer.Exit(catalogue.show_pattern(name, target, _screen(), as_json=json))


@patterns_app.command("search")
def patterns_search(word: str, target: Target = None, json: Json = False) -> None:
    """Patterns that mention something.

    Example: loop patterns search "link error"
    """
    from loop.commands import catalogue

    raise typer.Exit(catalogue.search_patterns(word, target, _screen(), as_json=json))


@patterns_app.command("check")
def patterns_check(
    path: Annotated[
        Path | None, typer.Argument(help="A file or folder; all definitions when none is named.")
    ] = None,
    target: Target = None,
    json: Json = False,
) -> None:
    """Check definitions without running anything.

    Example: loop patterns check patterns/mine.yaml
    """
    from loop.commands import definitions

    raise typer.Exit(definitions.check_definitions(path, target, _screen(), as_json=json))


@patterns_app.command("graph")
def patterns_graph(target: Target = None, json: Json = False) -> None:
    """Which plans chain which patterns, and which patterns answer which outcomes.

    Example: loop patterns graph
    """
    from loop.commands import definitions

    raise typer.Exit(definitions.graph(target, _screen(), as_json=json))


@patterns_app.command("schema")
def patterns_schema(
    name: Annotated[str, typer.Argument(help="pattern, plan, target, rates or history.")] = "pattern",
    write: Annotated[bool, typer.Option("--write", help="Write all of them into the package.")] = False,
) -> None:
    """JSON Schema (draft 7) for editors.

    Example: loop patterns schema target > target.json
    """
    from loop.commands import definitions

    raise typer.Exit(definitions.show_schema(name, write, _screen()))


@kernels_app.command("list")
def kernels_list(target: Target = None, json: Json = False) -> None:
    """The variants of the target.

    Example: loop kernels list
    """
    from loop.commands import kernels

    raise typer.Exit(kernels.list_variants(target, _screen(), as_json=json))


@kernels_app.command("show")
def kernels_show(name: str, target: Target = None, json: Json = False) -> None:
    """One variant: its recipe and its workloads.

    Example: loop kernels show cpu
    """
    from loop.commands import kernels

    raise typer.Exit(kernels.show_variant(name, target, _screen(), as_json=json))


@kernels_app.command("header")
def kernels_header() -> None:
    """Path of the C header a kernel includes.

    Example: cp "$(loop kernels header)" .
    """
    from loop.commands import kernels

    raise typer.Exit(kernels.header(_screen()))


def _bench(what: str, variants: list[str] | None, json: bool, **options: Any) -> None:
    from loop.commands import kernels

    sets = tuple(options.pop("sets", None) or ())
    request = kernels.BenchRequest(variants=tuple(variants or ()), workloads=sets, json=json, **options)
    raise typer.Exit(kernels.run_bench(what, request, _screen(json)))


@kernels_app.command("build")
def kernels_build(
    variants: VariantNames = None, target: Target = None, device: Device = "auto", json: Json = False
) -> None:
    """Compile variants into the cache.

    Example: loop kernels build cpu
    """
    _bench("build", variants, json, target=target, device=device)


@kernels_app.command("verify")
def kernels_verify(
    variants: VariantNames = None,
    target: Target = None,
    device: Device = "auto",
    workloads: Sets = None,
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Hold variants against the float64 reference, on all workloads of the target.

    Example: loop kernels verify cpu --seed 7
    """
    _bench("verify", variants, json, target=target, device=device, sets=workloads, threads=threads, seed=seed)


@kernels_app.command("measure")
def kernels_measure(
    variants: VariantNames = None,
    target: Target = None,
    device: Device = "auto",
    workloads: Sets = None,
    threads: Threads = None,
    seed: Seed = 0,
    rounds: Annotated[int, typer.Option("--rounds", min=2, max=100, help="Sets of fresh processes.")] = 3,
    json: Json = False,
) -> None:
    """Verify variants, then time them against the library, turn about.

    Examples:

      loop kernels measure cpu

      loop kernels measure cpu --workloads large --threads 1 --rounds 7
    """
    options = {"target": target, "device": device, "sets": workloads, "threads": threads, "seed": seed}
    _bench("measure", variants, json, rounds=rounds, **options)


@sessions_app.command("list")
def sessions_list(target: Target = None, json: Json = False) -> None:
    """All sessions, oldest first.

    Example: loop sessions list
    """
    from loop.commands import browse

    raise typer.Exit(browse.list_sessions(target, _screen(), as_json=json))


@sessions_app.command("show")
def sessions_show(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="An id, its beginning, or last.")],
    target: Target = None,
    json: Json = False,
) -> None:
    """One session: its facts and its steps.

    Example: loop sessions show last
    """
    from loop.commands import browse

    raise typer.Exit(browse.show_session(session_id, target, _screen(), as_json=json))


@plan_app.command("list")
def plan_list(target: Target = None, json: Json = False) -> None:
    """All plans, a row each.

    Example: loop plan list
    """
    from loop.commands import catalogue

    raise typer.Exit(catalogue.list_plans(target, _screen(), as_json=json))


@plan_app.command("show")
def plan_show(name: str, target: Target = None, json: Json = False) -> None:
    """One plan.

    Example: loop plan show baseline
    """
    from loop.commands import catalogue

    raise typer.Exit(catalogue.show_plan(name, target, _screen(), as_json=json))


@app.command()
def status(target: Target = None, json: Json = False) -> None:
    """What runs, what waits, and what it cost so far.

    Example: loop status
    """
    from loop.commands import browse

    raise typer.Exit(browse.status(target, _screen(), as_json=json))


@app.command()
def report(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="An id, its beginning, or last.")] = "last",
    form: Annotated[str, typer.Option("--format", help="md or json.")] = "md",
    target: Target = None,
) -> None:
    """A session's report, rendered again from its record.

    Example: loop report last > report.md
    """
    from loop.commands import browse

    raise typer.Exit(browse.report(session_id, form, target, _screen()))


@app.command()
def trust(
    path: Annotated[Path | None, typer.Argument(help="Folder of a project. Default: here.")] = None,
    json: Json = False,
) -> None:
    """Show what a project's definitions would run, and allow it.

    Example: loop trust ../my-kernel
    """
    from loop.commands import allow

    raise typer.Exit(allow.trust_project(path, _screen(), as_json=json))


@app.command()
def doctor(target: Target = None, device: Device = "auto", json: Json = False) -> None:
    """Check the environment, each failure with the command that mends it.

    Example: loop doctor --device cuda
    """
    from loop.commands import kernels

    request = kernels.BenchRequest(target=target, device=device, json=json)
    raise typer.Exit(kernels.doctor(request, _screen(json)))


def main() -> None:
    """The one door where errors become exit codes: expected, interrupted, bug."""
    signal.signal(signal.SIGINT, _interrupted)
    try:
        app()
    except LoopError as error:
        _screen().fail(error)
        sys.exit(error.exit_code)
    except Stopped as stop:
        sys.exit(stop.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
    except Exception as error:
        _screen().fail(LoopError(f"bug in loop: {type(error).__name__}: {error}", hint=_log_bug()))
        sys.exit(ExitCode.BUG)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise Stopped("interrupted", ExitCode.INTERRUPTED)


def _log_bug() -> str:
    """Put the traceback where it can be found; returns what to do with it."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="loop-bug-", suffix=".txt", delete=False) as file:
        traceback.print_exc(file=file)
    return f"please report it with {file.name}"
