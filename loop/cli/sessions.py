"""`loop sessions ...`, and what looks at all of them."""

from typing import Annotated

import typer

from loop.cli.options import Json, Target, group, screen_for

sessions_app = group("Look at recorded sessions.")


@sessions_app.command("list")
def sessions_list(target: Target = None, json: Json = False) -> None:
    """All sessions, oldest first.

    Example: loop sessions list
    """
    from loop.cli import listing

    raise typer.Exit(listing.list_sessions(target, screen_for(), as_json=json))


@sessions_app.command("reindex")
def sessions_reindex(target: Target = None) -> None:
    """Read all session folders again. The index notices what changes by itself; this is for the doubtful.

    Example: loop sessions reindex
    """
    from loop.cli import listing

    raise typer.Exit(listing.reindex(target, screen_for()))


@sessions_app.command("show")
def sessions_show(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="An id, its beginning, or last.")],
    target: Target = None,
    json: Json = False,
) -> None:
    """One session: its facts and its steps.

    Example: loop sessions show last
    """
    from loop.cli import browse

    raise typer.Exit(browse.show_session(session_id, target, screen_for(), as_json=json))


@sessions_app.command("import")
def sessions_import(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A history in YAML; `history`: what ships with loop.")
    ],
    target: Target = None,
    json: Json = False,
) -> None:
    """Take sessions that were recorded elsewhere, before loop, into this project's.

    Only their raw rows are kept. The format: loop patterns schema history

    Example: loop sessions import history
    """
    from loop.session import recorded

    raise typer.Exit(recorded.import_sessions(file, target, screen_for(json), as_json=json))


Markdown = Annotated[bool, typer.Option("--md", help="Markdown, for a pull request.")]


@sessions_app.command("compare")
def sessions_compare(
    names: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Two or more: ids, beginnings of ids, last, last~1.")
    ],
    target: Target = None,
    markdown: Markdown = False,
    json: Json = False,
) -> None:
    """Sessions beside each other: environment, sources, verdicts, ratios, cost, time.

    Latencies stand beside each other only where one machine measured them on one day; else ratios alone do.
    Sessions of another target, device or baseline are named, with the reason, and left out of the ratios.

    Examples:

      loop sessions compare last~1 last

      loop sessions compare 2026-11-20 last --md
    """
    from loop.cli import comparison_command as comparison

    raise typer.Exit(
        comparison.compare_sessions(names, target, screen_for(json), as_json=json, as_markdown=markdown)
    )


@sessions_app.command("trend")
def sessions_trend(
    target: Target = None,
    variant: Annotated[str | None, typer.Option("--variant", help="Only this one. Default: all.")] = None,
    last: Annotated[int, typer.Option("--last", min=1, max=1000, help="Sessions to look back on.")] = 50,
    markdown: Markdown = False,
    json: Json = False,
) -> None:
    """A target's ratios over sessions; a new machine, driver or torch begins a new line.

    Example: loop sessions trend --variant cpu
    """
    from loop.cli import comparison_command as comparison

    screen = screen_for(json)
    raise typer.Exit(comparison.show_trend(target, variant, last, screen, as_json=json, as_markdown=markdown))
