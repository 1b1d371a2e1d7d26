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
    from loop.commands import browse

    raise typer.Exit(browse.list_sessions(target, screen_for(), as_json=json))


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

    raise typer.Exit(browse.show_session(session_id, target, screen_for(), as_json=json))
