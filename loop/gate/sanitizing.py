"""Run compiled CUDA variants under compute-sanitizer, because a right output may rest on a race."""

import re
import shutil
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loop.base.errors import LoopError
from loop.base.processes import Tick, run, run_side_by_side, run_to_end
from loop.gate.kernel import builds, extra_sets, workloads
from loop.machine.machine import cores
from loop.model.measurement import Build
from loop.model.output import VerifyOutput
from loop.model.resources import short_name
from loop.model.sanitizing import Kind, SanitizeOutput, SanitizerReport, SanitizerRun, SanitizerTool
from loop.model.target import CAbiVariant, Workload
from loop.model.verdict import NoSpeedVerdict
from loop.model.workloads import entry_of, evaluate_work, format_entry, is_supported, working_set_bytes
from loop.report.format import listed_words
from loop.steps.context import Context, Result, RunningAction
from loop.steps.taken_over import Lasting, dependency_hash, reuse_result
from loop.workers.bench import Bench, Side
from loop.workers.messages import Observe
from loop.workers.program import START_LIMIT_S, Refusal, WorkerLost

PROGRAM = "compute-sanitizer"
TOOLS: tuple[SanitizerTool, ...] = ("memcheck", "racecheck", "synccheck", "initcheck")
INSTALL = "it comes with the CUDA toolkit (cuda-sanitizer): put its folder on the PATH"
FOUND = 86
"""Exit status that compute-sanitizer returns when it found an error."""
OPTIONS: Mapping[SanitizerTool, tuple[str, ...]] = {
    # The variant itself returns API errors. Padding separates tensors, to show accesses past the end.
    "memcheck": ("--padding", "4096", "--report-api-errors", "no")
}
LOG_BYTES = 4 << 20
"""Bytes of a log that `loop` reads."""
MOST_REPORTS = 20
ASK_LIMIT_S, CALL_LIMIT_S = 20.0, 60.0
MOST_CALLS = 6
"""Most workloads of each variant."""
MOST_FLOPS = 2e7
"""Most operations of a call under a tool, because some tools instrument every access."""
MOST_BYTES = 2**20
"""Most bytes of a call's tensors, used where target.yaml has no `flops`."""
AT_ONCE = 8
"""Tool processes that run in parallel: they instrument code on the CPU and leave the GPU idle."""
PREFIX = "========="
SUMMARY = re.compile(r"^(?:ERROR|RACECHECK|\w+CHECK) SUMMARY: (\d+) (?:error|hazard)s?\b(?! were not printed)")
PLACED = re.compile(r"(?:\bat|Device Frame:) ?(?P<function>.+?)[+:]0x[0-9a-f]+(?: in (?P<place>\S+:\d+))?")
"""`at void k<float>(float *)+0x42f0 in k.cuh:75`; without -lineinfo nothing follows the offset."""
CAST = re.compile(r"\((?:int|unsigned int|long|bool)\)(?=-?\d)")
"""A cast among template arguments, as in `(int)64`; `loop` removes it."""
THREAD = re.compile(r"by thread (\([^)]*\)) in block (\([^)]*\))")
EVIDENCE = re.compile(r"(?:at|and|by thread|(?:Write|Read) Thread)\b")
"""Start of a report line that names a place. A paragraph without one is a remark of the tool."""
SEVERITY = re.compile(r"^(error|warning): *", re.IGNORECASE)
KINDS: tuple[tuple[str, Kind], ...] = (
    (r"Race reported|hazard", "race"),
    (r"Barrier|Syncwarp|Deadlock", "barrier"),
    (r"Uninitialized", "uninitialised read"),
    (r"Malloc|heap|Leaked", "heap"),
    (r"[Ii]nvalid|[Mm]isaligned|out of bounds|Tensor Memory", "invalid access"),
)
ITSELF = "Internal Sanitizer Error"


@dataclass
class Examination:
    """The result of one side under one tool."""

    seconds: float = 0.0
    reports: list[SanitizerReport] = field(default_factory=list)
    """The reports that the tool printed."""
    total: int | None = None
    """The tool's own count of findings; None if it wrote no summary."""
    remarks: list[str] = field(default_factory=list)
    """Remarks of the tool about itself, such as an internal error."""
    refused: dict[str, str] = field(default_factory=dict)
    """Workload name to the reason why the variant refused the call."""
    lost: str = ""
    """How the worker process was lost; empty when it ended normally."""
    code: int | None = None
    """Exit status of the tool; None if it was killed."""

    def read(self, text: str) -> None:
        """Add a log's reports, remarks and count. Details of a report are indented."""
        paragraphs: list[list[str]] = []
        for line in text.splitlines():
            words = line.strip().removeprefix(PREFIX)
            if not line.strip().startswith(PREFIX) or not words.strip():
                continue
            if words.startswith("  ") and paragraphs:
                paragraphs[-1].append(words.strip())
            else:
                paragraphs.append([words.strip()])
        for head, *details in paragraphs:
            if summary := SUMMARY.match(head):
                self.total = (self.total or 0) + int(summary[1])
            elif "SUMMARY" in head or head == PROGRAM.upper():
                continue
            elif not head.startswith(ITSELF) and any(EVIDENCE.match(line) for line in details):
                self.reports.append(_report(head, details))
            else:
                self.remarks.append(head)

    @property
    def found(self) -> bool:
        """Whether the tool found an error, even one whose report `loop` cannot parse."""
        if self.reports:
            return any(report.severity == "error" for report in self.reports)
        return self.code == FOUND or bool(self.total)

    @property
    def why_unknown(self) -> str:
        """Why the run does not prove that there is no error; empty where it does."""
        if self.remarks:
            return self.remarks[0]
        if self.lost:
            return self.lost
        for workload, why in self.refused.items():
            return f"{why} on {workload}"
        if self.total is None:
            return "it wrote no summary"
        return "" if self.code in (0, FOUND) else f"exit {self.code}"


def _report(head: str, details: Sequence[str]) -> SanitizerReport:
    """Parse a report: kind, severity, kernel, thread, block and source places (file:line)."""
    first = next(filter(None, map(PLACED.search, (head, *details))), None)
    frames = [PLACED.search(line) for line in details if line.startswith("Device Frame:")]
    matches = [match for match in (first, *frames) if match]
    severity, by = SEVERITY.match(head), next(filter(None, map(THREAD.search, details)), None)
    return SanitizerReport(
        kind=next((kind for pattern, kind in KINDS if re.search(pattern, head)), "fault"),
        severity="warning" if severity and severity[1].lower() == "warning" else "error",
        words=SEVERITY.sub("", head),
        kernel=short_name(CAST.sub("", matches[-1]["function"].strip())) if matches else "",
        places=tuple(dict.fromkeys(match["place"] for match in matches if match["place"])),
        thread=by[1] if by else "",
        block=by[2] if by else "",
    )


def examine(
    bench: Bench, side: Side, tool: SanitizerTool, workloads: Sequence[Workload], limit_s: float
) -> Generator[Tick, None, Examination]:
    """Run one call per workload under a tool. Inputs must exist already (`bench.expect`)."""
    examination, begun, note = Examination(), time.monotonic(), f"{side.name} under {tool}"
    with tempfile.TemporaryDirectory(dir=bench.scratch) as folder:
        log = Path(folder) / f"{tool}.log"
        command = [PROGRAM, "--tool", tool, "--log-file", str(log), "--error-exitcode", str(FOUND)]
        command += ["--target-processes", "all", "--show-backtrace", "device", *OPTIONS.get(tool, ())]
        try:
            with bench.start_worker(side, tool=command) as worker:
                yield from worker.receive(START_LIMIT_S, note)
                for workload in workloads:
                    once = Observe(bench.make_call(workload, side.name), "once")
                    try:
                        yield from worker.ask(once, limit_s=limit_s, note=note)
                    except Refusal as refusal:
                        examination.refused[workload.name] = str(refusal)
                examination.code = yield from worker.wait_for_end(limit_s, note)
        except (WorkerLost, Refusal, LoopError) as error:
            examination.lost = str(error)
        if log.is_file():
            with log.open("rb") as file:
                examination.read(file.read(LOG_BYTES).decode(errors="replace"))
    examination.seconds = time.monotonic() - begun
    return examination


def version() -> str:
    """The version of compute-sanitizer on the PATH; empty without one."""
    if shutil.which(PROGRAM) is None:
        return ""
    try:
        output = run_to_end(run([PROGRAM, "--version"], limit_s=ASK_LIMIT_S)).output
    except LoopError:
        return ""
    lines = [line for line in output.splitlines() if line.startswith("Version")]
    return lines[0].removeprefix("Version").split("(")[0].strip() if lines else "unknown"


class SanitizeTerms(Lasting):
    """Arguments of `kernel.sanitize`."""

    wrong: bool = False
    """Whether to sanitize variants that verification found wrong, to learn why."""


def sanitize(context: Context, arguments: SanitizeTerms) -> RunningAction[SanitizeOutput]:
    """Run each measured build under each tool, on a few small workloads of the check sets."""
    target, begun = context.bench.target, time.monotonic()
    every = {name: target.variants[name] for name in (*context.task.variants, *context.task.emulated)}
    on_gpu, why = context.bench.device == "cuda", ""
    names = [n for n, v in every.items() if isinstance(v, CAbiVariant) and (v.device == "cuda" or on_gpu)]
    if not names:
        return Result(SanitizeOutput(ok=True, message="no compiled variant for a GPU to sanitize"))
    if not on_gpu:
        verify = context.command("kernels", "verify", "--sanitize", "--device", "cuda")
        why = f"there is no GPU here; on one: {verify}"
    elif not version():
        why = f"there is no {PROGRAM} on the PATH: {INSTALL}"
    if why:
        missing = [f"{listed_words(TOOLS)} of {', '.join(names)}: {why}"]
        return Result(SanitizeOutput(ok=True, message="nothing was sanitized", not_exercised=tuple(missing)))
    built, failures = yield from builds(context)
    missing = [f"sanitizers on what does not compile: {failure.message}" for failure in failures]
    latest = context.latest("kernel.verify")
    verified = VerifyOutput.model_validate(latest, strict=False).variants if latest else ()
    wrong = {(checks.variant, checks.build_id) for checks in verified if not checks.is_right}
    chosen: dict[str, Build] = {}
    calls: dict[str, Sequence[Workload]] = {}
    for build in (build for build in built if build.compiled):
        own = _small_workloads(context, build.variant)
        if not arguments.wrong and (build.variant, build.build_id) in wrong:
            missing.append(f"sanitizers on {build.variant}: it was not found right")
        elif not own:
            missing.append(f"sanitizers on {build.variant}: no workload is for it")
        else:
            chosen[build.variant], calls[build.variant] = build, own
    ids = [f"{name} {build.build_id}" for name, build in chosen.items()]
    ground = dependency_hash(context, "kernel.sanitize", version(), str(arguments.wrong), *ids)
    earlier = None if failures else reuse_result(context, SanitizeOutput, ground, arguments)
    if earlier is not None:
        return Result(earlier)
    for workload in {workload.name: workload for own in calls.values() for workload in own}.values():
        yield from context.bench.prepare_answer(workload)
    jobs = [(tool, name) for tool in TOOLS for name in chosen]
    tries = (_run(context, tool, chosen[name], calls[name], begun) for tool, name in jobs)
    runs = yield from run_side_by_side(tries, min(AT_ONCE, cores()))
    output = _output(context, runs, calls, missing)
    whole = all(run.status != "unknown" for run in output.runs)
    return Result(output.model_copy(update={"rests_on": ground if whole else ""}))


def _small_workloads(context: Context, name: str) -> tuple[Workload, ...]:
    """A few small workloads from the plan's check sets, or from its timed sets if it has none."""
    target, variant = context.bench.target, context.bench.target.variants[name]
    every = workloads(context, extra_sets(context) or context.task.plan.workloads, device="cuda")
    candidates = [workload for workload in every if is_supported(variant, workload)]
    if target.flops is None:
        sizes = {workload.name: float(working_set_bytes(target, workload)) for workload in candidates}
        return least_work(candidates, sizes, MOST_BYTES, MOST_CALLS)
    work = {workload.name: evaluate_work(target.flops, workload) or 0.0 for workload in candidates}
    return least_work(candidates, work, MOST_FLOPS, MOST_CALLS)


def least_work(
    candidates: Sequence[Workload], work: Mapping[str, float], most: float, count: int
) -> tuple[Workload, ...]:
    """Choose at most `count` workloads of at most `most` work, sorted by work; deterministic.

    `work`: workload name to its work. Each type, flag and choice is taken once, as far as `count` allows.
    Then follow the workloads with most work, because their loops run more often. If all exceed `most`, the
    smallest one is taken.
    """
    ordered = sorted(candidates, key=lambda workload: (-work[workload.name], workload.name))
    small = [workload for workload in ordered if work[workload.name] <= most] or ordered[-1:]
    chosen: list[Workload] = []
    traits: set[tuple[str, object]] = set()
    for workload in small:  # First those with a new type, flag or choice.
        ways = {name: value for name, value in workload.attributes.items() if isinstance(value, bool | str)}
        own = {("dtype", workload.dtype), *ways.items()}
        if not traits.issuperset(own):
            chosen.append(workload)
            traits |= own
    chosen = [*chosen, *(workload for workload in small if workload not in chosen)][:count]
    return tuple(sorted(chosen, key=lambda workload: (work[workload.name], workload.name)))


def _run(
    context: Context, tool: SanitizerTool, build: Build, own: Sequence[Workload], begun: float
) -> Generator[Tick, None, SanitizerRun]:
    """Examine one variant under one tool; status `unknown` if the step's time is over.

    It blames an error on the workload whose call memcheck ended, or the first that fails alone.
    """
    names = tuple(workload.name for workload in own)
    blank = SanitizerRun(
        variant=build.variant, build_id=build.build_id, tool=tool, status="unknown", workloads=names, seconds=0
    )
    if time.monotonic() - begun > context.budget_s:
        return blank.model_copy(update={"why": f"the step's {context.budget_s:g} s were over", "workloads": ()})
    side, limit_s = context.bench.make_side(build.variant, build), min(CALL_LIMIT_S, context.kill_after_s / 2)
    examination = yield from examine(context.bench, side, tool, own, limit_s)
    is_bad, reports, why = examination.found, examination.reports, examination.why_unknown
    blamed = next(iter(examination.refused), "") if tool == "memcheck" and is_bad else ""
    for workload in own if is_bad and not blamed else ():
        alone, in_time = len(own) == 1, time.monotonic() - begun <= context.budget_s
        if alone or (in_time and (yield from examine(context.bench, side, tool, [workload], limit_s)).found):
            blamed = workload.name
            break
    if is_bad and not any(report.severity == "error" for report in reports):
        words = next(iter(examination.remarks), f"exit {examination.code}, and no report that is understood")
        reports = [SanitizerReport(kind="fault", words=words), *reports]
    update = {
        "status": "found" if is_bad else "unknown" if why else "clean",
        "seconds": examination.seconds,
        "reports": tuple(reports[:MOST_REPORTS]),
        "total": max(examination.total or 0, len(reports)),
        "workload": blamed,
        "why": why,
    }
    return blank.model_copy(update=update)


def _output(
    context: Context,
    every: Sequence[SanitizerRun],
    calls: Mapping[str, Sequence[Workload]],
    missing: Sequence[str],
) -> SanitizeOutput:
    """The step's output from all runs; `calls`: variant to its workloads; `missing`: what was skipped."""
    runs = sorted(every, key=lambda run: (TOOLS.index(run.tool), run.variant))
    bad = [run for run in runs if run.status == "found"]
    unknown: dict[tuple[str, str], list[str]] = {}
    for without in (each for each in runs if each.status == "unknown"):
        unknown.setdefault((without.variant, without.why), []).append(without.tool)
    unseen = [f"{listed_words(tools)} of {name}: {why}" for (name, why), tools in unknown.items()]
    cleared = [run.variant for run in runs if run.status == "clean"]
    clean = tuple(name for name in calls if cleared.count(name) == len(TOOLS))
    parts = [f"{name} clean in {len(calls[name])} calls" for name in clean]
    parts += [f"{name} not under all" for name in calls if name not in clean]
    warned = sum(run.total for run in runs if run.status == "clean")
    also = f"; warnings that fail nothing: {warned}" if warned else ""
    message, hint = f"{listed_words(TOOLS)}: {', '.join(parts) or 'nothing was sanitized'}{also}", None
    if bad:
        who = [f"{run.tool} of {run.variant}" for run in bad]
        more = f"; so {'does' if len(bad) == 2 else 'do'} {listed_words(who[1:])}" if bad[1:] else ""
        message = f"{who[0]} finds something: {bad[0].summary_text}{more}"
        hint = _replay(context, bad[0], calls[bad[0].variant])
    verdicts = tuple(  # One for each variant with an error, which gets no speed verdict.
        NoSpeedVerdict(
            variant=run.variant,
            workload=run.workload or run.workloads[0],
            against="baseline",
            verdict="incorrect",
            cause="sanitizer",
            reason=f"{run.tool}: {run.summary_text}",
        )
        for run in {run.variant: run for run in reversed(bad)}.values()
    )
    return SanitizeOutput(
        ok=not bad,
        message=message,
        hint=hint,
        verdicts=verdicts,
        not_exercised=(*missing, *unseen),
        learned=tuple(f"Under {run.tool}, {run.summary_text}." for run in bad),
        runs=tuple(runs),
        clean=clean,
        found=tuple(dict.fromkeys(run.variant for run in bad)),
        version=version(),
    )


def _replay(context: Context, run: SanitizerRun, own: Sequence[Workload]) -> str:
    """The command that repeats a finding, and a hint on `-lineinfo` if source lines are missing."""
    named = [workload for workload in own if workload.name == run.workload] or own
    signature = context.bench.target.signature
    chosen = [word for w in named for word in ("--workloads", format_entry(entry_of(signature, w)))]
    words = ("verify", run.variant, "--sanitize", "--device", "cuda", *chosen, "--seed", str(context.task.seed))
    has_lines = run.first_error is None or run.first_error.places
    lines = "" if has_lines else "; `-lineinfo` among its build flags makes the tool name lines"
    return f"again: {context.command('kernels', *words)}{lines}"
