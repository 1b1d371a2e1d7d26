"""For each format: run its evaluator, read its result, write a wrong answer for an audit."""

import ast
import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loop.base.processes import Completed
from loop.formats import flashinfer, gpumode, kernelbench, python_text
from loop.formats.flashinfer import Definition
from loop.formats.model import ForeignTask
from loop.formats.python_text import read_json
from loop.formats.theirs import Evaluator, EvaluatorStep, ForeignAnswer, Verdict, spread_evenly

StepResults = list[tuple[EvaluatorStep, Completed, str]]
"""Each step that ran, its ended process and the text of its result file; the last may have failed."""
KERNELBENCH_DRIVER = """
import json, sys
import torch
from kernelbench.eval import eval_kernel_against_ref
task, answer, result, backend = sys.argv[1:]
device = torch.device("cuda:0") if torch.cuda.is_available() else None
with open(task) as reference, open(answer) as candidate:
    found = eval_kernel_against_ref(
        reference.read(), candidate.read(), num_correct_trials=5, num_perf_trials=100,
        measure_performance=True, backend=backend, device=device, precision=torch.float32)
with open(result, "w") as file:
    json.dump(found.model_dump() if found is not None else None, file, default=str)
"""
"""As in KernelBench's own scripts: five correctness trials, then 100 timed calls of one answer."""
RESULT_TO_FILE = 'exec 3>"$1" && shift && exec "$@"'
"""Runs a command with descriptor 3 open for writing to a file."""

COLLECT_TRACES = """traces=$1; result=$2; shift 2; "$@"; code=$?
[ -d "$traces" ] && find "$traces" -name "*.jsonl" -exec cat {} + > "$result"; exit $code"""
"""Runs a command, then joins the traces that it wrote into one file."""


def _prepare_kernelbench(request: ForeignAnswer, folder: Path) -> list[EvaluatorStep]:
    """The step that runs KERNELBENCH_DRIVER on the answer; it writes `result.json` in `folder`."""
    assert request.evaluator is not None
    result = folder / "result.json"
    backend = "triton" if "triton" in python_text.read_module(request.answer).imported_packages else "cuda"
    files = (str(request.task.path), str(request.answer), str(result))
    command = (request.python, "-c", KERNELBENCH_DRIVER, *files, backend)
    return [EvaluatorStep(command, folder, result, environment={"PYTHONPATH": str(request.evaluator / "src")})]


def _read_kernelbench(results: StepResults) -> Verdict:
    """`right` if the answer compiled and every trial agreed."""
    _, _, result = results[-1]
    report = json.loads(result)
    if not isinstance(report, dict):
        return Verdict(status="failed", why="its evaluator gave no result: it asks to try again", result=report)
    if not report.get("compiled") or not report.get("correctness"):
        problem = "wrong answer" if report.get("compiled") else "does not compile"
        return Verdict(status="wrong", why=problem, result=report)
    times = report.get("ref_runtime", -1), report.get("runtime", -1)
    speedup = times[0] / times[1] if all(time > 0 for time in times) else None
    return Verdict(status="right", result=report, speedup=speedup)


def _prepare_gpumode(request: ForeignAnswer, folder: Path) -> list[EvaluatorStep]:
    """The steps that run the tests, then the benchmarks; `folder` gets the files of the task's manifest."""
    task = request.task
    for name, path in gpumode.judging_files(task).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    shutil.copyfile(request.answer, folder / gpumode.ANSWER)
    checked = [case for case in task.cases if "time" not in case.use]
    timed = [case for case in task.cases if "time" in case.use]
    # The ranked mode only if it checks the outputs that it times.
    timing_mode = "leaderboard" if task.timing.checked else "benchmark"
    steps = []
    for mode, cases in (("test", checked), (timing_mode, timed)):
        if cases:
            result, text = folder / f"{mode}.result", ""
            for case in cases:
                text += "; ".join(f"{name}: {value}" for name, value in case.arguments.items()) + "\n"
            (folder / f"{mode}.txt").write_text(text)
            program = (request.python, gpumode.judging_program(task), mode, f"{mode}.txt")
            command = ("/bin/sh", "-c", RESULT_TO_FILE, "sh", str(result), *program)
            # The program writes its result to the file descriptor named by POPCORN_FD.
            steps.append(EvaluatorStep(command, folder, result, environment={"POPCORN_FD": "3"}))
    return steps


def _read_gpumode(results: StepResults) -> Verdict:
    """`right` if both runs wrote `check: pass`; each line of a result file is `key: value`."""
    values_by_mode = {}
    for step, _, text in results:
        lines = (line.partition(": ") for line in text.splitlines() if ": " in line)
        values_by_mode[step.result.stem] = {key: value for key, _, value in lines}
    _, last_process, _ = results[-1]
    for mode, values in values_by_mode.items():
        if "check" not in values:
            last_line = (last_process.errors.strip().splitlines() or [last_process.ending])[-1]
            why = f"its {mode} ended without a `check`: {last_line}"
            return Verdict(status="failed", why=why, result=values_by_mode)
        if values["check"] != "pass":
            errors = [f"{key}: {value}" for key, value in values.items() if re.fullmatch(r"\w+\.\d+\.error", key)]
            return Verdict(status="wrong", why="; ".join([f"{mode} failed", *errors[:1]]), result=values_by_mode)
    return Verdict(status="right", result=values_by_mode)


def _gpumode_needs_cuda(task: ForeignTask) -> bool:
    """Whether the task or its judging program uses CUDA; True if the program is unknown."""
    evaluator = gpumode.judging_files(task).get(gpumode.judging_program(task))
    if task.devices == ("cuda",) or evaluator is None:
        return True
    tree: Any = python_text.read_module(evaluator).tree
    return any(getattr(node, "attr", "") == "cuda" for node in ast.walk(tree))


def _prepare_sol(request: ForeignAnswer, folder: Path) -> list[EvaluatorStep]:
    """The step that runs the command line of SOL-ExecBench on the answer; it writes traces in `folder`."""
    assert request.evaluator is not None
    result = folder / "traces.jsonl"
    start = (request.python, "-c", "from sol_execbench.cli import cli; cli()")
    command = (*start, str(request.task.path), "--solution", str(request.answer), "-o", str(result))
    return [EvaluatorStep(command, folder, result, environment={"PYTHONPATH": str(request.evaluator / "src")})]


def _prepare_trace(request: ForeignAnswer, folder: Path) -> list[EvaluatorStep]:
    """The step that runs FlashInfer-Bench on copies below `folder`: it writes results beside the task."""
    assert request.evaluator is not None
    root, dataset = folder / "root", flashinfer.find_root(request.task.path)
    for path in request.task.files:
        place = path.relative_to(dataset)
        if flashinfer.SOLUTIONS not in place.parts:
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, root / place)
            if request.cases and flashinfer.WORKLOADS in place.parts:
                lines = [line for line in path.read_text().splitlines() if line.strip()]
                (root / place).write_text("\n".join(spread_evenly(lines, request.cases)) + "\n")
    (root / flashinfer.SOLUTIONS).mkdir(parents=True)
    shutil.copyfile(request.answer, root / flashinfer.SOLUTIONS / "answer.json")
    if (dataset / "blob").is_dir():  # Data files of the workloads.
        (root / "blob").symlink_to(dataset / "blob")
    result = folder / "traces.jsonl"
    start = (request.python, "-c", "from flashinfer_bench.cli.main import cli; cli()", "run", "--local", str(root))
    command = ("/bin/sh", "-c", COLLECT_TRACES, "sh", str(root / "traces"), str(result), *start)
    return [EvaluatorStep(command, folder, result, environment={"PYTHONPATH": str(request.evaluator)})]


def _read_traces(results: StepResults) -> Verdict:
    """`right` if every workload passed; the speed-up is the geometric mean over timed workloads."""
    _, _, result = results[-1]
    traces = [json.loads(line) for line in result.splitlines() if line.strip()]
    if not traces:
        return Verdict(status="failed", why="its evaluator wrote no trace")
    failures, speedups = [], []
    for trace in traces:
        evaluation = trace.get("evaluation") or {}
        if evaluation.get("status") != "PASSED":
            failures.append(str(evaluation.get("status")))
        factor = (evaluation.get("performance") or {}).get("speedup_factor")
        if isinstance(factor, int | float) and factor > 0:
            speedups.append(factor)
    if failures:
        why = f"{len(failures)} of {len(traces)} workloads: {failures[0]}"
        return Verdict(status="wrong", why=why, result=traces)
    speedup = math.exp(sum(map(math.log, speedups)) / len(speedups)) if speedups else None
    return Verdict(status="right", result=traces, speedup=speedup)


EVALUATORS = {
    kernelbench.NAME: Evaluator(_prepare_kernelbench, _read_kernelbench, "src/kernelbench"),
    gpumode.NAME: Evaluator(_prepare_gpumode, _read_gpumode, needs_cuda=_gpumode_needs_cuda),
    flashinfer.SOL: Evaluator(_prepare_sol, _read_traces, "src/sol_execbench"),
    flashinfer.TRACE: Evaluator(_prepare_trace, _read_traces, "flashinfer_bench"),
}
"""Name of a format to its evaluator."""


ROOT = Path(__file__).parent.parent.parent
"""Folder to import `loop` from; appended last, so that their interpreter's packages come first."""
HEAD = '''"""Made by loop for an audit: the task's own reference, with a mistake put in."""

import json
import sys

sys.path.append({root!r})
from loop.mistakes import functions

TERMS = json.loads({terms!r})
'''
KERNELBENCH = """

class ModelNew(functions.erring_module({task!r}, "Model", TERMS)):
    pass
"""
GPUMODE = """from reference import ref_kernel

erring = functions.erring_function(ref_kernel, TERMS)


def custom_kernel(data):
    return erring(data)
"""
SOLUTION = """
{reference}

erring = functions.erring_function(run, TERMS)


def erring_run(*inputs, **named):
    return erring(*inputs, **named)
"""


def _wrong_solution(task: ForeignTask, mistake_code: str) -> tuple[str, str]:
    """File suffix and JSON text of a solution: the reference with a mistake, defined by `mistake_code`."""
    definition, _ = read_json(task.files[0], Definition)
    spec: dict[str, Any] = {"entry_point": "main.py::erring_run", "destination_passing_style": False}
    is_sol = task.format == flashinfer.SOL
    spec |= {"languages": ["pytorch"], "target_hardware": ["LOCAL"]} if is_sol else {"language": "python"}
    content = mistake_code + SOLUTION.format(reference=definition.reference)
    solution = {
        "name": "control",
        "definition": definition.name,
        "author": "loop",
        "spec": {"target_hardware": ["cuda"], "dependencies": [], **spec},
        "sources": [{"path": "main.py", "content": content}],
    }
    return ".json", json.dumps(solution, indent=2)


ANSWER_MAKERS: Mapping[str, Callable[[ForeignTask, str], tuple[str, str]]] = {
    kernelbench.NAME: lambda task, head: (".py", head + KERNELBENCH.format(task=str(task.path))),
    gpumode.NAME: lambda task, head: (".py", head + GPUMODE),
    flashinfer.TRACE: _wrong_solution,
    flashinfer.SOL: _wrong_solution,
}
"""Format to a function from the task and the HEAD text to an answer's file suffix and text."""


def wrong_answer(task: ForeignTask, mistake: Mapping[str, Any]) -> tuple[str, str]:
    """File suffix and text of a wrong answer, as a control: the task's reference with a mistake."""
    return ANSWER_MAKERS[task.format](task, HEAD.format(root=str(ROOT), terms=json.dumps(mistake)))
