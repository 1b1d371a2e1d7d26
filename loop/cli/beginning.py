"""The table of commands with which one begins: trust, a target of one's own, tasks of somebody else's, agents."""

from pathlib import Path

from loop.cli import names
from loop.cli.options import DEVICE, EVALUATOR, FORM, SEED, TARGET, THREADS
from loop.cli.table import Command, argument, option

AGENTS = (
    argument("folder", Path | None, "Folder of a project. Default: here."),
    option(
        "--skills DIR",
        list[str] | None,
        "A folder of skills; may be repeated. Default: .agents/skills and .claude/skills.",
    ),
    option("--yes", bool, "Do it without asking."),
)
BEGINNING = (
    Command(
        "trust",
        "loop.cli.requests:trust_project",
        "Show what a project's definitions, or a stored session, would run, and allow it.",
        ("loop trust ../my-kernel", "loop trust level1/23_Softmax.py answer.py"),
        (
            argument(
                "target",
                Path | None,
                "Folder of a project or a session, or a task of another format. Default: here.",
            ),
            argument("variants ANSWER", list[str] | None, "Answers to the task: files."),
        ),
        result="loop.cli.requests:TrustGranted",
    ),
    Command(
        "init",
        "loop.starting.command:init",
        "Make a target of a PyTorch function, a C, C++ or CUDA file, or a program: it can be judged at once.",
        (
            "loop init my-softmax --from ops:softmax --like x=N,M",
            "loop init my-scale --from scale.cu --reference ops:scale --like x=64,1000",
            "loop init mine --command ./run --reference ops:scale --like x=N,M",
        ),
        (
            argument("folder DIR", Path, "A new folder."),
            option("--from", str | None, "module:function, or a file.", name="source"),
            option("--command", str | None, "A program with its arguments."),
            option(
                "--like",
                list[str] | None,
                "A tensor's sizes, and type: x=N,M, x=64,1000, ids=N:int64; may be repeated.",
            ),
            option(
                "--set", list[str] | None, "A value that is no tensor: heads=4, config.eps=1e-5; may be repeated."
            ),
            option("--reference", str | None, "module:function that is right, for a file or a program."),
        ),
        request="InitRequest",
        result="loop.model.exported:MadeTarget",
    ),
    Command(
        "targets inspect",
        "loop.formats.command:inspect",
        """Say what a task of somebody else's is, what of it runs here, and what does not and why.

        It reads KernelBench, GPU MODE, FlashInfer Trace, SOL-ExecBench, kernelbench.com hard and AgentKernelArena.
        Nothing of theirs is imported, run or changed. For a folder of tasks it lists all of them.
        """,
        ("loop targets inspect level1/23_Softmax.py", "loop targets inspect reference-kernels/problems --json"),
        (
            argument("path", Path, "A task, or a folder of tasks."),
            option("--format", str | None, "Read it as this format. Default: recognised.", name="form"),
        ),
        result="loop.formats.model:Inspected",
        agents="reads",
    ),
    Command(
        "kernels list",
        "loop.cli.bench:list_variants",
        "List the variants of the target.",
        ("loop kernels list",),
        (TARGET,),
        result="loop.cli.bench:VariantList",
        agents="reads",
    ),
    Command(
        "kernels show",
        "loop.cli.bench:show_variant",
        "Show one variant: how it is built, and its workloads.",
        ("loop kernels show cpu",),
        (argument("name", str, "Name of a variant.", complete=names.variants), TARGET),
        result="loop.cli.bench:ShownVariant",
        agents="reads",
    ),
    Command(
        "kernels header",
        "loop.cli.bench:header",
        "Print the path of the C header that a kernel includes.",
        ('cp "$(loop kernels header)" .',),
        result="loop.cli.bench:HeaderPath",
    ),
    Command(
        "mcp",
        "loop.driving.command:serve",
        """Serve loop's commands to an agent, as tools of the Model Context Protocol on stdin and stdout.

        Needs `pip install 'kernel-loop[mcp]'`. Work that takes long runs as a job, which outlives the server.
        Nothing is trusted through it: where a target is not trusted yet, the answer says what you have to run.
        """,
        ("loop mcp", "claude mcp add loop -- loop mcp"),
    ),
    Command(
        "agents install",
        "loop.driving.install:install",
        """Write SKILL.md and a section of AGENTS.md, so that a coding agent knows how to use loop here.

        It lists the files and asks first. In a file of yours only the part between its two marks is written.
        """,
        (
            "loop agents install",
            "loop agents install ../my-kernel --yes",
            "loop agents install --skills .codex/skills",
        ),
        AGENTS,
        request="AgentsRequest",
        result="loop.driving.install:AgentFiles",
    ),
    Command(
        "agents remove",
        "loop.driving.install:remove",
        "Take away what `loop agents install` wrote, after asking; what is yours stays.",
        ("loop agents remove", "loop agents remove --yes"),
        AGENTS,
        request="AgentsRequest",
        result="loop.driving.install:AgentFiles",
    ),
    Command(
        "targets judge",
        "loop.cli.judging:judge",
        """Judge answers to a task of another format twice: by loop, and by the format's own evaluator.

        Theirs runs unmodified in a process of its own, from your checkout; loop installs nothing for it. --json
        has its result verbatim. KernelBench needs --evaluator; a GPU MODE task brings its own. Without a GPU
        theirs is not available where it times by CUDA. The exit code is that of our verdict.
        """,
        (
            "loop targets judge level1/23_Softmax.py answer.py --evaluator ~/KernelBench",
            "loop targets judge problems/pmpp_v2/vectoradd_py submission.py --measure",
        ),
        (
            argument("path", Path, "A task; see `loop targets inspect`."),
            argument("answers ANSWER", list[str] | None, "Files of answers."),
            *EVALUATOR,
            option("--limit-minutes", float, "For their evaluator, a time for each answer.", 10.0, min=0),
            FORM,
            option("--measure", bool, "Ours measures the speed, too."),
            DEVICE,
            THREADS,
            SEED,
        ),
        request="JudgeRequest",
        result="loop.cli.judging:TwoVerdicts",
    ),
    Command(
        "targets audit",
        "loop.cli.auditing:audit",
        """Put a task of another format on trial: say which wrong answers its evaluator and our gate let pass.

        Answers are the task's own reference with a mistake of ours put in. Where their evaluator cannot run
        here, loop applies the rule that the format states, and says so. It also names inputs that never vary,
        equal cases, and a reference that float64 denies.
        """,
        (
            "loop targets audit level1/23_Softmax.py --device cpu",
            "loop targets audit problems/pmpp_v2/vectoradd_py --json",
        ),
        (
            argument("path", Path, "A task; see `loop targets inspect`."),
            *EVALUATOR,
            option("--limit-minutes", float, "For each wrong answer, a time on their side.", 10.0, min=0),
            FORM,
            option(
                "--control NAME",
                list[str] | None,
                "Only this control, as --json names its `make`; may be repeated.",
                name="controls",
            ),
            DEVICE,
            THREADS,
            SEED,
        ),
        request="AuditRequest",
        result="loop.cli.auditing:Audited",
    ),
)
