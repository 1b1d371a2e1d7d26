"""`loop patterns ...` and `loop plan ...`"""

from pathlib import Path
from typing import Annotated

import typer

from loop.base.errors import LoopError
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
    from loop.cli import finding as catalogue

    raise typer.Exit(catalogue.list_patterns(target, screen_for(), as_json=json))


@patterns_app.command("show")
def patterns_show(name: str, target: Target = None, json: Json = False) -> None:
    """One pattern in full.

    Example: loop patterns show baseline-first
    """
    from loop.cli import finding as catalogue

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
    from loop.learning import statistics_command as statistics

    raise typer.Exit(statistics.show_statistics(name, target, screen_for(), as_json=json))


@patterns_app.command("search")
def patterns_search(
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="A problem, an error, a name.")],
    target: Target = None,
    json: Json = False,
) -> None:
    """Patterns by their problem, the best first: title, occasions, steps, and failures that sessions met.

    Typing mistakes are forgiven. Where no pattern has all words, those with the most of them are shown.

    Examples:

      loop patterns search "link error"

      loop patterns search undefined symbol
    """
    from loop.cli import finding as catalogue

    raise typer.Exit(catalogue.search_patterns(" ".join(words), target, screen_for(), as_json=json))


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
    from loop.cli import checking as definitions

    raise typer.Exit(definitions.check_definitions(path, target, screen_for(), as_json=json))


@patterns_app.command("graph")
def patterns_graph(
    as_dot: Annotated[bool, typer.Option("--dot", help="For Graphviz, instead of Mermaid.")] = False,
    as_tree: Annotated[bool, typer.Option("--tree", help="As lines for a terminal, instead of Mermaid.")] = False,
    target: Target = None,
    json: Json = False,
) -> None:
    """Which plans chain which patterns, and which patterns answer which outcomes, as a Mermaid drawing.

    Examples:

      loop patterns graph > patterns.mmd

      loop patterns graph --dot | dot -Tsvg > patterns.svg

      loop patterns graph --tree
    """
    from loop.cli import checking as definitions

    if as_dot and as_tree:
        raise LoopError("--dot and --tree are two forms", hint="choose one: loop patterns graph --dot")
    form = "dot" if as_dot else "tree" if as_tree else "mermaid"
    raise typer.Exit(definitions.graph(target, screen_for(), form, as_json=json))


@patterns_app.command("schema")
def patterns_schema(
    name: Annotated[str, typer.Argument(help="pattern, plan, target, rates, history or report.")] = "pattern",
    write: Annotated[bool, typer.Option("--write", help="Write all of them into the package.")] = False,
) -> None:
    """JSON Schema (draft 7) for editors; `report` for programs that read `loop report --format json`.

    Example: loop patterns schema target > target.json
    """
    from loop.cli import checking as definitions

    raise typer.Exit(definitions.show_schema(name, write, screen_for()))


@plan_app.command("list")
def plan_list(target: Target = None, json: Json = False) -> None:
    """All plans, a row each.

    Example: loop plan list
    """
    from loop.cli import finding as catalogue

    raise typer.Exit(catalogue.list_plans(target, screen_for(), as_json=json))


@plan_app.command("show")
def plan_show(name: str, target: Target = None, json: Json = False) -> None:
    """One plan.

    Example: loop plan show baseline
    """
    from loop.cli import finding as catalogue

    raise typer.Exit(catalogue.show_plan(name, target, screen_for(), as_json=json))


@plan_app.command("next")
def plan_next(target: Target = None, json: Json = False) -> None:
    """What the next session should do: objective, chain, time, cost, benefit, and why. Nothing runs.

    Example: loop plan next --json
    """
    from loop.cli import next_plan_command as next_plan

    raise typer.Exit(next_plan.show_next(target, screen_for(), as_json=json))
