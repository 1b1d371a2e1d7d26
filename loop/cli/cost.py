"""`loop cost ...`"""

from pathlib import Path
from typing import Annotated

import typer

from loop.cli.table import group, screen_for

Target = Annotated[
    Path | None, typer.Option("--target", help="Folder with a target.yaml. Default: ./target.yaml, else bundled.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
cost_app = group("What sessions cost, and decisions with money.")


@cost_app.command("show")
def show(
    sessions: Annotated[
        str | None, typer.Option("--sessions", metavar="A..B", help="From A to B, by id or its beginning; or one.")
    ] = None,
    by: Annotated[str, typer.Option("--by", help="session, pattern, target or week.")] = "session",
    against: Annotated[
        str | None, typer.Option("--against", metavar="A", help="What they took less than this session.")
    ] = None,
    target: Target = None,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="A line a charge, in the columns of FOCUS 1.2.")] = False,
) -> None:
    """What sessions cost, saved and brought; what nobody measured is `?`, never 0.

    Examples:

      loop cost show

      loop cost show --sessions last~4..last --by pattern

      loop cost show --by week --json

      loop cost show --sessions N+4 --against N   (of the imported history)

      loop cost show --csv > charges.csv
    """
    from loop.money import command as cost

    request = cost.CostRequest(sessions, by, against, target, json, csv)
    raise typer.Exit(cost.show_costs(request, screen_for()))


@cost_app.command("rates")
def rates(target: Target = None, json: Json = False) -> None:
    """The prices that sessions are charged at, each with its source and age.

    Example: loop cost rates
    """
    from loop.money import command as cost

    raise typer.Exit(cost.show_rates(target, screen_for(), as_json=json))
