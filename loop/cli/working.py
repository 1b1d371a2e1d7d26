"""The table of commands that start processes: sessions, single steps of the bench, bisections."""

from inspect import Parameter
from pathlib import Path
from typing import Literal

from loop.cli import names
from loop.cli.options import (
    AGAIN,
    AI_USD,
    CAMPAIGN,
    DEVICE,
    DRY_RUN,
    EVALUATOR,
    EVENTS,
    EXECUTOR,
    HYPOTHESIS,
    NEW_SEED,
    ON_HOST,
    SEED,
    SETS,
    TARGET,
    THREADS,
    VARIANT_NAMES,
    VARIANTS,
    WATCH_PREEMPTION,
)
from loop.cli.table import Command, argument, option


def _kernels(
    what: str,
    does: str,
    examples: tuple[str, ...],
    options: tuple[Parameter, ...],
    agents: Literal["", "starts"] = "",
) -> Command:
    """A step of the bench as a command."""
    return Command(
        f"kernels {what}",
        "loop.cli.bench:run_bench",
        does,
        examples,
        options,
        request="BenchRequest",
        fixed={"what": what},
        result="loop.cli.bench:BenchAnswer",
        agents=agents,
    )


WORKING = (
    Command(
        "bisect",
        "loop.bisect.command:run_bisect",
        """Find the commit that made a kernel slower or wrong, or a command fail.

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
        """,
        (
            "loop bisect --variant cpu",
            "loop bisect --good v1.2 --variant cpu",
            "loop bisect --good HEAD~40 --metric correctness --workloads edges",
            "loop bisect --good HEAD~9 --probe exit -- make test",
            "loop bisect --good HEAD~9 --probe number -- ./bench.sh",
            "loop bisect --good HEAD~900 --executor local --width 7",
        ),
        (
            argument("command", list[str] | None, "After --: the command that --probe runs."),
            option("--good", str, "A good revision. Default: the last that passed a session.", ""),
            option("--bad", str | None, "A bad revision. Default: the checkout as it is."),
            option(
                "--metric", str, "latency, correctness or resources (registers, spills and the like).", "latency"
            ),
            option(
                "--variant", str | None, "The variant that became slower or wrong.", complete=names.past_variants
            ),
            SETS,
            option(
                "--probe", str | None, "exit (0 good, 125 skip, other bad) or number (last line, lower is better)."
            ),
            option(
                "--probe-limit-s",
                float | None,
                "Time limit of the command; a commit that passes it is skipped. Default: ten times the good end.",
                min=0.01,
            ),
            TARGET,
            DEVICE,
            THREADS,
            SEED,
            option("--budget-minutes", float | None, "Time limit.", min=0.01),
            option(
                "--width",
                int,
                "Commits at a time. One machine times them in turn: it builds them, or runs --probe exit, so.",
                1,
                min=1,
            ),
            EXECUTOR,
            *ON_HOST,
        ),
        request="BisectRequest",
        rest=True,
        result="loop.bisect.command:Bisected",
        agents="starts",
    ),
    Command(
        "doctor",
        "loop.cli.bench:doctor",
        "Check the environment; name the command that mends each failure.",
        ("loop doctor --device cuda",),
        (TARGET, DEVICE),
        request="BenchRequest",
        result="loop.cli.bench:BenchAnswer",
        agents="starts",
    ),
    Command(
        "optimize",
        "loop.cli.requests:optimize",
        """Have a proposer change a kernel, judge each change, keep what is faster, until a budget or a stall.

        A proposer is any command. It reads the brief from stdin or {brief}, edits files in {workdir}, and ends.
        `loop` judges the edit in a folder of its own. It never touches your checkout. `loop kernels check` tells
        the proposer in seconds whether an edit is right, without using it up. A proposer that has nothing more
        to propose writes {"done": true} into {answer}.
        """,
        (
            "loop optimize --proposer claude --max-usd 5",
            "loop optimize my-kernel --proposer './propose.sh {brief}' --max-minutes 60",
            "loop optimize 23_Softmax.py --variant mine.py --proposer codex --stall 5",
            "loop optimize --stop",
        ),
        (
            argument("target", Path | None, "Folder with a target.yaml, or a task. Default: as `--target`."),
            option("--plan", str, "The plan whose rounds are walked.", "optimize", complete=names.plans),
            DEVICE,
            VARIANTS,
            THREADS,
            NEW_SEED,
            *CAMPAIGN,
            option("--max-usd", float | None, "End when AI and machine cost so much."),
            option("--stop", bool, "End the campaign that runs here, or on --on, after its candidate."),
            option("--resume ID", str | None, "Go on with this campaign (an id, or last)."),
            AGAIN,
            WATCH_PREEMPTION,
            *ON_HOST,
            DRY_RUN,
            EVENTS,
        ),
        result="loop.cli.requests:CampaignAnswer",
        agents="starts",
    ),
    Command(
        "run session",
        "loop.cli.requests:run_session",
        "Run a session: build, verify, measure, report.",
        (
            "loop run session",
            "loop run session quick --variant cpu",
            "loop run session --target ../my-kernel --json",
            "loop run session --resume last",
            "loop run session --budget-minutes 10 --max-usd 2",
            "loop run session --target 23_Softmax.py --variant mine.py --evaluator DIR",
            "loop run session optimize --variant cpu",
            "loop run session optimize --proposer ./propose.sh --max-candidates 10",
        ),
        (
            argument(
                "plan",
                str | None,
                "Name of a plan; see `loop plan list`. Default: baseline.",
                complete=names.plans,
            ),
            TARGET,
            DEVICE,
            VARIANTS,
            THREADS,
            NEW_SEED,
            option(
                "--budget-minutes",
                float | None,
                "Stop early enough to report within that; counts all runs of a session.",
            ),
            option("--max-usd", float | None, "The same in dollars, by the rate card."),
            WATCH_PREEMPTION,
            AI_USD,
            option("--attended", bool, "You attend to it: your time is charged, as stated."),
            *EVALUATOR,
            *CAMPAIGN,
            option(
                "--resume ID", str | None, "Go on with this session (an id, or last).", complete=names.sessions
            ),
            option("--decline", bool, "With --resume: make no further change; end the session."),
            AGAIN,
            HYPOTHESIS,
            *ON_HOST,
            DRY_RUN,
            EVENTS,
        ),
        result="loop.cli.requests:SessionAnswer",
        agents="starts",
    ),
    Command(
        "run pattern",
        "loop.cli.requests:run_pattern",
        "Run one pattern as a session of its own.",
        ("loop run pattern baseline-first --variant cpu",),
        (
            argument("pattern NAME", str, "Name of a pattern; see `loop patterns list`.", complete=names.patterns),
            TARGET,
            DEVICE,
            VARIANTS,
            THREADS,
            HYPOTHESIS,
            DRY_RUN,
            WATCH_PREEMPTION,
        ),
        result="loop.cli.requests:SessionAnswer",
    ),
    _kernels(
        "build", "Compile variants into the cache.", ("loop kernels build cpu",), (*VARIANT_NAMES, TARGET, DEVICE)
    ),
    _kernels(
        "verify",
        """Compare variants with the float64 reference, on all workloads of the target.

        Without a GPU, variants made for one run under the emulator.
        """,
        (
            "loop kernels verify cpu --seed 7",
            "loop kernels verify --emulate split_k --workloads edges",
            "loop kernels verify split_k --sanitize",
        ),
        (
            *VARIANT_NAMES,
            TARGET,
            DEVICE,
            SETS,
            THREADS,
            SEED,
            option("--emulate", bool, "Run CUDA variants under the emulator, even with a GPU."),
            option(
                "--sanitize",
                bool,
                "On a GPU also compute-sanitizer on a few calls; else emulate with AddressSanitizer and UBSan.",
            ),
            EXECUTOR,
            option("--width", int, "Jobs at a time.", 1, min=1, max=256),
        ),
        agents="starts",
    ),
    _kernels(
        "check",
        """Check an edit in seconds: compile, verify a few workloads, one quick ratio.

        In a folder that `loop optimize` gave to a proposer the ratio is against the incumbent, elsewhere against
        the baseline. It is a hint, not a verdict. It keeps nothing, and it does not use the change up.
        """,
        ("loop kernels check cpu", "loop kernels check cpu --json"),
        (*VARIANT_NAMES, TARGET, DEVICE, THREADS, SEED, *ON_HOST),
        agents="starts",
    ),
    _kernels(
        "measure",
        "Verify variants, then time them next to the baseline.",
        ("loop kernels measure cpu", "loop kernels measure cpu --workloads large --threads 1 --rounds 7"),
        (
            *VARIANT_NAMES,
            TARGET,
            DEVICE,
            SETS,
            THREADS,
            SEED,
            option("--rounds", int, "Rounds, each in new processes.", 3, min=2, max=100),
            option("--cold", bool, "Empty the caches before each timed call."),
        ),
        agents="starts",
    ),
    _kernels(
        "resources",
        "Show registers, spills, shared memory, occupancy and roofline of compiled kernels.",
        ("loop kernels resources --gpu sm_89",),
        (
            *VARIANT_NAMES,
            TARGET,
            option("--gpu", str, "A GPU of the target's `devices`; it need not be at hand.", "sm_89"),
            SETS,
        ),
        agents="starts",
    ),
    _kernels(
        "choose",
        "Show which kernels a call launches and why, as a variant that picks among several says.",
        ("loop kernels choose auto --workloads 'B=1 H=8 Sq=1 Sk=4096 D=64'",),
        (
            *VARIANT_NAMES,
            TARGET,
            option("--gpu", str, "The GPU whose values decide; it need not be at hand.", "sm_89"),
            SETS,
        ),
    ),
    _kernels(
        "prove-gate",
        "Mutation-test the gate: inject bugs and cheats, report which it rejects.",
        ("loop kernels prove-gate cpu",),
        (*VARIANT_NAMES, TARGET, DEVICE, THREADS, SEED),
    ),
)
