"""`make bench-formats-judged KERNELBENCH=path ... [JUDGED="--device cuda"]`: answers to real tasks, judged twice.

Not a test. `formats_sample.json` names the tasks: it was drawn from a seed, and committed before any result. Each
task gets two honest answers and some wrong ones, which `loop targets audit` makes of its own reference. Tasks of
GPU MODE and SOL-ExecBench also get the answers that their repositories ship. One line an answer goes to
`recorded/formats_judged.jsonl`. A recorded answer is not judged again, so an interrupted run resumes. No file of
a task is stored here.
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
from loop.formats.theirs import GateVerdict, Verdict, explain_disagreement
from loop.machine.machine import cores, detect_gpus, machine
from loop.workers.nursery import PASSIVE_WAITING
from tests.bench.formats import CHECKOUTS, commit_of, write_page
from tests.bench.formats_sample import DEVICES, EVALUATORS, draw, sample, shipped_in
from tests.bench.formats_verdicts import MISTAKES, ROWS, SAMPLE, rows
from tests.conftest import ROOT
from tests.projects import LOOP

ON_CPU = Path(__file__).with_name("kernelbench_check.py")
MEMORY = 16 * 10**9  # Bytes that judging one task may take.
UNUSED = ("dotenv", "litellm", "openai", "requests", "tqdm")
"""Packages that evaluators import but do not use for judging; empty modules replace missing ones."""
EMPTY = "def __getattr__(name):\n    return lambda *given, **more: None\n"
FEW = 2  # Wrong answers to each task outside the table of all mistakes.
PART = 4  # Mistakes in one job of a task in that table.


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
    """Whether answers that ship with the task are judged, too."""


def jobs(run: Run, drawn: Mapping[str, Any]) -> Iterator[Job]:
    """Jobs, the formats in turn. Audited tasks get all mistakes, `PART` in each job; the others get `FEW`."""
    lists: list[list[Job]] = []
    for option in run.checkouts:
        audited = drawn[option]["audited"][run.device]
        lists.append([])
        for place, name in enumerate(dict.fromkeys((*drawn[option][run.device], *audited))):
            turn = [list(MISTAKES)[(FEW * place + n) % len(MISTAKES)] for n in range(FEW)]
            if name not in audited:
                lists[-1].append(Job(option, name, turn))
                continue
            for start in range(0, len(MISTAKES), PART):
                part = list(MISTAKES)[start : start + PART]
                lists[-1].append(Job(option, name, part, shipped=not start))
    yield from (job for batch in zip_longest(*lists) for job in batch if job)


def is_done(job: Job, device: str, recorded: Sequence[Mapping[str, Any]]) -> bool:
    """Whether recorded rows cover a job's mistakes. Early rows lack `asked`: they covered all mistakes."""
    key = job.option, job.name, device
    records = [row for row in recorded if (row["option"], row["task"], row["device"]) == key]
    mistakes = {make for row in records for make in row.get("asked", ())}
    return bool(records) and (mistakes >= set(job.mistakes) or not any("asked" in row for row in records))


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
        if hindrance := _hindered(task, run.device):
            return [{**head, "excluded": hindrance, "asked": job.mistakes}]
        folder, _ = write_as_target(path)
        subprocess.run([*LOOP, "trust", str(folder)], cwd=ROOT, check=True, capture_output=True)
        results = list(_audited(run, job, path))
        shipped = shipped_in(path) if job.shipped else ()
        results += [row for answer in shipped for row in _judge_shipped(run, job, path, answer)]
    except Excluded as excluded:
        results = [{"excluded": str(excluded), "asked": job.mistakes}]
    except LoopError as error:
        results = [{"excluded": _short(error.message, checkout), "asked": job.mistakes}]
    seconds = round(time.monotonic() - begin, 1)
    return [{**head, **row, "seconds": seconds} for row in results]


def _short(message: str, checkout: Path) -> str:
    """A message without the checkout's path, its middle cut out from 300 characters on."""
    text = message.replace(f"{checkout}/", "")
    return text if len(text) < 300 else f"{text[:150]} ... {text[-150:]}"


def _hindered(task: ForeignTask, device: str) -> str:
    """Kinds of hindrances in a task's source, joined by commas; empty if there are none."""
    hindrances = find_hindrances(task, len(detect_gpus().usable) if device == "cuda" else 0)
    return ", ".join(dict.fromkeys(hindrance.kind for hindrance in hindrances))


def _audited(run: Run, job: Job, path: Path) -> Iterator[dict[str, Any]]:
    """Rows of `loop targets audit`: one for each control, one for each finding, then the time taken."""
    kinds = [word for mistake in job.mistakes for word in ("--control", mistake)]
    begun = time.monotonic()
    audit = _loop(run, job.option, ("targets", "audit", str(path), *kinds))
    seconds = {"audit": round(time.monotonic() - begun, 2)}
    _, replaced, reason = audit["theirs"].partition("not its evaluator")
    whose = f"stated rule{reason[:160]}" if replaced else "evaluator"
    checks = _own_check(run, job, path, [case["file"] for case in audit["controls"]])
    for case in audit["controls"]:
        columns = {name: case[name] for name in ("control", "make", "kind", "ours", "theirs", "why", "ours_why")}
        row = {**columns, "whose": whose, "causes": case["causes"][:3]}
        if case["file"] in checks:
            row |= {"stated": case["theirs"], "theirs": checks[case["file"]], "whose": "its check on a CPU"}
            verdict = GateVerdict(case["ours"], cause=case["ours_cause"])
            row["causes"] = explain_disagreement(
                table.load_task(path), verdict, Verdict(status=checks[case["file"]])
            )[:3]
        yield row
    for finding in audit["findings"]:
        if finding["kind"] not in ("timing", "text"):
            yield {"finding": f"{finding['kind']}: {finding['what']}"}
    yield {"took": seconds, "asked": job.mistakes}


def _judge_shipped(run: Run, job: Job, path: Path, answer: Path) -> Iterator[dict[str, Any]]:
    """The row of an answer that ships with the task."""
    is_wrong = answer.parent.name == "wrong"
    control, kind = f"{'wrong/' * is_wrong}{answer.name}", f"shipped{' wrong' * is_wrong}"
    head = {"control": control, "kind": kind, "make": "shipped"}
    try:
        folder, _ = write_as_target(path, [str(answer)])
        subprocess.run([*LOOP, "trust", str(folder)], cwd=ROOT, check=True, capture_output=True)
        reply = _loop(run, job.option, ("targets", "judge", str(path), str(answer)))
        (verdict,) = reply["verdicts"]
    except (LoopError, Excluded) as error:
        reason = _short(str(error), path)
        yield {**head, "ours": "not judged", "theirs": "not asked", "why": reason}
        return
    evaluator = {"theirs": verdict["theirs"]["status"], "why": verdict["theirs"]["why"], "whose": "evaluator"}
    yield {**head, "ours": verdict["ours"], **evaluator, "causes": verdict["causes"][:3]}


def _loop(run: Run, option: str, words: Sequence[str]) -> dict[str, Any]:
    """The reply of a loop command with --json. Raises Excluded if the command fails."""
    options: list[str] = ["--device", run.device, "--json", "--limit-minutes", str(run.evaluator_s / 60)]
    options += ["--threads", str(cores())]
    if run.device == "cuda":
        options += ["--evaluator-python", run.python] if words[0] == "targets" else []
        options += ["--evaluator", str(run.checkouts[option])] if EVALUATORS.get(option) else []
    reply: dict[str, Any] = json.loads(_run(run, (*LOOP, *words, *options)))
    if "error" in reply:
        raise Excluded(_short(reply["error"]["message"], run.checkouts.get(option, ROOT)))
    return reply


def interpreter(python: str, folder: Path) -> str:
    """Write a script that starts this interpreter, with empty modules for packages of `UNUSED` that it lacks."""
    for name in UNUSED:
        if subprocess.run((python, "-c", f"import {name}"), capture_output=True, check=False).returncode:
            (folder / f"{name}.py").write_text(EMPTY)
    program, path = folder / "python", os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{path}" exec {python} "$@"\n')
    program.chmod(0o755)
    return str(program)


def _own_check(run: Run, job: Job, path: Path, answers: Sequence[str]) -> dict[str, str]:
    """Verdicts of KernelBench's own check on a CPU, by answer; empty for other formats and on a GPU."""
    if job.option != "kernelbench" or run.device != "cpu":
        return {}
    source = str(run.checkouts[job.option] / "src")
    output = _run(run, (run.python, "-P", str(ON_CPU), source, str(path), *answers))
    return json.loads(output.splitlines()[-1])  # type: ignore[no-any-return]


def _run(run: Run, command: Sequence[str]) -> str:
    """Standard output of a command. Raises Excluded beyond its time or memory limit, or if it prints nothing."""
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
    reason = ""
    while True:
        try:
            output, errors = child.communicate(timeout=0.5)
            break
        except subprocess.TimeoutExpired:
            if not reason and (reason := _too_much(run, child.pid, time.monotonic() - begin)):
                kill_trees([child.pid])
    if reason:
        raise Excluded(reason)
    if not output.strip():
        raise Excluded(next((line for line in reversed(errors.splitlines()) if "rror" in line), errors)[-200:])
    return output


def _too_much(run: Run, pid: int, seconds: float) -> str:
    """Why a command must be killed; empty while it is within its limits."""
    if seconds > run.limit_s:
        return f"time: more than {run.limit_s:g} s"
    if run.device == "cpu" and _resident(pid) > MEMORY:
        return f"memory: more than {MEMORY / 1e9:g} GB"
    return ""


def _resident(pid: int) -> int:
    """Resident bytes of a process and its descendants; memory that they share counts once."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):  # It has ended meanwhile.
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            memory = process.memory_info()
            total += memory.rss - (memory.shared if process.pid != pid else 0)
    return total


def main() -> None:
    """Draw the sample; or judge its tasks, then write the page."""
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
    paths = {option: getattr(options, option) for option in EVALUATORS}
    checkouts = {option: path.absolute() for option, path in paths.items() if path}
    if not checkouts:
        parser.error("name at least one checkout")
    if options.draw:
        SAMPLE.write_text(json.dumps(draw(checkouts), indent=1) + "\n")
        return
    python = interpreter(options.evaluator_python, Path(tempfile.mkdtemp(prefix="bench-formats-")))
    run = Run(checkouts, options.device, python, options.limit_s, options.evaluator_s)
    recorded = rows()
    for job in jobs(run, sample()):
        if not is_done(job, run.device, recorded):
            lines = [json.dumps(row) + "\n" for row in judge(run, job)]
            with ROWS.open("a") as file:
                file.write("".join(lines))
            print(f"{job.option} {job.name}: {len(lines)} rows", flush=True)
    write_page()


if __name__ == "__main__":
    main()
