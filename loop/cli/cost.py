"""The table of commands about money: what sessions cost, and decisions with money."""

from pathlib import Path

from loop.cli.options import TARGET
from loop.cli.table import Command, option

COST = (
    Command(
        "cost show",
        "loop.money.command:show_costs",
        "What sessions cost, and what was measurably spared; what nobody measured is `?`, in part `+`.",
        ("loop cost show", "loop cost show --json"),
        (TARGET,),
        result="loop.money.model:Ledger",
        agents="reads",
    ),
    Command(
        "cost rates",
        "loop.money.command:show_rates",
        "Show the prices of the rate card, each with its source and age.",
        ("loop cost rates",),
        (TARGET,),
        result="loop.money.model:Prices",
    ),
    Command(
        "cost keep-or-stop",
        "loop.money.command:keep_or_stop",
        """Decide whether to keep an idle GPU or to stop it.

        Idle cost = hours x rate. Stop cost = restart x (GPU's rate + rate of whoever waits).
        """,
        (
            "loop cost keep-or-stop --idle-hours 5",
            "loop cost keep-or-stop --idle-hours 12 --waiting nobody --restart-minutes 4",
            "loop cost keep-or-stop --idle-hours 5 --stop-cost-usd 0.80..1.20",
        ),
        (
            option("--idle-hours", float | None, "Hours until the GPU is needed again."),
            option("--gpu-usd-per-hour", float | None, "Default: the rate card's."),
            option("--stop-cost-usd", str | None, "Cost of a stop, or a range as in 0.80..1.20."),
            option("--restart-minutes", str | None, "A number or a range. Default: as your sessions measured it."),
            option(
                "--waiting",
                str | None,
                "Who waits for a restart: nobody, agent, engineer. Default: the card's, else nobody.",
            ),
            TARGET,
        ),
        request="KeepRequest",
        result="loop.money.model:KeptOrStopped",
    ),
    Command(
        "cost pivot",
        "loop.money.command:pivot",
        """Decide whether to go on or to try something else.

        An option without a probability or a value has no expected value: what it would need is shown instead.

        The form of the file:

          format: 1

          question: what next

          options:

            - {name: go on, usd: [150, 250], probability: 0.5, value_usd: 600}

            - {name: rewrite, usd: [250, 350], value_usd: 600}
        """,
        ("loop cost pivot --options pivot.yaml",),
        (option("--options", Path | None, "YAML file with the options; without one, the stop rules."), TARGET),
        result="loop.money.model:Pivoted",
    ),
)
