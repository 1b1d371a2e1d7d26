"""Findings of compute-sanitizer on compiled CUDA variants."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.output import Output

SanitizerTool = Literal["memcheck", "racecheck", "synccheck", "initcheck"]
Kind = Literal["invalid access", "race", "barrier", "uninitialised read", "heap", "fault"]


class SanitizerReport(Model):
    """One finding of a compute-sanitizer tool."""

    kind: Kind
    severity: Literal["error", "warning"] = "error"
    """A warning may be intended code, so it does not fail the variant."""
    words: str
    """The first line of the tool's report, without the severity."""
    kernel: str = ""
    """The kernel's name without parameters; or an inlined function, if the tool names only that."""
    places: tuple[str, ...] = ()
    """`file:line`, then its callers, innermost first; empty for code without line information."""
    thread: str = ""
    block: str = ""


class SanitizerRun(Model):
    """The run of one variant under one sanitizer tool."""

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
    def first_error(self) -> SanitizerReport | None:
        """The first finding with severity `error`; None if there is none."""
        return next((report for report in self.reports if report.severity == "error"), None)

    @property
    def summary_text(self) -> str:
        """`small has a race in a_kernel at small.cuh:99, on B1 S64 float16: words (91 more)`; `small is clean`."""
        error = self.first_error
        if error is None:
            return f"{self.variant} is {self.status}"
        workload = self.workload or f"one of {len(self.workloads)} workloads"
        count = f" ({self.total - 1} more)" if self.total > 1 else ""
        article = "an" if error.kind[0] in "aeiou" else "a"
        finding = f"{article} {error.kind}{f' in {error.kernel}' if error.kernel else ''}"
        finding += f" at {', called at '.join(error.places)}" if error.places else ""
        finding += f", thread {error.thread} of block {error.block}" if error.thread else ""
        return f"{self.variant} has {finding}, on {workload}: {error.words}{count}"


class SanitizeOutput(Output):
    """Result of `kernel.sanitize`: compiled CUDA variants under the tools of compute-sanitizer."""

    actions = ("kernel.sanitize",)

    runs: tuple[SanitizerRun, ...] = ()
    clean: tuple[str, ...] = ()
    """Variants that all tools checked without an error."""
    found: tuple[str, ...] = ()
    version: str = ""
