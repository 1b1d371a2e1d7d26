"""`make bench-faults`: run the cases of all classes, or a slice of them, and write RESULTS.md.

    python -m tests.faults                                  all classes, about an hour on two cores
    python -m tests.faults random_kills --count 30          the first cases of one class
    python -m tests.faults --shard 2/4                      every fourth case, from the second on
    python -m tests.faults --collect                        write RESULTS.md from recorded outcomes

Each case runs in a process and a folder of its own. Its outcome is recorded at once, so that an interrupted run
resumes where it stopped. Outcomes of another seed, or of other sources of loop, do not count.
"""

import argparse
import itertools
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

from loop.base.own_process import adopt_orphans
from tests.faults import Case, FaultClass, asked_for, classes, limit_s, side_by_side
from tests.faults.results import Outcome, Store, write_pages

SEED = 20261122
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Slice:
    """Which cases of a class are run."""

    seed: int = SEED
    count: int | None = None
    part: int = 1
    of: int = 1

    def cases(self, module: FaultClass) -> list[Case]:
        """Cases of one class: of its first `count`, every `of`-th from `part` on."""
        return list(itertools.islice(module.cases(self.seed), self.part - 1, self.count, self.of))


@dataclass
class Running:
    """One case in a process of its own."""

    case: str
    process: ForkProcess
    answer: Connection
    folder: Path
    began: float

    def outcome(self) -> tuple[str, float, dict[str, float]]:
        """What broke ("": nothing), seconds, and the figures that the case measured."""
        seconds = time.monotonic() - self.began
        if self.answer.poll():
            try:
                broken, figures = self.answer.recv()
                return broken, seconds, figures
            except EOFError:
                return f"the case itself ended with {self.process.exitcode}", seconds, {}
        return f"the case hung: no answer after {seconds:.0f} s", seconds, {}

    def is_over(self, limit: float) -> bool:
        """Whether it has ended, or has run for more than `limit` seconds."""
        return self.process.exitcode is not None or time.monotonic() - self.began > limit

    def end(self) -> None:
        """Kill its process if it still runs, and remove its folder."""
        if self.process.exitcode is None:
            self.process.kill()
        self.process.join()
        shutil.rmtree(self.folder, ignore_errors=True)


def main() -> None:
    """Run the chosen cases and write the pages; exit with 1 if a promise broke."""
    words = parsed(sys.argv[1:])
    store = Store(words.results, words.seed)
    part, of = (int(number) for number in words.shard.split("/"))
    chosen = chosen_classes(words.classes)
    if not words.collect:
        for name, module in chosen.items():
            run_class(name, module, Slice(words.seed, words.count, part, of), store, words)
    outcomes = store.outcomes()
    write_pages(outcomes, words.seed)
    sys.exit(any(outcome.module in chosen and outcome.broken for outcome in outcomes))


def chosen_classes(names: Sequence[str]) -> dict[str, FaultClass]:
    """The named classes; with none named, all but those that take hours."""
    known = classes()
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"no such class: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return {name: module for name, module in known.items() if (name in names if names else not asked_for(module))}


def parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("classes", nargs="*", help="names of modules; all where none is named")
    parser.add_argument("--shard", default="1/1", help="run every K-th case of K, from the N-th on: N/K")
    parser.add_argument("--count", type=int, help="only the first so many cases of each class")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases side by side")
    parser.add_argument("--results", type=Path, default=Path("build/faults"), help="folder of outcomes")
    parser.add_argument("--collect", action="store_true", help="run nothing, write RESULTS.md")
    return parser.parse_args(words)


def run_class(name: str, module: FaultClass, part: Slice, store: Store, words: argparse.Namespace) -> None:
    """Run the cases of a class that have no recorded outcome; record and print their outcomes."""
    recorded = {outcome.case for outcome in store.outcomes() if outcome.module == name}
    cases = [case for case in part.cases(module) if case[0] not in recorded]
    jobs = side_by_side(module) or words.jobs
    print(f"{name}: {len(cases)} cases, {jobs} at a time ({len(recorded)} done before)", flush=True)
    broken, began = 0, time.monotonic()
    ended = run_cases(cases, jobs, limit_s(module))
    for number, (run, (problem, seconds, figures)) in enumerate(ended, start=1):
        broken += bool(problem)
        store.add(Outcome(name, run.case, problem, round(seconds, 3), figures))
        if problem:
            print(f"  broken: {run.case}: {problem}", flush=True)
        if number % 50 == 0 or number == len(cases):
            print(f"  {number}/{len(cases)}, {broken} broken, {time.monotonic() - began:.0f} s", flush=True)


def run_cases(
    cases: Sequence[Case], jobs: int, limit: float
) -> Iterator[tuple[Running, tuple[str, float, dict[str, float]]]]:
    """Run `jobs` cases at a time; yield each with its outcome. After `limit` seconds it counts as hung."""
    waiting, running = iter(cases), list[Running]()
    root = Path(tempfile.mkdtemp(prefix="loop-faults-"))
    try:
        while True:
            running += [begin(case, root) for case in itertools.islice(waiting, jobs - len(running))]
            if not running:
                return
            wait([run.process.sentinel for run in running], timeout=1.0)
            for run in [run for run in running if run.is_over(limit)]:
                running.remove(run)
                outcome = run.outcome()
                run.end()
                yield run, outcome
    finally:
        for run in running:
            run.end()
        shutil.rmtree(root, ignore_errors=True)


def begin(case: Case, root: Path) -> Running:
    folder = Path(tempfile.mkdtemp(dir=root))
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_run, args=(case, folder, sender), daemon=False)
    process.start()
    sender.close()
    return Running(case[0], process, receiver, folder, time.monotonic())


def _run(case: Case, folder: Path, sender: Connection) -> None:
    """Run the case in its own process, which adopts orphaned grandchildren; send the outcome."""
    adopt_orphans()
    try:
        broken = case[1](folder)
    except Exception:
        broken = f"the case itself failed: {traceback.format_exc(limit=-3)}"
    figures = {path.name.removeprefix("figure-"): path for path in folder.glob("figure-*")}
    sender.send((broken, {name: float(path.read_text()) for name, path in figures.items()}))


if __name__ == "__main__":
    main()
