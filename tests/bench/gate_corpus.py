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
    results: list[Outcome] = []
    for kernel in kernels:
        place = folder / kernel.function
        target = write_kernel(place, kernel, languages)
        (place / "scratch").mkdir()
        terms = target, place, folder / "builds", include_folder(), device, 1
        with Bench(*terms, scratch=place / "scratch") as bench:
            for language in languages:
                begun = time.perf_counter()
                results += (new := outcomes(bench, kernel, language))
                seconds = time.perf_counter() - begun
                sys.stderr.write(f"{kernel.function} in {language}: {len(new)} variants in {seconds:.1f} s\n")
    return results


def table(results: Sequence[Outcome]) -> list[str]:
    """A row for each kernel and language, and one for all."""
    rows = [HEAD, RULE]
    keys = list(dict.fromkeys((case.kernel, case.language) for case in results))
    for kernel, language in keys:
        group = [case for case in results if (case.kernel, case.language) == (kernel, language)]
        rows.append(f"| {kernel} | {language} | {counts(group)} |")
    return [*rows, f"| all | | {counts(results)} |"]


def counts(results: Sequence[Outcome]) -> str:
    wrong = [case for case in results if case.expected]
    right = [case for case in results if not case.expected]
    rejected, reason = (sum(bool(case.check) for case in wrong), sum(case.as_expected for case in wrong))
    return f"{len(wrong)} | {rejected} | {reason} | {len(right)} | {sum(case.as_expected for case in right)}"


def main() -> None:
    """Print the table, counts of check states, and each outcome that was not the expected one."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gate_corpus")
    parser.add_argument("--device", default="cpu", choices=list(LANGUAGES))
    parser.add_argument("--language", nargs="+", default=None)
    parser.add_argument("--kernel", nargs="+", default=[kernel.function for kernel in KERNELS])
    options = parser.parse_args()
    languages = options.language or LANGUAGES[options.device]
    with tempfile.TemporaryDirectory(prefix="loop-corpus-") as folder:
        chosen = [kernel for kernel in KERNELS if kernel.function in options.kernel]
        results = study(Path(folder), options.device, languages, chosen)
    facts = machine()
    day = datetime.datetime.now(datetime.UTC).date()
    lines = [f"{day}: {facts.gpus[0] if options.device == 'cuda' else facts.processor}, {facts.cores} cores.", ""]
    lines += table(results)
    states = Counter(case.check.status for case in results if case.check)
    lines += ["", ", ".join(f"{count} {state}" for state, count in states.items())]
    for case in (case for case in results if not case.as_expected):
        verdict = f"{case.check.status}: {case.check.message}" if case.check else "passed"
        lines.append(f"- {case.kernel} {case.mistake} in {case.language}: expected `{case.expected}`; {verdict}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
