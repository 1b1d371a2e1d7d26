"""Run compiled CUDA variants under compute-sanitizer, because a right output may rest on a race."""

import itertools
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop.base.errors import LoopError
from loop.base.processes import Waiting, run, run_side_by_side, run_to_end
from loop.builds.resources import short_name
from loop.calls.call import Refused
from loop.gate.kernel import build_sides, planned_check_sets, workloads
from loop.machine.machine import cores
from loop.model.measurement import NoSpeedVerdict
from loop.model.output import (
    SanitizeOutput,
    SanitizerKind,
    SanitizerReport,
    SanitizerRun,
    SanitizerTool,
    VerifyOutput,
)
from loop.model.target import CAbiVariant, Workload
from loop.model.workloads import count_operations, format_entry, is_supported, make_entry
from loop.report.format import listed_words
from loop.steps import context as steps_context
from loop.steps.context import Context, Result, ResultLifetime, RunningAction
from loop.workers.bench import Bench, Side
from loop.workers.messages import Observe
from loop.workers.program import START_LIMIT_S, WorkerLost

PROGRAM = "compute-sanitizer"
TOOLS: tuple[SanitizerTool, ...] = ("memcheck", "racecheck", "synccheck", "initcheck")
INSTALL_HINT = "it comes with the CUDA toolkit (cuda-sanitizer): put its folder on the PATH"
FOUND_EXIT = 86  # Exit status that `loop` asks of compute-sanitizer when it found an error.
OPTIONS: Mapping[SanitizerTool, tuple[str, ...]] = {
    # The variant itself returns API errors. Padding shows accesses past the end of tensors.
    "memcheck": ("--padding", "4096", "--report-api-errors", "no")
}
LOG_BYTES = 4 << 20  # Bytes of a log that `loop` reads.
MOST_REPORTS = 20
ASK_LIMIT_S, CALL_LIMIT_S = 20.0, 60.0
MOST_CALLS = 6  # Most workloads of each variant.
MOST_OPERATIONS, MOST_ELEMENTS = 2e7, 2**18
"""Most operations of a call under a tool, or without `flops` most elements (product of sizes)."""
TOOLS_AT_ONCE = 8  # Tools that run in parallel: they work on the CPU and leave the GPU idle.
PREFIX = "========="
SUMMARY_WORDS = r"(?:ERROR|RACECHECK|\w+CHECK) SUMMARY: (\d+) (?:error|hazard)s?\b"
SUMMARY = re.compile(rf"^{SUMMARY_WORDS}(?! were not printed)")
FUNCTION = r"(?:\bat|Device Frame:) ?(?P<function>.+?)[+:]0x[0-9a-f]+"
PLACE = re.compile(rf"{FUNCTION}(?: in (?P<place>\S+:\d+))?")
"""`at void k<float>(float *)+0x42f0 in k.cuh:75`; without -lineinfo nothing follows the offset."""
CAST = re.compile(r"\((?:int|unsigned int|long|bool)\)(?=-?\d)")  # In template arguments; removed.
THREAD = re.compile(r"by thread (\([^)]*\)) in block (\([^)]*\))")
EVIDENCE = re.compile(r"(?:at|and|by thread|(?:Write|Read) Thread)\b")
"""Start of a report line that names a place. A paragraph without one is a remark of the tool."""
SEVERITY = re.compile(r"^(error|warning): *", re.IGNORECASE)
KINDS: tuple[tuple[str, SanitizerKind], ...] = (
    (r"Race reported|hazard", "race"),
    (r"Barrier|Syncwarp|Deadlock", "barrier"),
    (r"Uninitialized", "uninitialised read"),
    (r"Malloc|heap|Leaked", "heap"),
    (r"[Ii]nvalid|[Mm]isaligned|out of bounds|Tensor Memory", "invalid access"),
)
TOOL_ERROR = "Internal Sanitizer Error"


@dataclass
class Examination:
    """The result of one side under one tool."""

    reports: list[SanitizerReport] = field(default_factory=list)  # What the tool printed.
    findings_count: int | None = None  # The tool's own count of findings; None: no summary.
    remarks: list[str] = field(default_factory=list)  # Of the tool; then how calls failed.
    refused: list[str] = field(default_factory=list)  # Workloads whose call was refused.
    exit_code: int | None = None  # Exit status of the tool; None if it was killed.

    def parse_log(self, text: str) -> None:
        """Add a log's reports, its remarks (paragraphs that name no place in code), and the tool's
        count of findings. A paragraph is a line and the indented lines below it."""
        paragraphs: list[list[str]] = []
        for line in text.splitlines():
            content = line.strip().removeprefix(PREFIX)
            if not line.strip().startswith(PREFIX) or not content.strip():
                continue
            if content.startswith("  ") and paragraphs:
                paragraphs[-1].append(content.strip())
            else:
                paragraphs.append([content.strip()])
        for head, *details in paragraphs:
            if summary := SUMMARY.match(head):
                self.findings_count = (self.findings_count or 0) + int(summary[1])
            elif "SUMMARY" in head or head == PROGRAM.upper():
                continue
            elif not head.startswith(TOOL_ERROR) and any(EVIDENCE.match(line) for line in details):
                self.reports.append(_parse_report(head, details))
            else:
                self.remarks.append(head)

    def conclude(self) -> tuple[str, str]:
        """The status of the run, and why it does not prove that there is no error (empty where it
        does). `found`: the tool found an error, even one whose report `loop` cannot parse."""
        has_error = self.exit_code == FOUND_EXIT or bool(self.findings_count)
        if self.reports:
            has_error = any(report.severity == "error" for report in self.reports)
        why_unknown = "" if self.exit_code in (0, FOUND_EXIT) else f"exit {self.exit_code}"
        if self.findings_count is None:
            why_unknown = "it wrote no summary"
        why_unknown = next(iter(self.remarks), why_unknown)
        return "found" if has_error else "unknown" if why_unknown else "clean", why_unknown


def _parse_report(head: str, details: Sequence[str]) -> SanitizerReport:
    """Parse a report: kind, severity, kernel, thread, block and source places (file:line). `head`:
    its first line; `details`: the others. What a report does not name stays empty."""
    first_place = next(filter(None, map(PLACE.search, (head, *details))), None)
    frames = [PLACE.search(line) for line in details if line.startswith("Device Frame:")]
    places = [match for match in (first_place, *frames) if match]
    # Frames begin with the innermost function, so the last one is the kernel.
    kernel = short_name(CAST.sub("", places[-1]["function"].strip())) if places else ""
    severity = SEVERITY.match(head)
    thread = next(filter(None, map(THREAD.search, details)), None)
    return SanitizerReport(
        kind=next((kind for pattern, kind in KINDS if re.search(pattern, head)), "fault"),
        severity="warning" if severity and severity[1].lower() == "warning" else "error",
        words=SEVERITY.sub("", head),
        kernel=kernel,
        places=tuple(dict.fromkeys(match["place"] for match in places if match["place"])),
        thread=thread[1] if thread else "",
        block=thread[2] if thread else "",
    )


def examine(
    bench: Bench, side: Side, tool: SanitizerTool, workloads: Sequence[Workload], limit_s: float
) -> Waiting[Examination]:
    """Make a call of each workload in one worker under a tool, and read the tool's log. The caller
    has prepared the inputs. A call that the variant refuses is noted, and others follow; a lost
    worker ends the run. Both become remarks, after those of the tool. Raises nothing."""
    examination, note, failures = Examination(), f"{side.name} under {tool}", list[str]()
    with tempfile.TemporaryDirectory(dir=bench.scratch) as folder:
        log = Path(folder) / f"{tool}.log"
        command = [PROGRAM, "--tool", tool, "--log-file", str(log)]
        command += ["--error-exitcode", str(FOUND_EXIT), "--target-processes", "all"]
        command += ["--show-backtrace", "device", *OPTIONS.get(tool, ())]
        try:
            with bench.start_worker(side, tool=command) as worker:
                yield from worker.receive(START_LIMIT_S, note)
                for workload in workloads:
                    request = Observe(bench.make_call(workload, side.name), "once")
                    try:
                        yield from worker.ask(request, limit_s=limit_s, note=note)
                    except Refused as refusal:
                        examination.refused.append(workload.name)
                        failures.append(f"{refusal} on {workload.name}")
                examination.exit_code = yield from worker.wait_for_end(limit_s, note)
        except (WorkerLost, Refused, LoopError) as error:
            failures.insert(0, str(error))
        if log.is_file():
            with log.open("rb") as file:
                examination.parse_log(file.read(LOG_BYTES).decode(errors="replace"))
    examination.remarks += failures
    return examination


def version() -> str:
    """The version of compute-sanitizer on the PATH; empty without one, `unknown` if untold."""
    if shutil.which(PROGRAM) is None:
        return ""
    try:
        output = run_to_end(run([PROGRAM, "--version"], limit_s=ASK_LIMIT_S)).output
    except LoopError:
        return ""
    lines = [line for line in output.splitlines() if line.startswith("Version")]
    return lines[0].removeprefix("Version").split("(")[0].strip() if lines else "unknown"


class SanitizeTerms(ResultLifetime):
    """Arguments of `kernel.sanitize`."""

    wrong: bool = False
    """Whether to sanitize variants that verification found wrong, to learn why."""


def sanitize(context: Context, arguments: SanitizeTerms) -> RunningAction[SanitizeOutput]:
    """Run each compiled CUDA build under each tool on a few small workloads. Passes where nothing
    can be sanitized. Leaves out variants that were found wrong, unless told to (`wrong`)."""
    bench, task, deadline = context.bench, context.task, time.monotonic() + context.budget_s
    on_gpu, reason, names = bench.device == "cuda", "", list[str]()
    for name in dict.fromkeys((*task.variants, *task.emulated)):
        variant = bench.target.variants[name]
        if isinstance(variant, CAbiVariant) and (variant.device == "cuda" or on_gpu):
            names.append(name)
    if not names:
        message = "no compiled variant for a GPU to sanitize"
        return Result(SanitizeOutput(ok=True, message=message), idle=True)
    if not on_gpu:
        verify = context.command("kernels", "verify", "--sanitize", "--device", "cuda")
        reason = f"there is no GPU here; on one: {verify}"
    elif not version():
        reason = f"there is no {PROGRAM} on the PATH: {INSTALL_HINT}"
    if reason:
        skipped = (f"{listed_words(TOOLS)} of {', '.join(names)}: {reason}",)
        return Result(SanitizeOutput(ok=True, message=reason, not_exercised=skipped), idle=True)
    sides, failures = yield from build_sides(context, task.variants)
    uncompiled = "sanitizers on what does not compile"
    not_exercised = [f"{uncompiled}: {failure.message}" for failure in failures]
    verification = context.latest_output("kernel.verify", VerifyOutput)
    verified = verification.variants if verification else ()
    wrong_builds = {(checks.variant, checks.build_id) for checks in verified if not checks.is_right}
    workloads_by_variant: dict[str, Sequence[Workload]] = {}
    planned = workloads(context, planned_check_sets(context) or task.plan.workloads, device="cuda")
    operations = {workload.name: count_operations(bench.target, workload) for workload in planned}
    for name, side in sides.items():
        if name not in names:
            continue
        candidates = [workload for workload in planned if is_supported(side, workload)]
        most_work = MOST_OPERATIONS if bench.target.flops else MOST_ELEMENTS
        small_workloads = choose_small_workloads(candidates, operations, most_work, MOST_CALLS)
        if not arguments.wrong and (name, side.build_id) in wrong_builds:
            not_exercised.append(f"sanitizers on {name}: it was not found right")
        elif not small_workloads:
            not_exercised.append(f"sanitizers on {name}: no workload is for it")
        else:
            workloads_by_variant[name] = small_workloads
    build_ids = [f"{name} {sides[name].build_id}" for name in workloads_by_variant]
    settings = ("kernel.sanitize", version(), str(arguments.wrong))
    inputs_digest = steps_context.dependency_hash(context, *settings, *build_ids)
    stored_output = steps_context.reuse_result(context, SanitizeOutput, inputs_digest, arguments)
    if stored_output is not None and not failures:  # An earlier session ran the same.
        return Result(stored_output)
    for workload in itertools.chain(*workloads_by_variant.values()):
        yield from bench.prepare_answer(workload)
    jobs = list[Waiting[SanitizerRun]]()
    for tool, (name, small) in itertools.product(TOOLS, workloads_by_variant.items()):
        jobs.append(_run_tool(context, tool, sides[name], small, deadline))
    runs = yield from run_side_by_side(jobs, min(TOOLS_AT_ONCE, cores()))
    output = _output(context, runs, workloads_by_variant, not_exercised)
    is_complete = all(run.status != "unknown" for run in output.runs)
    return Result(output.model_copy(update={"rests_on": inputs_digest if is_complete else ""}))


def choose_small_workloads(
    candidates: Sequence[Workload], work: Mapping[str, float], most_work: float, count: int
) -> tuple[Workload, ...]:
    """Choose at most `count` workloads of at most `most_work`, or the smallest, sorted by work.
    `work`: workload name to its work. First come those with a new element type, flag or choice,
    then those with most work: their loops run more often. Deterministic."""
    most_first = sorted(candidates, key=lambda workload: (-work[workload.name], workload.name))
    small = [w for w in most_first if work[w.name] <= most_work] or most_first[-1:]
    known_traits: set[tuple[str, object]] = set()
    ranked: list[tuple[bool, Workload]] = []
    for workload in small:
        traits = {("dtype", workload.dtype), *workload.attributes.items()}
        traits = {(name, value) for name, value in traits if isinstance(value, bool | str)}
        ranked.append((traits <= known_traits, workload))
        known_traits |= traits
    selection = [workload for _, workload in sorted(ranked, key=lambda pair: pair[0])][:count]
    return tuple(sorted(selection, key=lambda workload: (work[workload.name], workload.name)))


def _run_tool(
    context: Context, tool: SanitizerTool, side: Side, small: Sequence[Workload], deadline: float
) -> Waiting[SanitizerRun]:
    """Examine one variant under one tool on `small` workloads; `unknown` after the `deadline`
    (monotonic). Blames the workload whose call memcheck ended, or the first that fails alone."""
    names, begin_time = tuple(workload.name for workload in small), time.monotonic()
    place: dict[str, object] = {"variant": side.name, "build_id": side.build_id}
    place |= {"tool": tool, "workloads": names}
    if begin_time > deadline:
        why = f"the step's {context.budget_s:g} s were over"
        return SanitizerRun.model_validate({**place, "status": "unknown", "seconds": 0, "why": why})
    limit_s = min(CALL_LIMIT_S, context.kill_after_s / 2)
    examination = yield from examine(context.bench, side, tool, small, limit_s)
    seconds, reports, blamed = time.monotonic() - begin_time, examination.reports, ""
    status, why_unknown = examination.conclude()
    if status == "found":
        if tool == "memcheck" and examination.refused:  # It ends the call with the error.
            blamed = examination.refused[0]
        elif len(small) == 1:
            blamed = names[0]
        for workload in small:
            if blamed or time.monotonic() > deadline:
                break
            alone = yield from examine(context.bench, side, tool, [workload], limit_s)
            blamed = workload.name if alone.conclude()[0] == "found" else ""
        if not any(report.severity == "error" for report in reports):
            unclear = f"exit {examination.exit_code}, and no report that is understood"
            words = next(iter(examination.remarks), unclear)
            reports = [SanitizerReport(kind="fault", words=words), *reports]
    findings: dict[str, object] = {"status": status, "seconds": seconds, "why": why_unknown}
    count = max(examination.findings_count or 0, len(reports))
    findings |= {"workload": blamed, "reports": tuple(reports[:MOST_REPORTS]), "total": count}
    return SanitizerRun.model_validate({**place, **findings})


def _output(
    context: Context,
    all_runs: Sequence[SanitizerRun],
    workloads_by_variant: Mapping[str, Sequence[Workload]],
    not_exercised: Sequence[str],
) -> SanitizeOutput:
    """The step's output from all runs. `workloads_by_variant`: one call each; `not_exercised`: what
    was skipped. A variant with an error gets the verdict `incorrect`, which takes its speed."""
    runs = sorted(all_runs, key=lambda run: (TOOLS.index(run.tool), run.variant))
    failing_runs = [run for run in runs if run.status == "found"]
    clean_names = [run.variant for run in runs if run.status == "clean"]
    clean = tuple(name for name in workloads_by_variant if clean_names.count(name) == len(TOOLS))
    tools_by_reason: dict[tuple[str, str], list[str]] = {}
    """Variant and reason to the tools whose runs prove nothing for that reason."""
    for tool_run in (each for each in runs if each.status == "unknown"):
        tools_by_reason.setdefault((tool_run.variant, tool_run.why), []).append(tool_run.tool)
    verdict_by_variant: dict[str, NoSpeedVerdict] = {}
    for tool_run in failing_runs:
        workload, variant = tool_run.workload or tool_run.workloads[0], tool_run.variant
        fields: dict[str, Any] = {"variant": variant, "workload": workload, "against": "baseline"}
        fields |= {"cause": "sanitizer", "reason": f"{tool_run.tool}: {tool_run.summary_text}"}
        verdict = NoSpeedVerdict(**fields, verdict="incorrect")
        verdict_by_variant.setdefault(variant, verdict)
    parts = [f"{name} clean in {len(workloads_by_variant[name])} calls" for name in clean]
    parts += [f"{name} not under all" for name in workloads_by_variant if name not in clean]
    warnings_count = sum(run.total for run in runs if run.status == "clean")
    message, hint = f"{listed_words(TOOLS)}: {', '.join(parts) or 'nothing was sanitized'}", None
    message += f"; warnings that fail nothing: {warnings_count}" if warnings_count else ""
    if failing_runs:
        first, names = failing_runs[0], [f"{run.tool} of {run.variant}" for run in failing_runs]
        message = f"{names[0]} finds something: {first.summary_text}"
        message += f"; also {listed_words(names[1:])}" if names[1:] else ""
        words = ["verify", first.variant, "--sanitize", "--device", "cuda"]
        tried = workloads_by_variant[first.variant]
        for blamed in [w for w in tried if w.name == first.workload] or tried:
            entry = make_entry(context.bench.target.signature, blamed)
            words += ["--workloads", format_entry(entry)]
        hint = f"again: {context.command('kernels', *words, '--seed', str(context.task.seed))}"
        if first.first_error and not first.first_error.places:
            hint += "; `-lineinfo` among its build flags makes the tool name lines"
    unproven = tools_by_reason.items()
    not_run = [f"{listed_words(tools)} of {name}: {why}" for (name, why), tools in unproven]
    return SanitizeOutput(
        ok=not failing_runs,
        message=message,
        hint=hint,
        verdicts=tuple(verdict_by_variant.values()),
        not_exercised=(*not_exercised, *not_run),
        learned=tuple(f"Under {run.tool}, {run.summary_text}." for run in failing_runs),
        runs=tuple(runs),
        clean=clean,
        found=tuple(verdict_by_variant),
        version=version(),
    )
