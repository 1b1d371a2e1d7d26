"""`loop patterns ...` and `loop plan ...`"""

from pathlib import Path
from typing import Annotated

import typer

from loop.cli.drafts import drafts_app
from loop.cli.options import Json, Target, group, screen_for

patterns_app = group("Browse and check the pattern catalogue.")
plan_app = group("Look at session plans.")
patterns_app.add_typer(drafts_app, name="drafts")


@patterns_app.command("list")
def patterns_list(target: Target = None, json: Json = False) -> None:
    """All patterns, a row each.

    Example: loop patterns list --json
    """
    from loop.commands import catalogue

    raise typer.Exit(catalogue.list_patterns(target, screen_for(), as_json=json))


@patterns_app.command("show")
def patterns_show(name: str, target: Target = None, json: Json = False) -> None:
    """One pattern in full.

    Example: loop patterns show baseline-first
    """
    from loop.commands import catalogue

    raise typer.Exit(catalogue.show_pattern(name, target, screen_for(), as_json=json))


@patterns_app.command("stats")
def patterns_stats(
    name: Annotated[str | None, typer.Argument(help="One pattern, in full. Default: all, a row each.")] = None,
    target: Target = None,
    json: Json = False,
) -> None:
    """What the sessions say of patterns: how often they work, how long they take, what they save.

    Examples:

      loop patterns stats

      loop patterns stats baseline-first --json
    """
    from loop.commands import statistics

    raise typer.Exit(statistics.show_statistics(name, target, screen_for(), as_json=json))


@patterns_app.command("search")
def patterns_search(word: str, target: Target = None, json: Json = False) -> None:
    """Patterns that mention something.

    Example: loop patterns search "link error"
    """
    from loop.commands import catalogue

    raise typer.Exit(catalogue.search_patterns(word, target, screen_for(), as_json=json))


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

    raise typer.Exit(definitions.check_definitions(path, target, screen_for(), as_json=json))


@patterns_app.command("graph")
def patterns_graph(target: Target = None, json: Json = False) -> None:
    """Which plans chain which patterns, and which patterns answer which outcomes.

    Example: loop patterns graph
    """
    from loop.commands import definitions

    raise typer.Exit(definitions.graph(target, screen_for(), as_json=json))


@patterns_app.command("schema")
def patterns_schema(
    name: Annotated[str, typer.Argument(help="pattern, plan, target, rates or history.")] = "pattern",
    write: Annotated[bool, typer.Option("--write", help="Write all of them into the package.")] = False,
) -> None:
    """JSON Schema (draft 7) for editors.

    Example: loop patterns schema target > target.json
    """
    from loop.commands import definitions

    raise typer.Exit(definitions.show_schema(name, write, screen_for()))


@plan_app.command("list")
def plan_list(target: Target = None, json: Json = False) -> None:
    """All plans, a row each.

    Example: loop plan list
    """
    from loop.commands import catalogue

    raise typer.Exit(catalogue.list_plans(target, screen_for(), as_json=json))


@plan_app.command("show")
def plan_show(name: str, target: Target = None, json: Json = False) -> None:
    """One plan.

    Example: loop plan show baseline
    """
    from loop.commands import catalogue

    raise typer.Exit(catalogue.show_plan(name, target, screen_for(), as_json=json))


@plan_app.command("next")
def plan_next(target: Target = None, json: Json = False) -> None:
    """What the next session should do: objective, chain, time, cost, benefit, and why. Nothing runs.

    Example: loop plan next --json
    """
    from loop.commands import next_plan

    raise typer.Exit(next_plan.show_next(target, screen_for(), as_json=json))
