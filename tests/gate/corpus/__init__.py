"""Six kernels with one mechanical mistake each at the edges of their tensors, in C++, CUDA and PyTorch.

A mistake moves a loop bound or an index: the same ones for every kernel. Each has a reason for which it has to be
rejected; the kernels without a mistake have to pass.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from loop.base.processes import run_to_end
from loop.gate.verify import Job, verify
from loop.model.measurement import Check
from loop.model.target import Target
from loop.model.workloads import expand_sets
from loop.workers.bench import Bench
from tests.targets import make_sides, write_target

HERE = Path(__file__).parent
Language = Literal["C++", "CUDA", "PyTorch", "Triton"]
READS, WRITES = r"reads outside its input", r"writes outside its output"
COMPILED = {
    "right": "",
    "reads_one_more": READS,
    "reads_from_minus_one": READS,
    "reads_shifted": READS,
    "reads_next_row": READS,
    "reads_last_row": READS,
    "second_shifted": READS,
    "times_zero": READS,
    "takes_larger": READS,
    "ignores_strides": f"{READS}.* with (strided|broadcast|transposed) inputs",
    "writes_one_more": WRITES,
    "writes_four_more": WRITES,
    "writes_from_minus_one": WRITES,
    "writes_shifted": WRITES,
    "writes_next_row": WRITES,
    "one_row_more": WRITES,
    "from_row_minus_one": WRITES,
    "touches": WRITES,
    "scribbles": "writes outside its input|changed its input",
    "looks_beyond": f"{READS} .: 0 bytes after its end",
}
"""Entries of rows.h to the reason for which they have to be rejected; empty: right."""
BUILDS = {"C++": ("rows.cpp", "cpu", "g++"), "CUDA": ("rows.cu", "cuda", "nvcc", "-arch={arch}")}
"""Source, device, compiler and flags."""
PAGES_ONLY = ("looks_beyond",)  # Mistakes that only closed pages on the host reveal.
PYTHON = {
    "": "",
    "shifted": READS,
    "minus_one": READS,
    "next_row": READS,
    "last_row": READS,
    "second": READS,
    "times_zero": READS,
    "largest": READS,
    "dense": f"{READS}.* with (strided|broadcast|transposed) inputs",
    "scribbles": "writes outside its input|changed its input",
    "beyond": WRITES,
    "ahead": f"{WRITES}|crashed with SIG",
}
TRITON = {"right": "", "reads": READS, "writes": WRITES}  # Of the row scale alone.


@dataclass(frozen=True)
class Kernel:
    """One of the six functions."""

    function: str
    inputs: dict[str, str]
    output: str
    sizes: Sequence[dict[str, int]]
    """Odd ones, and some that end where a page ends."""
    reduces: bool = True

    def mistakes(self, language: Language) -> dict[str, str]:
        """Mistakes that this kernel can make, with the cause for which the gate has to reject each."""
        if language == "Triton":
            return TRITON if self.function == "row_scale" else {}
        reasons = PYTHON if language == "PyTorch" else COMPILED
        lacks = {"second_shifted", "second"} if len(self.inputs) == 1 else set()
        lacks |= set() if self.reduces else {"reads_one_more", "reads_from_minus_one"}
        lacks |= set(PAGES_ONLY) if language == "CUDA" else set()
        return {name: why for name, why in reasons.items() if name not in lacks}


ROWS = ({"N": 5, "D": 33}, {"N": 8, "D": 64})
KERNELS = (
    Kernel("rms_norm", {"x": "N D", "w": "D"}, "N D", ROWS),
    Kernel("softmax", {"x": "N D"}, "N D", ROWS),
    Kernel("row_scale", {"x": "N D", "s": "N"}, "N D", ROWS, reduces=False),
    Kernel("mat_mul", {"a": "M K", "b": "K N"}, "M N", ({"M": 5, "K": 7, "N": 9}, {"M": 8, "K": 16, "N": 32})),
    Kernel(
        "attention",
        {"q": "S D", "k": "T D", "v": "T D"},
        "S D",
        ({"S": 5, "T": 7, "D": 9}, {"S": 8, "T": 32, "D": 16}),
    ),
    Kernel("histogram", {"x": "N D"}, "N B", tuple({**sizes, "B": 16} for sizes in ROWS)),
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of verifying one variant."""

    kernel: str
    mistake: str
    language: Language
    expected: str
    check: Check | None
    """The first failed check; None: all passed."""

    @property
    def as_expected(self) -> bool:
        """Whether it was rejected for its reason, or passed if it is right."""
        if self.check is None:
            return not self.expected
        return bool(self.expected and re.search(self.expected, self.check.message))


def write_kernel(folder: Path, kernel: Kernel, languages: Sequence[Language]) -> Target:
    """Write a project with all variants of one kernel; read its manifest."""
    variants = {
        variant_name(language, mistake): _variant(kernel, mistake, language)
        for language in languages
        for mistake in kernel.mistakes(language)
    }
    python = {"python": f"functions:{kernel.function}"}
    target = write_target(
        folder,
        variants,
        name=kernel.function,
        function=kernel.function,
        signature={"inputs": kernel.inputs, "outputs": {"output": kernel.output}},
        reference=python,
        plain=python,
        baseline=python,
        tolerance={"float32": {"atol": 1e-4, "rtol": 1e-4}},
        dtypes={"cpu": "float32", "cuda": "float32"},
        workloads={"some": list(kernel.sizes)},
    )
    for name in ("rows.h", "rows.cpp", "rows.cu", "functions.py", "stores.py"):
        shutil.copy(HERE / name, folder)
    return target


def variant_name(language: Language, mistake: str) -> str:
    """Its name in the manifest."""
    return f"{language}_{mistake or 'right'}".replace("+", "p").lower()


def _variant(kernel: Kernel, mistake: str, language: Language) -> dict[str, Any]:
    if language == "PyTorch":
        function = f"{kernel.function}_{mistake}" if mistake else kernel.function
        return {"kind": "python", "device": "any", "module": "functions", "function": function}
    if language == "Triton":
        return {"kind": "python", "device": "cuda", "module": "functions", "function": f"triton_{mistake}"}
    source, device, compiler, *extra = BUILDS[language]
    recipe = {"compiler": compiler, "flags": ["-std=c++17", "-O1", *extra]}
    entry = f"{kernel.function}_{mistake}"
    return {"kind": "c_abi", "device": device, "sources": [source], "entry": entry, "build": recipe}


def outcomes(bench: Bench, kernel: Kernel, language: Language) -> list[Outcome]:
    """Verify all variants of a kernel in one language, on each workload and in each layout."""
    mistakes = kernel.mistakes(language)
    sides = make_sides(bench, *(variant_name(language, mistake) for mistake in mistakes))
    workloads = expand_sets(bench.target, ["some"], "float32", 0)
    jobs = [Job(side, workloads, fail_fast=True) for side in sides]
    pairs = zip(mistakes.items(), run_to_end(verify(bench, jobs)), strict=True)
    return [Outcome(kernel.function, name, language, cause, side.first_failure) for (name, cause), side in pairs]
