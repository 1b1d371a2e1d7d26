"""Commands that start processes: sessions, campaigns, bisections, single steps of the bench."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from loop.cli import names
from loop.cli.command import asked, command
from loop.cli.options import (
    ByOption,
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

if TYPE_CHECKING:
    from loop.base.screen import Screen

Plan = Annotated[
    str | None,
    Argument(help="Name of a plan; see `loop plan list`. Default: baseline.", autocompletion=names.plans),
]
Resume = Annotated[
    str | None,
    Option(metavar="ID", help="Go on with this session (an id, or last).", autocompletion=names.sessions),
]
BENCH = "loop.cli.bench:BenchAnswer"


@command(
    "run session",
    "loop run session",
    "loop run session quick --variant cpu",
    "loop run session --target ../my-kernel --json",
    "loop run session --resume last",
    "loop run session --budget-minutes 10 --max-usd 2",
    "loop run session --target 23_Softmax.py --variant mine.py --evaluator DIR",
    "loop run session optimize --variant cpu",
    result="loop.cli.requests:SessionAnswer",
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
        float | None,
        Option(metavar="NUMBER", help="Stop early enough to report within that; counts all runs of a session."),
    ] = None,
    max_usd: Annotated[
        float | None, Option(metavar="NUMBER", help="The same in dollars, by the rate card.")
    ] = None,
    ai_usd: Annotated[
        float | None, Option(metavar="NUMBER", help="What AI cost in dollars, where nothing measures it.")
    ] = None,
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
    *,
    screen: "Screen",
) -> int:
    """Run a session: build, verify, measure, report.

    Who changes a kernel by a program calls `loop optimize`. LOOP_WATCH_PREEMPTION says which cloud may take the
    machine away (auto, gcp, aws, azure, off). LOOP_ATTENDED=1 charges your time. LOOP_EVALUATOR_PYTHON is the
    interpreter of --evaluator.
    """
    from loop.agents.results import stated
    from loop.cli import requests
    from loop.session.opening import SessionRequest

    campaign = requests.campaign(usd=max_usd, executor=executor, width=width)
    bounds, theirs = requests.bounds(budget_minutes, max_usd), requests.terms_of(evaluator, target)
    request = asked(SessionRequest, locals(), asked=bounds, ai=stated(ai_usd), attended=requests.attended())
    return requests.run_session(request, resume, screen)


@command("run pattern", "loop run pattern baseline-first --variant cpu", result="loop.cli.requests:SessionAnswer")
def run_pattern(
    pattern: PatternName,
    target: Target = None,
    device: Device = "auto",
    variants: Variants = None,
    threads: Threads = None,
    hypothesis: Hypothesis = "",
    dry_run: DryRun = False,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Run one pattern as a session of its own."""
    from loop.cli import requests
    from loop.session.opening import SessionRequest

    return requests.run_session(asked(SessionRequest, locals(), asked=requests.bounds()), None, screen)


@command("run step", "loop run step kernel.verify --variant cpu --json", result=BENCH)
def run_step(
    action: Annotated[str, Argument(help="Name of an action; `make docs` writes docs/reference/actions.md.")],
    given: Annotated[str, Option("--with", metavar="JSON", help="Its arguments as JSON.")] = "{}",
    target: Target = None,
    device: Device = "auto",
    variants: Variants = None,
    threads: Threads = None,
    seed: Seed = 0,
    workloads: Sets = None,
    checks: Annotated[list[str] | None, Option(metavar="NAME", help="A set that is only checked.")] = None,
    budget_s: Annotated[float, Option(metavar="NUMBER", help="Seconds that it is meant to take.", min=0.001)] = 60,
    limit_s: Annotated[float, Option(metavar="NUMBER", help="Seconds after which it is killed.", min=0.001)] = 600,
    samples: Annotated[Path | None, Option(metavar="FILE", help="Write its raw samples there.")] = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Do one step of a pattern by itself: an action with its arguments, without a session.

    An executor has parts of a session done by it, each as a job.
    """
    from loop.cli.parts import StepRequest, run_step

    return run_step(asked(StepRequest, locals()), screen)


@command("doctor", "loop doctor --device cuda", result=BENCH, agents="starts")
def doctor(target: Target = None, device: Device = "auto", json: Json = False, *, screen: "Screen") -> int:
    """Check the environment; name what mends each failure."""
    from loop.cli.bench import BenchRequest, doctor

    return doctor(BenchRequest(target=target, device=device, json=json), screen)


@command(
    "kernels verify",
    "loop kernels verify cpu --seed 7",
    "loop kernels verify --emulate split_k --workloads edges",
    "loop kernels verify split_k --sanitize",
    result=BENCH,
    agents="starts",
)
def kernels_verify(
    variants: VariantNames = None,
    by_option: ByOption = None,
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
    *,
    screen: "Screen",
) -> int:
    """Compare variants with the float64 reference.

    On all workloads of the target, unless some are named. Without a GPU, variants made for one run under the
    emulator.
    """
    from loop.cli.bench import BenchRequest, run_bench

    return run_bench(asked(BenchRequest, locals(), what="verify"), screen)


@command("kernels check", "loop kernels check cpu", "loop kernels check cpu --json", result=BENCH, agents="starts")
def kernels_check(
    variants: VariantNames = None,
    by_option: ByOption = None,
    target: Target = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    on: On = None,
    keep_until: KeepUntil = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Check an edit in seconds: compile, verify a few workloads, one quick ratio.

    In a folder that `loop optimize` gave to a proposer the ratio is against the incumbent, elsewhere against
    the baseline. It is a hint, not a verdict. It keeps nothing, and it does not use the change up.
    """
    from loop.cli.bench import BenchRequest, run_bench

    return run_bench(asked(BenchRequest, locals(), what="check"), screen)


@command(
    "kernels measure",
    "loop kernels measure cpu",
    "loop kernels measure cpu --workloads large --threads 1 --rounds 7",
    result=BENCH,
    agents="starts",
)
def kernels_measure(
    variants: VariantNames = None,
    by_option: ByOption = None,
    target: Target = None,
    device: Device = "auto",
    workloads: Sets = None,
    threads: Threads = None,
    seed: Seed = 0,
    rounds: Annotated[int, Option(metavar="NUMBER", help="Rounds, each in new processes.", min=2, max=100)] = 3,
    cold: Annotated[bool, Option("--cold", help="Empty the caches before each timed call.")] = False,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Verify variants, then time them next to the baseline."""
    from loop.cli.bench import BenchRequest, run_bench

    return run_bench(asked(BenchRequest, locals(), what="measure"), screen)


@command(
    "kernels resources",
    "loop kernels resources --gpu sm_89",
    "loop kernels resources auto --launches",
    result=BENCH,
    agents="starts",
)
def kernels_resources(
    variants: VariantNames = None,
    by_option: ByOption = None,
    target: Target = None,
    gpu: Gpu = "sm_89",
    workloads: Sets = None,
    launches: Annotated[
        bool,
        Option(
            "--launches",
            help="Instead: which kernels a call launches and why, as a variant that picks among several says.",
        ),
    ] = False,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Show registers, spills, shared memory, occupancy and roofline of compiled kernels."""
    from loop.cli.bench import BenchRequest, run_bench

    return run_bench(asked(BenchRequest, locals(), what="choose" if launches else "resources"), screen)


@command("kernels prove-gate", "loop kernels prove-gate cpu", result=BENCH)
def kernels_prove_gate(
    variants: VariantNames = None,
    by_option: ByOption = None,
    target: Target = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Mutation-test the gate: inject bugs and cheats, report which it rejects."""
    from loop.cli.bench import BenchRequest, run_bench

    return run_bench(asked(BenchRequest, locals(), what="prove-gate"), screen)


@command(
    "optimize",
    "loop optimize --proposer claude --max-usd 5",
    "loop optimize my-kernel --proposer './propose.sh {brief}' --max-minutes 60",
    "loop optimize 23_Softmax.py --variant mine.py --proposer codex --stall 5",
    "loop optimize --stop",
    result="loop.cli.requests:CampaignAnswer",
    agents="starts",
)
def optimize(
    target: Annotated[
        Path | None, Argument(help="Folder with a target.yaml, or a task. Default: as `--target`.")
    ] = None,
    plan: Annotated[
        str, Option(metavar="TEXT", help="The plan whose rounds are walked.", autocompletion=names.plans)
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
    max_candidates: Annotated[
        int | None, Option(metavar="NUMBER", help="End after so many candidates.", min=1)
    ] = None,
    max_minutes: Annotated[float | None, Option(metavar="NUMBER", help="End after so many minutes.")] = None,
    max_tokens: Annotated[int | None, Option(metavar="NUMBER", help="End after so many tokens.", min=1)] = None,
    max_gpu_seconds: Annotated[
        float | None, Option(metavar="NUMBER", help="End after so many seconds on the GPU.")
    ] = None,
    stall: Annotated[
        int, Option(metavar="NUMBER", help="End when nothing was kept in so many candidates.", min=1)
    ] = 6,
    target_ratio: Annotated[
        float | None, Option(metavar="NUMBER", help="End when a variant is so many times as fast as at the start.")
    ] = None,
    proposer_minutes: Annotated[
        float, Option(metavar="NUMBER", help="What a proposer may take for one candidate.")
    ] = 30,
    quiet_minutes: Annotated[
        float, Option(metavar="NUMBER", help="End a proposer that prints nothing for so long.")
    ] = 10,
    env: Annotated[
        list[str] | None,
        Option(metavar="TEXT", help="A variable that the proposer sees besides; may be repeated."),
    ] = None,
    max_usd: MaxUsd = None,
    stop: Annotated[
        bool, Option("--stop", help="End the campaign that runs here, or on --on, after its candidate.")
    ] = False,
    resume: Annotated[str | None, Option(metavar="ID", help="Go on with this campaign (an id, or last).")] = None,
    again: Annotated[bool, Option("--again", help="Try again what lost in an earlier session.")] = False,
    watch_preemption: WatchPreemption = "auto",
    on: On = None,
    keep_until: KeepUntil = None,
    dry_run: DryRun = False,
    events: Events = False,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Let a program change a kernel; keep what is faster.

    Each change is judged, until a budget or a stall. A proposer is any command.
    It reads the brief from stdin or {brief}, edits files in {workdir}, and ends.
    `loop` judges the edit in a folder of its own. It never touches your checkout. `loop kernels check` tells
    the proposer in seconds whether an edit is right, without using it up. A proposer that has nothing more
    to propose writes {"done": true} into {answer}.
    """
    from loop.cli import requests
    from loop.model.campaign import TUNER
    from loop.session.opening import SessionRequest

    if stop:
        return requests.stop_campaign(target, screen, as_json=json)
    campaign = requests.campaign(
        proposer=proposer,
        width=width,
        executor=executor,
        candidates=max_candidates,
        minutes=max_minutes,
        tokens=max_tokens,
        gpu_s=max_gpu_seconds,
        usd=max_usd,
        stall=stall,
        target=target_ratio,
        proposer_minutes=proposer_minutes,
        quiet_minutes=quiet_minutes,
        env=env,
    )
    chosen = None if resume else "tune" if proposer == TUNER else plan
    bounds = requests.bounds(watch=watch_preemption)
    request = asked(SessionRequest, {**locals(), "plan": chosen}, asked=bounds)
    if resume is None:
        requests.announce_others(request, screen)
    return requests.run_session(request, resume, screen)


@command(
    "bisect",
    "loop bisect --variant cpu",
    "loop bisect --good v1.2 --variant cpu",
    "loop bisect --good HEAD~40 --metric correctness --workloads edges",
    "loop bisect --good HEAD~9 --probe exit -- make test",
    "loop bisect --good HEAD~9 --probe number -- ./bench.sh",
    "loop bisect --good HEAD~900 --executor local --width 7",
    result="loop.bisect.command:Bisected",
    agents="starts",
    rest=True,
)
def bisect(
    command: Annotated[list[str] | None, Argument(help="After --: the command that --probe runs.")] = None,
    good: Annotated[
        str, Option(metavar="TEXT", help="A good revision. Default: the last that passed a session.")
    ] = "",
    bad: Annotated[
        str | None, Option(metavar="TEXT", help="A bad revision. Default: the checkout as it is.")
    ] = None,
    metric: Annotated[
        str, Option(metavar="TEXT", help="latency, correctness or resources (registers, spills and the like).")
    ] = "latency",
    variant: Annotated[
        str | None,
        Option(
            metavar="TEXT", help="The variant that became slower or wrong.", autocompletion=names.past_variants
        ),
    ] = None,
    workloads: Sets = None,
    probe: Annotated[
        str | None,
        Option(metavar="TEXT", help="exit (0 good, 125 skip, other bad) or number (last line, lower is better)."),
    ] = None,
    probe_limit_s: Annotated[
        float | None,
        Option(
            metavar="NUMBER",
            help="Time limit of the command; a commit that passes it is skipped. Default: ten times the good end.",
            min=0.01,
        ),
    ] = None,
    target: Target = None,
    device: Device = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    budget_minutes: Annotated[float | None, Option(metavar="NUMBER", help="Time limit.", min=0.01)] = None,
    width: Annotated[
        int,
        Option(
            metavar="NUMBER",
            help="Commits at a time. One machine times them in turn: it builds them, or runs --probe exit, so.",
            min=1,
        ),
    ] = 1,
    executor: Executor = "",
    on: On = None,
    keep_until: KeepUntil = None,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Find the commit that made a kernel slower or wrong.

    Or that made a command fail: --probe.

    Each commit is built by its own recipe in a worktree of loop's own and judged by today's gate, beside
    the good one. What was observed is kept: an interrupted search goes on with the same command.

    With --probe a command judges what is committed, in a worktree of each commit: in the folder where you
    stand, or in the target's if you stand outside its repository. Exit 126 or 127 (it
    cannot be run) is refused at the good end, and bad elsewhere, as `git bisect run` has it. A commit that
    takes ten times as long as the good end, and over 10 s, is skipped. Where the bad end hangs, an exit
    probe counts every commit that hangs as bad. Two builds of the same source may differ by 1 % or 2 %
    through the layout of their code. loop estimates by how much. It names a range of commits where a single
    one does not stand out.

    With --executor K commits are tried at a time, each beside the good one on a GPU of its own. Ratios of
    different GPUs are never paired.
    """
    from loop.bisect.command import BisectRequest, run_bisect

    return run_bisect(asked(BisectRequest, locals()), screen)
