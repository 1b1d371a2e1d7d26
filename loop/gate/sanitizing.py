"""Compiled CUDA variants under compute-sanitizer: an answer that is right today may rest on a race."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from loop.base.processes import Tick, together
from loop.gate import compute_sanitizer
from loop.gate.compute_sanitizer import MOST_REPORTS, TOOLS, Examination, examine
from loop.gate.kernel import builds, extra_sets, workloads
from loop.machine.machine import cores
from loop.model.measurement import Build
from loop.model.output import VerifyOutput
from loop.model.sanitizing import SanitizeOutput, SanitizerReport, SanitizerRun, SanitizerTool
from loop.model.target import CAbiVariant, Workload
from loop.model.verdict import NoSpeedVerdict
from loop.model.workloads import accepts, counted, entry_of, spelled, working_set
from loop.report.format import listed
from loop.steps.context import Context, Result, Working
from loop.steps.taken_over import Lasting, rests_on, take_over

Trait = tuple[str, object]
MOST_FLOPS = 2e7
"""Work of a call that is made under a tool; some tools follow every access."""
MOST_BYTES = 2**20
"""The same where the manifest does not say how much work a call is: bytes of its tensors."""
CALL_LIMIT_S = 60.0
AT_ONCE = 8
"""Tools that run at a time: each is a process that instruments code, and the GPU is hardly busy."""
WITHOUT_LINES = "`-lineinfo` among its build flags makes the tool name lines"


class SanitizeTerms(Lasting):
    """How much is sanitized."""

    calls: Annotated[int, Field(ge=1, le=100)] = 6
    """Workloads of each variant, at most: small ones, unlike each other."""
    wrong: bool = False
    """Whether variants that were found wrong are, too: a tool may say why they are."""


@dataclass
class Progress:
    """What has been done."""

    begun: float = field(default_factory=time.monotonic)
    runs: list[SanitizerRun] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What was not exercised, and why."""
    late: list[tuple[str, SanitizerTool]] = field(default_factory=list)
    """Variants and tools for which no time was left."""

    @property
    def whole(self) -> bool:
        """Whether every tool got to say what it found."""
        return not self.late and all(run.status != "unknown" for run in self.runs)


def sanitize(context: Context, arguments: SanitizeTerms) -> Working[SanitizeOutput]:
    """The builds that are measured, under each tool, on a few small workloads of the plan's check sets."""
    names = _candidates(context)
    why = _why_not(context)
    if why or not names:
        if not names:
            return Result(SanitizeOutput(ok=True, message="no compiled variant for a GPU to sanitize"))
        missing = (f"{listed(TOOLS)} of {', '.join(names)}: {why}",)
        return Result(SanitizeOutput(ok=True, message="nothing was sanitized", not_exercised=missing))
    built, failures = yield from builds(context)
    compiled = [build for build in built if build.compiled]
    progress = Progress()
    progress.missing += [f"sanitizers on what does not compile: {failure.message}" for failure in failures]
    chosen = [build.variant for build in compiled if _wanted(context, build, arguments, progress)]
    calls = {name: _calls(context, name, arguments.calls) for name in chosen}
    progress.missing += [f"sanitizers on {name}: no workload is for it" for name, own in calls.items() if not own]
    ids = [f"{build.variant} {build.build_id}" for build in compiled if calls.get(build.variant)]
    terms = (compute_sanitizer.version(), str(arguments.calls), str(arguments.wrong))
    ground = rests_on(context, "kernel.sanitize", *terms, *ids)
    earlier = None if failures else take_over(context, SanitizeOutput, ground, arguments)
    if earlier is not None:
        return Result(earlier)
    for workload in {workload.name: workload for own in calls.values() for workload in own}.values():
        yield from context.bench.expect(workload)
    jobs = [(tool, build) for tool in TOOLS for build in compiled if calls.get(build.variant)]
    yield from together((_job(context, *job, calls, progress) for job in jobs), min(AT_ONCE, cores()))
    return Result(
        _output(context, progress, calls).model_copy(update={"rests_on": ground if progress.whole else ""})
    )


def _candidates(context: Context) -> tuple[str, ...]:
    """Compiled variants of the session that are made for a GPU, also those that are emulated here."""
    variants, on_gpu = context.bench.target.variants, context.bench.device == "cuda"
    chosen = []
    for name in dict.fromkeys((*context.task.variants, *context.task.emulated)):
        variant = variants[name]
        if isinstance(variant, CAbiVariant) and (variant.device == "cuda" or on_gpu):
            chosen.append(name)
    return tuple(chosen)


def _why_not(context: Context) -> str:
    """Why nothing can be sanitized here, and what would help; empty where it can."""
    if context.bench.device != "cuda":
        verify = context.command("kernels", "verify", "--sanitize", "--device", "cuda")
        return f"there is no GPU here; on one: {verify}"
    if not compute_sanitizer.version():
        return f"there is no {compute_sanitizer.PROGRAM} on the PATH: {compute_sanitizer.INSTALL}"
    return ""


def _wanted(context: Context, build: Build, arguments: SanitizeTerms, progress: Progress) -> bool:
    """Whether to sanitize a build: not if it was found wrong. Notes that it is left out."""
    latest = context.latest("kernel.verify")
    checks = VerifyOutput.model_validate(latest, strict=False).variants if latest else ()
    own = [each for each in checks if (each.variant, each.build_id) == (build.variant, build.build_id)]
    if arguments.wrong or all(each.right for each in own):
        return True
    progress.missing.append(f"sanitizers on {build.variant}: it was not found right")
    return False


def _calls(context: Context, name: str, count: int) -> tuple[Workload, ...]:
    """A few small workloads of the plan's check sets, or of those that are timed where it has none."""
    target, variant = context.bench.target, context.bench.target.variants[name]
    every = workloads(context, extra_sets(context) or context.task.plan.workloads, device="cuda")
    candidates = [workload for workload in every if accepts(variant, workload)]
    if target.flops is None:
        sizes = {workload.name: float(working_set(target, workload)) for workload in candidates}
        return few(candidates, sizes, MOST_BYTES, count)
    work = {workload.name: counted(target.flops, workload) or 0.0 for workload in candidates}
    return few(candidates, work, MOST_FLOPS, count)


def few(
    candidates: Sequence[Workload], work: Mapping[str, float], most: float, count: int
) -> tuple[Workload, ...]:
    """At most `count` of the workloads whose work is at most `most`, the least work first; always the same ones.

    Every type, flag and choice that is among them is taken at least once, as far as `count` allows; then those
    with most work, in which loops go round more often. Shapes that differ in their values alone are one. Where all
    are too much, the least is taken. `work`: by the name of the workload.
    """
    # What the course of a kernel may depend on: not the values.
    unlike = {
        (workload.dtype, *workload.sizes.items(), *_traits(workload)): workload
        for workload in reversed(candidates)
    }
    ordered = sorted(unlike.values(), key=lambda workload: (-work[workload.name], workload.name))
    small = [workload for workload in ordered if work[workload.name] <= most] or ordered[-1:]
    chosen = _covering(small)[:count]
    chosen += [workload for workload in small if workload not in chosen][: count - len(chosen)]
    return tuple(sorted(chosen, key=lambda workload: (work[workload.name], workload.name)))


def _traits(workload: Workload) -> list[Trait]:
    ways = [(name, value) for name, value in workload.attributes.items() if isinstance(value, bool | str)]
    return [("dtype", workload.dtype), *ways]


def _covering(ordered: Sequence[Workload]) -> list[Workload]:
    """Workloads until every trait is there, each one that brings something new."""
    chosen: list[Workload] = []
    traits: set[Trait] = set()
    for workload in ordered:
        if not traits.issuperset(_traits(workload)):
            chosen.append(workload)
            traits.update(_traits(workload))
    return chosen


def _job(
    context: Context,
    tool: SanitizerTool,
    build: Build,
    calls: Mapping[str, Sequence[Workload]],
    progress: Progress,
) -> Generator[Tick, None, None]:
    """Examine one variant under one tool, unless the step's time is over."""
    if time.monotonic() - progress.begun > context.budget_s:
        progress.late.append((build.variant, tool))
        return
    side, own = context.bench.side(build.variant, build), calls[build.variant]
    limit_s = min(CALL_LIMIT_S, context.kill_after_s / 2)
    examination = yield from examine(context.bench, side, tool, own, limit_s)
    workload = (yield from _blame(context, build, tool, own, examination, progress)) if examination.found else ""
    progress.runs.append(_run(build, tool, own, examination, workload))


def _blame(
    context: Context,
    build: Build,
    tool: SanitizerTool,
    own: Sequence[Workload],
    examination: Examination,
    progress: Progress,
) -> Generator[Tick, None, str]:
    """The workload on which a tool finds something, found by trying one at a time."""
    if examination.refused and tool == "memcheck":
        return next(iter(examination.refused))
    side = context.bench.side(build.variant, build)
    for workload in own:
        if len(own) == 1 or time.monotonic() - progress.begun > context.budget_s:
            break
        again = yield from examine(context.bench, side, tool, [workload], CALL_LIMIT_S)
        if again.found:
            return workload.name
    return own[0].name if len(own) == 1 else ""


def _run(
    build: Build, tool: SanitizerTool, own: Sequence[Workload], examination: Examination, workload: str
) -> SanitizerRun:
    status = "found" if examination.found else "unknown" if examination.why_unknown else "clean"
    reports = examination.log.reports
    if examination.found and not any(report.severity == "error" for report in reports):
        words = next(iter(examination.log.remarks), f"exit {examination.code}, and no report that is understood")
        reports = (SanitizerReport(kind="fault", words=words), *reports)
    return SanitizerRun.model_validate(
        {
            "variant": build.variant,
            "build_id": build.build_id,
            "tool": tool,
            "status": status,
            "workloads": tuple(workload.name for workload in own),
            "seconds": examination.seconds,
            "reports": reports[:MOST_REPORTS],
            "total": max(examination.log.total or 0, len(reports)),
            "workload": workload,
            "why": "" if status == "clean" else examination.why_unknown,
        }
    )


def _output(context: Context, progress: Progress, calls: Mapping[str, Sequence[Workload]]) -> SanitizeOutput:
    runs = sorted(progress.runs, key=lambda run: (TOOLS.index(run.tool), run.variant))
    bad = [run for run in runs if run.status == "found"]
    unknown = [(run.variant, run.tool, run.why) for run in runs if run.status == "unknown"]
    unknown += [(*late, f"the step's {context.budget_s:g} s were over") for late in progress.late]
    cleared = [run.variant for run in runs if run.status == "clean"]
    clean = tuple(name for name in calls if cleared.count(name) == len(TOOLS))
    message = _describe(runs, clean)
    if bad:
        who = [f"{run.tool} of {run.variant}" for run in bad]
        more = f"; so {'does' if len(bad) == 2 else 'do'} {listed(who[1:])}" if bad[1:] else ""
        message = f"{who[0]} finds something: {bad[0].told}{more}"
    verdicts = tuple(  # One a variant: what a sanitizer finds wrong is wrong, and has no speed.
        NoSpeedVerdict(
            variant=run.variant,
            workload=run.workload or run.workloads[0],
            against="baseline",
            verdict="incorrect",
            cause="sanitizer",
            reason=f"{run.tool}: {run.told}",
        )
        for run in {run.variant: run for run in reversed(bad)}.values()
    )
    return SanitizeOutput(
        ok=not bad,
        message=message,
        hint=_replay(context, bad[0], calls) if bad else None,
        verdicts=verdicts,
        not_exercised=(*progress.missing, *_unseen(unknown)),
        learned=tuple(f"Under {run.tool}, {run.told}." for run in bad),
        runs=tuple(runs),
        clean=clean,
        found=tuple(dict.fromkeys(run.variant for run in bad)),
        version=compute_sanitizer.version(),
    )


def _unseen(unknown: Sequence[tuple[str, SanitizerTool, str]]) -> Iterator[str]:
    """`memcheck and racecheck of small, split_k: why`: one line for all with the same reason."""
    tools: dict[tuple[str, str], list[SanitizerTool]] = {}
    for variant, tool, why in unknown:
        tools.setdefault((variant, why), []).append(tool)
    alike: dict[tuple[str, str], list[str]] = {}
    for (variant, why), own in tools.items():
        alike.setdefault((listed(sorted(own, key=TOOLS.index)), why), []).append(variant)
    for (named, why), variants in alike.items():
        yield f"{named} of {', '.join(variants)}: {why}"


def _replay(context: Context, run: SanitizerRun, calls: Mapping[str, Sequence[Workload]]) -> str:
    """The command that shows a finding again, and how to make the tool name lines."""
    named = [w for w in calls[run.variant] if w.name == run.workload] or list(calls[run.variant])
    signature = context.bench.target.signature
    chosen = [word for w in named for word in ("--workloads", spelled(entry_of(signature, w)))]
    words = ("verify", run.variant, "--sanitize", "--device", "cuda", *chosen, "--seed", str(context.task.seed))
    lines = "" if run.first is None or run.first.places else f"; {WITHOUT_LINES}"
    return f"again: {context.command('kernels', *words)}{lines}"


def _describe(runs: Sequence[SanitizerRun], clean: Sequence[str]) -> str:
    calls = {run.variant: len(run.workloads) for run in runs}
    parts = [f"{name} clean in {calls[name]} calls" for name in clean]
    parts += [f"{name} not under all" for name in calls if name not in clean]
    warned = sum(run.total for run in runs if run.status == "clean")
    also = f"; warnings that fail nothing: {warned}" if warned else ""
    return f"{listed(TOOLS)}: {', '.join(parts) or 'nothing was sanitized'}{also}"
