"""Options that several commands share."""

from pathlib import Path

from loop.cli import names
from loop.cli.table import BY_OPTION, argument, option

TARGET = option(
    "--target",
    Path | None,
    None,
    "Folder with a target.yaml. Default: this folder; without one here, the bundled target.",
    metavar="FOLDER",
    autocompletion=names.targets,
)
JSON = option("--json", bool, False, "Print one JSON object on stdout.")
MARKDOWN = option("--md", bool, False, "Markdown, for a pull request.", name="as_markdown")
DEVICE = option(
    "--device", str, "auto", "auto, cpu or cuda.", autocompletion=lambda: ["auto", "cpu", "cuda"], metavar="NAME"
)
VARIANTS = option(
    "--variant",
    list[str] | None,
    None,
    "Only this variant; may be repeated.",
    name="variants",
    metavar="NAME",
    autocompletion=names.variants,
)
VARIANT_NAMES = (
    argument(
        "variants",
        list[str] | None,
        None,
        "Names of variants. Default: all that run on the device.",
        metavar="VARIANT",
        autocompletion=names.variants,
    ),
    option(
        "--variant",
        list[str] | None,
        None,
        "The same as a name by its place; may be repeated.",
        name=BY_OPTION,
        metavar="NAME",
        autocompletion=names.variants,
    ),
)
THREADS = option(
    "--threads",
    int | None,
    None,
    "CPU threads of each process. Default: all cores but one.",
)
SEED = option("--seed", int, 0, "Seed of all inputs.")
SETS = option(
    "--workloads",
    list[str] | None,
    None,
    "A workload set, or one workload by its sizes, as in 'B=1 H=2 S=65 D=64'; may be repeated.",
    metavar="NAME",
    autocompletion=names.workload_sets,
)
HYPOTHESIS = option("--hypothesis", str, "", "What you think is wrong and have changed.", envvar="LOOP_HYPOTHESIS")
AI_USD = option("--ai-usd", float | None, None, "What AI cost in dollars, where nothing measures it.")
WATCH_PREEMPTION = option(
    "--watch-preemption",
    str,
    "auto",
    "auto, gcp, aws, azure or off: pause when the cloud takes the machine away.",
    envvar="LOOP_WATCH_PREEMPTION",
)
ON_HOST = (
    option("--on", str | None, None, "Run on this machine of hosts.yaml, by its name or label.", metavar="HOST"),
    option(
        "--keep-until",
        str | None,
        None,
        "With --on: leave that machine running, for you need it until then.",
        metavar="HH:MM",
    ),
)
"""On which machine a command runs, and what becomes of that machine."""
DRY_RUN = option("--dry-run", bool, False, "Show what would run, with time and cost; run nothing.")
EVALUATOR = (
    option("--evaluator", Path | None, None, "Checkout of the evaluator of the task's format.", metavar="DIR"),
    option("--evaluator-python", str | None, None, "Interpreter that has what it needs.", metavar="PATH"),
)
"""Whose evaluator gives the second verdict on a task of another format."""
EXECUTOR = option(
    "--executor",
    str,
    "",
    "Spread work over GPUs as jobs, `--width` at a time: local, ssh, ray or slurm.",
    metavar="NAME",
    autocompletion=lambda: ["local", "ssh", "ray", "slurm"],
)
CAMPAIGN = (
    option(
        "--proposer",
        str,
        "person",
        "Who proposes changes: a command ('CMD {brief} {workdir}'), claude, codex, tuner or person (it pauses).",
        metavar="COMMAND",
    ),
    option("--width", int, 1, "Candidates, or jobs of --executor, at a time.", min=1, max=256),
    EXECUTOR,
    option("--max-candidates", int | None, None, "End after so many candidates.", min=1),
    option("--max-minutes", float | None, None, "End after so many minutes."),
    option("--max-tokens", int | None, None, "End after so many tokens.", min=1),
    option("--max-gpu-seconds", float | None, None, "End after so many seconds on the GPU."),
    option("--stall", int, 6, "End when nothing was kept in so many candidates.", min=1),
    option("--target-ratio", float | None, None, "End when a variant is so many times as fast as at the start."),
    option("--proposer-minutes", float, 30, "What a proposer may take for one candidate."),
    option("--quiet-minutes", float, 10, "End a proposer that prints nothing for so long."),
    option("--env", list[str] | None, None, "A variable that the proposer sees besides; may be repeated."),
)
"""Who proposes changes, and when that ends."""
