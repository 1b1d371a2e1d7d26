"""Commands that only look at what there is, or at what was recorded."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from loop.cli import names
from loop.cli.command import asked, command
from loop.cli.options import Json, Markdown, PatternName, Target, Yes

if TYPE_CHECKING:
    from loop.base.screen import Screen


@command(
    "status", "loop status", "loop status --md > STATUS.md", result="loop.cli.status_page:Status", agents="reads"
)
def status(target: Target = None, as_markdown: Markdown = False, json: Json = False, *, screen: "Screen") -> int:
    """Show what runs, what waits, what it cost, what is next."""
    from loop.cli.status import show_status

    return show_status(target, screen, as_json=json, as_markdown=as_markdown)


@command(
    "clean",
    "loop clean",
    "loop clean --yes",
    "loop clean --older-than 90",
    "loop clean --cache",
    result="loop.cli.clean:Cleaned",
)
def clean(
    names: Annotated[
        list[str] | None, Argument(metavar="NAME", help="Only these. Default: all that nobody needs.")
    ] = None,
    older_than: Annotated[
        float | None,
        Option(
            metavar="DAYS",
            help="Also sessions older than that, save for the last and those with a known-good build. "
            "With --cache: only what was written so long ago.",
            min=0,
        ),
    ] = None,
    resumable: Annotated[
        bool, Option("--resumable", help="With --older-than: also sessions that could be resumed.")
    ] = False,
    discard_edits: Annotated[
        bool, Option("--discard-edits", help="Also what would lose edits or commits.")
    ] = False,
    cache: Annotated[
        bool, Option("--cache", help="Instead: builds and indexes. All of them can be made again.")
    ] = False,
    yes: Yes = False,
    target: Target = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """List what loop left behind and nobody needs: worktrees, branches, old sessions. Then ask, and remove it.

    Only what loop made is looked at. A session that can be resumed keeps all that it needs. A worktree with
    uncommitted edits stays, and so does a branch that is not merged.
    """
    from loop.cli.clean import CleanRequest, clean, clean_cache

    if cache:
        return clean_cache(older_than or 0.0, yes, screen, as_json=json)
    return clean(asked(CleanRequest, locals()), screen)


@command(
    "report",
    "loop report last > report.md",
    "loop report last --format html --output report.html",
    'loop report last --format summary --limit 1000000 >> "$GITHUB_STEP_SUMMARY"',
    result="loop.model.exported:ExportedSession",
    agents="reads",
)
def report(
    session_id: Annotated[
        str, Argument(metavar="ID", help="An id, its beginning, or last.", autocompletion=names.sessions)
    ] = "last",
    form: Annotated[str, Option("--format", metavar="TEXT", help="md, html, json, csv or summary.")] = "md",
    output: Annotated[
        Path | None, Option(metavar="PATH", help="Write this file instead; a report's figures beside it.")
    ] = None,
    target: Target = None,
    limit: Annotated[int, Option(metavar="NUMBER", help="Of a summary, in bytes.")] = 65_536,
    link: Annotated[str, Option(metavar="TEXT", help="Of a summary: where the whole report is.")] = "",
    json: Annotated[bool, Option("--json", help="The same as --format json.")] = False,
    *,
    screen: "Screen",
) -> int:
    """Print a session's report, rendered again from its record.

    html is one file that needs nothing else; csv has one row a sample that was timed;
    `loop patterns schema report` describes json.

    A summary is for a job's page or a comment: it is shortened by whole rows, and begins with a mark by
    which a workflow finds its own comment again.
    """
    from loop.session.command import report

    return report(session_id, form, target, output, screen, limit, link, as_json=json)


@command(
    "patterns list",
    "loop patterns list --json",
    'loop patterns list "link error"',
    result="loop.cli.pattern_rows:PatternList",
    agents="reads",
)
def patterns_list(
    words: Annotated[
        list[str] | None, Argument(metavar="WORD", help="Only those for a problem, an error, a name.")
    ] = None,
    target: Target = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """List all patterns; with words, those that answer a problem, the best first."""
    if words:
        from loop.cli.patterns import search_patterns

        return search_patterns(words, target, screen, as_json=json)
    from loop.cli.pattern_rows import list_patterns

    return list_patterns(target, screen, as_json=json)


@command(
    "patterns show", "loop patterns show baseline-first", result="loop.cli.patterns:ShownPattern", agents="reads"
)
def patterns_show(name: PatternName, target: Target = None, json: Json = False, *, screen: "Screen") -> int:
    """Show one pattern in full."""
    from loop.cli.patterns import show_pattern

    return show_pattern(name, target, screen, as_json=json)


@command(
    "patterns check", "loop patterns check patterns/mine.yaml", result="loop.cli.checking:Checked", agents="reads"
)
def patterns_check(
    path: Annotated[Path | None, Argument(help="A file or folder; all definitions when none is named.")] = None,
    target: Target = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Check definitions without running anything."""
    from loop.cli.checking import check_definitions

    return check_definitions(path, target, screen, as_json=json)


@command("patterns schema", "loop patterns schema target > target.json")
def patterns_schema(
    name: Annotated[str, Argument(help="pattern, plan, target, rates, history, report or commands.")] = "pattern",
    write: Annotated[bool, Option("--write", help="Write all of them into the package.")] = False,
    *,
    screen: "Screen",
) -> int:
    """Print the JSON Schema of a kind of file, for editors and programs."""
    from loop.cli.checking import show_schema

    return show_schema(name, write, screen)


@command("plan list", "loop plan list", result="loop.cli.patterns:PlanList", agents="reads")
def plan_list(target: Target = None, json: Json = False, *, screen: "Screen") -> int:
    """List all plans; `loop run session PLAN --dry-run` shows the steps of one."""
    from loop.cli.patterns import list_plans

    return list_plans(target, screen, as_json=json)


@command("plan next", "loop plan next --json", result="loop.cli.next_plan:NextSession", agents="reads")
def plan_next(target: Target = None, json: Json = False, *, screen: "Screen") -> int:
    """Propose the next session: what, why, time, cost and benefit. Nothing runs."""
    from loop.cli.next_plan import show_next

    return show_next(target, screen, as_json=json)


@command("sessions list", "loop sessions list", result="loop.cli.sessions:SessionList", agents="reads")
def sessions_list(target: Target = None, json: Json = False, *, screen: "Screen") -> int:
    """List all sessions, oldest first."""
    from loop.cli.sessions import list_sessions

    return list_sessions(target, screen, as_json=json)


@command("sessions show", "loop sessions show last", result="loop.session.recorded:AnySession", agents="reads")
def sessions_show(
    name: Annotated[
        str, Argument(metavar="ID", help="An id, its beginning, or last.", autocompletion=names.sessions)
    ],
    target: Target = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Show one session: its facts and its steps."""
    from loop.cli.sessions import show_session

    return show_session(name, target, screen, as_json=json)


@command(
    "sessions replayed",
    'loop sessions replayed "$work"   (the last line of recipe.sh)',
    result="loop.replay.command:Replayed",
)
def sessions_replayed(
    folder: Annotated[Path, Argument(help="Where the recipe left what it found.")],
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Compare what a session's recipe.sh found with what the session had found.

    Exit code 0: same; 1: not the same; 125: cannot tell, as by another compiler or machine.
    """
    from loop.replay.command import replayed

    return replayed(folder, screen, as_json=json)


@command("sessions import", "loop sessions import history", result="loop.session.recorded:Imported")
def sessions_import(
    name: Annotated[str, Argument(metavar="FILE", help="A history in YAML; `history`: what ships with loop.")],
    target: Target = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Import sessions that were recorded without loop.

    Only their raw rows are kept. The format: loop patterns schema history
    """
    from loop.session.recorded import import_sessions

    return import_sessions(name, target, screen, as_json=json)


@command(
    "sessions compare",
    "loop sessions compare last~1 last",
    "loop sessions compare 2026-11-20 last --md",
    result="loop.learning.comparison:Comparison",
    agents="reads",
)
def sessions_compare(
    names: Annotated[
        list[str],
        Argument(
            metavar="ID",
            help="Two or more: ids, beginnings of ids, last, last~1.",
            autocompletion=names.compared_sessions,
        ),
    ],
    target: Target = None,
    as_markdown: Markdown = False,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Compare sessions: environment, sources, verdicts, ratios, cost, time.

    Sessions of another target, device or baseline are named, with the reason, and left out of the ratios.
    Latencies are not compared: they hang on the machine, the day and the hour.
    """
    from loop.cli.comparing import compare_sessions

    return compare_sessions(names, target, screen, as_json=json, as_markdown=as_markdown)


@command("catalog build", "loop catalog build --out catalogue", result="loop.site.command:BuiltSite")
def catalog_build(
    out: Annotated[Path, Option(metavar="DIR", help="Folder to write; an older catalogue is replaced.")],
    target: Target = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Write a website of patterns, sessions, kernels and plans.

    Open its index.html, or publish the folder anywhere. A folder that is no catalogue is not touched.
    """
    from loop.site.command import build_site

    return build_site(out, target, screen, as_json=json)


@command("cost show", "loop cost show", "loop cost show --json", result="loop.money.model:Ledger", agents="reads")
def cost_show(target: Target = None, json: Json = False, *, screen: "Screen") -> int:
    """What sessions cost, and what was measurably spared; what nobody measured is `?`, in part `+`."""
    from loop.money.command import show_costs

    return show_costs(target=target, as_json=json, screen=screen)


@command("cost rates", "loop cost rates", result="loop.money.model:Prices")
def cost_rates(target: Target = None, json: Json = False, *, screen: "Screen") -> int:
    """Show the prices of the rate card, each with its source and age."""
    from loop.money.command import show_rates

    return show_rates(target=target, as_json=json, screen=screen)


@command(
    "cost keep-or-stop",
    "loop cost keep-or-stop --idle-hours 5",
    "loop cost keep-or-stop --idle-hours 12 --waiting nobody --restart-minutes 4",
    "loop cost keep-or-stop --idle-hours 5 --stop-cost-usd 0.80..1.20",
    result="loop.money.model:KeptOrStopped",
)
def cost_keep_or_stop(
    idle_hours: Annotated[
        float | None, Option(metavar="NUMBER", help="Hours until the GPU is needed again.")
    ] = None,
    gpu_usd_per_hour: Annotated[float | None, Option(metavar="NUMBER", help="Default: the rate card's.")] = None,
    stop_cost_usd: Annotated[
        str | None, Option(metavar="TEXT", help="Cost of a stop, or a range as in 0.80..1.20.")
    ] = None,
    restart_minutes: Annotated[
        str | None, Option(metavar="TEXT", help="A number or a range. Default: as your sessions measured it.")
    ] = None,
    waiting: Annotated[
        str | None,
        Option(
            metavar="TEXT",
            help="Who waits for a restart: nobody, agent, engineer. Default: the card's, else nobody.",
        ),
    ] = None,
    target: Target = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Decide whether to keep an idle GPU or to stop it.

    Idle cost = hours x rate. Stop cost = restart x (GPU's rate + rate of whoever waits).
    """
    from loop.money.command import KeepRequest, keep_or_stop

    return keep_or_stop(asked(KeepRequest, locals()), screen)


@command("cost pivot", "loop cost pivot --options pivot.yaml", result="loop.money.model:Pivoted")
def cost_pivot(
    options: Annotated[
        Path | None, Option(metavar="PATH", help="YAML file with the options; without one, the stop rules.")
    ] = None,
    target: Target = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Decide whether to go on or to try something else.

    An option without a probability or a value has no expected value: what it would need is shown instead.

    The form of the file:

      format: 1

      question: what next

      options:

        - {name: go on, usd: [150, 250], probability: 0.5, value_usd: 600}

        - {name: rewrite, usd: [250, 350], value_usd: 600}
    """
    from loop.money.command import pivot

    return pivot(options=options, target=target, as_json=json, screen=screen)
