"""`make bench-formats KERNELBENCH=path GPUMODE=path ...`: how many tasks of checkouts load, what hinders them.

Not a test: the figures go to FORMATS.md, with the commit and the licence of each checkout. Nothing of theirs is
imported, run or copied. A checkout that is not named keeps its row from before.
"""

import argparse
import datetime
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from loop.base.documents import write_atomic
from loop.formats import table
from loop.formats.hindrances import Here, hindrances, installed, runs
from loop.formats.licences import licence_of
from loop.formats.model import ForeignTask
from loop.formats.table import Unreadable
from loop.machine.gpus import gpus
from loop.machine.machine import available_memory, machine
from loop.repository.reading import revision

PAGE = Path(__file__).with_name("FORMATS.md")
CHECKOUTS = {
    "kernelbench": ("ScalingIntelligence/KernelBench", "KernelBench", "kernelbench"),
    "gpumode": ("gpu-mode/reference-kernels", "problems", "gpumode"),
    "flashinfer": ("flashinfer-ai/flashinfer-bench", "examples", "flashinfer-trace"),
    "sol": ("NVIDIA/SOL-ExecBench", ".", "sol-execbench"),
    "hard": ("Infatoshi/kernelbench.com", "benchmarks/hard", "kernelbench-hard"),
    "arena": ("AMD-AGI/AgentKernelArena", "tasks", "agent-kernel-arena"),
}
"""Option to repository, the folder of its tasks, and their format."""
HEADS = (
    "repository",
    "commit",
    "licence",
    "format",
    "tasks",
    "load",
    "inputs known",
    "run here",
    "seconds",
    "in the way",
)
HEAD = f"| {' | '.join(HEADS)} |\n|{'---|' * 4}{'--:|' * 5}---|"


def row_of(option: str, checkout: Path) -> str:
    """What became of one checkout."""
    repository, inside, form = CHECKOUTS[option]
    here = Here(tuple(gpu.name for gpu in gpus().usable), available_memory(), installed)
    begin = time.perf_counter()
    found = list(table.tasks_below(checkout / inside, form))
    seconds = time.perf_counter() - begin
    tasks = [one for one in found if isinstance(one, ForeignTask)]
    needs = [hindrances(task, here) for task in tasks]
    known = sum(bool(task.cases) and all(case.inputs for case in task.cases) for task in tasks)
    able = sum(bool(runs(task, need)) for task, need in zip(tasks, needs, strict=True))
    kinds = Counter(kind for need in needs for kind in {one.kind for one in need})
    commit = (revision(checkout).commit or "no repository")[:12]
    hindered = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()) or "nothing"
    cells = (repository, commit, licence_of(checkout / inside).name, form, len(found), len(tasks), known, able)
    for one in found:
        if isinstance(one, Unreadable):
            print(one.error.message)
    return f"| {' | '.join(map(str, cells))} | {seconds:.1f} | {hindered} |"


def rows_before(page: Path) -> dict[str, str]:
    """Repository to its row on the page as it is."""
    lines = page.read_text().splitlines() if page.is_file() else []
    return {found[1]: line for line in lines if (found := re.match(r"\| ([\w.-]+/[\w.-]+) \|", line))}


def document(rows: Iterable[str]) -> Iterator[str]:
    """The page."""
    seen = gpus().usable
    place = f"{machine().processor}, {machine().cores} cores, {seen[0].name if seen else 'no GPU'}"
    yield f"# Tasks in other formats\n\n`make bench-formats`, {datetime.date.today()}, {place}.\n"
    yield "Tasks are read, not run. `inputs known`: the text alone gives shape and type of every input."
    yield "`run here`: at least one case has all that it needs here. Several things can hinder one task.\n"
    yield HEAD
    yield from rows


def main() -> None:
    """Read the checkouts that are named, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option, (repository, *_) in CHECKOUTS.items():
        parser.add_argument(f"--{option}", type=Path, help=f"a checkout of {repository}")
    given = {name: path for name, path in vars(parser.parse_args()).items() if path}
    if not given:
        parser.error("name at least one checkout")
    rows = rows_before(PAGE) | {CHECKOUTS[name][0]: row_of(name, path.absolute()) for name, path in given.items()}
    ordered = [rows[repository] for repository, *_ in CHECKOUTS.values() if repository in rows]
    write_atomic(PAGE, "\n".join(document(ordered)) + "\n")


if __name__ == "__main__":
    main()
