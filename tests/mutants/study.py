"""Mutants compiled and run, each in processes of its own: what showed the mistake, if anything did."""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from loop.base.places import project
from loop.library.targets import target
from loop.model.target import CAbiVariant
from tests.conftest import ROOT
from tests.mutants.mutants import COVERED, CUDA, KERNELS, Mutant, Sources, sources
from tests.mutants.truth import prepare

GROUPS, EVEN = "warp_specialized@sm_90", "warp_specialized@sm_90 even"
VARIANTS = ("fa1", "tensor_core", "tensor_core@sm_90", "small", "split_k", "decode", GROUPS, EVEN)
"""Each as the manifest emulates it; `@sm_90`: with the tiles of that device, and those for large grids always.
`even`: always the kernel that shares out keys evenly, where it takes a call."""
FEW_SMS = 5
MORE_FLAGS = {
    "fa1": ["-O1"],
    GROUPS: ["-UATTENTION_WIDE_SMS", f"-DATTENTION_WIDE_SMS={FEW_SMS}"],
    EVEN: ["-UATTENTION_WIDE_SMS", f"-DATTENTION_WIDE_SMS={FEW_SMS}", "-DATTENTION_GROUPS_ONLY=kEven"],
}
"""fa1 is quickly compiled and slow to run; the others are the other way round. FEW_SMS multiprocessors share
out the pieces of a small call in several rounds."""
BOUNDS = ("-fsanitize=bounds-strict", "-fsanitize-undefined-trap-on-error")
"""An index outside an array of a lane's own, in registers on a GPU, ends in SIGILL."""
LARGE = re.compile(r"(-DATTENTION_WIDE_\d+_BLOCKS)=\d+")
"""How many large tiles a multiprocessor holds. Below 0, so is their time for a row, and they are always chosen."""
COMPILE_LIMIT_S = 180
RUN_LIMIT_S = 1800
"""Of the clock, on a machine with other work: the child limits its processor time itself."""
SIGNALS: dict[int, str] = {signal.SIGXCPU: "hang", signal.SIGKILL: "hang", signal.SIGILL: "array overrun"}
WORKERS = 2


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    key: str
    how: str
    """What showed the mistake; `survived`, or `does not compile`."""
    variant: str = ""
    workload: str = ""
    detail: str = ""
    manifest: bool | None = None
    """Whether the manifest's own workloads show it too, in that variant; None where they were not run."""

    @property
    def killed(self) -> bool:
        """Whether the mistake was found."""
        return self.how not in ("survived", "does not compile")


class Study:
    """A folder with a copy of the kernels, right and without conflicts, and workloads with their truth."""

    def __init__(
        self, folder: Path, kernels: Path = KERNELS, variants: Sequence[str] = VARIANTS, *, small: bool = False
    ) -> None:
        """`small`: without the manifest's workloads, and only the first variant is tried without a mistake."""
        self.folder, self.variants, self.small = folder, variants, small
        shutil.copytree(kernels, folder / "base")
        self.sources: Sources = sources(folder / "base")
        self._prefix = folder / "prefix.h"
        self._prefix.write_text('#include <algorithm>\n#include <cmath>\n#include "loop_device.cuh"\n')
        header = self._prefix.with_suffix(".h.gch")
        self._compile([*emulation_flags(), "-c", "-x", "c++-header"], self._prefix, header)
        prepare(folder / "truth", variants, with_manifest=not small)
        unchanged = Mutant("none", "none", self.sources["problem.cuh"], ())
        for variant in variants[:1] if small else variants:
            outcome = self._try(unchanged, variant, folder / "none")
            if outcome.how != "survived":
                raise ValueError(f"{variant} is wrong without any mistake: {outcome}")

    def outcomes(self, mutants: Iterable[Mutant]) -> Iterator[Outcome]:
        """Of every mutant, in order."""
        with ThreadPoolExecutor(WORKERS) as pool:
            yield from pool.map(self.outcome, mutants)

    def outcome(self, mutant: Mutant) -> Outcome:
        """Of one: variants that include its file are tried until one shows the mistake, or does not compile."""
        folder = self.folder / f"m{abs(hash(mutant.key)):x}"
        try:
            for variant in COVERED[mutant.file]:
                if variant in self.variants:
                    outcome = self._try(mutant, variant, folder)
                    if outcome.how != "survived":
                        return outcome
            return Outcome(mutant.key, "survived")
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _try(self, mutant: Mutant, variant: str, folder: Path) -> Outcome:
        shutil.copytree(self.folder / "base" / "attention", folder / "attention", dirs_exist_ok=True)
        (folder / CUDA / mutant.file).write_text(mutant.text)
        library = folder / f"{variant}.so"
        flags = ["-include", str(self._prefix), "-shared", *MORE_FLAGS.get(variant, [])]
        name, _, rest = variant.partition("@")
        device = rest.partition(" ")[0]
        if wrong := self._compile([*emulation_flags(device), *flags], folder / CUDA / f"{name}.cu", library):
            return Outcome(mutant.key, "does not compile", variant, detail=wrong)
        own = self._run(mutant.key, variant, library, Path("ours", variant))
        if self.small:
            return own
        theirs = self._run(mutant.key, variant, library, Path("manifest"))
        return replace(theirs if own.how == "survived" else own, manifest=theirs.killed)

    def _compile(self, flags: Sequence[str], source: Path, made: Path) -> str:
        """The first error, if there is one."""
        command = ["g++", *flags, f"-I{self.folder / 'base' / 'include'}"]
        command += ["-o", str(made), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        return (errors or [f"exit {done.returncode}"])[0] if done.returncode else ""

    def _run(self, key: str, variant: str, library: Path, workloads: Path) -> Outcome:
        command = [sys.executable, "-m", "tests.mutants.child", str(library), variant]
        command += [str(self.folder / "truth" / workloads), str(library.with_suffix(".launches"))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
        told = [json.loads(line) for line in done.stdout.splitlines()]
        workload = next((line["workload"] for line in reversed(told) if "workload" in line), "")
        if done.returncode:
            how = SIGNALS.get(-done.returncode, "crash")
            return Outcome(key, how, variant, workload, f"exit {done.returncode}: {done.stderr[-200:]}")
        if "survived" in told[-1]:
            return Outcome(key, "survived", variant)
        return Outcome(key, told[-1]["killed"], variant, workload, told[-1]["detail"])


def emulation_flags(device: str = "") -> list[str]:
    """Those of the manifest with less optimisation, which is quicker here, and with array bounds checked.

    `device`: with the values tuned for it, and its large tiles for every grid.
    """
    bundled = target(project(None, Path("/"))).value
    variant = bundled.variants["tensor_core"]
    assert isinstance(variant, CAbiVariant)
    ready = variant.emulated(bundled.tuned(device or "sm_89"))
    flags = [LARGE.sub(r"\1=-1", flag) if device else flag for flag in ready.build.flags]
    return [*(flag for flag in flags if not flag.startswith(("-O", "-g"))), "-Og", "-fPIC", *BOUNDS]


def save(path: Path, outcome: Outcome) -> None:
    """Add a line of JSON to a log."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(outcome)) + "\n")


def load(path: Path) -> list[Outcome]:
    """What a log has, if it is there."""
    return [Outcome(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
