"""`make bench-bisect-real`: `loop bisect` on generated histories of the `cpu` kernel, by real builds and clocks.

Not a test: the figures go to BISECT_REAL.md. `--case` or `--seeds` print another choice to stdout.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from loop.machine.machine import machine
from tests.bisect.kernel_histories import CASES, History, make_history

LOOP = [sys.executable, "-c", "from loop.cli import main; main()"]
SEEDS, COUNT = 5, 128
LIMIT_S = 600.0
"""What a search may take."""
RIGHT = ("culprit", "a range with it", "no regression")
INTRODUCTION = f"""
Repositories of {COUNT} commits of the bundled `cpu` kernel: a main line with branches that are merged, a fifth of
the commits without a build (syntax, lost headers, unknown flags, a compiler that is not there, a broken manifest),
and otherwise notes, remarks, better names and definitions that move. `loop bisect` is asked as a user asks it,
with nothing in its caches, on one thread, with all eleven workloads of `history`. Cases:

- `slower`: one commit makes the kernel some 8 % slower, in one of three ways.
- `wrong`: one commit makes some results wrong, in one of five ways; asked by `--metric correctness`.
- `none`: nothing changed but the text; asked whether it became slower.
- `recipe`: how it is built changes. `flags`: that is what makes it slower. `units` (two translation units) and
  `file` (another source): another commit makes it slower. `unloaded`: an instantiation is missing, so that the
  library cannot be loaded, by `--metric correctness`. `unlinked`: it cannot be linked for some commits, and one of
  these makes it slower, so that only a range can be said.

Right is the culprit, a range that holds it, or `no_regression` where there is none. A wrong name is any other
commit that is blamed, alone or among others. Builds are those that were asked for; those ahead that nobody asked
for come on top. Load is that of the machine, over the last minute of a search.
"""


@dataclass(frozen=True)
class Row:
    """One search."""

    history: History
    result: str
    """One of RIGHT, `wrong name`, or the outcome by which nothing was said."""
    width: int
    """Commits of the range."""
    posterior: float | None
    """Of what is true."""
    probes: int
    observations: int
    builds: int
    seconds: float
    load: float
    untouched: bool
    """Whether the repository is as it was."""
    why: str

    @property
    def cells(self) -> str:
        """A row of the table."""
        one, certain = self.history, "" if self.posterior is None else f"{self.posterior:.3f}"
        wide = f" ({self.width} commits)" if self.width else ""
        truth = one.culprit[:12] if one.culprit else "none"
        facts = f"{one.what} | {one.merges} | {len(one.broken)} | {truth} | {self.result}{wide} | {certain}"
        spent = f"{self.probes} | {self.observations} | {self.builds} | {self.seconds:.0f} | {self.load:.1f}"
        return f"| {one.case} | {one.seed} | {facts} | {spent} |"


HEAD = (
    "| Case | Seed | What happened | Merges | Broken | Truth | Answer | Posterior "
    "| Probes | Observations | Builds | Seconds | Load |"
)
RULE = "|:--|--:|:--|--:|--:|:--|:--|--:|--:|--:|--:|--:|--:|"


def searched(case: str, seed: int, folder: Path) -> Row:
    """Make the history of a seed in a new folder, and search it."""
    history = make_history(folder / "repository", case, seed, COUNT)  # type: ignore[arg-type]
    places = {name: str(folder / name.lower()) for name in ("LOOP_CACHE", "LOOP_STATE", "LOOP_SESSIONS")}
    environment = {**os.environ, **places}
    target = str(history.folder)
    subprocess.run([*LOOP, "trust", target], env=environment, check=True, capture_output=True)
    before = state(history.folder)
    words = ["--good", history.good, "--metric", history.metric, "--variant", "cpu", "--device", "cpu"]
    begun = time.perf_counter()
    command = [*LOOP, "bisect", *words, "--threads", "1", "--target", target, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    if not done.stdout:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    answer = json.loads(done.stdout)
    return Row(
        history=history,
        result=scored(answer, history),
        width=len(answer["range"]),
        posterior=answer["posterior"].get(history.culprit) if history.culprit else None,
        probes=len(answer["probes"]),
        observations=sum(len(probe["values"]) for probe in answer["probes"]),
        builds=answer["builds"],
        seconds=seconds,
        load=os.getloadavg()[0],
        untouched=before == state(history.folder),
        why=answer["why"],
    )


def scored(answer: dict[str, Any], history: History) -> str:
    """What an answer is worth."""
    blamed = [one["commit"] for one in answer["culprits"]]
    run = [one["commit"] for one in answer["range"]]
    if blamed or run:
        if blamed == [history.culprit] and not run:
            return "culprit"
        return "a range with it" if history.culprit in run and not blamed else "wrong name"
    if answer["outcome"] == "no_regression" and history.culprit is None:
        return "no regression"
    return f"**{answer['outcome'].replace('_', ' ')}**"


def state(folder: Path) -> tuple[str, ...]:
    """Everything of a repository that a search may not change."""
    asked = (
        ["status", "--porcelain"],
        ["branch", "-a"],
        ["stash", "list"],
        ["worktree", "list"],
        ["rev-parse", "HEAD"],
    )
    return tuple(subprocess.check_output(["git", "-C", str(folder), *words], text=True) for words in asked)


def report(rows: Sequence[Row], seconds: float) -> Iterator[str]:
    """BISECT_REAL.md."""
    facts = machine()
    today = datetime.datetime.now(datetime.UTC).date()
    yield from ("# Searches by real builds and clocks", "")
    yield f"By `make bench-bisect-real` on {today} in {seconds / 60:.0f} min:"
    yield f"{facts.processor}, {facts.cores} cores, {facts.system}, Python {facts.python}."
    yield from (INTRODUCTION, *summary(rows), "", HEAD, RULE, *(row.cells for row in rows))
    others = [row for row in rows if row.result not in RIGHT]
    yield from ("", *(f"`{row.history.case}` {row.history.seed}: {row.why}." for row in others))


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """How many are right, and how long they took."""
    right = sum(row.result in RIGHT for row in rows)
    wrong = sum(row.result == "wrong name" for row in rows)
    spent = [row.seconds for row in rows]
    yield (
        f"**{right} of {len(rows)} right, {wrong} wrongly named**: "
        + ", ".join(f"{count} {result}" for result, count in Counter(row.result for row in rows).items())
        + "."
    )
    over = sum(one > LIMIT_S for one in spent)
    took = f"{median(spent):.0f} s in the median, {max(spent):.0f} s at most; {over} took over 10 min"
    yield f"A search took {took}."
    untouched = sum(row.untouched for row in rows)
    yield f"{untouched} of {len(rows)} repositories are as they were, down to their worktrees."


def main() -> None:
    """Search every history, and write what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bisect_real")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--case", choices=CASES, action="append")
    options = parser.parse_args()
    begun, rows = time.perf_counter(), list[Row]()
    for case in options.case or CASES:
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory(prefix="loop-bisect-") as folder:
                rows.append(searched(case, seed, Path(folder)))
            sys.stderr.write(f"{rows[-1].cells} {rows[-1].why}\n")
    lines = "\n".join(report(rows, time.perf_counter() - begun)).rstrip() + "\n"
    if options.case or options.seeds != SEEDS:
        sys.stdout.write(lines)
    else:
        (Path(__file__).parent / "BISECT_REAL.md").write_text(lines)


if __name__ == "__main__":
    main()
