"""`make bench-formats KERNELBENCH=path GPUMODE=path ...`: which tasks of checkouts load, what hinders them.

Not a test: the figures go to FORMATS.md, with the commit of each checkout. No file of a task is
imported, run or copied. A checkout that is not named keeps its row from before.
"""

import argparse
import contextlib
import datetime
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import write_atomic
from loop.base.errors import LoopError
from loop.formats import table
from loop.formats.model import ForeignTask, find_hindrances
from loop.machine.machine import detect_gpus, machine
from loop.repository.worktree import read_revision
from tests.bench.formats_verdicts import rows, sections

PAGE = Path(__file__).with_name("FORMATS.md")
CHECKOUTS = {
    "kernelbench": ("ScalingIntelligence/KernelBench", "KernelBench", "kernelbench"),
    "gpumode": ("gpu-mode/reference-kernels", "problems", "gpumode"),
    "flashinfer": ("flashinfer-ai/flashinfer-bench", "examples", "flashinfer-trace"),
    "sol": ("NVIDIA/SOL-ExecBench", ".", "sol-execbench"),
}
"""Option to repository, the folder of its tasks, and their format."""
HEADS = ("repository", "commit", "format", "tasks", "load", "run here", "seconds", "in the way")
HEAD = f"| {' | '.join(HEADS)} |\n|{'---|' * 3}{'--:|' * 4}---|"


@dataclass(frozen=True)
class Unreadable:
    """A path that looks like a task but cannot be read as one."""

    format: str
    path: Path
    error: LoopError


def tasks_below(path: Path, wanted: str | None = None) -> Iterator[ForeignTask | Unreadable]:
    """Every task at or below a path, in the order of names; an unreadable one with its error."""
    for place in _places(path, wanted):
        try:
            yield table.load_task(place, wanted)
        except LoopError as error:
            names = [*table.claiming_formats(place, wanted)]
            yield Unreadable(" and ".join(names), place, error)


def _places(path: Path, wanted: str | None) -> Iterator[Path]:
    """Files and folders that look like tasks; nothing inside a task is one."""
    if table.claiming_formats(path, wanted):
        yield path
        return
    for folder, names, files in os.walk(path):
        here = Path(folder)
        names[:] = sorted(name for name in names if not name.startswith((".", "__")))
        inside = [name for name in names if table.claiming_formats(here / name, wanted)]
        yield from (here / name for name in inside)
        names[:] = [name for name in names if name not in inside]
        yield from (
            here / name for name in sorted(files, key=_by_number) if table.claiming_formats(here / name, wanted)
        )


def _by_number(name: str) -> tuple[int, str]:
    """Files that begin with a number, in its order."""
    digits = name.split("_")[0]
    return (int(digits) if digits.isdigit() and len(digits) < 9 else 0, name)


def read(option: str, checkout: Path) -> tuple[str, str]:
    """Read one checkout: its row of the table, and notes on its tasks."""
    repository, inside, form = CHECKOUTS[option]
    begin = time.perf_counter()
    with contextlib.chdir(checkout):  # Notes name files as they are seen from there.
        readings = list(tasks_below(checkout / inside, form))
    seconds = time.perf_counter() - begin
    tasks = [reading for reading in readings if isinstance(reading, ForeignTask)]
    needs = [find_hindrances(task, len(detect_gpus().usable)) for task in tasks]
    able = sum(bool(task.cases) and not need for task, need in zip(tasks, needs, strict=True))
    kinds = Counter(kind for need in needs for kind in {hindrance.kind for hindrance in need})
    commit = commit_of(checkout)
    hindered = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()) or "nothing"
    cells = (repository, commit, form, len(readings), len(tasks), able)
    for reading in readings:
        if isinstance(reading, Unreadable):
            print(reading.error.message)
    return f"| {' | '.join(map(str, cells))} | {seconds:.1f} | {hindered} |", "\n".join(notes(tasks))


def commit_of(checkout: Path) -> str:
    return (read_revision(checkout).commit or "no repository")[:12]


def notes(tasks: Iterable[ForeignTask]) -> Iterator[str]:
    """Hints about the tasks' texts; each hint once, with the names of its tasks."""
    owners: dict[str, list[str]] = {}
    for task in tasks:
        for hint in task.hints:
            owners.setdefault(hint, []).append(task.name)
    for hint, names in owners.items():
        yield f"- {', '.join(names) if len(names) < 4 else f'{len(names)} tasks'}: {hint}"


def before(page: Path) -> dict[str, tuple[str, str]]:
    """Repository to its row and its notes on the page as it is."""
    text = page.read_text() if page.is_file() else ""
    rows = re.findall(r"^(\| ([\w.-]+/[\w.-]+) \|.*)$", text, re.MULTILINE)
    remarks = dict(re.findall(r"^## (\S+)\n\n((?:- .*\n)+)", text, re.MULTILINE))
    return {repository: (row, remarks.get(repository, "").strip()) for row, repository in rows}


def document(parts: dict[str, tuple[str, str]], place: str) -> Iterator[str]:
    yield f"# Tasks in other formats\n\n{place}\n"
    yield "Tasks are read, not run. `inputs known`: the text alone gives shape and type of every input."
    yield "`run here`: at least one case has all that it needs on this machine. Several things can hinder a task."
    yield "Below the table stands what is odd about tasks by their text alone.\n"
    yield HEAD
    yield from (row for row, _ in parts.values())
    yield from (f"\n## {repository}\n\n{remarks}" for repository, (_, remarks) in parts.items() if remarks)
    yield from sections(rows())


def write_page(read_now: dict[str, tuple[str, str]] | None = None) -> None:
    """Write the page: rows that were just read, and the page's own rows for other checkouts."""
    parts = before(PAGE) | (read_now or {})
    ordered = {repository: parts[repository] for repository, *_ in CHECKOUTS.values() if repository in parts}
    if read_now or not PAGE.is_file():
        gpus = detect_gpus().usable
        gpu = gpus[0].name if gpus else "no GPU"
        here = f"{machine().processor}, {machine().cores} cores, {gpu}"
        place = f"`make bench-formats`, {datetime.date.today()}, {here}."
    else:
        place = PAGE.read_text().splitlines()[2]
    write_atomic(PAGE, "\n".join(document(ordered, place)) + "\n")


def main() -> None:
    """Read the named checkouts and write the page; with none named, rewrite it from its own rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option, (repository, *_) in CHECKOUTS.items():
        parser.add_argument(f"--{option}", type=Path, help=f"a checkout of {repository}")
    checkouts = {name: path for name, path in vars(parser.parse_args()).items() if path}
    write_page({CHECKOUTS[name][0]: read(name, path.absolute()) for name, path in checkouts.items()})


if __name__ == "__main__":
    main()
