"""`loop patterns drafts ...`"""

from typing import Annotated

import typer

from loop.cli.options import Json, Target, group, screen_for

drafts_app = group("Patterns drafted from failures that came back.")
drafts_app.info.no_args_is_help = False
Name = Annotated[str, typer.Argument(help="Name of a draft; see `loop patterns drafts`.")]


@drafts_app.callback(invoke_without_command=True)
def drafts_list(context: typer.Context, target: Target = None, json: Json = False) -> None:
    """Patterns drafted from failures that at least three sessions met, for a person to accept.

    Example: loop patterns drafts
    """
    if context.invoked_subcommand is None:
        from loop.cli import drafts_command as drafts

        raise typer.Exit(drafts.list_drafts(target, screen_for(json), as_json=json))


@drafts_app.command("show")
def drafts_show(name: Name, target: Target = None, json: Json = False) -> None:
    """One draft, as the file that it would become.

    Example: loop patterns drafts show undefined-symbol-foo-1a2b3c
    """
    from loop.cli import drafts_command as drafts

    raise typer.Exit(drafts.show_draft(name, target, screen_for(json), as_json=json))


@drafts_app.command("accept")
def drafts_accept(name: Name, target: Target = None) -> None:
    """Write a draft into the project's own patterns, once it passes every check. Nothing is overwritten.

    Example: loop patterns drafts accept undefined-symbol-foo-1a2b3c --target ../my-kernel
    """
    from loop.cli import drafts_command as drafts

    raise typer.Exit(drafts.accept_draft(name, target, screen_for()))


@drafts_app.command("dismiss")
def drafts_dismiss(name: Name, target: Target = None) -> None:
    """Do not offer a draft again.

    Example: loop patterns drafts dismiss undefined-symbol-foo-1a2b3c
    """
    from loop.cli import drafts_command as drafts

    raise typer.Exit(drafts.dismiss_draft(name, target, screen_for()))
