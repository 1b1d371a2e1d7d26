"""Commands with which one begins: trust, a target of one's own, tasks of somebody else's, agents."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from loop.cli.command import command
from loop.cli.options import (
    Device,
    Evaluator,
    EvaluatorPython,
    Form,
    Json,
    Seed,
    Target,
    Task,
    TheirLimit,
    Threads,
    Yes,
)


@command(
    "trust",
    "cli.requests:trust_project",
    "TrustGranted",
    "loop trust ../my-kernel",
    "loop trust level1/23_Softmax.py answer.py",
)
def trust(
    target: Annotated[
        Path | None, Argument(help="Folder of a project or a session, or a task of another format. Default: here.")
    ] = None,
    variants: Annotated[list[str] | None, Argument(metavar="ANSWER", help="Answers to the task: files.")] = None,
    json: Json = False,
) -> None:
    """Show what a project would run, and allow it.

    A stored session and a task of another format are asked about in the same way.
    """


@command(
    "init",
    "starting.command:init",
    "model.exported:MadeTarget",
    "loop init my-softmax --from ops:softmax --like x=N,M",
    "loop init my-scale --from scale.cu --reference ops:scale --like x=64,1000",
    "loop init mine --command ./run --reference ops:scale --like x=N,M",
)
def init(
    folder: Annotated[Path, Argument(metavar="DIR", help="A new folder.")],
    source: Annotated[str | None, Option("--from", help="module:function, or a file.")] = None,
    command: Annotated[str | None, Option(help="A program with its arguments.")] = None,
    like: Annotated[
        list[str] | None,
        Option(help="A tensor's sizes, and type: x=N,M, x=64,1000, ids=N:int64; may be repeated."),
    ] = None,
    values: Annotated[
        list[str] | None,
        Option("--set", help="A value that is no tensor: heads=4, config.eps=1e-5; may be repeated."),
    ] = None,
    reference: Annotated[
        str | None, Option(help="module:function that is right, for a file or a program.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a target of your own function, kernel or program.

    It takes a PyTorch function, a file of C, C++ or CUDA, or a program. The target can be judged at once.
    """


@command(
    "targets inspect",
    "formats.command:inspect",
    "formats.model:Inspected",
    "loop targets inspect level1/23_Softmax.py",
    agents="reads",
)
def targets_inspect(
    path: Annotated[Path, Argument(help="A task.")], form: Form = None, json: Json = False
) -> None:
    """Say what a task of somebody else's is, what of it runs here, and what does not and why.

    It reads KernelBench, GPU MODE, FlashInfer Trace and SOL-ExecBench.
    Nothing of theirs is imported, run or changed.
    """


@command(
    "targets judge",
    "cli.tasks:judge",
    "TwoVerdicts",
    "loop targets judge level1/23_Softmax.py answer.py --evaluator ~/KernelBench",
    "loop targets judge problems/pmpp_v2/vectoradd_py submission.py --measure",
)
def targets_judge(
    path: Task,
    answers: Annotated[list[str] | None, Argument(metavar="ANSWER", help="Files of answers.")] = None,
    evaluator: Evaluator = None,
    evaluator_python: EvaluatorPython = None,
    limit_minutes: TheirLimit = 10.0,
    form: Form = None,
    measure: Annotated[bool, Option("--measure", help="Ours measures the speed, too.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Judge answers to a task of another format twice: by loop, and by the format's own evaluator.

    Theirs runs unmodified in a process of its own, from your checkout; loop installs nothing for it. --json
    has its result verbatim. KernelBench needs --evaluator; a GPU MODE task brings its own. Without a GPU
    theirs is not available where it times by CUDA. The exit code is that of our verdict.
    """


@command(
    "targets audit",
    "cli.tasks:audit",
    "Audited",
    "loop targets audit level1/23_Softmax.py --device cpu",
    "loop targets audit problems/pmpp_v2/vectoradd_py --json",
)
def targets_audit(
    path: Task,
    evaluator: Evaluator = None,
    evaluator_python: EvaluatorPython = None,
    limit_minutes: TheirLimit = 10.0,
    form: Form = None,
    controls: Annotated[
        list[str] | None,
        Option(
            "--control", metavar="NAME", help="Only this control, as --json names its `make`; may be repeated."
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Put a task of another format on trial: say which wrong answers its evaluator and our gate let pass.

    Answers are the task's own reference with a mistake of ours put in. Where their evaluator cannot run
    here, loop applies the rule that the format states, and says so. It also names inputs that never vary,
    equal cases, and a reference that float64 denies.
    """


@command("kernels list", "cli.bench:list_variants", "VariantList", "loop kernels list", agents="reads")
def kernels_list(target: Target = None, json: Json = False) -> None:
    """List the variants of the target; with --json, how each is built."""


@command("kernels header", "cli.bench:header", "HeaderPath", 'cp "$(loop kernels header)" .')
def kernels_header(json: Json = False) -> None:
    """Print the path of the C header that a kernel includes."""


@command("mcp", "driving.command:serve", "", "loop mcp", "claude mcp add loop -- loop mcp")
def mcp() -> None:
    """Serve loop's commands to an agent, as tools of the Model Context Protocol on stdin and stdout.

    Needs `pip install 'kernel-loop[mcp]'`. Work that takes long runs as a job, which outlives the server.
    Nothing is trusted through it: where a target is not trusted yet, the answer says what you have to run.
    """


@command(
    "agents install",
    "driving.install:install",
    "AgentFiles",
    "loop agents install",
    "loop agents install ../my-kernel --yes",
)
def agents_install(
    folder: Annotated[Path | None, Argument(help="Folder of a project. Default: here.")] = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Write SKILL.md and a section of AGENTS.md, so that a coding agent knows how to use loop here.

    It lists the files and asks first. In AGENTS.md only the part between its two marks is written.
    """
