"""`loop kernels ...` and `loop doctor`: single steps of the bench, without a session."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.actions import Context
from loop.bench.machine import machine
from loop.commands.drive import Show, drive, nowhere
from loop.commands.setting import (
    Setting,
    choose_device,
    choose_threads,
    choose_variants,
    open_bench,
    read_setting,
    trusted_setting,
)
from loop.documents import to_json
from loop.errors import ExitCode, LoopError
from loop.library import definitions
from loop.model.measurement import ControlResult
from loop.model.output import GateOutput, MeasureOutput, VerifyOutput, read_output
from loop.model.pattern import Estimate, Pattern, Step
from loop.model.plan import Plan, PlanBudget, PlannedPattern, ResolvedPlan
from loop.model.record import Finished
from loop.model.target import ITEM_SIZES, CAbiVariant, PythonVariant, Target, Variant
from loop.model.workloads import expand
from loop.places import include_folder
from loop.runner.session import Walk
from loop.screen import Screen


@dataclass(frozen=True)
class BenchRequest:
    """What the user asked for."""

    variants: Sequence[str] = ()
    target: Path | None = None
    device: str = "auto"
    workloads: Sequence[str] = ()
    """Names of workload sets; the target's first when empty."""
    threads: int | None = None
    seed: int = 0
    rounds: int = 3
    cold: bool = False
    """Empty the caches before each timed call."""
    json: bool = False


COLUMNS = 110
"""Width of a line on a control; its whole reason is in the JSON."""
STEPS: dict[str, tuple[dict[str, Any], ...]] = {
    "build": ({"id": "build", "title": "Compile", "action": "kernel.build", "budget_s": 20},),
    "verify": (
        {"id": "build", "title": "Compile", "action": "kernel.build", "budget_s": 20},
        {"id": "verify", "title": "Against float64", "action": "kernel.verify", "budget_s": 60},
    ),
    "measure": (
        {"id": "build", "title": "Compile", "action": "kernel.build", "budget_s": 20},
        {"id": "verify", "title": "Against float64", "action": "kernel.verify", "budget_s": 60},
        {"id": "measure", "title": "Against the baseline", "action": "kernel.measure", "budget_s": 120},
    ),
    "prove-gate": (
        {"id": "build", "title": "Compile", "action": "kernel.build", "budget_s": 20},
        {
            "id": "prove",
            "title": "Wrong on purpose",
            "action": "kernel.prove_gate",
            "with": {"python": True},
            "budget_s": 60,
            "gate": "prove.total > 0",
        },
    ),
}
"""What each command does, in order; a failure ends it."""


def run_bench(what: str, request: BenchRequest, screen: Screen) -> int:
    """Build, verify or measure variants; the exit code."""
    setting = trusted_setting(request.target, screen)
    sets = choose_sets(request.workloads, setting.target)
    plan = Plan(
        format=1,
        name="bench",
        title=f"{what} {' '.join(request.variants)}".strip(),
        patterns=("bench",),
        workloads=sets,
        checks=tuple(setting.target.workloads) if what == "verify" and not request.workloads else (),
        budget=PlanBudget(minutes=1),
    )
    steps = [dict(step) for step in STEPS[what]]
    if what == "measure":
        steps[-1]["with"] = {"rounds": request.rounds, "cold": request.cold}
    pattern = Pattern(
        format=1,
        name="bench",
        number=1,
        title=plan.title,
        problem="one variant at the bench",
        use_when=("at the bench",),
        estimate=Estimate(minutes=1),
        steps=tuple(Step.model_validate(step) for step in steps),
    )
    return walk_alone(setting, plan, pattern, request, screen)


def doctor(request: BenchRequest, screen: Screen) -> int:
    """The environment pattern alone; the exit code."""
    setting = trusted_setting(request.target, screen)
    pattern = setting.patterns["environment-validation"].value
    plan = Plan(
        format=1,
        name="doctor",
        title=pattern.title,
        patterns=(pattern.name,),
        workloads=choose_sets(request.workloads, setting.target),
        budget=PlanBudget(minutes=pattern.estimate.minutes),
    )
    return walk_alone(setting, plan, pattern, request, screen)


def walk_alone(setting: Setting, plan: Plan, pattern: Pattern, request: BenchRequest, screen: Screen) -> int:
    """Walk one pattern without leaving a session; the exit code."""
    device = choose_device(request.device, setting.target, request.variants)
    planned = PlannedPattern(pattern=pattern, planned=True, seconds=60, evidence="prior")
    with open_bench(setting, device, choose_threads(request.threads)) as bench:
        context = Context(
            bench=bench,
            plan=plan,
            variants=choose_variants(request.variants, setting.target, device),
            machine=machine(),
            seed=request.seed,
            folder=setting.project.target,
        )
        if pattern.name == "bench" and len(pattern.steps) > 1:
            bench.warm_up()  # torch is imported while the compiler works
        resolved = ResolvedPlan(plan=plan, patterns=(planned,))
        walk = Walk(resolved, context, lambda finished: {})
        ending = drive(walk, Show(screen), nowhere)
    failed = any(record.status != "passed" for record in walk.finished)
    if request.json:
        screen.data(to_json(findings(walk.finished, failed)))
    else:
        show_findings(walk.finished, screen)
    return ending.exit_code or (ExitCode.GATE_FAILED if failed else ExitCode.OK)


def findings(finished: Sequence[Finished], failed: bool) -> dict[str, Any]:
    """What `--json` prints."""
    keep = {"step", "status", "seconds", "message", "hint", "output"}
    steps = [record.model_dump(mode="json", include=keep) for record in finished]
    return {"schema_version": 1, "status": "failed" if failed else "passed", "steps": steps}


def show_findings(finished: Sequence[Finished], screen: Screen) -> None:
    """Tables of checks and timings, to stdout."""
    for record in finished:
        output = read_output(record.action, record.output)
        if isinstance(output, VerifyOutput):
            _show_checks(output, screen)
        if isinstance(output, MeasureOutput):
            _show_timings(output, screen)
        if isinstance(output, GateOutput):
            _show_gate(output, screen)


def _show_checks(output: VerifyOutput, screen: Screen) -> None:
    rows = []
    for checks in output.variants:
        right = sum(check.passed for check in checks.checks)
        largest = max((check.max_error or 0.0 for check in checks.checks), default=0.0)
        rows.append((checks.variant, f"{right} of {len(checks.checks)}", f"{largest:.1e}"))
    screen.table(("variant", "right", "largest error"), rows)
    for checks in output.variants:
        for check in checks.checks:
            if not check.passed:
                screen.data(f"{checks.variant}: {check.status}: {check.message}")
        if not checks.right:
            screen.data(f"the same values again: loop kernels verify {checks.variant} --seed {output.seed}")
    screen.data("")


def _show_timings(output: MeasureOutput, screen: Screen) -> None:
    words = {(verdict.variant, verdict.workload): verdict.verdict for verdict in output.verdicts}
    rows = [
        (
            one.variant,
            one.workload.name,
            f"{one.reference_us:.1f}",
            f"{one.candidate_us:.1f}",
            f"{one.ratio:.2f}x",
            f"{one.interval[0]:.2f}-{one.interval[1]:.2f}",
            words.get((one.variant, one.workload.name), "")
            + ("" if one.timed_by == "loop" else " (its own clock)"),
        )
        for one in output.measurements
    ]
    heads = ("variant", "workload", "library us", "ours us", "ratio", "99 %", "verdict")
    if rows:
        screen.table(heads, rows, wrap=1)


def _show_gate(output: GateOutput, screen: Screen) -> None:
    for base in dict.fromkeys(one.base for one in output.controls):
        screen.data(f"{base}:")
        groups: dict[tuple[str, bool], list[ControlResult]] = {}
        for one in output.controls:
            if one.base == base:
                groups.setdefault((_without_type(one.name), one.survived), []).append(one)
        for (name, survived), same in groups.items():
            word = "SURVIVED" if survived else "passed" if not same[0].killed else "killed"
            times = f" ({len(same)} types)" if len(same) > 1 else ""
            screen.data(f"  {word:<8} {name + times:<42} {_short_reason(same[0])}".rstrip()[:COLUMNS])
    left_out = dict.fromkeys(_without_type(line.partition(":")[0]) for line in output.not_applicable)
    if left_out:
        screen.data(f"not applicable: {', '.join(left_out)}")
    for line in output.wrong_reasons:
        screen.data(f"rejected for another reason than its own: {line}")
    screen.data(f"killed {output.killed} of {output.total}")


def _without_type(name: str) -> str:
    """`zeros` for `zeros, float16`."""
    head, _, last = name.rpartition(", ")
    return head if last in ITEM_SIZES else name


def _short_reason(one: ControlResult) -> str:
    """Why a control was rejected, without the workload and the worst element."""
    return one.reason.partition(f" on {one.workload}")[0]


def choose_sets(names: Sequence[str], target: Target) -> tuple[str, ...]:
    """The named workload sets, or the target's first. Raises LoopError for one that does not exist."""
    for name in names:
        if name not in target.workloads:
            hint = definitions.hint_for(name, target.workloads)
            raise LoopError(f"target {target.name} has no workload set {name!r}", hint=hint)
    return tuple(names) or (next(iter(target.workloads)),)


def list_variants(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """The variants of a target."""
    setting = read_setting(target)
    if as_json:
        variants = {name: v.model_dump(mode="json") for name, v in setting.target.variants.items()}
        screen.data(to_json({"schema_version": 1, "target": setting.target.name, "variants": variants}))
        return ExitCode.OK
    rows = [(name, v.kind, v.device, ", ".join(v.dtypes), v.title) for name, v in setting.target.variants.items()]
    screen.table(("variant", "kind", "device", "types", "idea"), rows)
    return ExitCode.OK


def show_variant(name: str, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """One variant, its recipe, and the workload sets of its target."""
    setting = read_setting(target)
    chosen = choose_variants([name], setting.target, _any_device(setting.target, name))[0]
    variant = setting.target.variants[chosen]
    if as_json:
        screen.data(to_json({"schema_version": 1, "name": chosen, **variant.model_dump(mode="json")}))
        return ExitCode.OK
    screen.data(f"{chosen}: {variant.title}")
    for line in _recipe(variant, setting):
        screen.data(f"  {line}")
    for set_name in setting.target.workloads:
        count = len(expand(setting.target, [set_name], variant.dtypes[0]))
        screen.data(f"  workloads {set_name}: {count}")
    screen.data(f"try: loop kernels measure {chosen}")
    return ExitCode.OK


def _any_device(target: Target, name: str) -> Any:
    variant = target.variants.get(name)
    return "cuda" if variant is not None and variant.device == "cuda" else "cpu"


def _recipe(variant: Variant, setting: Setting) -> list[str]:
    folder = setting.project.target
    if isinstance(variant, CAbiVariant):
        command = " ".join([variant.build.compiler, *variant.build.flags])
        sources = [f"source {folder / source}" for source in variant.sources]
        return [f"entry {variant.entry}", *sources, f"built by {command}"]
    if isinstance(variant, PythonVariant):
        return [f"imported from {variant.module}:{variant.function}"]
    return [f"run as {' '.join(variant.run)}"]


def header(screen: Screen) -> int:
    """Path of the C header that a kernel includes."""
    screen.data(str(include_folder() / "loop_kernel.h"))
    return ExitCode.OK
