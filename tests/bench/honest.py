"""`make bench-gate`: does the gate reject any right variant? Many honest variants; writes HONEST.md.

Kinds: products and attention in other orders of summation, with other exponentials, with workspaces, threads,
tables, a slow first call, declared limits; compiled and in PyTorch. Naive loops also at the largest workload.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loop.base.processes import run_to_end
from loop.gate.verify import Job, verify
from loop.machine.machine import cores, machine
from loop.model.measurement import VariantChecks
from loop.model.target import Target
from loop.model.workloads import expand_sets
from loop.workers.bench import Bench
from tests.gate.honest_attention import COMPILED, PYTHON_NAMES, write_attention
from tests.session.mix import HONEST, PYTHON_HONEST, write_mix
from tests.targets import make_sides, open_bench

SEEDS_AT_ONCE = 10
PAGE = Path(__file__).with_name("HONEST.md")
LARGE_SEEDS = 3  # Seeds of naive loops at B1 H8 S2048 D128: each call takes many seconds.


@dataclass
class Row:
    """Results of one variant over all seeds."""

    states: Counter[str] = field(default_factory=Counter)
    rejected: set[int] = field(default_factory=set)
    """Seeds on which it was rejected."""
    seeds: int = 0
    why: str = ""

    def add(self, seed: int, checks: VariantChecks) -> None:
        self.states.update(check.status for check in checks.checks)
        self.seeds += 1
        if not checks.is_right:
            self.rejected.add(seed)
            self.why = self.why or (checks.first_failure.message if checks.first_failure else checks.tally)


def check(bench: Bench, names: Sequence[str], name: str, seeds: int, rows: dict[str, Row]) -> None:
    """Verify these variants on a set of workloads, `SEEDS_AT_ONCE` seeds in one process; add to `rows`."""
    sides = make_sides(bench, *names)
    for start in range(0, seeds, SEEDS_AT_ONCE):
        begun, batch = time.monotonic(), range(start, min(start + SEEDS_AT_ONCE, seeds))
        chosen = [workload for seed in batch for workload in expand_sets(bench.target, [name], "float32", seed)]
        for result in run_to_end(verify(bench, [Job(side, chosen) for side in sides])):
            row = rows.setdefault(result.variant if name != "large" else f"{result.variant}, largest", Row())
            for seed in batch:
                own_checks = tuple(item for item in result.checks if item.workload.base_seed == seed)
                row.add(seed, result.model_copy(update={"checks": own_checks}))
        for workload in chosen:
            run_to_end(bench.discard_answer(workload))
        print(f"{name}, seeds to {batch[-1]}: {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)


def corpus(folder: Path) -> Iterator[tuple[str, Target, Sequence[str], str]]:
    """Folder, target, variants and workloads of each part."""
    python = [f"py_{name}" for name in PYTHON_HONEST]
    yield "mix", write_mix(folder / "mix", HONEST, PYTHON_HONEST), [*HONEST, *python], "some"
    ways = [*COMPILED, *(f"py_{name}" for name in PYTHON_NAMES)]
    yield "attention", write_attention(folder / "attention"), ways, "small"


def table(rows: dict[str, Row]) -> str:
    """One row for each variant, and the sum."""
    lines = ["| Variant | Seeds | Rejected | Checks right | Not supported | Why |", "|:--|--:|--:|--:|--:|:--|"]
    for name, row in rows.items():
        right, unsupported = row.states["right"], row.states["unsupported"]
        lines.append(f"| {name} | {row.seeds} | {len(row.rejected)} | {right} | {unsupported} | {row.why} |")
    rejected, tries = sum(len(row.rejected) for row in rows.values()), sum(row.seeds for row in rows.values())
    return "\n".join([*lines, "", f"{len(rows)} kinds: rejected {rejected} of {tries}"])


def main() -> int:
    """Print the table; the exit code is 1 if a right variant was rejected."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument(
        "--large", type=int, default=LARGE_SEEDS, help="seeds of naive loops at the largest workload"
    )
    arguments = parser.parse_args()
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as root:
        for name, target, variants, workloads in corpus(Path(root)):
            with open_bench(Path(root) / name, target, Path(root) / "cache") as bench:
                bench.threads = min(2, cores())
                check(bench, variants, workloads, arguments.seeds, rows)
                if name == "attention":
                    check(bench, ["online"], "large", arguments.large, rows)
    text = (
        f"# What the gate says of right variants\n\nOn {machine().processor}, {cores()} cores.\n\n{table(rows)}\n"
    )
    PAGE.write_text(text)
    print(text)
    return int(any(row.rejected for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
