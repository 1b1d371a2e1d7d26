"""Commands that only look at what there is, or at what was recorded."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from loop.cli import names
from loop.cli.command import command
from loop.cli.options import Json, PatternName, SessionName, Target, Yes


@command("status", "cli.status:show_status", "Status", "loop status", agents="reads")
def status(target: Target = None, json: Json = False) -> None:
    """Show what runs, what waits, what it cost, what is next."""


@command("clean", "cli.clean:clean", "LeftBehind", "loop clean", "loop clean --yes", "loop clean --cache")
def clean(
    names: Annotated[
        list[str] | None, Argument(metavar="NAME", help="Only these, edits included. Default: all left over.")
    ] = None,
    cache: Annotated[
        bool, Option("--cache", help="Instead: builds and indexes. All of them can be made again.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """List worktrees that loop left behind and nobody needs. Then ask, and remove them.

    Only what loop made is looked at. A session that can be resumed keeps its worktree. One with uncommitted edits
    stays.
    """


@command(
    "report",
    "session.command:report",
    "model.exported:ExportedSession",
    "loop report last > report.md",
    "loop report last --format html --output report.html",
    'loop report last --format summary --limit 1000000 >> "$GITHUB_STEP_SUMMARY"',
    agents="reads",
)
def report(
    session_id: SessionName = "last",
    form: Annotated[str, Option("--format", help="md, html, json or summary.")] = "md",
    output: Annotated[Path | None, Option(help="Write this file instead; a report's figures beside it.")] = None,
    target: Target = None,
    limit: Annotated[int, Option(help="Of a summary, in bytes.")] = 65_536,
    link: Annotated[str, Option(help="Of a summary: where the whole report is.")] = "",
    json: Annotated[bool, Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print a session's report, rendered again from its record.

    html is one file that needs nothing else. `loop patterns schema report` describes json.

    A summary is for a job's page or a comment: it is shortened by whole rows, and begins with a mark by
    which a workflow finds its own comment again.
    """


@command(
    "patterns list",
    "cli.pattern_rows:list_patterns",
    "PatternList",
    "loop patterns list --json",
    'loop patterns list "link error"',
    agents="reads",
)
def patterns_list(
    words: Annotated[
        list[str] | None, Argument(metavar="WORD", help="Only those for a problem, an error, a name.")
    ] = None,
    target: Target = None,
    json: Json = False,
) -> None:
    """List all patterns; with words, those that answer a problem, the best first."""


@command(
    "patterns show",
    "cli.patterns:show_pattern",
    "ShownPattern",
    "loop patterns show baseline-first",
    agents="reads",
)
def patterns_show(name: PatternName, target: Target = None, json: Json = False) -> None:
    """Show one pattern in full."""


@command(
    "patterns check",
    "cli.checking:check_definitions",
    "CheckedDefinitions",
    "loop patterns check patterns/mine.yaml",
    agents="reads",
)
def patterns_check(
    path: Annotated[Path | None, Argument(help="A file or folder; all definitions when none is named.")] = None,
    target: Target = None,
    json: Json = False,
) -> None:
    """Check definitions without running anything."""


@command("patterns schema", "cli.checking:show_schema", "", "loop patterns schema target > target.json")
def patterns_schema(
    name: Annotated[str, Argument(help="pattern, plan, target, rates, history, report or commands.")] = "pattern",
    write: Annotated[bool, Option("--write", help="Write all of them into the package.")] = False,
) -> None:
    """Print the JSON Schema of a kind of file, for editors and programs."""


@command("plan list", "cli.patterns:list_plans", "PlanList", "loop plan list", agents="reads")
def plan_list(target: Target = None, json: Json = False) -> None:
    """List all plans; `loop run session PLAN --dry-run` shows the steps of one."""


@command("plan next", "cli.status:show_next", "NextSession", "loop plan next --json", agents="reads")
def plan_next(target: Target = None, json: Json = False) -> None:
    """Propose the next session: what, why, time, cost and benefit. Nothing runs."""


@command("sessions list", "cli.sessions:list_sessions", "SessionList", "loop sessions list", agents="reads")
def sessions_list(target: Target = None, json: Json = False) -> None:
    """List all sessions, oldest first."""


@command(
    "sessions show",
    "cli.sessions:show_session",
    "session.recorded:AnySession",
    "loop sessions show last",
    agents="reads",
)
def sessions_show(name: SessionName, target: Target = None, json: Json = False) -> None:
    """Show one session: its facts and its steps."""


@command("sessions import", "session.recorded:import_sessions", "Imported", "loop sessions import history")
def sessions_import(
    name: Annotated[str, Argument(metavar="FILE", help="A history in YAML; `history`: what ships with loop.")],
    target: Target = None,
    json: Json = False,
) -> None:
    """Import sessions that were recorded without loop.

    Only their raw rows are kept. The format: loop patterns schema history
    """


@command(
    "sessions compare",
    "cli.comparing:compare_sessions",
    "learning.comparison:SessionComparison",
    "loop sessions compare last~1 last",
    agents="reads",
)
def sessions_compare(
    names: Annotated[
        list[str],
        Argument(
            metavar="ID", help="Two or more: ids, beginnings of ids, last, last~1.", autocompletion=names.sessions
        ),
    ],
    target: Target = None,
    json: Json = False,
) -> None:
    """Compare sessions: environment, sources, verdicts, ratios, cost, time.

    Sessions of another target, device or baseline are named, with the reason, and left out of the ratios.
    Latencies are not compared: they hang on the machine, the day and the hour.
    """


@command("catalog build", "site.command:build_site", "BuiltSite", "loop catalog build --out catalogue")
def catalog_build(
    out: Annotated[Path, Option(metavar="DIR", help="Folder to write; an older catalogue is replaced.")],
    target: Target = None,
    json: Json = False,
) -> None:
    """Write a website of patterns, sessions, kernels and plans.

    Open its index.html, or publish the folder anywhere. A folder that is no catalogue is not touched.
    """


@command(
    "cost show",
    "money.command:show_costs",
    "money.model:Ledger",
    "loop cost show",
    "loop cost show --json",
    agents="reads",
)
def cost_show(target: Target = None, json: Json = False) -> None:
    """What sessions cost, and what was measurably spared; what nobody measured is `?`, in part `+`."""


@command("cost rates", "money.command:show_rates", "money.model:Prices", "loop cost rates")
def cost_rates(target: Target = None, json: Json = False) -> None:
    """Show the prices of the rate card, each with its source and age."""


@command(
    "cost keep-or-stop",
    "money.command:keep_or_stop",
    "money.model:KeptOrStopped",
    "loop cost keep-or-stop --idle-hours 5",
    "loop cost keep-or-stop --idle-hours 12 --waiting nobody --restart-minutes 4",
    "loop cost keep-or-stop --idle-hours 5 --stop-cost-usd 0.80",
)
def cost_keep_or_stop(
    idle_hours: Annotated[float | None, Option(help="Hours until the GPU is needed again.")] = None,
    gpu_usd_per_hour: Annotated[float | None, Option(help="Default: the rate card's.")] = None,
    stop_cost_usd: Annotated[float | None, Option(help="Cost of a stop.")] = None,
    restart_minutes: Annotated[
        float | None, Option(help="Minutes of a restart; default: as sessions measured.")
    ] = None,
    waiting: Annotated[
        str | None,
        Option(help="Who waits for a restart: nobody, agent, engineer. Default: the card's, else nobody."),
    ] = None,
    target: Target = None,
    json: Json = False,
) -> None:
    """Decide whether to keep an idle GPU or to stop it.

    Idle cost = hours x rate. Stop cost = restart x (GPU's rate + rate of whoever waits).
    """


@command("cost pivot", "money.command:pivot", "money.model:Pivoted", "loop cost pivot --options pivot.yaml")
def cost_pivot(
    options: Annotated[
        Path | None, Option(help="YAML file with the options; without one, the stop rules.")
    ] = None,
    target: Target = None,
    json: Json = False,
) -> None:
    """Decide whether to go on or to try something else.

    An option without a probability or a value has no expected value: what it would need is shown instead.

    The form of the file:

      format: 1

      question: what next

      options:

        - {name: go on, usd: [150, 250], probability: 0.5, value_usd: 600}

        - {name: rewrite, usd: [250, 350], value_usd: 600}
    """
