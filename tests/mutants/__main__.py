"""`make mutants`: put mistakes into the CUDA kernels, one at a time, and see which of them are found.

Every mutant is compiled by g++ for the emulator and run on fixed workloads against float64, in the gate's bounds.
"""

import argparse
import datetime
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from loop.base.documents import content_hash
from loop.machine.machine import machine
from tests.mutants.explanations import explanations
from tests.mutants.mutants import COVERED, Sources, applications, chosen, history, sources
from tests.mutants.report import UNEXPLAINED, report, verdict
from tests.mutants.study import VARIANTS, Study, load, save

RESULTS = Path(__file__).with_name("RESULTS.md")

WORDS = (
    "Mechanical operators over `kernels/attention/cuda`, and the recorded history's own mistakes. `race` and its",
    "like are what the emulator says, with thread and line; `wrong values` are outside the gate's bounds around",
    "float64; `conflicts` are bank conflicts of `ldmatrix`, where the kernels have none.",
)


def heading(sources: Sources, count: int, tried: int, minutes: float) -> list[str]:
    """What was run, where, on which sources, and for how long."""
    facts = machine()
    sources_hash = content_hash("".join(one.text for one in sources.values()))[:12]
    return [
        "# Mistakes put into the CUDA kernels",
        "",
        *WORDS,
        "",
        f"`make mutants` on {datetime.datetime.now(datetime.UTC).date()}: {facts.processor}, {facts.cores} cores, "
        f"{facts.compiler}; {count} mutants, {tried} of them tried now, in {minutes:.0f} minutes; sources "
        f"{sources_hash}.",
        "",
    ]


def main() -> None:
    """Run the study; exit code 1 when a survivor is not explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--everything", action="store_true", help="without the thinning rule; writes nothing")
    parser.add_argument("--only", default=[], nargs="+", help="those of these files, or whose identity begins so")
    parser.add_argument(
        "--write", type=Path, help="where the table goes; with --only nowhere, if this is not given"
    )
    parser.add_argument("--quick", action="store_true", help="without the manifest's own workloads")
    parser.add_argument("--log", type=Path, help="outcomes as JSON; those in it are not tried again")
    options = parser.parse_args()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="loop-mutants-") as folder:
        everything = chosen(sources(), everything=options.everything)
        only = tuple(options.only)
        mutants = [m for m in everything if not only or m.file in only or m.key.startswith(only)]
        needed = {variant for mutant in mutants for variant in COVERED[mutant.file]}
        variants = [variant for variant in VARIANTS if variant in needed]
        study = Study(Path(folder), variants=variants, small=options.quick)
        known = {one.key: one for one in load(options.log)} if options.log else {}
        new = [mutant for mutant in mutants if mutant.key not in known]

        for outcome in study.outcomes(new):
            known[outcome.key] = outcome
            sys.stderr.write(f"{outcome.how:16} {outcome.key}\n")
            if options.log:
                save(options.log, outcome)
    pairs = [(mutant, known[mutant.key]) for mutant in mutants]
    places = Counter(mutant.operator for mutant in [*applications(study.sources), *history(study.sources)])
    reasons = explanations()
    lines = heading(study.sources, len(pairs), len(new), (time.perf_counter() - begun) / 60)
    text = "\n".join([*lines, *report(pairs, places, reasons)]).rstrip() + "\n"
    sys.stdout.write(text)
    if options.write or not (options.everything or options.only):
        (options.write or RESULTS).write_text(text)
    sys.exit(any(verdict(outcome, reasons) == UNEXPLAINED.verdict for _, outcome in pairs))


if __name__ == "__main__":
    main()
