"""Compiler reports of a session's CUDA kernels, and the launches of their host code."""

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from loop.base.processes import Tick, run_side_by_side
from loop.builds import build, resources
from loop.builds.resources import demangle_symbols
from loop.gate.kernel import compile_all
from loop.machine.machine import cores
from loop.model.measurement import Build
from loop.model.profile import DeviceFacts
from loop.model.resources import (
    CompiledLibrary,
    KernelLaunch,
    KernelResources,
    Placement,
    WorkloadLaunches,
    short_name,
)
from loop.model.target import CAbiVariant, Workload
from loop.model.workloads import expand_sets, is_supported
from loop.profile.launch_limits import launch_residency
from loop.steps.context import Context
from loop.workers.bench import Bench
from loop.workers.messages import ListLaunches
from loop.workers.program import Refusal, Worker, WorkerLost

ARCHITECTURE = re.compile(r"sm_(\d+)(\d)([af]?)$")
LIMIT_S = 20.0
"""Time limit in seconds of one dry-run call, which computes nothing."""
NO_REPORT = "its compiler was not asked what kernels take"
DRY_RUN_HINT = "in a dry run no tensor may be touched by the host"


@dataclass
class KernelFindings:
    """Reports and launches of a target's CUDA kernels, with problems and gaps."""

    architecture: str
    device: DeviceFacts | None
    libraries: list[CompiledLibrary] = field(default_factory=list)
    """The compiler's report on each library."""
    launches: dict[str, Sequence[WorkloadLaunches]] = field(default_factory=dict)
    """Variant to the launches of each workload."""
    names: dict[str, str] = field(default_factory=dict)
    """Symbol of a launched kernel to its demangled name."""
    problems: dict[str, str] = field(default_factory=dict)
    """Problem that fails the step, to its remedy."""
    missing: list[str] = field(default_factory=list)
    """Parts that were not inspected, each with reason and remedy."""

    def find_kernel(self, variant: str, symbol: str) -> KernelResources | None:
        """Compiler's report on a kernel that `variant` launches, by its symbol or its name; None without one."""
        name = self.names.get(symbol, symbol)
        for library in self.libraries:
            for kernel in library.kernels if variant in library.variants else ():
                if kernel.entry and (symbol == kernel.symbol or name == kernel.name):
                    return kernel
        return None

    def list_placements(self, device: DeviceFacts) -> Iterator[Placement]:
        """Each launch with its occupancy on a GPU."""
        for variant, calls in self.launches.items():
            for call in calls:
                for launch in call.launches:
                    kernel = self.find_kernel(variant, launch.kernel)
                    shared = (kernel.shared_bytes if kernel else launch.shared_static) + launch.shared
                    registers = kernel.registers if kernel else None
                    blocks, limited_by = launch_residency(launch, registers, shared, device)
                    name = kernel.name if kernel else self.names.get(launch.kernel, launch.kernel)
                    yield Placement(
                        variant=variant,
                        kernel=short_name(name),
                        symbol=kernel.symbol if kernel else launch.kernel,
                        blocks=launch.blocks,
                        threads=launch.threads,
                        shared_bytes=shared,
                        registers=registers,
                        resident=blocks,
                        limited_by=limited_by,
                        workload=call.workload.name,
                    )

    def note_unreported_kernels(self, placements: Sequence[Placement]) -> None:
        """Note in `missing` the launched kernels that the compiler's report lacks: their registers are unknown."""
        compiled = {variant for library in self.libraries for variant in library.variants}
        unreported = [launch for launch in placements if launch.variant in compiled and launch.registers is None]
        if unreported:
            names = ", ".join(dict.fromkeys(launch.kernel for launch in unreported))
            self.missing.append(f"registers of {names}: launched, and not in the compiler's report")


def runs_on(code: str, device: str) -> bool:
    """True if a GPU of architecture `device` runs machine code for `code`: the major numbers must be equal, and
    the code's minor no higher. Code for `sm_90a` runs on `sm_90` alone."""
    code_match, device_match = ARCHITECTURE.match(code), ARCHITECTURE.match(device)
    if not code_match or not device_match or code_match[1] != device_match[1]:
        return False
    code_minor, device_minor = int(code_match[2]), int(device_match[2])
    return code_minor == device_minor if code_match[3] == "a" else code_minor <= device_minor


def cuda_variants(context: Context) -> dict[str, CAbiVariant]:
    """The session's variants that nvcc compiles, also those emulated here; placeholders in their flags stay."""
    chosen: dict[str, CAbiVariant] = {}
    for name in variant_names(context):
        variant = context.bench.target.variants[name]
        if isinstance(variant, CAbiVariant) and resources.is_nvcc(variant.build):
            chosen[name] = variant
    return chosen


def variant_names(context: Context) -> tuple[str, ...]:
    """All variants of the session, in the manifest's order."""
    names = {*context.task.variants, *context.task.emulated}
    return tuple(name for name in context.bench.target.variants if name in names)


def build_for_gpu(
    context: Context, chosen: Iterable[str], findings: KernelFindings
) -> Generator[Tick, None, tuple[Build, ...]]:
    """Build each chosen variant for the GPU of `findings`, and note failures there; returns the others."""
    variants: dict[str, CAbiVariant] = {}
    for name in chosen:
        variant = context.bench.target.compiled_variant(name, findings.architecture)
        if variant.architecture in (None, findings.architecture):
            variants[name] = variant
        else:
            why = f"it is made for {variant.architecture}"
            findings.missing.append(f"{name} on {findings.architecture}: {why}")
    purpose = f"compiler's report for {findings.architecture}"
    return (yield from _build_variants(context, variants, purpose, findings))


def _build_variants(
    context: Context, variants: Mapping[str, CAbiVariant], purpose: str, findings: KernelFindings
) -> Generator[Tick, None, tuple[Build, ...]]:
    """Build these variants; returns the builds. A failure is a problem of `findings`, or missing
    if no compiler is there. `purpose`: of the builds."""
    built, failures = yield from compile_all(context, variants, will_run=False)
    for failed in failures:
        if failed.no_compiler:
            findings.missing.append(f"{purpose}: {failed.message}; {failed.hint}")
        else:
            findings.problems[failed.message] = failed.hint
    return built


def read_reports(chosen: Mapping[str, CAbiVariant], built: Sequence[Build], findings: KernelFindings) -> None:
    """Note in `findings` the compiler's report on each library. Builds with one build id share a library."""
    architecture, builds_by_id = findings.architecture, dict[str, list[Build]]()
    for library in built:
        builds_by_id.setdefault(library.build_id, []).append(library)
    for build_id, builds in builds_by_id.items():
        names = tuple(library.variant for library in builds)
        label = ", ".join(names)
        kernels, was_cut = resources.read_report(builds[0])
        architectures = dict.fromkeys(kernel.architecture for kernel in kernels)
        runnable = [code for code in architectures if runs_on(code, architecture)]
        if runnable:
            if was_cut:
                findings.missing.append(f"some kernels of {label}: the compiler's log was too long to keep")
            nearest = max(runnable)  # All have the GPU's major number.
            code = tuple(kernel for kernel in kernels if kernel.architecture == nearest)
            fields = {"variants": names, "build_id": build_id, "architecture": nearest, "kernels": code}
            findings.libraries.append(CompiledLibrary.model_validate(fields))
        elif kernels:
            why = f"its code is for {', '.join(architectures)} only"
            remedy = "let `-arch={arch}` stand in its `build.flags`"
            findings.missing.append(f"{label} on {architecture}: {why}; {remedy}")
        elif resources.requests_report(chosen[names[0]].build.flags):
            findings.missing.append(f"compiler's report for {architecture}: {label} has no kernel of its own")
        else:
            findings.problems[f"{label}: {NO_REPORT}"] = resources.REPORT_HINT


def find_launches(
    context: Context, chosen: Mapping[str, CAbiVariant], findings: KernelFindings, *, only_built: bool
) -> Generator[Tick, None, None]:
    """Ask host code in a dry run which kernels it launches; adds answers to `findings`. `only_built`: True: only
    variants already built for the emulator; False: build them, with the values that were tuned for the GPU."""
    target, bench = context.bench.target, context.bench
    places = {"cache": bench.cache, "include": bench.include}
    variants: dict[str, CAbiVariant] = {}
    for name, variant in chosen.items():
        if variant.emulation is None or variant.architecture not in (None, findings.architecture):
            continue
        emulated = target.emulated_variant(name, "" if only_built else findings.architecture)
        if only_built and build.find_build(name, emulated, context.task.folder, **places) is None:
            findings.missing.append(f"launches of {name}: it is not built for the emulator here")
        else:
            variants[name] = emulated
    builds = yield from _build_variants(context, variants, "launches", findings)
    dry_runs, symbols = [], set[str]()
    for library in builds:
        workloads = _workloads_to_launch(context, chosen[library.variant])
        dry_runs.append(ask_for_launches(bench, library, workloads))
    answers = yield from run_side_by_side(dry_runs, cores())
    for library, calls in zip(builds, answers, strict=True):
        _add_launches(library.variant, calls, findings)
        symbols |= {launch.kernel for call in calls for launch in call.launches}
    findings.names = demangle_symbols(sorted(symbols))


def _workloads_to_launch(context: Context, variant: CAbiVariant) -> list[Workload]:
    """The plan's workloads, then each other shape of the target, in every type of the variant."""

    def shape(workload: Workload) -> str:
        """Everything a launch may depend on: type, sizes and attributes, but not tensor values."""
        return str((workload.dtype, sorted((workload.sizes | workload.attributes).items())))

    target, workloads = context.bench.target, timed_workloads(context, variant)
    timed_shapes = {shape(workload) for workload in workloads}
    others: dict[str, Workload] = {}
    for dtype in variant.dtypes:
        for workload in expand_sets(target, target.workloads, dtype):
            if is_supported(variant, workload) and shape(workload) not in timed_shapes:
                others[shape(workload)] = workload
    return [*workloads, *others.values()]


def timed_workloads(context: Context, variant: CAbiVariant) -> list[Workload]:
    """The plan's workloads that the variant supports, in the type that is measured on a GPU."""
    target = context.bench.target
    dtype = target.dtypes.get("cuda", variant.dtypes[0])
    workloads = expand_sets(target, context.task.plan.workloads, dtype)
    return [workload for workload in workloads if is_supported(variant, workload)]


def ask_for_launches(
    bench: Bench, build: Build, workloads: Sequence[Workload]
) -> Generator[Tick, None, tuple[WorkloadLaunches, ...]]:
    """The launches of each workload, as host code built for the emulator (`build`) reports them in a dry run. An
    error makes one workload `declined`; a crash or hang makes it `lost`, and ends the result."""
    calls: list[WorkloadLaunches] = []
    terms = bench.make_side(build.variant, build).terms
    path = bench.scratch / f"launches-{build.variant}.jsonl"
    path.unlink(missing_ok=True)
    with Worker(1) as worker:
        for workload in workloads:
            request = ListLaunches(terms, str(path), bench.make_call(workload, "dry"))
            try:
                reply = yield from worker.ask(request, limit_s=LIMIT_S, note=f"launches of {workload.name}")
                launches = []
                for record in reply.launches:
                    if "remark" not in record:  # Else the record is no launch.
                        names = KernelLaunch.model_fields.keys() & record.keys()
                        fields = {name: record[name] for name in names}
                        launches.append(KernelLaunch.model_validate(fields))
            except (Refusal, WorkerLost, ValidationError) as error:
                why = str(error)
                if isinstance(error, ValidationError):
                    why = f"what it tells of a launch cannot be read: {error.errors()[0]['msg']}"
                calls.append(WorkloadLaunches(workload=workload, status="lost", why=why))
                break
            status: Literal["declined", "told"] = "declined" if reply.entry_error else "told"
            answer = {"status": status, "why": reply.entry_error, "launches": tuple(launches)}
            calls.append(WorkloadLaunches(workload=workload, **answer))
    return tuple(calls)


def _add_launches(name: str, calls: tuple[WorkloadLaunches, ...], findings: KernelFindings) -> None:
    """Add the reported launches of a variant to `findings`, and the workloads that have none."""
    declined = [call for call in calls if call.status == "declined"]
    for call in calls:
        if call.status == "lost":
            problem = f"{name} does not say what it launches on {call.workload.name}: {call.why}"
            findings.problems[problem] = DRY_RUN_HINT
    if declined:
        more = f", and {len(declined) - 1} more" if len(declined) > 1 else ""
        findings.missing.append(f"launches of {name} on {declined[0].workload.name}{more}: {declined[0].why}")
    if any(call.launches for call in calls):
        findings.launches[name] = calls
    elif not declined and all(call.status == "told" for call in calls):
        findings.missing.append(f"launches of {name}: its emulated build tells of none in a dry run")
