"""`loop kernels ...` and `loop doctor`: single steps of the bench, without a session."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loop.actions import Context
from loop.bench.machine import machine
from loop.commands.drive import Show, drive, nowhere
from loop.commands.setting import (
    Setting,
    choose_device,
    choose_emulated,
    choose_threads,
    choose_variants,
    open_bench,
    read_setting,
    trusted_setting,
)
from loop.documents import to_json
from loop.errors import ExitCode, LoopError
from loop.library import definitions
from loop.model.measurement import ControlResult, VariantChecks
from loop.model.output import GateOutput, MeasureOutput, ResourcesOutput, VerifyOutput, read_output
from loop.model.pattern import Estimate, Pattern, Step
from loop.model.plan import Plan, PlanBudget, PlannedPattern, ResolvedPlan
from loop.model.record import Finished
from loop.model.target import ITEM_SIZES, CAbiVariant, Device, Entry, PythonVariant, Target, Variant
from loop.model.workloads import WorkloadError, expand, read_words
from loop.places import include_folder
from loop.report.resources import kernel_rows, summary_lines
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
    emulate: bool = False
    """Run variants made for a GPU under the emulator, though a GPU may be at hand."""
    sanitize: bool = False
    """Emulate, with the sanitizers."""
    gpu: str = "sm_89"
    """The GPU that is reckoned with where kernels are held against one: its compute capability."""
    json: bool = False


MOST_FAILURES = 6
"""Failed checks of a variant that are told on the screen."""
COLUMNS = 110
"""Width of a line on a control; its whole reason is in the JSON."""
STEPS: dict[str, tuple[dict[str, Any], ...]] = {
    "build": ({"id": "build", "title": "Compile", "action": "kernel.build", "budget_s": 20},),
    "verify": (
        {"id": "build", "title": "Compile", "action": "kernel.build", "budget_s": 20},
        {"id": "verify", "title": "Against float64", "action": "kernel.verify", "budget_s": 60},
        {"id": "emulate", "title": "Under the emulator", "action": "kernel.emulate", "budget_s": 60},
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
    "resources": (
        {"id": "resources", "title": "What a GPU would do", "action": "kernel.resources", "budget_s": 60},
    ),
}
"""What each command does, in order; a failure ends it."""
EMULATES = ("build", "verify", "resources")
"""Commands that also take variants which can only be emulated."""


@dataclass(frozen=True)
class Chosen:
    """What runs where."""

    device: Device
    variants: tuple[str, ...]
    emulated: tuple[str, ...] = ()


def choose(what: str, request: BenchRequest, target: Target) -> Chosen:
    """Device and variants of a command. Raises LoopError where a speed is asked of what can only be emulated."""
    emulate = request.emulate or request.sanitize
    names = request.variants or (target.emulated if emulate else ())
    device = choose_device("cpu" if emulate else request.device, target, names)
    variants, emulated = choose_variants(names, target, device), choose_emulated(names, target, device)
    if what in EMULATES:
        return Chosen(device, variants, emulated)
    if not variants:
        hint = f"loop kernels verify {emulated[0]}" if emulated else "loop kernels list"
        raise LoopError(
            f"no GPU: {', '.join(emulated)} can only be emulated, and what is emulated is not timed", hint
        )
    return Chosen(device, variants)


def run_bench(what: str, request: BenchRequest, screen: Screen) -> int:
    """Build, verify or measure variants; the exit code."""
    setting = with_given(trusted_setting(request.target, screen), request.workloads)
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
    chosen = choose(what, request, setting.target)
    steps = [dict(step) for step in STEPS[what] if _concerns(step, chosen)]
    if what == "measure":
        steps[-1]["with"] = {"rounds": request.rounds, "cold": request.cold}
    if what == "resources":
        steps[-1]["with"] = {"device": choose_gpu(request.gpu, setting.target)}
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
    return walk_alone(setting, plan, pattern, chosen, request, screen)


def _concerns(step: Mapping[str, Any], chosen: Chosen) -> bool:
    """Whether a step has anything to do."""
    needed = {"kernel.verify": chosen.variants, "kernel.emulate": chosen.emulated}
    return bool(needed.get(step["action"], True))


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
    return walk_alone(setting, plan, pattern, choose("doctor", request, setting.target), request, screen)


def walk_alone(
    setting: Setting, plan: Plan, pattern: Pattern, chosen: Chosen, request: BenchRequest, screen: Screen
) -> int:
    """Walk one pattern without leaving a session; the exit code."""
    planned = PlannedPattern(pattern=pattern, planned=True, seconds=60, evidence="prior")
    threads = choose_threads(request.threads)
    with open_bench(setting, chosen.device, threads, sanitize=request.sanitize) as bench:
        context = Context(
            bench=bench,
            plan=plan,
            variants=chosen.variants,
            emulated=chosen.emulated,
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
        if isinstance(output, ResourcesOutput):
            _show_resources(output, screen)


def _show_checks(output: VerifyOutput, screen: Screen) -> None:
    rows = []
    for checks in output.variants:
        right = sum(check.passed for check in checks.checks)
        plain = [check for check in checks.checks if check.workload.values == "normal"] or checks.checks
        largest = max((check.max_error or 0.0 for check in plain), default=0.0)
        rows.append(
            (
                checks.variant + (" (emulated)" if checks.emulated else ""),
                f"{right} of {len(checks.checks)}",
                f"{largest:.1e}",
            )
        )
    screen.table(("variant", "right", "largest error"), rows)
    for checks in output.variants:
        for line in checks.failures[:MOST_FAILURES]:
            screen.data(f"{checks.variant}: {line}")
        if len(checks.failures) > MOST_FAILURES:
            screen.data(
                f"{checks.variant}: and {len(checks.failures) - MOST_FAILURES} more; all of them with --json"
            )
        if not checks.right:
            screen.data(_again(checks, output.seed))
    screen.data("")


def _again(checks: VariantChecks, seed: int) -> str:
    """The command with which the first failure comes again, by the emulator's schedule too where it named one."""
    message = checks.first_failure.message if checks.first_failure else ""
    drawn = re.search(r"\(seed (\d+)\)", message)
    schedule = f"LOOP_EMULATOR_SEED={drawn[1]} " if drawn else ""
    what = "values and schedule" if drawn else "values"
    return f"the same {what} again: {schedule}loop kernels verify {checks.variant} --seed {seed}"


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


def _show_resources(output: ResourcesOutput, screen: Screen) -> None:
    heads = ("kernel", "regs", "spill", "shared", "blocks/SM", "MMA")
    rows = [(row.name, *row.figures) for row in kernel_rows(output)]
    if rows:
        screen.table(heads, rows, wrap=0)
    for line in (*summary_lines(output), *(f"not exercised: {text}" for text in output.not_exercised)):
        screen.data(line)


def choose_gpu(name: str, target: Target) -> str:
    """A GPU of the target's, by compute capability. Raises LoopError for one that it does not know."""
    if target.devices and name not in target.devices:
        known = ", ".join(f"{key} ({one.name})" for key, one in target.devices.items())
        raise LoopError(f"target {target.name} has no device {name!r}", hint=f"its devices: {known}")
    return name


def with_given(setting: Setting, names: Sequence[str]) -> Setting:
    """The setting, its target with a set for each workload that is given by its sizes, as in `B=1 S=65 D=64`."""
    sets: dict[str, tuple[Entry, ...]] = dict(setting.target.workloads)
    for text in (name for name in names if "=" in name):
        try:
            sets[text] = ({**read_words(text)},)
            expand(setting.target.model_copy(update={"workloads": sets}), [text], "float32")
        except WorkloadError as error:
            raise LoopError(f"--workloads {text!r}: {error}") from error
    return replace(setting, target=setting.target.model_copy(update={"workloads": sets}))


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
