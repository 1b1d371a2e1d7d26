"""Parameters that several commands share. Help names the value of an option by its type, unless `metavar` does."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from loop.cli import names

Json = Annotated[bool, Option("--json", help="Print one JSON object on stdout.")]
Events = Annotated[bool, Option("--events", help="Print each event as a line of JSON.")]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would run, with time and cost; run nothing.")]
Yes = Annotated[bool, Option("--yes", help="Do it without asking.")]
Target = Annotated[
    Path | None,
    Option(
        metavar="FOLDER",
        help="Folder with a target.yaml. Default: this folder; without one here, the bundled target.",
        autocompletion=names.targets,
    ),
]
Device = Annotated[
    str, Option(metavar="NAME", help="auto, cpu or cuda.", autocompletion=lambda: ["auto", "cpu", "cuda"])
]
Variants = Annotated[
    list[str] | None,
    Option("--variant", metavar="NAME", help="Only this variant; may be repeated.", autocompletion=names.variants),
]
VariantNames = Annotated[
    list[str] | None,
    Argument(
        metavar="VARIANT",
        help="Names of variants. Default: all that run on the device.",
        autocompletion=names.variants,
    ),
]
Threads = Annotated[int | None, Option(help="CPU threads of each process. Default: all cores but one.")]
Seed = Annotated[int, Option(help="Seed of all inputs.")]
NewSeed = Annotated[int | None, Option(help="Seed of all inputs. Default: a new one.")]
Sets = Annotated[
    list[str] | None,
    Option(
        metavar="NAME",
        help="A workload set, or one workload by its sizes, as in 'B=1 H=2 S=65 D=64'; may be repeated.",
        autocompletion=names.workload_sets,
    ),
]
Gpu = Annotated[str, Option(metavar="NAME", help="A GPU of the target's `devices`; it need not be at hand.")]
Form = Annotated[str | None, Option("--format", help="Read the task as this format. Default: recognised.")]
Task = Annotated[Path, Argument(metavar="PATH", help="A task; see `loop targets inspect`.")]
Evaluator = Annotated[Path | None, Option(metavar="DIR", help="Checkout of the evaluator of the task's format.")]
EvaluatorPython = Annotated[
    str | None, Option(metavar="PATH", help="Interpreter that has what it needs.", envvar="LOOP_EVALUATOR_PYTHON")
]
TheirLimit = Annotated[float, Option(help="For their evaluator, a time for each answer.", min=0)]
Hypothesis = Annotated[str, Option(help="What you think is wrong and have changed.", envvar="LOOP_HYPOTHESIS")]
WatchPreemption = Annotated[
    str,
    Option(
        help="auto, gcp, aws, azure or off: pause when the cloud takes the machine away.",
        envvar="LOOP_WATCH_PREEMPTION",
    ),
]
MaxUsd = Annotated[float | None, Option(help="End when AI and machine cost so much.")]
On = Annotated[str | None, Option(metavar="HOST", help="Run on this machine of hosts.yaml, by its name or label.")]
KeepUntil = Annotated[
    str | None, Option(metavar="HH:MM", help="With --on: leave that machine running, for you need it until then.")
]
Executor = Annotated[
    str,
    Option(
        metavar="NAME",
        help="Spread work over GPUs as jobs, `--width` at a time: local, ssh, ray or slurm.",
        autocompletion=lambda: ["local", "ssh", "ray", "slurm"],
    ),
]
Width = Annotated[int, Option(help="Candidates, or jobs of --executor, at a time.", min=1, max=256)]
PatternName = Annotated[
    str,
    Argument(metavar="NAME", help="Name of a pattern; see `loop patterns list`.", autocompletion=names.patterns),
]
SessionName = Annotated[
    str, Argument(metavar="ID", help="An id, its beginning, or last.", autocompletion=names.sessions)
]
JobId = Annotated[str, Argument(metavar="ID", help="An id of a job, or last.")]
HostName = Annotated[str, Argument(metavar="HOST", help="Name or label in hosts.yaml.")]
