"""Options that several commands share."""

from pathlib import Path

from loop.cli import names
from loop.cli.table import BY_OPTION, argument, option

TARGET = option(
    "--target FOLDER",
    Path | None,
    "Folder with a target.yaml. Default: this folder; without one here, the bundled target.",
    complete=names.targets,
)
MARKDOWN = option("--md", bool, "Markdown, for a pull request.", name="as_markdown")
DEVICE = option("--device NAME", str, "auto, cpu or cuda.", "auto", complete=lambda: ["auto", "cpu", "cuda"])
VARIANTS = option(
    "--variant NAME",
    list[str] | None,
    "Only this variant; may be repeated.",
    name="variants",
    complete=names.variants,
)
VARIANT_NAMES = (
    argument(
        "variants VARIANT",
        list[str] | None,
        "Names of variants. Default: all that run on the device.",
        complete=names.variants,
    ),
    option(
        "--variant NAME",
        list[str] | None,
        "The same as a name by its place; may be repeated.",
        name=BY_OPTION,
        complete=names.variants,
    ),
)
THREADS = option("--threads", int | None, "CPU threads of each process. Default: all cores but one.")
SEED = option("--seed", int, "Seed of all inputs.", 0)
NEW_SEED = option("--seed", int | None, "Seed of all inputs. Default: a new one.")
AGAIN = option("--again", bool, "Try again what lost in an earlier session.")
EVENTS = option("--events", bool, "Print each event as a line of JSON.")
FORM = option("--format", str | None, "Read the task as this format. Default: recognised.", name="form")
SETS = option(
    "--workloads NAME",
    list[str] | None,
    "A workload set, or one workload by its sizes, as in 'B=1 H=2 S=65 D=64'; may be repeated.",
    complete=names.workload_sets,
)
HYPOTHESIS = option("--hypothesis", str, "What you think is wrong and have changed.", "", envvar="LOOP_HYPOTHESIS")
AI_USD = option("--ai-usd", float | None, "What AI cost in dollars, where nothing measures it.")
WATCH_PREEMPTION = option(
    "--watch-preemption",
    str,
    "auto, gcp, aws, azure or off: pause when the cloud takes the machine away.",
    "auto",
    envvar="LOOP_WATCH_PREEMPTION",
)
ON_HOST = (
    option("--on HOST", str | None, "Run on this machine of hosts.yaml, by its name or label."),
    option("--keep-until HH:MM", str | None, "With --on: leave that machine running, for you need it until then."),
)
"""On which machine a command runs, and what becomes of that machine."""
DRY_RUN = option("--dry-run", bool, "Show what would run, with time and cost; run nothing.")
EVALUATOR = (
    option("--evaluator DIR", Path | None, "Checkout of the evaluator of the task's format."),
    option("--evaluator-python PATH", str | None, "Interpreter that has what it needs."),
)
"""Whose evaluator gives the second verdict on a task of another format."""
EXECUTOR = option(
    "--executor NAME",
    str,
    "Spread work over GPUs as jobs, `--width` at a time: local, ssh, ray or slurm.",
    "",
    complete=lambda: ["local", "ssh", "ray", "slurm"],
)
CAMPAIGN = (
    option(
        "--proposer COMMAND",
        str,
        "Who proposes changes: a command ('CMD {brief} {workdir}'), claude, codex, tuner or person (it pauses).",
        "person",
    ),
    option("--width", int, "Candidates, or jobs of --executor, at a time.", 1, min=1, max=256),
    EXECUTOR,
    option("--max-candidates", int | None, "End after so many candidates.", min=1),
    option("--max-minutes", float | None, "End after so many minutes."),
    option("--max-tokens", int | None, "End after so many tokens.", min=1),
    option("--max-gpu-seconds", float | None, "End after so many seconds on the GPU."),
    option("--stall", int, "End when nothing was kept in so many candidates.", 6, min=1),
    option("--target-ratio", float | None, "End when a variant is so many times as fast as at the start."),
    option("--proposer-minutes", float, "What a proposer may take for one candidate.", 30),
    option("--quiet-minutes", float, "End a proposer that prints nothing for so long.", 10),
    option("--env", list[str] | None, "A variable that the proposer sees besides; may be repeated."),
)
"""Who proposes changes, and when that ends."""
