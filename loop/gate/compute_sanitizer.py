"""A compiled CUDA variant under NVIDIA's compute-sanitizer, and what its log says.

Each call is made once, on memory of exactly its tensors' sizes (`child.exact`). The tool writes its log when the
worker has ended by itself, so that is waited for, also after a call that crashed. The sanitizers of g++, for
emulated builds, are `bench.sanitizers`.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loop.base.errors import LoopError
from loop.base.processes import Tick, finish, run
from loop.model.resources import short_name
from loop.model.sanitizing import Kind, SanitizerReport, SanitizerTool
from loop.model.target import Workload
from loop.workers.bench import Bench, Side
from loop.workers.messages import Observe
from loop.workers.program import START_LIMIT_S, Refusal, WorkerLost

PROGRAM = "compute-sanitizer"
TOOLS: tuple[SanitizerTool, ...] = ("memcheck", "racecheck", "synccheck", "initcheck")
INSTALL = "it comes with the CUDA toolkit (cuda-sanitizer): put its folder on the PATH"
FOUND = 86
"""Its exit status when it has found something."""
OPTIONS: Mapping[SanitizerTool, tuple[str, ...]] = {
    # Errors of API calls come back through the variant; accesses beyond a tensor may not fall into the next one.
    "memcheck": ("--padding", "4096", "--report-api-errors", "no")
}
LOG_BYTES = 4 << 20
"""The rest of a log is not read."""
MOST_REPORTS = 20
ASK_LIMIT_S = 20.0
PREFIX = "========="
SUMMARY = re.compile(r"^(?:ERROR|RACECHECK|\w+CHECK) SUMMARY: (\d+) (?:error|hazard)s?\b(?! were not printed)")
PLACED = re.compile(r"(?:\bat|Device Frame:) ?(?P<function>.+?)[+:]0x[0-9a-f]+(?: in (?P<place>\S+:\d+))?")
"""`at void k<float>(float *)+0x42f0 in k.cuh:75`; without -lineinfo nothing follows the offset."""
OLDER = re.compile(r"\bat 0x[0-9a-f]+ in (?:(?P<place>\S+?:\d+):)?(?P<function>.+)")
"""The same before 2023: `at 0x160 in k.cu:6:k(float *)`."""
CAST = re.compile(r"\((?:int|unsigned int|long|bool)\)(?=-?\d)")
"""`(int)64` among the arguments of a template: 64 says as much."""
THREAD = re.compile(r"by thread (\([^)]*\)) in block (\([^)]*\))")
EVIDENCE = re.compile(r"(?:at|and|by thread|(?:Write|Read) Thread)\b")
"""How a line of a report begins that says where; talk of the tool about itself has none."""
SEVERITY = re.compile(r"^(error|warning): *", re.IGNORECASE)
KINDS: tuple[tuple[str, Kind], ...] = (
    (r"Race reported|hazard", "race"),
    (r"Barrier|Syncwarp|Deadlock", "barrier"),
    (r"Uninitialized", "uninitialised read"),
    (r"Malloc|heap|Leaked", "heap"),
    (r"[Ii]nvalid|[Mm]isaligned|out of bounds|Tensor Memory", "invalid access"),
)
ITSELF = "Internal Sanitizer Error"


def version() -> str:
    """The version of compute-sanitizer that is on the PATH; empty when there is none."""
    if shutil.which(PROGRAM) is None:
        return ""
    try:
        output = finish(run([PROGRAM, "--version"], limit_s=ASK_LIMIT_S)).output
    except LoopError:
        return ""
    lines = [line for line in output.splitlines() if line.startswith("Version")]
    return lines[0].removeprefix("Version").split("(")[0].strip() if lines else "unknown"


@dataclass(frozen=True)
class Log:
    """The contents of a log."""

    reports: tuple[SanitizerReport, ...] = ()
    """Everything found that was printed."""
    total: int | None = None
    """How much was found by the tool's own count; None where it did not come to its summary."""
    remarks: tuple[str, ...] = ()
    """What the tool says of itself: that it failed, or did not see everything."""


def read_log(text: str) -> Log:
    """A log of compute-sanitizer: reports begin at the margin, the lines that belong to them are indented."""
    reports: list[SanitizerReport] = []
    remarks: list[str] = []
    totals: list[int] = []
    for head, *details in _paragraphs(text):
        summary = SUMMARY.match(head)
        if summary:
            totals.append(int(summary[1]))
        elif "SUMMARY" in head or head == PROGRAM.upper():
            continue
        elif not head.startswith(ITSELF) and any(EVIDENCE.match(line) for line in details):
            reports.append(_report(head, details))
        else:
            remarks.append(head)
    return Log(tuple(reports), sum(totals) if totals else None, tuple(remarks))


def _paragraphs(text: str) -> list[list[str]]:
    """Each line at the margin, with the indented lines below it."""
    paragraphs: list[list[str]] = []
    for line in text.splitlines():
        words = line.strip().removeprefix(PREFIX)
        if not line.strip().startswith(PREFIX) or not words.strip():
            continue
        if words.startswith("  ") and paragraphs:
            paragraphs[-1].append(words.strip())
        else:
            paragraphs.append([words.strip()])
    return paragraphs


def _report(head: str, details: Sequence[str]) -> SanitizerReport:
    """A finding with its kind, its kernel, its thread, and its places: the first line with one, and the frames."""

    def placed(line: str) -> re.Match[str] | None:
        return PLACED.search(line) or OLDER.search(line)

    first = next(filter(None, map(placed, (head, *details))), None)
    frames = [placed(line) for line in details if line.startswith("Device Frame:")]
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


@dataclass
class Examination:
    """One side under one tool."""

    seconds: float = 0.0
    log: Log = field(default_factory=Log)
    refused: dict[str, str] = field(default_factory=dict)
    """Calls that came to nothing, and why; by the workload's name."""
    lost: str = ""
    """How the worker died, or did not end; empty when it ended by itself."""
    code: int | None = None
    """Exit status of the tool; None where it was killed."""

    @property
    def found(self) -> bool:
        """Whether the tool found an error, also where its report is not understood."""
        if self.log.reports:
            return any(report.severity == "error" for report in self.log.reports)
        return self.code == FOUND or bool(self.log.total)

    @property
    def why_unknown(self) -> str:
        """Why the tool cannot say that there is nothing; empty where it can."""
        if self.log.remarks:
            return self.log.remarks[0]
        if self.lost:
            return self.lost
        if self.refused:
            return "{1} on {0}".format(*next(iter(self.refused.items())))
        if self.log.total is None:
            return "it wrote no summary"
        return "" if self.code in (0, FOUND) else f"exit {self.code}"


def examine(
    bench: Bench, side: Side, tool: SanitizerTool, workloads: Sequence[Workload], limit_s: float
) -> Generator[Tick, None, Examination]:
    """One call of a side on each workload under a tool; the judge has to have written the inputs."""
    examination, begun, note = Examination(), time.monotonic(), f"{side.name} under {tool}"
    with tempfile.TemporaryDirectory(dir=bench.scratch) as folder:
        log = Path(folder) / f"{tool}.log"
        try:
            with bench.open(side, under=command(tool, log)) as worker:
                yield from worker.receive(START_LIMIT_S, note)
                for workload in workloads:
                    once = Observe(bench.call(workload, side.name), "once")
                    try:
                        yield from worker.ask(once, limit_s=limit_s, note=note)
                    except Refusal as refusal:
                        examination.refused[workload.name] = str(refusal)
                examination.code = yield from worker.end(limit_s, note)
        except (WorkerLost, Refusal, LoopError) as error:
            examination.lost = str(error)
        if log.is_file():
            with log.open("rb") as file:
                examination.log = read_log(file.read(LOG_BYTES).decode(errors="replace"))
    examination.seconds = time.monotonic() - begun
    return examination


def command(tool: SanitizerTool, log: Path) -> list[str]:
    """The command line under which a worker is started."""
    usual = ("--error-exitcode", str(FOUND), "--target-processes", "all", "--show-backtrace", "device")
    return [PROGRAM, "--tool", tool, "--log-file", str(log), *usual, *OPTIONS.get(tool, ())]
