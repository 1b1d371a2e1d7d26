"""`loop catalog ...`"""

from pathlib import Path
from typing import Annotated

import typer

from loop.cli.options import Json, Target, group, screen_for

catalog_app = group("The catalogue of patterns, sessions and kernels as pages.")


@catalog_app.command("build")
def catalog_build(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder to write; an older catalogue is replaced.")
    ],
    target: Target = None,
    json: Json = False,
) -> None:
    """Write a site of patterns, sessions, kernels and plans: plain files with search, no network.

    Open its index.html, or publish the folder anywhere. A folder that is no catalogue is not touched.

    Example: loop catalog build --out catalogue
    """
    from loop.site import command as site

    raise typer.Exit(site.build_site(out, target, screen_for(json), as_json=json))


@catalog_app.command("serve")
def catalog_serve(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")] = 8765,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="A catalogue that was built. Default: one made now."),
    ] = None,
    target: Target = None,
) -> None:
    """Show the catalogue on this machine, for this machine only, until Ctrl-C.

    Examples:

      loop catalog serve

      loop catalog serve --port 0 --dir catalogue
    """
    from loop.site import command as site

    raise typer.Exit(site.serve_site(directory, port, target, screen_for()))
