"""Options that several commands share, and the making of a group of commands."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def group(text: str) -> typer.Typer:
    """A group of commands with its one-line help."""
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


Target = Annotated[
    Path | None, typer.Option("--target", help="Folder with a target.yaml. Default: ./target.yaml, else bundled.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Variants = Annotated[list[str] | None, typer.Option("--variant", help="Only this variant; may be repeated.")]
VariantNames = Annotated[list[str] | None, typer.Argument(help="Variants; all of the device when none is named.")]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", help="CPU threads of each process. Default: all but the one from which the judge watches."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Base of all input seeds.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--workloads", help="Workload set, or a workload as in 'B=1 S=65 D=64'; may be repeated."),
]
Hypothesis = Annotated[
    str, typer.Option("--hypothesis", envvar="LOOP_HYPOTHESIS", help="What you think is wrong, and changed.")
]
AiResult = Annotated[
    Path | None, typer.Option("--ai-result", help="JSON that an agent printed at its end: its cost is measured.")
]
AiUsd = Annotated[float | None, typer.Option("--ai-usd", help="What AI cost, where nothing measures it: stated.")]
MeterAi = Annotated[
    bool,
    typer.Option(
        "--meter-ai", help="Allow loop to read agents' logs of the session's time and folder (or LOOP_METER_AI=1)."
    ),
]


def screen_for(as_json: bool = False) -> Any:
    """A screen; with --json, talk is left out unless somebody watches."""
    from loop.base.screen import Screen

    return Screen(quiet=as_json and not sys.stderr.isatty())
