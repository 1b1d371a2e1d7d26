"""The commands of `loop`: parameters, help, examples, and the function that does the work.

An example is what follows the command's words, or a whole line that names `loop`.
"""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from loop.cli.command import command

Words = list[str] | None
DryRun = Annotated[bool, "Show what would run, with time and cost; run nothing."]
Yes = Annotated[bool, "Do it without asking."]
TARGET = "Folder with a target.yaml. Default: this folder; without one here, the bundled target."
Target = Annotated[Path | None, Option(metavar="FOLDER", help=TARGET)]
Device = Annotated[Literal["auto", "cpu", "cuda"], "Where to run."]
Variants = Annotated[Words, Option("--variant", metavar="NAME", help="Only this; may be repeated.")]
Threads = Annotated[int | None, "CPU threads of each process. Default: all cores but one."]
Seed = Annotated[int, "Seed of all inputs."]
SETS = "A workload set, or one workload by its sizes, as in 'B=1 H=2 S=65 D=64'; may be repeated."
Sets = Annotated[Words, Option(metavar="NAME", help=SETS)]
TaskPath = Annotated[Path, Argument(help="A task of KernelBench, GPU MODE, FlashInfer or SOL.")]
Form = Annotated[str | None, Option("--format", help="Format of the task. Default: recognised.")]
EVALUATOR = "Checkout of the evaluator of the task's format."
Evaluator = Annotated[Path | None, Option(metavar="DIR", help=EVALUATOR)]
PYTHON = "Python that has what the evaluator needs."
Python = Annotated[str | None, Option(help=PYTHON, envvar="LOOP_EVALUATOR_PYTHON")]
Hypothesis = Annotated[str, Option(help="What you suspect, and changed.", envvar="LOOP_HYPOTHESIS")]
On = Annotated[str | None, Option(metavar="HOST", help="Run on this machine of hosts.yaml.")]
KeepHost = Annotated[bool, Option("--keep-host", help="With --on: leave that machine running.")]
JOBS = "Spread work over GPUs as jobs, `--width` at a time: local, ssh, ray or slurm."
Executor = Annotated[str, Option(metavar="NAME", help=JOBS)]
Width = Annotated[int, Option(help="Candidates, or jobs of --executor, at a time.", min=1, max=256)]
Resume = Annotated[str | None, Option(metavar="ID", help="Go on with a session: an id, or last.")]
PatternName = Annotated[str, Argument(metavar="NAME", help="A pattern; see `loop patterns list`.")]
IDS = "Two or more: ids, beginnings of ids, last, last~1."
SessionNames = Annotated[list[str], Argument(metavar="ID", help=IDS)]
SessionName = Annotated[str, Argument(metavar="ID", help="An id, its beginning, or last.")]
HostName = Annotated[str, Argument(metavar="HOST", help="Name in hosts.yaml.")]
VARIANTS = "Names of variants. Default: all that run on the device."
PROPOSER = "'CMD {brief} {workdir}', claude, codex, tuner or person (pauses): who proposes changes."
PROBE_LIMIT = "A commit that takes longer is skipped. Default: 600."
ReportForm = Literal["md", "html", "json", "summary"]
Waiting = Literal["nobody", "agent", "engineer"]
CONTROL = "Only this control, a `make` of --json; may be repeated."
Controls = Annotated[Words, Option("--control", metavar="NAME", help=CONTROL)]
SCHEMAS = "pattern, plan, target, rates, history, report or commands."
RUNS = "cli.runs:run_bench"  # Does the work of `loop kernels ...`; `subcommand` is its last word.
SESSION = {"work": "cli.runs:start_session", "result": "SessionAnswer"}


def bench_options(
    variants: Annotated[Words, Argument(metavar="VARIANT", help=VARIANTS)] = None,
    target: Target = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
) -> None:
    """Shared parameters of `loop kernels verify`, `check`, `measure` and `prove-gate`."""


BENCH = {"work": RUNS, "mcp": "starts", "shared": bench_options}


def session_options(
    device: Device = "auto",
    variants: Variants = None,
    threads: Threads = None,
    seed: Annotated[int | None, "Seed of all inputs. Default: a new one."] = None,
    max_usd: Annotated[float | None, "End when AI and machine cost so much."] = None,
    executor: Executor = "",
    width: Width = 1,
    on: On = None,
    keep_host: KeepHost = False,
    dry_run: DryRun = False,
    events: Annotated[bool, "Print each event as a line of JSON."] = False,
) -> None:
    """Shared parameters of commands that run a plan."""


def task_options(
    path: TaskPath,
    evaluator: Evaluator = None,
    evaluator_python: Python = None,
    limit_minutes: Annotated[float, Option(help="Time of the evaluator per answer.", min=0)] = 10.0,
    format_name: Form = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
) -> None:
    """Shared parameters of commands on a task of another format."""


@command("trust", "../my-kernel", "level1/23_Softmax.py answer.py", work="cli.runs:trust_project")
def trust(
    target: Annotated[Path | None, Argument(help="Project, session, task. Default: here.")] = None,
    variants: Annotated[Words, Argument(metavar="ANSWER", help="Answers to the task.")] = None,
) -> None:
    """Show what a project would run, and allow it.

    A stored session and a task of another format are asked about in the same way.
    """


@command(
    "init",
    "my-softmax --from ops:softmax --like x=N,M",
    "my-scale --from scale.cu --reference ops:scale --like x=64,1000",
    work="starting.command:init",
)
def init(
    folder: Annotated[Path, Argument(metavar="DIR", help="A new folder.")],
    source: Annotated[str | None, Option("--from", help="module:function, or a file.")] = None,
    like: Annotated[Words, "A tensor: x=N,M, x=64,1000, ids=N:int64; may be repeated."] = None,
    values: Annotated[Words, Option("--set", help="A value: heads=4; may be repeated.")] = None,
    reference: Annotated[str | None, "module:function that is right, for a file."] = None,
) -> None:
    """Make a target of your own function or kernel.

    It takes a PyTorch function, or a file of C, C++ or CUDA. The target can be judged at once.
    """


@command(
    "targets inspect",
    "level1/23_Softmax.py",
    work="formats.table:inspect_task",
    mcp="reads",
    result="formats.model:Inspected",
)
def targets_inspect(path: TaskPath, format_name: Form = None) -> None:
    """Describe a task in another format: what of it runs here, and why the rest does not.

    It reads KernelBench, GPU MODE, FlashInfer Trace and SOL-ExecBench.
    No code of the task is imported, run or changed.
    """


@command(
    "targets judge",
    "level1/23_Softmax.py answer.py --evaluator ~/KernelBench",
    "problems/pmpp_v2/vectoradd_py submission.py --measure",
    work="cli.tasks:judge",
    shared=task_options,
)
def targets_judge(
    answers: Annotated[Words, Argument(metavar="ANSWER", help="Files of answers.")] = None,
    measure: Annotated[bool, "Ours measures the speed, too."] = False,
) -> None:
    """Judge answers to a task of another format twice: by loop, and by the format's own evaluator.

    The evaluator runs unmodified in its own process, from your checkout. loop installs nothing for
    it. --json has its result verbatim. KernelBench needs --evaluator; a GPU MODE task brings its
    own. An evaluator that times by CUDA needs a GPU. The exit code is that of loop's verdict.
    """


@command("targets audit", "23_Softmax.py --device cpu", work="cli.tasks:audit", shared=task_options)
def targets_audit(controls: Controls = None) -> None:
    """Test a task of another format: which wrong answers its evaluator and loop's gate accept.

    Wrong answers are the task's own reference with a bug that loop puts in. If the evaluator cannot
    run here, loop applies the rule that the format states, and says so. It also reports inputs that
    never vary, equal cases, and a reference that differs from float64.
    """


@command("kernels list", work="cli.runs:list_variants", mcp="reads")
def kernels_list(target: Target = None) -> None:
    """List the variants of the target; with --json, how each is built."""


@command("kernels header", 'cp "$(loop kernels header)" .', work="cli.runs:header")
def kernels_header() -> None:
    """Print the path of the C header that a kernel includes."""


@command("mcp", "", "claude mcp add loop -- loop mcp", work="driving.server:serve", has_json=False)
def mcp() -> None:
    """Serve loop's commands to an agent, as tools of the Model Context Protocol (MCP) on stdio.

    Needs `pip install 'kernel-loop[mcp]'`. Long work runs as a job, which outlives the server.
    Nothing is trusted through it: for an untrusted target, the answer says what you have to run.
    """


@command("agents install", "", "../my-kernel", work="driving.install:install", result="AgentFiles")
def agents_install(
    folder: Annotated[Path | None, Argument(help="Folder. Default: here.")] = None, yes: Yes = False
) -> None:
    """Write SKILL.md and a section of AGENTS.md, so that a coding agent knows how to use loop here.

    It lists the files and asks first. In AGENTS.md, it writes only the part between its two marks.
    """


@command(
    "run session",
    "",
    "quick --variant cpu",
    "--resume last",
    "--budget-minutes 10 --max-usd 2",
    "--target 23_Softmax.py --variant mine.py",
    "optimize --variant cpu",
    mcp="starts",
    shared=session_options,
    **SESSION,
)
def run_session(
    plan: Annotated[str | None, Argument(help="See `loop plan list`. Default: baseline.")] = None,
    target: Target = None,
    budget_minutes: Annotated[float | None, "Stop in time to report; counts all runs."] = None,
    ai_usd: Annotated[float | None, "What AI cost in dollars, where nothing measures it."] = None,
    resume: Resume = None,
    decline: Annotated[bool, "With --resume: make no further change; end the session."] = False,
    hypothesis: Hypothesis = "",
) -> None:
    """Run a session: build, verify, measure, report.

    To let a program change a kernel, use `loop optimize`. LOOP_WATCH_PREEMPTION says which cloud
    may take the machine away (auto, gcp, aws, azure, off). LOOP_ATTENDED=1 charges your time.
    """


@command("run pattern", "baseline-first --variant cpu", **SESSION)
def run_pattern(
    pattern: PatternName,
    target: Target = None,
    device: Device = "auto",
    variants: Variants = None,
    threads: Threads = None,
    hypothesis: Hypothesis = "",
    dry_run: DryRun = False,
) -> None:
    """Run one pattern as a session of its own."""


@command("run step", "kernel.verify --variant cpu --json", work=RUNS)
def run_step(
    action: Annotated[str, Argument(help="Name; `make docs` writes docs/reference/actions.md.")],
    arguments: Annotated[str, Option("--with", metavar="JSON", help="Its arguments.")] = "{}",
    target: Target = None,
    device: Device = "auto",
    variants: Variants = None,
    threads: Threads = None,
    seed: Seed = 0,
    workloads: Sets = None,
    checks: Annotated[Words, Option(metavar="NAME", help="A set that is only checked.")] = None,
    budget_s: Annotated[float, Option(help="Seconds that it is meant to take.", min=0.001)] = 60,
    limit_s: Annotated[float, Option(help="Seconds after which it is killed.", min=0.001)] = 600,
    samples: Annotated[Path | None, Option(metavar="FILE", help="Write raw samples there.")] = None,
) -> None:
    """Run one step of a pattern by itself: an action with its arguments, without a session.

    An executor calls it for each job of a session.
    """


@command("doctor", "--device cuda", work=RUNS, mcp="starts")
def doctor(target: Target = None, device: Device = "auto") -> None:
    """Check the environment; name what mends each failure."""


@command("kernels verify", "cpu --seed 7", "--emulate split_k", "split_k --sanitize", **BENCH)
def kernels_verify(
    workloads: Sets = None,
    emulate: Annotated[bool, "Run CUDA variants under the emulator, even with a GPU."] = False,
    sanitize: Annotated[bool, "Also run compute-sanitizer; without a GPU, ASan and UBSan."] = False,
    executor: Executor = "",
    width: Width = 1,
) -> None:
    """Compare variants with the float64 reference.

    On all workloads of the target, unless some are named. Without a GPU, variants made for one run
    under the emulator.
    """


@command("kernels check", "cpu", **BENCH)
def kernels_check(on: On = None, keep_host: KeepHost = False) -> None:
    """Check an edit in seconds: compile, verify a few workloads, one quick ratio.

    In a folder that `loop optimize` gave to a proposer, the ratio is against the incumbent, not the
    baseline. The result is a hint, not a verdict. It is not stored, and counts as no candidate.
    """


@command("kernels measure", "cpu", "cpu --workloads large --threads 1 --rounds 7", **BENCH)
def kernels_measure(
    workloads: Sets = None,
    rounds: Annotated[int, Option(help="Rounds, each in new processes.", min=2, max=100)] = 3,
) -> None:
    """Verify variants, then time them next to the baseline."""


@command("kernels resources", "--gpu sm_89", work=RUNS, mcp="starts")
def kernels_resources(
    variants: Annotated[Words, Argument(metavar="VARIANT", help=VARIANTS)] = None,
    target: Target = None,
    gpu: Annotated[str, Option(metavar="NAME", help="A GPU of the target's `devices`.")] = "sm_89",
    workloads: Sets = None,
) -> None:
    """Show registers, spills, shared memory, occupancy and roofline of compiled kernels."""


@command("kernels prove-gate", "cpu", work=RUNS, shared=bench_options)
def kernels_prove_gate() -> None:
    """Mutation-test the gate: inject bugs and cheats, report which it rejects."""


@command(
    "optimize",
    "--proposer claude --max-usd 5",
    "my-kernel --proposer './propose.sh {brief}' --max-minutes 60",
    "23_Softmax.py --variant mine.py --proposer codex --stall 5",
    mcp="starts",
    shared=session_options,
    **SESSION,
)
def optimize(
    target: Annotated[Path | None, Argument(help="Target or task. Default: as `--target`.")] = None,
    plan: Annotated[str, Option(help="The plan to walk.")] = "optimize",
    proposer: Annotated[str, Option(metavar="COMMAND", help=PROPOSER)] = "person",
    max_candidates: Annotated[int | None, Option(help="Judge at most so many.", min=1)] = None,
    max_minutes: Annotated[float | None, "End after so many minutes."] = None,
    max_tokens: Annotated[int | None, Option(help="End after so many tokens.", min=1)] = None,
    stall: Annotated[int, Option(help="End when so many in a row were not kept.", min=1)] = 6,
    target_ratio: Annotated[float | None, "End when a variant is so many times as fast."] = None,
    proposer_minutes: Annotated[float, "What a proposer may take for one candidate."] = 30,
    quiet_minutes: Annotated[float, "End a proposer that prints nothing for so long."] = 10,
    env: Annotated[Words, "A variable that the proposer sees besides; may be repeated."] = None,
    resume: Resume = None,
    again: Annotated[bool, "Try again what lost in an earlier session."] = False,
) -> None:
    """Let a program change a kernel; keep what is faster.

    A proposer is any command. It reads the brief from stdin or {brief}, edits files in {workdir},
    and ends. `loop` judges each edit in a folder of its own, never in your checkout, until a budget
    or --stall is reached. The proposer may call `loop kernels check`, which says in seconds whether
    an edit is right. If it has nothing more to propose, it writes {"done": true} into {answer}.
    """


@command(
    "bisect",
    "--variant cpu",
    "--good v1.2 --variant cpu",
    "--good HEAD~40 --metric correctness --workloads edges",
    "--good HEAD~9 --probe exit -- make test",
    work="bisect.command:run_bisect",
    mcp="starts",
    options_first=True,
    result="Bisected",
)
def bisect(
    command: Annotated[Words, Argument(help="After --: the command that --probe runs.")] = None,
    good: Annotated[str, "A good revision. Default: the last that passed a session."] = "",
    bad: Annotated[str | None, "A bad revision. Default: the checkout as it is."] = None,
    metric: Annotated[str, "latency or correctness."] = "latency",
    variant: Annotated[str | None, "The variant that became slower or wrong."] = None,
    workloads: Sets = None,
    probe: Annotated[str | None, "exit: 0 is good, 125 skips, any other is bad."] = None,
    probe_limit_s: Annotated[float | None, Option(help=PROBE_LIMIT, min=0.01)] = None,
    target: Target = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    budget_minutes: Annotated[float | None, Option(help="Time limit.", min=0.01)] = None,
    again: Annotated[bool, "Remove stored results and measure anew."] = False,
    on: On = None,
    keep_host: KeepHost = False,
) -> None:
    """Find the commit that made a kernel slower or wrong.

    loop builds each commit by that commit's recipe in a worktree, and judges it by today's gate,
    next to the good commit. Results are stored: the same command continues an interrupted search.

    With --probe, loop finds the commit that made a command fail. The command runs in a worktree of
    each commit: in your current folder there, or in the target's folder if you are outside its
    repository. Exit codes 126 and 127 (cannot be run) are an error at the good end, and bad
    elsewhere, as in `git bisect run`. A commit that takes longer than --probe-limit-s is skipped.
    `timeout S COMMAND` makes it bad.

    Two builds of the same source may differ by 1 % or 2 % through the layout of their code. loop
    estimates that difference. If no single commit exceeds it, loop names a range of commits.
    """


@command("status", work="cli.sessions:gather_status", mcp="reads")
def status(target: Target = None) -> None:
    """Show what runs, what waits, what it cost, what is next."""


@command("clean", "", "--yes", "--cache", work="cli.clean:clean", result="LeftBehind")
def clean(
    names: Annotated[Words, Argument(metavar="NAME", help="Only these, with their edits.")] = None,
    cache: Annotated[bool, "Instead: builds and indexes. All of them can be made again."] = False,
    yes: Yes = False,
) -> None:
    """List worktrees that loop left behind and no session needs. Then ask, and remove them.

    A session that can be resumed keeps its worktree. A worktree with uncommitted edits stays, too.
    """


@command(
    "report",
    "last > report.md",
    "last --format html --output report.html",
    'last --format summary --limit 1000000 >> "$GITHUB_STEP_SUMMARY"',
    work="session.closing:report",
    mcp="reads",
    result="session.closing:ExportedSession",
    has_json=False,
)
def report(
    session_id: SessionName = "last",
    form: Annotated[ReportForm, Option("--format", help="How to print it.")] = "md",
    output: Annotated[Path | None, "Write this file instead; a report's figures beside it."] = None,
    target: Target = None,
    limit: Annotated[int, Option(help="Of a summary, in bytes.", min=1500)] = 65_536,
    link: Annotated[str, "Of a summary: where the whole report is."] = "",
    json: Annotated[bool, "The same as --format json."] = False,
) -> None:
    """Print a session's report, rendered again from its record.

    html is one file that needs nothing else. `loop patterns schema report` describes json.

    A summary is for a job's page or a comment: it is shortened by whole rows, and begins with a
    mark by which a workflow finds its own comment again.
    """


@command("patterns list", "--json", '"link error"', work="cli.patterns:list_patterns", mcp="reads")
def patterns_list(
    words: Annotated[Words, Argument(metavar="WORD", help="A problem, an error, a name.")] = None,
    target: Target = None,
) -> None:
    """List all patterns; with words, only patterns that match a problem, the best first."""


@command("patterns show", "baseline-first", work="cli.patterns:show_pattern", mcp="reads")
def patterns_show(name: PatternName, target: Target = None) -> None:
    """Show one pattern in full."""


@command("patterns check", "patterns/mine.yaml", work="cli.patterns:check_definitions", mcp="reads")
def patterns_check(
    path: Annotated[Path | None, Argument(help="File or folder. Default: everything.")] = None,
    target: Target = None,
) -> None:
    """Check definitions without running anything."""


@command("patterns schema", "target > target.json", work="cli.patterns:show_schema", has_json=False)
def patterns_schema(
    name: Annotated[str, Argument(help=SCHEMAS)] = "pattern",
    write: Annotated[bool, "Write all of them into the package."] = False,
) -> None:
    """Print the JSON Schema of a kind of file, for editors and programs."""


@command("plan list", work="cli.patterns:list_plans", mcp="reads")
def plan_list(target: Target = None) -> None:
    """List all plans; `loop run session PLAN --dry-run` shows the steps of one."""


@command("plan next", "--json", work="cli.sessions:next_session", mcp="reads")
def plan_next(target: Target = None) -> None:
    """Propose the next session: what, why, time and cost. Nothing runs."""


@command("sessions list", work="cli.sessions:list_sessions", mcp="reads")
def sessions_list(target: Target = None) -> None:
    """List all sessions, oldest first."""


@command("sessions show", "last", work="cli.sessions:show_session", mcp="reads")
def sessions_show(name: SessionName, target: Target = None) -> None:
    """Show one session: its facts and its steps."""


@command("sessions import", "history", work="session.recorded:import_sessions")
def sessions_import(
    name: Annotated[str, Argument(metavar="FILE", help="YAML; `history`: what ships with loop.")],
    target: Target = None,
) -> None:
    """Import sessions that were recorded without loop.

    Only their raw rows are kept. The format: loop patterns schema history
    """


@command("sessions compare", "last~1 last", work="cli.sessions:compare_sessions", mcp="reads")
def sessions_compare(names: SessionNames, target: Target = None) -> None:
    """Compare sessions: environment, sources, verdicts, ratios, cost, time.

    Sessions of another target, device or baseline are named, with the reason, and left out of the
    ratios. Latencies are not compared: they depend on the machine, the day and the hour.
    """


@command("catalog build", "--out catalogue", work="site.catalog:build_site")
def catalog_build(
    out: Annotated[Path, Option(metavar="DIR", help="The folder to write: a new or an empty one.")],
    target: Target = None,
) -> None:
    """Write a website of patterns, sessions, kernels and plans.

    Open its index.html, or publish the folder anywhere.
    """


@command("cost show", work="money.command:show_costs", mcp="reads")
def cost_show(target: Target = None) -> None:
    """Show what sessions cost, and savings that were measured. `?`: not measured; `+`: in part."""


@command("cost rates", work="money.command:show_rates")
def cost_rates(target: Target = None) -> None:
    """Show the prices of the rate card, each with its source and age."""


@command(
    "cost keep-or-stop",
    "--idle-hours 5",
    "--idle-hours 12 --waiting nobody --restart-minutes 4",
    work="money.command:keep_or_stop",
)
def cost_keep_or_stop(
    idle_hours: Annotated[float | None, "Hours until the GPU is needed again."] = None,
    restart_minutes: Annotated[float | None, "Minutes of a restart. Default: as measured."] = None,
    waiting: Annotated[Waiting | None, "Who waits for a restart. Default: the card's."] = None,
    target: Target = None,
) -> None:
    """Decide whether to keep an idle GPU or to stop it.

    Idle cost = hours x rate. Stop cost = restart x (GPU's rate + rate of who waits for it).
    """


@command("cost pivot", "--options pivot.yaml", work="money.command:pivot")
def cost_pivot(
    options: Annotated[Path | None, "YAML file with options. Default: the stop rules."] = None,
    target: Target = None,
) -> None:
    """Decide whether to go on or to try something else.

    For an option without a probability or a value, loop shows what it lacks, not its value.

    \b
    The form of the file:
      format: 1
      question: what next
      options:
        - {name: go on, usd: [150, 250], probability: 0.5, value_usd: 600}
        - {name: rewrite, usd: [250, 350], value_usd: 600}
    """


@command("jobs", "", "watch loop jobs", work="cli.hosts:list_jobs", mcp="reads")
def jobs(limit: Annotated[int, Option(help="The newest so many.", min=1)] = 40) -> None:
    """List jobs: what waits, runs and has ended, and where."""


@command(
    "jobs follow", "", "20261123-12", "last --cancel", work="cli.hosts:follow_job", has_json=False
)
def jobs_follow(
    job: Annotated[str, Argument(metavar="ID", help="An id, its beginning, or last.")] = "last",
    cancel: Annotated[bool, "End it first, as Ctrl-C does."] = False,
) -> None:
    """Show what a job on another machine says until it ends, and bring back what it made."""


@command("job run", "~/.local/state/loop/jobs/4f2a90c1", work="cli.hosts:run_job")
def job_run(folder: Annotated[Path, Argument(help="Folder with a job.json.")]) -> None:
    """Run the job in a folder: a `loop` command with the files it works on.

    Executors call it on the machine that does the work. A job that has ended is not run again.
    """


@command("hosts", "", work="cli.hosts:list_hosts")
def hosts() -> None:
    """List the machines of hosts.yaml in your configuration folder.

    \b
    The form of the file:
      format: 1
      hosts:
        l4: {ssh: me@34.1.2.3, usd_per_hour: 0.7,
             stop: gcloud compute instances stop my-l4}
    """


@command("hosts setup", "l4", work="cli.hosts:set_up")
def hosts_setup(host: HostName) -> None:
    """Install this loop on a machine, and name what is missing there.

    Its own environment, ~/.loop/venv, sees the packages of `python:` and changes none.
    """


@command("hosts stop", "l4", work="cli.hosts:stop")
def hosts_stop(host: HostName) -> None:
    """Stop a machine by the command that hosts.yaml names."""
