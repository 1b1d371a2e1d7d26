"""What compilers and host code say of a session's CUDA kernels: their reports, and the launches of every call."""

import re
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from loop.base.processes import Tick, run, together
from loop.builds import build, resources
from loop.builds.build import first_error, how_to_install, linked
from loop.builds.known_builds import ENGLISH
from loop.builds.resources import BINUTILS, defined_names, demangle
from loop.gate.kernel import compile_all
from loop.machine.machine import compiler_version, cores
from loop.model.measurement import Build
from loop.model.resources import (
    CompiledLibrary,
    KernelLaunch,
    KernelResources,
    Placement,
    WorkloadLaunches,
    short_name,
)
from loop.model.target import BuildRecipe, CAbiVariant, MustNotCompile, ResourceBudget, Target, Workload
from loop.model.workloads import accepts, expand
from loop.profile.launch_limits import KernelFindings
from loop.profile.model import InstancesOutput, MissingInstance, MustNotCompileOutput, RefusedSource
from loop.steps.context import Context, NoArguments, Result, Working
from loop.workers.bench import Bench
from loop.workers.messages import Launches
from loop.workers.program import Refusal, Worker, WorkerLost

ARCHITECTURE = re.compile(r"sm_(\d+)(\d)([af]?)$")


def runs_on(code: str, device: str) -> bool:
    """Whether a GPU runs machine code of that architecture: its own major number, no higher minor one.

    `sm_90a` runs on `sm_90` alone, `sm_100f` on its family.
    """
    code_match, there = ARCHITECTURE.match(code), ARCHITECTURE.match(device)
    if not code_match or not there or code_match[1] != there[1]:
        return False
    return code_match[2] == there[2] if code_match[3] == "a" else int(code_match[2]) <= int(there[2])


def code_for(kernels: Sequence[KernelResources], device: str) -> tuple[KernelResources, ...]:
    """Of code for several architectures that which the GPU takes: the nearest to its own."""
    fitting = {kernel.architecture for kernel in kernels if runs_on(kernel.architecture, device)}
    nearest = max(fitting, default=None)  # Their major numbers are the same.
    return tuple(kernel for kernel in kernels if kernel.architecture == nearest)


def budget_of(name: str, budgets: Iterable[ResourceBudget]) -> ResourceBudget | None:
    """The first budget that is meant for a kernel."""
    return next((budget for budget in budgets if budget.fits(name)), None)


def spilling(library: CompiledLibrary, budgets: Sequence[ResourceBudget]) -> Iterator[tuple[KernelResources, int]]:
    """Kernels that spill more than they may, and what they may. Without a budget that is nothing."""
    for kernel in library.kernels:
        budget = budget_of(kernel.name, budgets)
        allowed = budget.spill_bytes if budget else 0
        if kernel.spill_bytes > allowed:
            yield kernel, allowed


def broken(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> Iterator[str]:
    """Every budget that is not kept, a line each; also one that fits no kernel, for nothing keeps it."""
    for kernel in library.kernels:
        own = budget_of(kernel.name, budgets)
        if own is None:
            continue
        placed = [placement for placement in placements if placement.symbol == kernel.symbol]
        shared = max((placement.shared_bytes for placement in placed), default=kernel.shared_bytes)
        limits = {
            "registers": (kernel.registers, own.registers),
            "bytes of stack": (kernel.stack_bytes, own.stack_bytes),
            "bytes of shared memory": (shared, own.shared_bytes),
        }
        for what, (takes, most) in limits.items():
            if most is not None and takes is not None and takes > most:
                yield f"{kernel.short}: {takes} {what}, budget {most}"
        fewest = min((placement.resident for placement in placed), default=None)
        if own.blocks_per_sm is not None and fewest is not None and fewest < own.blocks_per_sm:
            yield f"{kernel.short}: {fewest} blocks a multiprocessor, budget {own.blocks_per_sm} at least"
    for budget in budgets:
        if not any(budget.fits(kernel.name) for kernel in library.kernels):
            yield f"the budget for {budget.kernel!r} fits no kernel of {', '.join(library.variants)}"


def unchecked(
    library: CompiledLibrary, budgets: Sequence[ResourceBudget], placements: Sequence[Placement]
) -> Iterator[str]:
    """Kernels whose budget needs a launch, and that no known workload launches."""
    placed = {placement.symbol for placement in placements}
    for kernel in library.kernels:
        budget = budget_of(kernel.name, budgets)
        needs_launch = budget is not None and (budget.blocks_per_sm or budget.shared_bytes is not None)
        if needs_launch and kernel.entry and kernel.symbol not in placed:
            yield kernel.short


LIMIT_S = 20.0
"""For one call: nothing is computed."""


def ask_launches(
    bench: Bench, build: Build, workloads: Sequence[Workload]
) -> Generator[Tick, None, tuple[WorkloadLaunches, ...]]:
    """What each workload launches, told by the host code in a dry run; `build` is the variant's emulated one.

    An error that the variant returns concerns one workload. When the library cannot be asked at all, or crashes or
    hangs, the workload at which that shows is the last of the answer.
    """
    calls: list[WorkloadLaunches] = []
    terms = bench.side(build.variant, build).terms
    path = bench.scratch / f"launches-{build.variant}.jsonl"
    path.unlink(missing_ok=True)
    with Worker(1) as worker:
        for workload in workloads:
            request = Launches(terms, str(path), bench.call(workload, "dry"))
            try:
                reply = yield from worker.ask(request, limit_s=LIMIT_S, note=f"launches of {workload.name}")
                launches = []
                for record in reply.launches:
                    known = {name: record[name] for name in KernelLaunch.model_fields if name in record}
                    launches += [] if "remark" in record else [KernelLaunch.model_validate(known)]
            except (Refusal, WorkerLost, ValidationError) as error:
                why = str(error)
                if isinstance(error, ValidationError):
                    why = f"what it tells of a launch cannot be read: {error.errors()[0]['msg']}"
                calls.append(WorkloadLaunches(workload=workload, status="lost", why=why))
                break
            status: Literal["declined", "told"] = "declined" if reply.declined else "told"
            answer = WorkloadLaunches(
                workload=workload, status=status, launches=tuple(launches), why=reply.declined
            )
            calls.append(answer)
    return tuple(calls)


def shape_of(workload: Workload) -> str:
    """What a launch may depend on, not the values: `float16 B=1 causal=True`."""
    return " ".join(
        [workload.dtype, *(f"{name}={value}" for name, value in (workload.sizes | workload.attributes).items())]
    )


NO_REPORT = "its compiler was not asked what kernels take"
DRY = "in a dry run no tensor may be touched by the host"


def cuda_variants(context: Context) -> dict[str, CAbiVariant]:
    """The variants of the session that nvcc compiles, also those that are emulated here; flags as written."""
    variants = context.bench.target.variants
    chosen = {name: variant for name in named(context) if isinstance(variant := variants[name], CAbiVariant)}
    return {name: variant for name, variant in chosen.items() if resources.made_by_nvcc(variant.build)}


def named(context: Context) -> tuple[str, ...]:
    """All variants of the session, in the manifest's order."""
    names = {*context.task.variants, *context.task.emulated}
    return tuple(name for name in context.bench.target.variants if name in names)


def compiled(
    context: Context, chosen: Iterable[str], findings: KernelFindings
) -> Generator[Tick, None, tuple[Build, ...]]:
    """Every variant built for the GPU."""
    variants: dict[str, CAbiVariant] = {}
    for name in chosen:
        variant = context.bench.target.compiled(name, findings.architecture)
        if variant.architecture in (None, findings.architecture):
            variants[name] = variant
        else:
            made_for = f"it is made for {variant.architecture}"
            findings.missing.append(f"{name} on {findings.architecture}: {made_for}")
    return (yield from _build(context, variants, f"compiler's report for {findings.architecture}", findings))


def read_compilers(
    chosen: Mapping[str, CAbiVariant], built: Sequence[Build], findings: KernelFindings
) -> Generator[Tick, None, None]:
    """What the compiler reports of these builds; those that share sources and flags share a library."""
    shared: dict[str, list[Build]] = {}
    for library in built:
        shared.setdefault(library.build_id, []).append(library)
    reading = (_read(same, chosen[same[0].variant], findings) for same in shared.values())
    libraries = yield from together(reading, cores())
    findings.libraries = [library for library in libraries if library is not None]


def _build(
    context: Context, variants: Mapping[str, CAbiVariant], what: str, findings: KernelFindings
) -> Generator[Tick, None, tuple[Build, ...]]:
    """The builds that succeed. Adds the failures of the others to the findings."""
    built, failures = yield from compile_all(context, variants, to_run=False)
    for failed in failures:
        if failed.no_compiler:
            findings.missing.append(f"{what}: {failed.message}; {failed.hint}")
        else:
            findings.problems[failed.message] = failed.hint
    return built


def _read(
    same: Sequence[Build], variant: CAbiVariant, findings: KernelFindings
) -> Generator[Tick, None, CompiledLibrary | None]:
    """The compiler's report on one library; None without one, with the reason among the findings."""
    names, architecture = tuple(build.variant for build in same), findings.architecture
    who = ", ".join(names)
    kernels, was_cut = yield from resources.read_report(same[0])
    code = code_for(kernels, architecture)
    if code:
        if was_cut:
            findings.missing.append(f"some kernels of {who}: the compiler's log was too long to keep")
        return CompiledLibrary(
            variants=names, build_id=same[0].build_id, architecture=code[0].architecture, kernels=code
        )
    if kernels:
        others = ", ".join(dict.fromkeys(kernel.architecture for kernel in kernels))
        mend = "let `-arch={arch}` stand in its `build.flags`"
        findings.missing.append(f"{who} on {architecture}: its code is for {others} only; {mend}")
    elif resources.asks_for_report(variant.build.flags):
        findings.missing.append(f"compiler's report for {architecture}: {who} has no kernel of its own")
    else:
        findings.problems[f"{who}: {NO_REPORT}"] = resources.ASK
    return None


def ask_host_code(
    context: Context, chosen: Mapping[str, CAbiVariant], findings: KernelFindings, *, built: bool
) -> Generator[Tick, None, None]:
    """Ask the host code of variants that can be emulated what it launches, with the values of the GPU.

    `built`: only of those that are built for the emulator already.
    """
    target, bench = context.bench.target, context.bench
    device = "" if built else findings.architecture
    variants = {
        name: target.emulation(name, device)
        for name, variant in chosen.items()
        if variant.emulation is not None and variant.architecture in (None, findings.architecture)
    }
    for name in [*variants] if built else []:
        if build.find(name, variants[name], context.task.folder, cache=bench.cache, include=bench.include) is None:
            findings.missing.append(f"launches of {name}: it is not built for the emulator here")
            del variants[name]
    emulated = yield from _build(context, variants, "launches", findings)
    questions = (
        ask_launches(bench, library, _workloads(context, chosen[library.variant])) for library in emulated
    )
    for library, calls in zip(emulated, (yield from together(questions, cores())), strict=True):
        _hear(library.variant, calls, findings)
    symbols = {launch.kernel for calls in findings.launches.values() for call in calls for launch in call.launches}
    findings.names = yield from demangle(sorted(symbols))


def _workloads(context: Context, variant: CAbiVariant) -> list[Workload]:
    """The plan's workloads, then every other shape of the target in every type of the variant."""
    target, timed = context.bench.target, timed_workloads(context, variant)
    every = [workload for dtype in variant.dtypes for workload in expand(target, target.workloads, dtype)]
    shapes = {shape_of(workload): workload for workload in every if accepts(variant, workload)}
    for workload in timed:
        shapes.pop(shape_of(workload), None)
    return [*timed, *shapes.values()]


def timed_workloads(context: Context, variant: CAbiVariant) -> list[Workload]:
    """The plan's workloads in the type that is measured on a GPU."""
    target = context.bench.target
    dtype = target.dtypes.get("cuda", variant.dtypes[0])
    return [
        workload for workload in expand(target, context.task.plan.workloads, dtype) if accepts(variant, workload)
    ]


def _hear(name: str, calls: tuple[WorkloadLaunches, ...], findings: KernelFindings) -> None:
    """Add what the host code of a variant launches to the findings, and what it did not say."""
    declined = [call for call in calls if call.status == "declined"]
    for call in calls:
        if call.status == "lost":
            findings.problems[f"{name} does not say what it launches on {call.workload.name}: {call.why}"] = DRY
    if declined:
        also = f", and {len(declined) - 1} more" if len(declined) > 1 else ""
        findings.missing.append(f"launches of {name} on {declined[0].workload.name}{also}: {declined[0].why}")
    if any(call.launches for call in calls):
        findings.launches[name] = calls
    elif not declined and all(call.status == "told" for call in calls):
        findings.missing.append(f"launches of {name}: its emulated build tells of none in a dry run")


INDENTED = re.compile(r"^\s")
"""Compilers indent the source lines that they quote."""


def must_not_compile(context: Context, arguments: NoArguments) -> Working[MustNotCompileOutput]:
    """Compile every source that has to be refused, by its variant's recipe, and read what the compiler says."""
    target, chosen = context.bench.target, context.bench.compiled(named(context))
    tries, missing = [], []
    for name, promised in chosen.items():
        variant, why = _buildable(target, name, promised) if promised.must_not_compile else (None, "")
        missing += [f"what must not compile of {name}: {why}"] if why else []
        if variant is not None:
            tries += [_try(context, name, variant.build, source) for source in variant.must_not_compile]
    checks = yield from together(tries, cores())
    bad = [check for check in checks if check.status != "refused"]
    message = f"{len(checks)} of {len(checks)} bad configurations are refused, each in its own words"
    if not checks:
        message = "nothing was compiled" if missing else "the manifest names nothing that must not compile"
    hint = None
    if bad:
        first, more = bad[0], f"; and {len(bad) - 1} more" if len(bad) > 1 else ""
        what, hint = "it compiles", "assert it at compile time: static_assert(condition, message)"
        if first.status != "compiled":
            what = f"refused for another reason: {first.message}"
            hint = "make it wrong in the way that is meant and in no other, or mend `says` in target.yaml"
        message = f"{first.variant}, {first.title}: {what}{more}"
    output = MustNotCompileOutput(
        ok=not bad, message=message, hint=hint, not_exercised=tuple(missing), checks=tuple(checks)
    )
    return Result(output)


def _buildable(target: Target, name: str, variant: CAbiVariant) -> tuple[CAbiVariant | None, str]:
    """The variant built by its own recipe, or by the emulator's without its compiler; and what that leaves out."""
    if compiler_version(variant.build.compiler) is not None:
        return variant, ""
    lacks = f"{variant.build.compiler}: no such compiler on the PATH"
    if variant.emulation is not None and compiler_version(variant.emulation.compiler) is not None:
        says = f"{lacks}; looked at as {variant.emulation.compiler} builds it for the emulator"
        return target.emulation(name), says
    return None, f"{lacks}; {how_to_install(variant.build.compiler)}"


def _try(
    context: Context, name: str, recipe: BuildRecipe, source: MustNotCompile
) -> Generator[Tick, None, RefusedSource]:
    """Compile one source that must not compile."""
    with tempfile.TemporaryDirectory(prefix="refused-", dir=context.bench.scratch) as folder:
        flags = [flag for flag in recipe.flags if flag not in linked(recipe)]
        place = [f"-I{context.bench.include}", "-c", source.source, "-o", f"{folder}/refused.o"]
        command = [recipe.compiler, *flags, *source.flags, *place]
        note = f"refusing {source.source}"
        done = yield from run(
            command, cwd=context.task.folder, limit_s=context.kill_after_s, env=ENGLISH, note=note
        )
    lines = [line for line in (done.errors + done.output).splitlines() if not INDENTED.match(line)]
    promised = next((line.strip() for line in lines if source.says in line), None)
    status, message = "other", first_error(done.errors) or first_error(done.output) or done.how
    if done.ok:
        status, message = "compiled", "it compiles"
    elif done.timed_out or done.code < 0:
        message = f"the compiler was {done.how}" if done.timed_out else f"the compiler {done.how}"
    elif promised:
        status, message = "refused", promised
    return RefusedSource.model_validate(
        {"variant": name, "title": source.title, "status": status, "message": message}
    )


def instances(context: Context, arguments: NoArguments) -> Working[InstancesOutput]:
    """Look up every promised template instance in its variant's built library."""
    chosen = {
        name: variant for name, variant in context.bench.compiled(named(context)).items() if variant.instances
    }
    buildable: dict[str, CAbiVariant] = {}
    skipped: list[str] = []
    for name, promised in chosen.items():
        variant, why = _buildable(context.bench.target, name, promised)
        skipped += [f"instances of {name}: {why}"] if why else []
        buildable |= {name: variant} if variant else {}
    built, failures = yield from compile_all(context, buildable, to_run=False)
    count, missing = 0, list[MissingInstance]()
    for ready in built:
        names = yield from defined_names(Path(ready.library))
        if names is None:
            skipped.append(f"instances of {ready.variant}: there is no nm to read the library with; {BINUTILS}")
            continue
        there = {_canonical(short_name(name)) for name in names}
        for instance in chosen[ready.variant].instances:
            for symbol, line in instance.promised():
                count += 1
                if _canonical(symbol) not in there:
                    fields = {"variant": ready.variant, "symbol": symbol, "file": instance.file, "line": line}
                    missing.append(MissingInstance.model_validate(fields))
    message, hint = f"all {count} promised instances are there", None
    if not count:
        message = "nothing was looked up" if skipped else "the manifest promises no instances"
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        message = f"{missing[0].variant} has no {missing[0].symbol}{more}"
        files: dict[str, list[str]] = {}
        for absent in missing:
            files.setdefault(absent.file, []).append(absent.line)
        hint = "; ".join(f"add to {file}: {' '.join(dict.fromkeys(lines))}" for file, lines in files.items())
    if failures:
        message, hint = failures[0].message, failures[0].hint
    output = InstancesOutput(
        ok=not missing and not failures,
        message=message,
        hint=hint,
        not_exercised=tuple(skipped),
        promised=count,
        missing=tuple(missing),
    )
    return Result(output)


def _canonical(name: str) -> str:
    """A name without the spaces that demanglers and people put differently."""
    return "".join(name.split())
