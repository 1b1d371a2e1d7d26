"""What compute-sanitizer said of compiled CUDA variants."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.output import Output

SanitizerTool = Literal["memcheck", "racecheck", "synccheck", "initcheck"]
Kind = Literal["invalid access", "race", "barrier", "uninitialised read", "heap", "fault"]


class SanitizerReport(Model):
    """One thing that a tool of compute-sanitizer found."""

    kind: Kind
    severity: Literal["error", "warning"] = "error"
    """A warning may be meant so, the tool says: it fails nothing."""
    words: str
    """The first line of the tool's report, its severity left out."""
    kernel: str = ""
    """The kernel, or the function inlined into it where the tool names no other; without its parameters."""
    places: tuple[str, ...] = ()
    """`file:line`, and from where that was called, outwards; empty for code without line information."""
    thread: str = ""
    block: str = ""

    @property
    def where(self) -> str:
        """` in small_kernel at small.cuh:99, called at b.cu:3, thread (1,0,0) of block (0,0,0)`; or empty."""
        kernel = f" in {self.kernel}" if self.kernel else ""
        places = f" at {', called at '.join(self.places)}" if self.places else ""
        return f"{kernel}{places}{f', thread {self.thread} of block {self.block}' if self.thread else ''}"


class SanitizerRun(Model):
    """One variant under one tool."""

    variant: str
    build_id: str
    tool: SanitizerTool
    status: Literal["clean", "found", "unknown"]
    workloads: tuple[str, ...]
    seconds: Annotated[float, Field(ge=0)]
    reports: tuple[SanitizerReport, ...] = ()
    total: int = 0
    workload: str = ""
    why: str = ""

    @property
    def first(self) -> SanitizerReport | None:
        """The first error; None without any."""
        return next((report for report in self.reports if report.severity == "error"), None)

    @property
    def told(self) -> str:
        """`small has a race in small_kernel at small.cuh:99, on B1 H1 S64 D64 float16: words (91 more)`."""
        first = self.first
        if first is None:
            return f"{self.variant} is {self.status}"
        on = self.workload or f"one of {len(self.workloads)} workloads"
        more = f" ({self.total - 1} more)" if self.total > 1 else ""
        article = "an" if first.kind[0] in "aeiou" else "a"
        return f"{self.variant} has {article} {first.kind}{first.where}, on {on}: {first.words}{more}"


class SanitizeOutput(Output):
    """Compiled CUDA variants under the tools of compute-sanitizer."""

    actions = ("kernel.sanitize",)

    runs: tuple[SanitizerRun, ...] = ()
    clean: tuple[str, ...] = ()
    """Variants in which none of the tools found anything, and all of them looked."""
    found: tuple[str, ...] = ()
    version: str = ""
