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

Calls = Mapping[str, Sequence[Workload]]
"""Variant to the workloads on which it is called under each tool."""
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
    late: list[tuple[str, SanitizerTool]] = field(default_factory=list)
    """Variants and tools for which no time was left."""


def sanitize(context: Context, arguments: SanitizeTerms) -> Working[SanitizeOutput]:
    """The builds that are measured, under each tool, on a few small workloads of the plan's check sets."""
    names, why, progress = _candidates(context), _why_not(context), Progress()
    if not names:
        return Result(SanitizeOutput(ok=True, message="no compiled variant for a GPU to sanitize"))
    if why:
        missing = [f"{listed(TOOLS)} of {', '.join(names)}: {why}"]
        return Result(SanitizeOutput(ok=True, message="nothing was sanitized", not_exercised=tuple(missing)))
    built, failures = yield from builds(context)
    missing = [f"sanitizers on what does not compile: {failure.message}" for failure in failures]
    latest = context.latest("kernel.verify")
    verified = VerifyOutput.model_validate(latest, strict=False).variants if latest else ()
    chosen: list[Build] = []
    calls: dict[str, Sequence[Workload]] = {}
    for build in (build for build in built if build.compiled):
        workloads_of = _calls(context, build.variant, arguments.calls)
        checks = [
            checks for checks in verified if (checks.variant, checks.build_id) == (build.variant, build.build_id)
        ]
        if not arguments.wrong and not all(check.right for check in checks):
            missing.append(f"sanitizers on {build.variant}: it was not found right")
        elif not workloads_of:
            missing.append(f"sanitizers on {build.variant}: no workload is for it")
        else:
            chosen.append(build)
            calls[build.variant] = workloads_of
    ids = [f"{build.variant} {build.build_id}" for build in chosen]
    terms = (compute_sanitizer.version(), str(arguments.calls), str(arguments.wrong))
    ground = rests_on(context, "kernel.sanitize", *terms, *ids)
    earlier = None if failures else take_over(context, SanitizeOutput, ground, arguments)
    if earlier is not None:
        return Result(earlier)
    for workload in {workload.name: workload for own in calls.values() for workload in own}.values():
        yield from context.bench.expect(workload)
    jobs = [(tool, build) for tool in TOOLS for build in chosen]
    yield from together((_job(context, *job, calls, progress) for job in jobs), min(AT_ONCE, cores()))
    whole = not progress.late and all(run.status != "unknown" for run in progress.runs)
    output = _output(context, progress, calls, missing)
    return Result(output.model_copy(update={"rests_on": ground if whole else ""}))


def _candidates(context: Context) -> list[str]:
    """Compiled variants of the session that are made for a GPU, also those that are emulated here."""
    names = dict.fromkeys((*context.task.variants, *context.task.emulated))
    variants = {name: context.bench.target.variants[name] for name in names}
    on_gpu = context.bench.device == "cuda"
    return [n for n, v in variants.items() if isinstance(v, CAbiVariant) and (v.device == "cuda" or on_gpu)]


def _why_not(context: Context) -> str:
    """Why nothing can be sanitized here, and what would help; empty where it can."""
    if context.bench.device != "cuda":
        verify = context.command("kernels", "verify", "--sanitize", "--device", "cuda")
        return f"there is no GPU here; on one: {verify}"
    if not compute_sanitizer.version():
        return f"there is no {compute_sanitizer.PROGRAM} on the PATH: {compute_sanitizer.INSTALL}"
    return ""


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
    with most work, in which loops go round more often. Where all are too much, the least is taken. `work`: by the
    name of the workload.
    """
    ordered = sorted(candidates, key=lambda workload: (-work[workload.name], workload.name))
    small = [workload for workload in ordered if work[workload.name] <= most] or ordered[-1:]
    chosen: list[Workload] = []
    traits: set[tuple[str, object]] = set()
    for workload in small:  # Each that brings a type, flag or choice that none before it has.
        ways = {name: value for name, value in workload.attributes.items() if isinstance(value, bool | str)}
        own = {("dtype", workload.dtype), *ways.items()}
        if not traits.issuperset(own):
            chosen.append(workload)
            traits |= own
    chosen = [*chosen, *(workload for workload in small if workload not in chosen)][:count]
    return tuple(sorted(chosen, key=lambda workload: (work[workload.name], workload.name)))


def _job(
    context: Context, tool: SanitizerTool, build: Build, calls: Calls, progress: Progress
) -> Generator[Tick, None, None]:
    """Examine one variant under one tool, unless the step's time is over."""
    if time.monotonic() - progress.begun > context.budget_s:
        progress.late.append((build.variant, tool))
        return
    side, own = context.bench.side(build.variant, build), calls[build.variant]
    limit_s = min(CALL_LIMIT_S, context.kill_after_s / 2)
    examination = yield from examine(context.bench, side, tool, own, limit_s)
    blamed = next(iter(examination.refused), "") if tool == "memcheck" else ""
    for workload in own if examination.found and not blamed else ():
        alone, in_time = len(own) == 1, time.monotonic() - progress.begun <= context.budget_s
        if alone or (in_time and (yield from examine(context.bench, side, tool, [workload], limit_s)).found):
            blamed = workload.name
            break
    progress.runs.append(_run(build, tool, own, examination, blamed if examination.found else ""))


def _run(
    build: Build, tool: SanitizerTool, own: Sequence[Workload], examination: Examination, blamed: str
) -> SanitizerRun:
    """What came of one variant under one tool; `blamed`: the workload on which something was found."""
    found, reports = examination.found, examination.log.reports
    if found and not any(report.severity == "error" for report in reports):
        words = next(iter(examination.log.remarks), f"exit {examination.code}, and no report that is understood")
        reports = (SanitizerReport(kind="fault", words=words), *reports)
    status = "found" if found else "unknown" if examination.why_unknown else "clean"
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
            "workload": blamed,
            "why": "" if status == "clean" else examination.why_unknown,
        }
    )


def _output(context: Context, progress: Progress, calls: Calls, missing: Sequence[str]) -> SanitizeOutput:
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
        not_exercised=(*missing, *_unseen(unknown)),
        learned=tuple(f"Under {run.tool}, {run.told}." for run in bad),
        runs=tuple(runs),
        clean=clean,
        found=tuple(dict.fromkeys(run.variant for run in bad)),
        version=compute_sanitizer.version(),
    )


def _unseen(unknown: Sequence[tuple[str, SanitizerTool, str]]) -> Iterator[str]:
    """`memcheck and racecheck of small: why`: one line for all tools of a variant with the same reason."""
    tools: dict[tuple[str, str], list[SanitizerTool]] = {}
    for variant, tool, why in unknown:
        tools.setdefault((variant, why), []).append(tool)
    for (variant, why), own in tools.items():
        yield f"{listed(sorted(own, key=TOOLS.index))} of {variant}: {why}"


def _replay(context: Context, run: SanitizerRun, calls: Calls) -> str:
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
