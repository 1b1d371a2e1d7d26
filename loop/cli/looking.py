"""The table of commands that only look at what there is, or at what was recorded."""

from pathlib import Path

from loop.cli import names
from loop.cli.options import MARKDOWN, TARGET
from loop.cli.table import Command, argument, option

YES = option("--yes", bool, "Do it without asking.")
PATTERN = argument("name", str, "Name of a pattern; see `loop patterns list`.", complete=names.patterns)

LOOKING = (
    Command(
        "status",
        "loop.cli.status:show_status",
        "Show what runs, what waits for you, what it cost, and what comes next.",
        ("loop status", "loop status --md > STATUS.md"),
        (TARGET, option("--md", bool, "A page of Markdown, for a README or a wiki.", name="as_markdown")),
        result="loop.cli.status_page:Status",
        agents="reads",
    ),
    Command(
        "clean",
        "loop.cli.clean:clean",
        """List what loop left behind and nobody needs: worktrees, branches, old sessions. Then ask, and remove it.

        Only what loop made is looked at. A session that can be resumed keeps all that it needs. A worktree with
        uncommitted edits stays, and so does a branch that is not merged.
        """,
        ("loop clean", "loop clean --yes", "loop clean --older-than 90"),
        (
            argument("names NAME", list[str] | None, "Only these. Default: all that nobody needs."),
            option(
                "--older-than DAYS",
                float | None,
                "Also sessions older than that, save for the last and those with a known-good build.",
                min=0,
            ),
            option("--resumable", bool, "With --older-than: also sessions that could be resumed."),
            option("--discard-edits", bool, "Also what would lose edits or commits."),
            YES,
            TARGET,
        ),
        request="CleanRequest",
        result="loop.cli.clean:LeftBehind",
    ),
    Command(
        "cache",
        "loop.cli.clean:show_cache",
        "Show what the cache holds, and its size. All of it can be made again.",
        ("loop cache",),
        result="loop.cli.clean:Cache",
    ),
    Command(
        "cache clean",
        "loop.cli.clean:clean_cache",
        "Remove builds and indexes from the cache, after asking.",
        ("loop cache clean --older-than 30", "loop cache clean --yes"),
        (option("--older-than DAYS", float, "Only what was written so long ago.", 0.0, min=0), YES),
        result="loop.cli.clean:CacheCleaned",
    ),
    Command(
        "report",
        "loop.session.command:report",
        """Print a session's report, rendered again from its record.

        html is one file that needs nothing else; csv has one row a sample that was timed;
        `loop patterns schema report` describes json.

        A summary is for a job's page or a comment: it is shortened by whole rows, and begins with a mark by
        which a workflow finds its own comment again.
        """,
        (
            "loop report last > report.md",
            "loop report last --format html --output report.html",
            'loop report last --format summary --limit 1000000 >> "$GITHUB_STEP_SUMMARY"',
        ),
        (
            argument("session_id ID", str, "An id, its beginning, or last.", "last", complete=names.sessions),
            option("--format", str, "md, html, json, csv or summary.", "md", name="form"),
            option("--output", Path | None, "Write this file instead; a report's figures beside it."),
            TARGET,
            option("--limit", int, "Of a summary, in bytes.", 65_536),
            option("--link", str, "Of a summary: where the whole report is.", ""),
            option("--json", bool, "The same as --format json."),
        ),
        result="loop.model.exported:ExportedSession",
        agents="reads",
    ),
    Command(
        "patterns list",
        "loop.cli.pattern_rows:list_patterns",
        "List all patterns.",
        ("loop patterns list --json",),
        (TARGET,),
        result="loop.cli.pattern_rows:PatternList",
    ),
    Command(
        "patterns show",
        "loop.cli.patterns:show_pattern",
        "Show one pattern in full.",
        ("loop patterns show baseline-first",),
        (PATTERN, TARGET),
        result="loop.cli.patterns:ShownPattern",
        agents="reads",
    ),
    Command(
        "patterns search",
        "loop.cli.patterns:search_patterns",
        """Find patterns by the problem that they solve, the best first.

        Where no pattern has all words, those with the most of them are shown.
        """,
        ('loop patterns search "link error"', "loop patterns search undefined symbol"),
        (argument("words WORD", list[str], "A problem, an error, a name."), TARGET),
        result="loop.cli.pattern_rows:PatternList",
        agents="reads",
    ),
    Command(
        "patterns check",
        "loop.cli.checking:check_definitions",
        "Check definitions without running anything.",
        ("loop patterns check patterns/mine.yaml",),
        (argument("path", Path | None, "A file or folder; all definitions when none is named."), TARGET),
        result="loop.cli.checking:Checked",
        agents="reads",
    ),
    Command(
        "patterns graph",
        "loop.cli.checking:graph",
        "Draw which plans run which patterns, and which pattern follows which outcome.",
        ("loop patterns graph > patterns.mmd", "loop patterns graph --tree"),
        (option("--tree", bool, "As lines for a terminal, instead of Mermaid.", name="as_tree"), TARGET),
        result="loop.cli.checking:Chains",
    ),
    Command(
        "patterns schema",
        "loop.cli.checking:show_schema",
        "Print the JSON Schema of a kind of file, for editors and programs.",
        ("loop patterns schema target > target.json",),
        (
            argument("name", str, "pattern, plan, target, rates, history, report or commands.", "pattern"),
            option("--write", bool, "Write all of them into the package."),
        ),
    ),
    Command(
        "plan list",
        "loop.cli.patterns:list_plans",
        "List all plans.",
        ("loop plan list",),
        (TARGET,),
        result="loop.cli.patterns:PlanList",
        agents="reads",
    ),
    Command(
        "plan show",
        "loop.cli.patterns:show_plan",
        "Show one plan.",
        ("loop plan show baseline",),
        (argument("name", str, "Name of a plan; see `loop plan list`.", complete=names.plans), TARGET),
        result="loop.cli.patterns:ShownPlan",
    ),
    Command(
        "plan next",
        "loop.cli.next_plan:show_next",
        "Propose the next session: what, why, time, cost and benefit. Nothing runs.",
        ("loop plan next --json",),
        (TARGET,),
        result="loop.cli.next_plan:NextSession",
        agents="reads",
    ),
    Command(
        "sessions list",
        "loop.cli.sessions:list_sessions",
        "List all sessions, oldest first.",
        ("loop sessions list",),
        (TARGET,),
        result="loop.cli.sessions:SessionList",
        agents="reads",
    ),
    Command(
        "sessions reindex",
        "loop.cli.sessions:reindex",
        "Rebuild the index of sessions. It is kept up to date without this, too.",
        ("loop sessions reindex",),
        (TARGET,),
        result="loop.cli.sessions:Reindexed",
    ),
    Command(
        "sessions show",
        "loop.cli.sessions:show_session",
        "Show one session: its facts and its steps.",
        ("loop sessions show last",),
        (argument("name ID", str, "An id, its beginning, or last.", complete=names.sessions), TARGET),
        result="loop.session.recorded:AnySession",
        agents="reads",
    ),
    Command(
        "sessions replayed",
        "loop.replay.command:replayed",
        """Compare what a session's recipe.sh found with what the session had found.

        Exit code 0: same; 1: not the same; 125: cannot tell, as by another compiler or machine.
        """,
        ('loop sessions replayed "$work"   (the last line of recipe.sh)',),
        (argument("folder", Path, "Where the recipe left what it found."),),
        result="loop.replay.command:Replayed",
    ),
    Command(
        "sessions import",
        "loop.session.recorded:import_sessions",
        """Import sessions that were recorded without loop.

        Only their raw rows are kept. The format: loop patterns schema history
        """,
        ("loop sessions import history",),
        (argument("name FILE", str, "A history in YAML; `history`: what ships with loop."), TARGET),
        result="loop.session.recorded:Imported",
    ),
    Command(
        "sessions compare",
        "loop.cli.comparing:compare_sessions",
        """Compare sessions: environment, sources, verdicts, ratios, cost, time.

        Sessions of another target, device or baseline are named, with the reason, and left out of the ratios.
        Latencies are not compared: they hang on the machine, the day and the hour.
        """,
        ("loop sessions compare last~1 last", "loop sessions compare 2026-11-20 last --md"),
        (
            argument(
                "names ID",
                list[str],
                "Two or more: ids, beginnings of ids, last, last~1.",
                complete=names.compared_sessions,
            ),
            TARGET,
            MARKDOWN,
        ),
        result="loop.cli.comparing:Compared",
        agents="reads",
    ),
    Command(
        "catalog build",
        "loop.site.command:build_site",
        """Write a website of patterns, sessions, kernels and plans.

        Open its index.html, or publish the folder anywhere. A folder that is no catalogue is not touched.
        """,
        ("loop catalog build --out catalogue",),
        (option("--out DIR", Path, "Folder to write; an older catalogue is replaced."), TARGET),
        result="loop.site.command:BuiltSite",
    ),
    Command(
        "catalog serve",
        "loop.site.command:serve_site",
        "Serve the website on this machine, for this machine only, until Ctrl-C.",
        ("loop catalog serve", "loop catalog serve --port 0 --dir catalogue"),
        (
            option("--port", int, "0 takes any that is free.", 8765, min=0, max=65535),
            option(
                "--dir DIR", Path | None, "A catalogue that was built. Default: one made now.", name="directory"
            ),
            TARGET,
        ),
    ),
)
