"""`make bench`: measure the figures that the documents state. No test: nothing fails by the clock."""

import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from loop.machine.machine import machine
from tests.conftest import ROOT
from tests.projects import LOOP

PAIRS = 15


def call(command: Sequence[str], folder: Path, **environment: str) -> tuple[float, str]:
    """Wall seconds and output of a command; ends the bench unless it exits with 0 or 1."""
    places = {"LOOP_CACHE": str(folder / "cache"), "LOOP_STATE": str(folder / "state")}
    variables = {**os.environ, **places, "LOOP_SESSIONS": str(folder / "sessions"), **environment}
    begun = time.perf_counter()
    child = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    seconds = time.perf_counter() - begun
    if child.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: exit {child.returncode}\n{child.stderr}")
    return seconds, child.stdout


def kernel(folder: Path) -> list[str]:
    """The CPU kernel against PyTorch SDPA, with one thread and with two."""
    lines = ["## `cpu` against PyTorch SDPA, fp32, both called from Python", ""]
    for threads in (1, 2):
        sets = ["--workloads", "history", "--workloads", "large"]
        options = [*sets, "--threads", str(threads), "--rounds", "9", "--json"]
        _, out = call([*LOOP, "kernels", "measure", "cpu", *options], folder)
        lines += kernel_table(json.loads(out), threads)
    return lines


def kernel_table(reply: dict[str, Any], threads: int) -> list[str]:
    """Lines of one table: ratios with intervals, and errors beside the library's."""
    steps = {step["step"]: step["output"] for step in reply["steps"]}
    errors = {c["workload"]["name"]: c["max_error"] for c in steps["verify"]["variants"][0]["checks"]}
    theirs = {c["workload"]["name"]: c["max_error"] for c in steps["verify"]["control"]["checks"]}
    rows = steps["measure"]["measurements"]
    ratios = [row["ratio"] for row in rows]
    over = [errors[name] / max(theirs[name], 1e-12) for name in theirs]
    lines = [
        f"{threads} thread{'s' if threads > 1 else ''}, {rows[0]['rounds']} rounds: geometric mean "
        f"**{geometric_mean(ratios):.2f}**, lowest {min(ratios):.2f}; largest error at most "
        f"{max(over):.2f} times the library's on the same workload.",
        "",
        "| Workload | Library us | `cpu` us | Ratio | 99 % interval | Largest error, library / `cpu` |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        name = row["workload"]["name"]
        low, high = row["interval"]
        lines.append(
            f"| {name} | {row['reference_us']:.1f} | {row['candidate_us']:.1f} | {row['ratio']:.2f} "
            f"| {low:.2f} - {high:.2f} | {theirs[name]:.1e} / {errors[name]:.1e} |"
        )
    return [*lines, ""]


def startup(folder: Path) -> list[str]:
    """Whole-process time of quick commands against the imports they cannot avoid, timed in turns."""
    reference = [sys.executable, "-c", "import typer, rich, pydantic"]
    script = str(Path(sys.executable).with_name("loop"))
    lines = ["## Start-up, whole process", "", "| Command | Median | Against the imports alone |", "|:--|--:|--:|"]
    for words in (["--help"], ["patterns", "list"]):
        ours, theirs = [], []
        for _ in range(PAIRS):
            ours.append(call([script, *words], folder)[0])
            theirs.append(call(reference, folder)[0])
        ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
        lines.append(f"| `loop {' '.join(words)}` | {median(ours) * 1e3:.0f} ms | {ratio:.2f} |")
    return [*lines, f"| `python -c 'import typer, rich, pydantic'` | {median(theirs) * 1e3:.0f} ms | 1 |", ""]


def session(folder: Path) -> list[str]:
    """The default session, first with an empty cache, then twice more."""
    root = folder / "session"
    lines = ["## The default session", "", "| Which | Wall | The runner's own share |", "|:--|--:|--:|"]
    for title in ("first, cache empty", "second", "third"):
        seconds, _ = call([*LOOP, "run", "session"], root)
        record = json.loads(sorted((root / "sessions").glob("*/record.json"))[-1].read_text())
        share = record["own_seconds"] / record["seconds"]
        lines.append(f"| {title} | {seconds:.1f} s | {share:.1%} |")
    return [*lines, ""]


def edit(folder: Path) -> list[str]:
    """Time from an edit of the kernel to its verdict and ratio."""
    import shutil

    target = folder / "attention"
    shutil.copytree(ROOT / "kernels" / "attention", target)
    call([*LOOP, "trust", str(target)], folder)
    times = []
    for number in range(3):
        with (target / "cpu" / "bindings.cpp").open("a") as source:
            source.write(f"// edit {number}\n")
        times.append(call([*LOOP, "kernels", "measure", "cpu", "--target", str(target)], folder)[0])
    return [
        "## From an edit to a result",
        "",
        f"`loop kernels measure cpu` after an edit of the kernel, build included: median {median(times):.1f} s "
        f"({', '.join(f'{seconds:.1f}' for seconds in times)}).",
        "",
    ]


SECTIONS: dict[str, Callable[[Path], list[str]]] = {
    "kernel": kernel,
    "startup": startup,
    "session": session,
    "edit": edit,
}


def main(names: Sequence[str]) -> None:
    """Measure the named sections, or all; the whole run replaces RESULTS.md."""
    facts = machine()
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [
        "# Measured",
        "",
        f"By `make bench` on {today}: {facts.processor}, {facts.cores} cores, {facts.memory_gb:g} GiB, "
        f"{facts.system}, Python {facts.python}, {facts.compiler}. These figures are "
        "of this machine; ratios travel better than times.",
        "",
    ]
    with tempfile.TemporaryDirectory(prefix="loop-speed-") as folder:
        for name in names or list(SECTIONS):
            sys.stderr.write(f"measuring {name}\n")
            lines += SECTIONS[name](Path(folder))
    text = "\n".join(lines).rstrip() + "\n"
    if names:
        sys.stdout.write(text)
    else:
        (Path(__file__).parent / "RESULTS.md").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
