"""`make bench-formats-judged KERNELBENCH=path ... [JUDGED="--device cuda"]`: answers to real tasks, judged twice.

Not a test. `formats_sample.json` names the tasks: it was drawn from a seed, and committed before any result. Each
task gets two honest answers and some wrong ones, which `loop targets audit` makes of its own reference. Tasks of
GPU MODE and SOL-ExecBench also get the answers that their repositories ship. One line an answer goes to
`recorded/formats_judged.jsonl`; what stands there is not judged again, so an interrupted run goes on. Nothing of
theirs is kept here.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import psutil

from loop.base.errors import LoopError
from loop.base.processes import kill_trees
from loop.formats import table
from loop.formats.model import ForeignTask, find_hindrances
from loop.formats.table import write_as_target
from loop.formats.theirs import Verdict, explain_disagreement
from loop.machine.gpus import detect_gpus
from loop.machine.machine import cores, machine
from loop.model.output import GateVerdict
from loop.workers.nursery import PASSIVE_WAITING
from tests.bench.formats import CHECKOUTS, commit_of, write_page
from tests.bench.formats_sample import DEVICES, EVALUATORS, draw, sample, shipped_in
from tests.bench.formats_verdicts import MISTAKES, ROWS, SAMPLE, rows
from tests.conftest import ROOT
from tests.projects import LOOP

ON_CPU = Path(__file__).with_name("kernelbench_check.py")
MEMORY = 16 * 10**9  # Bytes that judging one task may take.
UNUSED = ("dotenv", "litellm", "openai", "requests", "tqdm")
"""Packages that evaluators import, and do not need to judge: empty ones stand in where they are missing."""
EMPTY = "def __getattr__(name):\n    return lambda *given, **more: None\n"
FEW = 2  # Wrong answers to a task that is not one of the table of all mistakes.
PART = 4  # Mistakes of a task of the table that are judged, and kept, at a time.


class Excluded(Exception):
    """Why a task is not judged."""


@dataclass(frozen=True)
class Run:
    """What the command line asks for."""

    checkouts: Mapping[str, Path]
    device: str
    python: str
    limit_s: float
    evaluator_s: float


@dataclass(frozen=True)
class Job:
    """One task of the sample on one device."""

    option: str
    name: str
    """Path of the task in its checkout."""
    mistakes: Sequence[str]
    shipped: bool = True
    """Whether answers that lie beside the task are judged, too."""


def jobs(run: Run, drawn: Mapping[str, Any]) -> Iterator[Job]:
    """Each task with its mistakes, the formats in turn: those of the table get all, in parts, the others two."""
    lists: list[list[Job]] = []
    for option in run.checkouts:
        audited = drawn[option]["audited"][run.device]
        lists.append([])
        for place, name in enumerate(dict.fromkeys((*drawn[option][run.device], *audited))):
            turn = [list(MISTAKES)[(FEW * place + n) % len(MISTAKES)] for n in range(FEW)]
            if name not in audited:
                lists[-1].append(Job(option, name, turn))
                continue
            for first in range(0, len(MISTAKES), PART):
                part = list(MISTAKES)[first : first + PART]
                lists[-1].append(Job(option, name, part, shipped=not first))
    yield from (one for some in zip_longest(*lists) for one in some if one)


def is_done(job: Job, device: str, kept: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rows tell of all that a job would ask; early rows do not say what was asked: that was everything."""
    own = [one for one in kept if (one["option"], one["task"], one["device"]) == (job.option, job.name, device)]
    asked = {make for one in own for make in one.get("asked", ())}
    return bool(own) and (asked >= set(job.mistakes) or not any("asked" in one for one in own))


def judge(run: Run, job: Job) -> list[dict[str, Any]]:
    """One row an answer; one row with the reason where the task is not judged."""
    checkout = run.checkouts[job.option]
    head = {
        "option": job.option,
        "task": job.name,
        "device": run.device,
        "commit": commit_of(checkout),
        "machine": detect_gpus().usable[0].name if run.device == "cuda" else machine().processor,
    }
    begin = time.monotonic()
    try:
        path = checkout / job.name
        task = table.load_task(path)
        if why := _hindered(task, run.device):
            return [{**head, "excluded": why, "asked": job.mistakes}]
        folder, _ = write_as_target(path)
        subprocess.run([*LOOP, "trust", str(folder)], cwd=ROOT, check=True, capture_output=True)
        found = list(_audited(run, job, path))
        shipped = shipped_in(path) if job.shipped else ()
        found += [row for one in shipped for row in _judged(run, job, path, one)]
    except Excluded as excluded:
        found = [{"excluded": str(excluded), "asked": job.mistakes}]
    except LoopError as error:
        found = [{"excluded": _short(error.message, checkout), "asked": job.mistakes}]
    seconds = round(time.monotonic() - begin, 1)
    return [{**head, **row, "seconds": seconds} for row in found]


def _short(message: str, checkout: Path) -> str:
    """Why a task is not judged, without the place where it lies; the end of a long reason says most."""
    said = message.replace(f"{checkout}/", "")
    return said if len(said) < 300 else f"{said[:150]} ... {said[-150:]}"


def _hindered(task: ForeignTask, device: str) -> str:
    """What stands in the way of a task by its text; empty where nothing does."""
    found = find_hindrances(task, len(detect_gpus().usable) if device == "cuda" else 0)
    return ", ".join(dict.fromkeys(one.kind for one in found))


def _audited(run: Run, job: Job, path: Path) -> Iterator[dict[str, Any]]:
    """Honest and wrong answers that loop makes."""
    kinds = [word for one in job.mistakes for word in ("--control", one)]
    begun = time.monotonic()
    said = _loop(run, job.option, ("targets", "audit", str(path), *kinds))
    seconds = {"audit": round(time.monotonic() - begun, 2)}
    _, replaced, why = said["theirs"].partition("not its evaluator")
    theirs = f"stated rule{why[:160]}" if replaced else "evaluator"
    own = _own_check(run, job, path, [one["file"] for one in said["controls"]])
    for one in said["controls"]:
        kept = {name: one[name] for name in ("control", "make", "kind", "ours", "theirs", "why", "ours_why")}
        row = {**kept, "whose": theirs, "causes": one["causes"][:3]}
        if one["file"] in own:
            row |= {"stated": one["theirs"], "theirs": own[one["file"]], "whose": "its check on a CPU"}
            ours = GateVerdict(one["ours"], cause=one["ours_cause"])
            row["causes"] = explain_disagreement(table.load_task(path), ours, Verdict(status=own[one["file"]]))[:3]
        yield row
    for finding in said["findings"]:
        if finding["kind"] not in ("timing", "text"):
            yield {"finding": f"{finding['kind']}: {finding['what']}"}
    yield {"took": seconds, "asked": job.mistakes}


def _judged(run: Run, job: Job, path: Path, answer: Path) -> Iterator[dict[str, Any]]:
    """An answer that lies beside the task."""
    wrong = answer.parent.name == "wrong"
    control, kind = f"{'wrong/' * wrong}{answer.name}", f"shipped{' wrong' * wrong}"
    head = {"control": control, "kind": kind, "make": "shipped"}
    try:
        folder, _ = write_as_target(path, [str(answer)])
        subprocess.run([*LOOP, "trust", str(folder)], cwd=ROOT, check=True, capture_output=True)
        said = _loop(run, job.option, ("targets", "judge", str(path), str(answer)))
        (one,) = said["verdicts"]
    except (LoopError, Excluded) as error:
        why = _short(str(error), path)
        yield {**head, "ours": "not judged", "theirs": "not asked", "why": why}
        return
    theirs = {"theirs": one["theirs"]["status"], "why": one["theirs"]["why"], "whose": "evaluator"}
    yield {**head, "ours": one["ours"], **theirs, "causes": one["causes"][:3]}


def _loop(run: Run, option: str, words: Sequence[str]) -> dict[str, Any]:
    """A command of loop's with --json. Raises Excluded where it gives nothing."""
    more: list[str] = ["--device", run.device, "--json", "--limit-minutes", str(run.evaluator_s / 60)]
    more += ["--threads", str(cores())]
    if run.device == "cuda":
        more += ["--evaluator-python", run.python] if words[0] == "targets" else []
        more += ["--evaluator", str(run.checkouts[option])] if EVALUATORS.get(option) else []
    said: dict[str, Any] = json.loads(_run(run, (*LOOP, *words, *more)))
    if "error" in said:
        raise Excluded(_short(said["error"]["message"], run.checkouts.get(option, ROOT)))
    return said


def interpreter(python: str, folder: Path) -> str:
    """A program in a folder that starts an interpreter, with empty packages in place of those it lacks."""
    for name in UNUSED:
        if subprocess.run((python, "-c", f"import {name}"), capture_output=True, check=False).returncode:
            (folder / f"{name}.py").write_text(EMPTY)
    program, path = folder / "python", os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{path}" exec {python} "$@"\n')
    program.chmod(0o755)
    return str(program)


def _own_check(run: Run, job: Job, path: Path, answers: Sequence[str]) -> dict[str, str]:
    """What KernelBench's own check says on a CPU, by answer; of other formats nothing."""
    if job.option != "kernelbench" or run.device != "cpu":
        return {}
    source = str(run.checkouts[job.option] / "src")
    told = _run(run, (run.python, "-P", str(ON_CPU), source, str(path), *answers))
    return json.loads(told.splitlines()[-1])  # type: ignore[no-any-return]


def _run(run: Run, command: Sequence[str]) -> str:
    """What a command prints; it is ended at its limit, and where memory gets short."""
    begin, path = time.monotonic(), os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    child = subprocess.Popen(
        ("nice", *command),
        cwd=ROOT,
        env={**os.environ, **PASSIVE_WAITING, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    why = ""
    while True:
        try:
            output, errors = child.communicate(timeout=0.5)
            break
        except subprocess.TimeoutExpired:
            if not why and (why := _too_much(run, child.pid, time.monotonic() - begin)):
                kill_trees([child.pid])
    if why:
        raise Excluded(why)
    if not output.strip():
        raise Excluded(next((one for one in reversed(errors.splitlines()) if "rror" in one), errors)[-200:])
    return output


def _too_much(run: Run, pid: int, seconds: float) -> str:
    """Why a command has to end; empty where it may go on."""
    if seconds > run.limit_s:
        return f"time: more than {run.limit_s:g} s"
    if run.device == "cpu" and _resident(pid) > MEMORY:
        return f"memory: more than {MEMORY / 1e9:g} GB"
    return ""


def _resident(pid: int) -> int:
    """Bytes that a command and all that it started keep in memory for themselves; what they share counts once."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):  # It has ended meanwhile.
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            memory = process.memory_info()
            total += memory.rss - (memory.shared if process.pid != pid else 0)
    return total


def main() -> None:
    """Draw, pack, or judge; then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in EVALUATORS:
        parser.add_argument(f"--{option}", type=Path, help=f"a checkout of {CHECKOUTS[option][0]}")
    parser.add_argument("--device", default="cpu", choices=DEVICES)
    parser.add_argument(
        "--evaluator-python", default=sys.executable, help="interpreter that has what evaluators need"
    )
    parser.add_argument("--limit-s", type=float, default=300, help="for each command of one task")
    parser.add_argument("--evaluator-s", type=float, default=300, help="for each answer, on their side")
    parser.add_argument("--draw", action="store_true", help="draw the sample anew, and end")
    options = parser.parse_args()
    named = {option: getattr(options, option) for option in EVALUATORS}
    checkouts = {option: path.absolute() for option, path in named.items() if path}
    if not checkouts:
        parser.error("name at least one checkout")
    if options.draw:
        SAMPLE.write_text(json.dumps(draw(checkouts), indent=1) + "\n")
        return
    python = interpreter(options.evaluator_python, Path(tempfile.mkdtemp(prefix="bench-formats-")))
    run = Run(checkouts, options.device, python, options.limit_s, options.evaluator_s)
    kept = rows()
    for job in jobs(run, sample()):
        if not is_done(job, run.device, kept):
            lines = [json.dumps(row) + "\n" for row in judge(run, job)]
            with ROWS.open("a") as file:
                file.write("".join(lines))
            print(f"{job.option} {job.name}: {len(lines)} rows", flush=True)
    write_page()


if __name__ == "__main__":
    main()
