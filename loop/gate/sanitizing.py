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
        return not self.late and all(one.status != "unknown" for one in self.runs)


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
    made = [one for one in built if one.compiled]
    progress = Progress()
    progress.missing += [f"sanitizers on what does not compile: {one.message}" for one in failures]
    chosen = [build.variant for build in made if _wanted(context, build, arguments, progress)]
    calls = {name: _calls(context, name, arguments.calls) for name in chosen}
    progress.missing += [f"sanitizers on {name}: no workload is for it" for name, own in calls.items() if not own]
    ids = [f"{one.variant} {one.build_id}" for one in made if calls.get(one.variant)]
    terms = (compute_sanitizer.version(), str(arguments.calls), str(arguments.wrong))
    ground = rests_on(context, "kernel.sanitize", *terms, *ids)
    earlier = None if failures else take_over(context, SanitizeOutput, ground, arguments)
    if earlier is not None:
        return Result(earlier)
    for workload in {one.name: one for own in calls.values() for one in own}.values():
        yield from context.bench.expect(workload)
    jobs = [(tool, build) for tool in TOOLS for build in made if calls.get(build.variant)]
    yield from together((_job(context, *job, calls, progress) for job in jobs), min(AT_ONCE, cores()))
    return Result(
        _output(context, progress, calls).model_copy(update={"rests_on": ground if progress.whole else ""})
    )


def _candidates(context: Context) -> tuple[str, ...]:
    """Compiled variants of the session that are made for a GPU, also those that are emulated here."""
    variants = context.bench.target.variants
    named = dict.fromkeys((*context.task.variants, *context.task.emulated))
    on_gpu = context.bench.device == "cuda"
    return tuple(
        name
        for name in named
        if isinstance(one := variants[name], CAbiVariant) and (one.device == "cuda" or on_gpu)
    )


def _why_not(context: Context) -> str:
    """Why nothing can be sanitized here, and what would help; empty where it can."""
    if context.bench.device != "cuda":
        verify = context.command("kernels", "verify", "--sanitize", "--device", "cuda")
        return f"there is no GPU here; on one: {verify}"
    if not compute_sanitizer.version():
        return f"there is no {compute_sanitizer.PROGRAM} on the PATH: {compute_sanitizer.INSTALL}"
    return ""


def _wanted(context: Context, build: Build, arguments: SanitizeTerms, progress: Progress) -> bool:
    """Whether a build is to be sanitized: not one that was found wrong, which is said."""
    latest = context.latest("kernel.verify")
    checks = VerifyOutput.model_validate(latest, strict=False).variants if latest else ()
    mine = [one for one in checks if (one.variant, one.build_id) == (build.variant, build.build_id)]
    wrong = any(not one.right for one in mine)
    if wrong and not arguments.wrong:
        progress.missing.append(f"sanitizers on {build.variant}: it was not found right")
    return arguments.wrong or not wrong


def _calls(context: Context, name: str, count: int) -> tuple[Workload, ...]:
    """A few small workloads of the plan's check sets, or of those that are timed where it has none."""
    target, variant = context.bench.target, context.bench.target.variants[name]
    sets = extra_sets(context) or context.task.plan.workloads
    candidates = [one for one in workloads(context, sets, device="cuda") if accepts(variant, one)]
    if target.flops is None:
        return few(
            candidates, {one.name: float(working_set(target, one)) for one in candidates}, MOST_BYTES, count
        )
    return few(candidates, {one.name: counted(target.flops, one) or 0.0 for one in candidates}, MOST_FLOPS, count)


def few(
    candidates: Sequence[Workload], work: Mapping[str, float], most: float, count: int
) -> tuple[Workload, ...]:
    """At most `count` of the workloads whose work is at most `most`, the least work first; always the same ones.

    Every type, flag and choice that is among them is taken at least once, as far as `count` allows; then those
    with most work, in which loops go round more often. Shapes that differ in their values alone are one. Where all
    are too much, the least is taken. `work`: by the name of the workload.
    """
    # What the course of a kernel may depend on: not the values.
    unlike = {(one.dtype, *one.sizes.items(), *_traits(one)): one for one in reversed(candidates)}
    ordered = sorted(unlike.values(), key=lambda one: (-work[one.name], one.name))
    small = [one for one in ordered if work[one.name] <= most] or ordered[-1:]
    chosen = _covering(small)[:count]
    chosen += [one for one in small if one not in chosen][: count - len(chosen)]
    return tuple(sorted(chosen, key=lambda one: (work[one.name], one.name)))


def _traits(one: Workload) -> list[Trait]:
    """Its type, and those attributes that choose between a few ways."""
    ways = [(name, value) for name, value in one.attributes.items() if isinstance(value, bool | str)]
    return [("dtype", one.dtype), *ways]


def _covering(ordered: Sequence[Workload]) -> list[Workload]:
    """Workloads until every trait is there, each one that brings something new."""
    chosen: list[Workload] = []
    seen: set[Trait] = set()
    for one in ordered:
        if not seen.issuperset(_traits(one)):
            chosen.append(one)
            seen.update(_traits(one))
    return chosen


def _job(
    context: Context,
    tool: SanitizerTool,
    build: Build,
    calls: Mapping[str, Sequence[Workload]],
    progress: Progress,
) -> Generator[Tick, None, None]:
    """One variant under one tool, unless the step's time is over."""
    if time.monotonic() - progress.begun > context.budget_s:
        progress.late.append((build.variant, tool))
        return
    side, own = context.bench.side(build.variant, build), calls[build.variant]
    limit_s = min(CALL_LIMIT_S, context.kill_after_s / 2)
    found = yield from examine(context.bench, side, tool, own, limit_s)
    workload = (yield from _blame(context, build, tool, own, found, progress)) if found.found else ""
    progress.runs.append(_run(build, tool, own, found, workload))


def _blame(
    context: Context,
    build: Build,
    tool: SanitizerTool,
    own: Sequence[Workload],
    found: Examination,
    progress: Progress,
) -> Generator[Tick, None, str]:
    """The workload on which a tool finds something, by trying one at a time; an invalid access ends its call."""
    if found.refused and tool == "memcheck":
        return next(iter(found.refused))
    side = context.bench.side(build.variant, build)
    for workload in own:
        if len(own) == 1 or time.monotonic() - progress.begun > context.budget_s:
            break
        again = yield from examine(context.bench, side, tool, [workload], CALL_LIMIT_S)
        if again.found:
            return workload.name
    return own[0].name if len(own) == 1 else ""


def _run(
    build: Build, tool: SanitizerTool, own: Sequence[Workload], found: Examination, workload: str
) -> SanitizerRun:
    status = "found" if found.found else "unknown" if found.why_unknown else "clean"
    reports = found.log.reports
    if found.found and not any(one.severity == "error" for one in reports):
        words = next(iter(found.log.remarks), f"exit {found.code}, and no report that is understood")
        reports = (SanitizerReport(kind="fault", words=words), *reports)
    return SanitizerRun.model_validate(
        {
            "variant": build.variant,
            "build_id": build.build_id,
            "tool": tool,
            "status": status,
            "workloads": tuple(one.name for one in own),
            "seconds": found.seconds,
            "reports": reports[:MOST_REPORTS],
            "total": max(found.log.total or 0, len(reports)),
            "workload": workload,
            "why": "" if status == "clean" else found.why_unknown,
        }
    )


def _output(context: Context, progress: Progress, calls: Mapping[str, Sequence[Workload]]) -> SanitizeOutput:
    runs = sorted(progress.runs, key=lambda one: (TOOLS.index(one.tool), one.variant))
    bad = [one for one in runs if one.status == "found"]
    unknown = [(one.variant, one.tool, one.why) for one in runs if one.status == "unknown"]
    unknown += [(*one, f"the step's {context.budget_s:g} s were over") for one in progress.late]
    cleared = [run.variant for run in runs if run.status == "clean"]
    clean = tuple(name for name in calls if cleared.count(name) == len(TOOLS))
    message = _describe(runs, clean)
    if bad:
        who = [f"{run.tool} of {run.variant}" for run in bad]
        more = f"; so {'does' if len(bad) == 2 else 'do'} {listed(who[1:])}" if bad[1:] else ""
        message = f"{who[0]} finds something: {bad[0].told}{more}"
    return SanitizeOutput(
        ok=not bad,
        message=message,
        hint=_replay(context, bad[0], calls) if bad else None,
        verdicts=tuple(_verdicts(bad)),
        not_exercised=(*progress.missing, *_unseen(unknown)),
        learned=tuple(f"Under {one.tool}, {one.told}." for one in bad),
        runs=tuple(runs),
        clean=clean,
        found=tuple(dict.fromkeys(one.variant for one in bad)),
        version=compute_sanitizer.version(),
    )


def _unseen(unknown: Sequence[tuple[str, SanitizerTool, str]]) -> Iterator[str]:
    """`memcheck and racecheck of small, split_k: why`: a line for all that have a reason in common."""
    tools: dict[tuple[str, str], list[SanitizerTool]] = {}
    for variant, tool, why in unknown:
        tools.setdefault((variant, why), []).append(tool)
    alike: dict[tuple[str, str], list[str]] = {}
    for (variant, why), own in tools.items():
        alike.setdefault((listed(sorted(own, key=TOOLS.index)), why), []).append(variant)
    for (named, why), variants in alike.items():
        yield f"{named} of {', '.join(variants)}: {why}"


def _verdicts(bad: Sequence[SanitizerRun]) -> Iterator[NoSpeedVerdict]:
    """What a sanitizer finds wrong is wrong, and has no speed; one verdict a variant."""
    for one in {one.variant: one for one in reversed(bad)}.values():
        workload = one.workload or one.workloads[0]
        yield NoSpeedVerdict(
            variant=one.variant,
            workload=workload,
            against="baseline",
            verdict="incorrect",
            cause="sanitizer",
            reason=f"{one.tool}: {one.told}",
        )


def _replay(context: Context, one: SanitizerRun, calls: Mapping[str, Sequence[Workload]]) -> str:
    """The command that shows a finding again, and how to see lines where there were none."""
    named = [w for w in calls[one.variant] if w.name == one.workload] or list(calls[one.variant])
    signature = context.bench.target.signature
    given = [word for w in named for word in ("--workloads", spelled(entry_of(signature, w)))]
    words = ("verify", one.variant, "--sanitize", "--device", "cuda", *given, "--seed", str(context.task.seed))
    lines = "" if one.first is None or one.first.places else f"; {WITHOUT_LINES}"
    return f"again: {context.command('kernels', *words)}{lines}"


def _describe(runs: Sequence[SanitizerRun], clean: Sequence[str]) -> str:
    """What was found clean, and under what."""
    calls = {one.variant: len(one.workloads) for one in runs}
    parts = [f"{name} clean in {calls[name]} calls" for name in clean]
    parts += [f"{name} not under all" for name in calls if name not in clean]
    warned = sum(one.total for one in runs if one.status == "clean")
    also = f"; warnings that fail nothing: {warned}" if warned else ""
    return f"{listed(TOOLS)}: {', '.join(parts) or 'nothing was sanitized'}{also}"
