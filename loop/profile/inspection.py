"""What compilers and host code say of a session's CUDA kernels: their reports, and the launches of every call."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loop.base.processes import Tick, together
from loop.builds import build, resources
from loop.builds.binaries import demangle
from loop.gate.kernel import compile_all
from loop.machine.machine import cores
from loop.model.device_profile import DeviceFacts
from loop.model.measurement import Build
from loop.model.resources import CompiledLibrary, WorkloadLaunches
from loop.model.target import CAbiVariant, Workload
from loop.model.workloads import accepts, expand
from loop.profile.launch_limits import Reports
from loop.profile.taking import ask_launches, calls_of, code_for, shape_of
from loop.steps.context import Context

NO_REPORT = "its compiler was not asked what kernels take"
DRY = "in a dry run no tensor may be touched by the host"


@dataclass
class KernelFindings(Reports):
    """What comes to light, variant by variant."""

    architecture: str
    device: DeviceFacts | None
    problems: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What was not looked at, why, and what mends it."""
    compilers: dict[str, str] = field(default_factory=dict)
    """Variant to the version of its compiler."""

    def wrong(self, problem: str, hint: str) -> None:
        """Something that fails the step."""
        self.problems.append(problem)
        self.hints.append(hint)


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
    findings.compilers = {build.variant: build.compiler for build in built}
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
            findings.wrong(failed.message, failed.hint)
    return built


def _read(
    same: Sequence[Build], variant: CAbiVariant, findings: KernelFindings
) -> Generator[Tick, None, CompiledLibrary | None]:
    """The compiler's report on one library; None without one, with the reason among the findings."""
    names, architecture = tuple(build.variant for build in same), findings.architecture
    who = ", ".join(names)
    report = yield from resources.read_report(same[0])
    code = code_for(report.kernels, architecture)
    if code:
        if report.cut:
            findings.missing.append(f"some kernels of {who}: the compiler's log was too long to keep")
        return CompiledLibrary(
            variants=names, build_id=same[0].build_id, architecture=code[0].architecture, kernels=code
        )
    if report.kernels:
        others = ", ".join(dict.fromkeys(kernel.architecture for kernel in report.kernels))
        mend = "let `-arch={arch}` stand in its `build.flags`"
        findings.missing.append(f"{who} on {architecture}: its code is for {others} only; {mend}")
    elif resources.asks_for_report(variant.build.flags):
        findings.missing.append(f"compiler's report for {architecture}: {who} has no kernel of its own")
    else:
        findings.wrong(f"{who}: {NO_REPORT}", resources.ASK)
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
    timed = timed_workloads(context, variant)
    shapes = {shape_of(workload) for workload in timed}
    return [
        *timed,
        *(workload for workload in calls_of(context.bench.target, variant) if shape_of(workload) not in shapes),
    ]


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
            findings.wrong(f"{name} does not say what it launches on {call.workload.name}: {call.why}", DRY)
    if declined:
        also = f", and {len(declined) - 1} more" if len(declined) > 1 else ""
        findings.missing.append(f"launches of {name} on {declined[0].workload.name}{also}: {declined[0].why}")
    if any(call.launches for call in calls):
        findings.launches[name] = calls
    elif not declined and all(call.status == "told" for call in calls):
        findings.missing.append(f"launches of {name}: its emulated build tells of none in a dry run")
