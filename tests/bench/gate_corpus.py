"""Six kernels with one mistake each at the edge of a tensor: which of them the gate rejects, and for which reason.

`make bench-gate` runs it; `python -m tests.bench.gate_corpus --device cuda` runs what needs a GPU.
"""

import argparse
import datetime
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from loop.base.places import include_folder
from loop.machine.machine import machine
from loop.model.dtypes import Device
from loop.workers.bench import Bench
from tests.gate.corpus import KERNELS, Kernel, Language, Outcome, outcomes, write_kernel

LANGUAGES: dict[Device, tuple[Language, ...]] = {"cpu": ("C++", "PyTorch"), "cuda": ("CUDA", "PyTorch", "Triton")}
HEAD = "| Kernel | Language | Mistakes | Rejected | Right reason | Right variants | Passed |"
RULE = "|:--|:--|--:|--:|--:|--:|--:|"


def study(folder: Path, device: Device, languages: Sequence[Language], kernels: Iterable[Kernel]) -> list[Outcome]:
    """Verify every variant of these kernels."""
    found: list[Outcome] = []
    for kernel in kernels:
        place = folder / kernel.function
        target = write_kernel(place, kernel, languages)
        (place / "scratch").mkdir()
        terms = target, place, folder / "builds", include_folder(), device, 1
        with Bench(*terms, scratch=place / "scratch") as bench:
            for language in languages:
                begun = time.perf_counter()
                found += (new := outcomes(bench, kernel, language))
                seconds = time.perf_counter() - begun
                sys.stderr.write(f"{kernel.function} in {language}: {len(new)} variants in {seconds:.1f} s\n")
    return found


def table(found: Sequence[Outcome]) -> list[str]:
    """A row for each kernel and language, and one for all."""
    rows = [HEAD, RULE]
    keys = list(dict.fromkeys((one.kernel, one.language) for one in found))
    for kernel, language in keys:
        some = [one for one in found if (one.kernel, one.language) == (kernel, language)]
        rows.append(f"| {kernel} | {language} | {counts(some)} |")
    return [*rows, f"| all | | {counts(found)} |"]


def counts(found: Sequence[Outcome]) -> str:
    wrong = [one for one in found if one.expected]
    right = [one for one in found if not one.expected]
    rejected, reason = (sum(bool(one.check) for one in wrong), sum(one.as_expected for one in wrong))
    return f"{len(wrong)} | {rejected} | {reason} | {len(right)} | {sum(one.as_expected for one in right)}"


def main() -> None:
    """Print the table, the reasons that were not the expected ones, and how often each state came."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gate_corpus")
    parser.add_argument("--device", default="cpu", choices=list(LANGUAGES))
    parser.add_argument("--language", nargs="+", default=None)
    parser.add_argument("--kernel", nargs="+", default=[kernel.function for kernel in KERNELS])
    options = parser.parse_args()
    languages = options.language or LANGUAGES[options.device]
    with tempfile.TemporaryDirectory(prefix="loop-corpus-") as folder:
        chosen = [kernel for kernel in KERNELS if kernel.function in options.kernel]
        found = study(Path(folder), options.device, languages, chosen)
    facts = machine()
    day = datetime.datetime.now(datetime.UTC).date()
    lines = [f"{day}: {facts.gpus[0] if options.device == 'cuda' else facts.processor}, {facts.cores} cores.", ""]
    lines += table(found)
    states = Counter(one.check.status for one in found if one.check)
    lines += ["", ", ".join(f"{count} {state}" for state, count in states.items())]
    for one in (one for one in found if not one.as_expected):
        said = f"{one.check.status}: {one.check.message}" if one.check else "passed"
        lines.append(f"- {one.kernel} {one.mistake} in {one.language}: expected `{one.expected}`; {said}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
