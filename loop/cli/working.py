"""Commands that start processes: sessions, campaigns, bisections, single steps of the bench."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from loop.cli import names
from loop.cli.command import command
from loop.cli.options import (
    Device,
    DryRun,
    Evaluator,
    Events,
    Executor,
    Gpu,
    Hypothesis,
    Json,
    KeepUntil,
    MaxUsd,
    NewSeed,
    On,
    PatternName,
    Seed,
    Sets,
    Target,
    Threads,
    VariantNames,
    Variants,
    WatchPreemption,
    Width,
)

Plan = Annotated[
    str | None,
    Argument(help="Name of a plan; see `loop plan list`. Default: baseline.", autocompletion=names.plans),
]
Resume = Annotated[
    str | None,
    Option(metavar="ID", help="Go on with this session (an id, or last).", autocompletion=names.sessions),
]


@command(
    "run session",
    "cli.requests:start_session",
    "SessionAnswer",
    "loop run session",
    "loop run session quick --variant cpu",
    "loop run session --target ../my-kernel --json",
    "loop run session --resume last",
    "loop run session --budget-minutes 10 --max-usd 2",
    "loop run session --target 23_Softmax.py --variant mine.py --evaluator DIR",
    "loop run session optimize --variant cpu",
    agents="starts",
)
def run_session(
    plan: Plan = None,
    target: Target = None,
    device: Device = "auto",
    variants: Variants = None,
    threads: Threads = None,
    seed: NewSeed = None,
    budget_minutes: Annotated[
        float | None, Option(help="Stop early enough to report within that; counts all runs of a session.")
    ] = None,
    max_usd: Annotated[float | None, Option(help="The same in dollars, by the rate card.")] = None,
    ai_usd: Annotated[float | None, Option(help="What AI cost in dollars, where nothing measures it.")] = None,
    evaluator: Evaluator = None,
    executor: Executor = "",
    width: Width = 1,
    resume: Resume = None,
    decline: Annotated[
        bool, Option("--decline", help="With --resume: make no further change; end the session.")
    ] = False,
    hypothesis: Hypothesis = "",
    on: On = None,
    keep_until: KeepUntil = None,
    dry_run: DryRun = False,
    events: Events = False,
    json: Json = False,
) -> None:
    """Run a session: build, verify, measure, report.

    Who changes a kernel by a program calls `loop optimize`. LOOP_WATCH_PREEMPTION says which cloud may take the
    machine away (auto, gcp, aws, azure, off). LOOP_ATTENDED=1 charges your time. LOOP_EVALUATOR_PYTHON is the
    interpreter of --evaluator.
    """


@command(
    "run pattern", "cli.requests:start_pattern", "SessionAnswer", "loop run pattern baseline-first --variant cpu"
)
def run_pattern(
    pattern: PatternName,
    target: Target = None,
    device: Device = "auto",
    variants: Variants = None,
    threads: Threads = None,
    hypothesis: Hypothesis = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Run one pattern as a session of its own."""


@command("run step", "cli.bench:run_step", "BenchAnswer", "loop run step kernel.verify --variant cpu --json")
def run_step(
    action: Annotated[str, Argument(help="Name of an action; `make docs` writes docs/reference/actions.md.")],
    arguments: Annotated[str, Option("--with", metavar="JSON", help="Its arguments as JSON.")] = "{}",
    target: Target = None,
    device: Device = "auto",
    variants: Variants = None,
    threads: Threads = None,
    seed: Seed = 0,
    workloads: Sets = None,
    checks: Annotated[list[str] | None, Option(metavar="NAME", help="A set that is only checked.")] = None,
    budget_s: Annotated[float, Option(help="Seconds that it is meant to take.", min=0.001)] = 60,
    limit_s: Annotated[float, Option(help="Seconds after which it is killed.", min=0.001)] = 600,
    samples: Annotated[Path | None, Option(metavar="FILE", help="Write its raw samples there.")] = None,
    json: Json = False,
) -> None:
    """Do one step of a pattern by itself: an action with its arguments, without a session.

    An executor has parts of a session done by it, each as a job.
    """


@command("doctor", "cli.bench:doctor", "BenchAnswer", "loop doctor --device cuda", agents="starts")
def doctor(target: Target = None, device: Device = "auto", json: Json = False) -> None:
    """Check the environment; name what mends each failure."""


@command(
    "kernels verify",
    "cli.bench:run_bench",
    "BenchAnswer",
    "loop kernels verify cpu --seed 7",
    "loop kernels verify --emulate split_k --workloads edges",
    "loop kernels verify split_k --sanitize",
    agents="starts",
    what="verify",
)
def kernels_verify(
    variants: VariantNames = None,
    target: Target = None,
    device: Device = "auto",
    workloads: Sets = None,
    threads: Threads = None,
    seed: Seed = 0,
    emulate: Annotated[
        bool, Option("--emulate", help="Run CUDA variants under the emulator, even with a GPU.")
    ] = False,
    sanitize: Annotated[
        bool,
        Option(
            "--sanitize",
            help="On a GPU also compute-sanitizer on a few calls; else emulate with AddressSanitizer and UBSan.",
        ),
    ] = False,
    executor: Executor = "",
    width: Width = 1,
    json: Json = False,
) -> None:
    """Compare variants with the float64 reference.

    On all workloads of the target, unless some are named. Without a GPU, variants made for one run under the
    emulator.
    """


@command(
    "kernels check",
    "cli.bench:run_bench",
    "BenchAnswer",
    "loop kernels check cpu",
    "loop kernels check cpu --json",
    agents="starts",
    what="check",
)
def kernels_check(
    variants: VariantNames = None,
    target: Target = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    on: On = None,
    keep_until: KeepUntil = None,
    json: Json = False,
) -> None:
    """Check an edit in seconds: compile, verify a few workloads, one quick ratio.

    In a folder that `loop optimize` gave to a proposer the ratio is against the incumbent, elsewhere against
    the baseline. It is a hint, not a verdict. It keeps nothing, and it does not use the change up.
    """


@command(
    "kernels measure",
    "cli.bench:run_bench",
    "BenchAnswer",
    "loop kernels measure cpu",
    "loop kernels measure cpu --workloads large --threads 1 --rounds 7",
    agents="starts",
    what="measure",
)
def kernels_measure(
    variants: VariantNames = None,
    target: Target = None,
    device: Device = "auto",
    workloads: Sets = None,
    threads: Threads = None,
    seed: Seed = 0,
    rounds: Annotated[int, Option(help="Rounds, each in new processes.", min=2, max=100)] = 3,
    cold: Annotated[bool, Option("--cold", help="Empty the caches before each timed call.")] = False,
    json: Json = False,
) -> None:
    """Verify variants, then time them next to the baseline."""


@command(
    "kernels resources",
    "cli.bench:run_bench",
    "BenchAnswer",
    "loop kernels resources --gpu sm_89",
    agents="starts",
    what="resources",
)
def kernels_resources(
    variants: VariantNames = None,
    target: Target = None,
    gpu: Gpu = "sm_89",
    workloads: Sets = None,
    json: Json = False,
) -> None:
    """Show registers, spills, shared memory, occupancy and roofline of compiled kernels."""


@command(
    "kernels prove-gate", "cli.bench:run_bench", "BenchAnswer", "loop kernels prove-gate cpu", what="prove-gate"
)
def kernels_prove_gate(
    variants: VariantNames = None,
    target: Target = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Mutation-test the gate: inject bugs and cheats, report which it rejects."""


@command(
    "optimize",
    "cli.requests:start_campaign",
    "SessionAnswer",
    "loop optimize --proposer claude --max-usd 5",
    "loop optimize my-kernel --proposer './propose.sh {brief}' --max-minutes 60",
    "loop optimize 23_Softmax.py --variant mine.py --proposer codex --stall 5",
    agents="starts",
)
def optimize(
    target: Annotated[
        Path | None, Argument(help="Folder with a target.yaml, or a task. Default: as `--target`.")
    ] = None,
    plan: Annotated[
        str, Option(help="The plan whose rounds are walked.", autocompletion=names.plans)
    ] = "optimize",
    device: Device = "auto",
    variants: Variants = None,
    threads: Threads = None,
    seed: NewSeed = None,
    proposer: Annotated[
        str,
        Option(
            metavar="COMMAND",
            help="Who proposes changes: a command ('CMD {brief} {workdir}'), claude, codex, tuner or person "
            "(it pauses).",
        ),
    ] = "person",
    width: Width = 1,
    executor: Executor = "",
    max_candidates: Annotated[int | None, Option(help="End after so many candidates.", min=1)] = None,
    max_minutes: Annotated[float | None, Option(help="End after so many minutes.")] = None,
    max_tokens: Annotated[int | None, Option(help="End after so many tokens.", min=1)] = None,
    max_gpu_seconds: Annotated[float | None, Option(help="End after so many seconds on the GPU.")] = None,
    stall: Annotated[int, Option(help="End when nothing was kept in so many candidates.", min=1)] = 6,
    target_ratio: Annotated[
        float | None, Option(help="End when a variant is so many times as fast as at the start.")
    ] = None,
    proposer_minutes: Annotated[float, Option(help="What a proposer may take for one candidate.")] = 30,
    quiet_minutes: Annotated[float, Option(help="End a proposer that prints nothing for so long.")] = 10,
    env: Annotated[
        list[str] | None, Option(help="A variable that the proposer sees besides; may be repeated.")
    ] = None,
    max_usd: MaxUsd = None,
    resume: Annotated[str | None, Option(metavar="ID", help="Go on with this campaign (an id, or last).")] = None,
    again: Annotated[bool, Option("--again", help="Try again what lost in an earlier session.")] = False,
    watch_preemption: WatchPreemption = "auto",
    on: On = None,
    keep_until: KeepUntil = None,
    dry_run: DryRun = False,
    events: Events = False,
    json: Json = False,
) -> None:
    """Let a program change a kernel; keep what is faster.

    Each change is judged, until a budget or a stall. A proposer is any command.
    It reads the brief from stdin or {brief}, edits files in {workdir}, and ends.
    `loop` judges the edit in a folder of its own. It never touches your checkout. `loop kernels check` tells
    the proposer in seconds whether an edit is right, without using it up. A proposer that has nothing more
    to propose writes {"done": true} into {answer}.
    """


@command(
    "bisect",
    "bisect.command:run_bisect",
    "Bisected",
    "loop bisect --variant cpu",
    "loop bisect --good v1.2 --variant cpu",
    "loop bisect --good HEAD~40 --metric correctness --workloads edges",
    "loop bisect --good HEAD~9 --probe exit -- make test",
    agents="starts",
    rest=True,
)
def bisect(
    command: Annotated[list[str] | None, Argument(help="After --: the command that --probe runs.")] = None,
    good: Annotated[str, Option(help="A good revision. Default: the last that passed a session.")] = "",
    bad: Annotated[str | None, Option(help="A bad revision. Default: the checkout as it is.")] = None,
    metric: Annotated[str, Option(help="latency or correctness.")] = "latency",
    variant: Annotated[str | None, Option(help="The variant that became slower or wrong.")] = None,
    workloads: Sets = None,
    probe: Annotated[str | None, Option(help="exit: 0 is good, 125 skips, any other is bad.")] = None,
    probe_limit_s: Annotated[
        float | None,
        Option(
            help="Time limit of the command; a commit that passes it is skipped. Default: ten times the good end.",
            min=0.01,
        ),
    ] = None,
    target: Target = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    budget_minutes: Annotated[float | None, Option(help="Time limit.", min=0.01)] = None,
    on: On = None,
    keep_until: KeepUntil = None,
    json: Json = False,
) -> None:
    """Find the commit that made a kernel slower or wrong.

    Or that made a command fail: --probe.

    Each commit is built by its own recipe in a worktree of loop's own and judged by today's gate, beside
    the good one. What was observed is kept: an interrupted search goes on with the same command.

    With --probe a command judges what is committed, in a worktree of each commit: in the folder where you
    stand, or in the target's if you stand outside its repository. Exit 126 or 127 (it
    cannot be run) is refused at the good end, and bad elsewhere, as `git bisect run` has it. A commit that
    takes ten times as long as the good end, and over 10 s, is skipped. `timeout S COMMAND` makes it bad.

    Two builds of the same source may differ by 1 % or 2 % through the layout of their code. loop estimates by
    how much. It names a range of commits where a single one does not stand out.
    """
