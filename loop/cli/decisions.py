"""`loop cost keep-or-stop|pivot`."""

from pathlib import Path
from typing import Annotated

import typer

from loop.base.errors import UsageError
from loop.cli.cost import Json, Target
from loop.cli.cost import cost_app as cost_app
from loop.cli.table import screen_for


@cost_app.command("keep-or-stop")
def keep_or_stop(
    idle_hours: Annotated[
        float | None, typer.Option("--idle-hours", help="Hours until the GPU is needed again.")
    ] = None,
    gpu_usd_per_hour: Annotated[
        float | None, typer.Option("--gpu-usd-per-hour", help="Default: the rate card's.")
    ] = None,
    stop_cost_usd: Annotated[
        str | None, typer.Option("--stop-cost-usd", help="What a stop costs as a whole; a range: 0.80..1.20.")
    ] = None,
    restart_minutes: Annotated[
        str | None,
        typer.Option("--restart-minutes", help="A number or a range. Default: as own sessions measured it."),
    ] = None,
    waiting: Annotated[
        str | None,
        typer.Option("--waiting", help="Who waits for a restart: nobody, agent, engineer. Default: the card's."),
    ] = None,
    boot_minutes: Annotated[
        float | None, typer.Option("--boot-minutes", help="From a stopped machine to a shell; nobody measures it.")
    ] = None,
    context_usd: Annotated[
        float | None, typer.Option("--context-usd", help="What is lost with the machine besides.")
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="What the money says of the recorded history's decisions.")
    ] = False,
    target: Target = None,
    json: Json = False,
) -> None:
    """Keep an idle GPU, or stop it? Both sides, the break-even, the decision.

    Idle cost = hours x rate. Stop cost = restart x (GPU's rate + rate of whoever waits) + context.

    Examples:

      loop cost keep-or-stop --idle-hours 5

      loop cost keep-or-stop --idle-hours 12 --waiting nobody --boot-minutes 3

      loop cost keep-or-stop --idle-hours 5 --gpu-usd-per-hour 0.20 --stop-cost-usd 0.80..1.20 --json

      loop cost keep-or-stop --recorded
    """
    from loop.money import decisions

    if recorded:
        raise typer.Exit(decisions.recorded(screen_for(), as_json=json))
    if idle_hours is None:
        raise UsageError("for how long will the GPU idle?", hint="loop cost keep-or-stop --idle-hours 5")
    request = decisions.KeepRequest(
        idle_hours=idle_hours,
        gpu_usd_per_hour=gpu_usd_per_hour,
        stop_cost_usd=stop_cost_usd,
        restart_minutes=restart_minutes,
        waiting=waiting,
        boot_minutes=boot_minutes,
        context_usd=context_usd,
        target=target,
        json=json,
    )
    raise typer.Exit(decisions.keep_or_stop(request, screen_for()))


@cost_app.command("pivot")
def pivot(
    options: Annotated[
        Path | None, typer.Option("--options", help="YAML file with the options; without one, the stop rules.")
    ] = None,
    target: Target = None,
    json: Json = False,
) -> None:
    """Go on, or pivot? Stop rules from own sessions, expected value of each option.

    An option without a probability or a value has no expected value: what it would need is shown instead.

    The form of the file:

      format: 1

      question: what next

      options:

        - {name: go on, usd: [150, 250], probability: 0.5, value_usd: 600}

        - {name: rewrite, usd: [250, 350], value_usd: 600}

    Example: loop cost pivot --options pivot.yaml
    """
    from loop.money import decisions

    raise typer.Exit(decisions.pivot(options, target, screen_for(), as_json=json))
