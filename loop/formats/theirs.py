"""Run a format's own evaluator, unmodified, and compare its verdict with that of `loop`.

`loop` installs and edits nothing of the evaluator. It hashes the files of evaluator and task before
and after the run, to detect an answer that edits them. Evaluators that time by CUDA need a GPU.
`EVALUATORS` has an entry for each format.
"""

import ast
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Literal, NamedTuple, TypeVar

from loop.base.documents import content_hash
from loop.base.errors import UsageError
from loop.base.processes import Completed, Tick, run
from loop.formats import flashinfer, gpumode, kernelbench, model
from loop.formats.flashinfer import Definition
from loop.formats.model import ForeignTask, read_json
from loop.model.base import Model
from loop.model.causes import Cause
from loop.model.dtypes import FLOATS
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
from loop.model.record import Finished

LIMIT_S = 600.0
EVALUATOR_HINT = "name one: --evaluator DIR; LOOP_EVALUATOR_PYTHON: a Python that has what it needs"
KEPT_LINES = 20  # Last lines of an evaluator's output that are kept if it gave no result.
Status = Literal["right", "wrong", "failed", "tampered", "not available"]


class Verdict(Model):
    """The verdict of the format's own evaluator on an answer."""

    status: Status
    """`right` or `wrong` by its own rule; `failed`: no result; `tampered`: its files changed."""
    why: str = ""
    result: Any = None
    """The evaluator's result, verbatim."""
    speedup: float | None = None
    """Reference time / answer time, as the evaluator timed them; None without times."""
    command: tuple[str, ...] = ()
    seconds: float = 0.0
    content: str = ""
    """Hash of the evaluator's and the task's files."""


@dataclass(frozen=True)
class ForeignAnswer:
    """An answer, and the evaluator to judge it."""

    task: ForeignTask
    answer: Path
    evaluator: Path | None  # A checkout of the evaluator; None if the task contains its own.
    python: str = sys.executable  # The Python interpreter that has the evaluator's packages.
    has_gpu: bool = False
    limit_s: float = LIMIT_S
    cases: int | None = None  # Most cases to judge, if they are in a separate file; None: all.


Each = TypeVar("Each")


def spread_evenly(items: Sequence[Each], most: int) -> list[Each]:
    """At most `most` items, evenly spread over the sequence."""
    count = min(len(items), most)
    return [items[place * len(items) // count] for place in range(count)]


Step = tuple[tuple[str, ...], Path]  # A run of an evaluator: its command, the file for its result.
StepResults = list[tuple[Path, Completed, str]]
"""Of each step that ran: result file, ended process, the file's text; the last may have failed."""


@dataclass(frozen=True)
class Evaluator:
    """How to run one format's evaluator, and read its result."""

    make_steps: Callable[[ForeignAnswer, Path], list[Step]]
    """Makes the steps to run in order, in an empty folder; a step that fails is the last."""
    read_verdict: Callable[[StepResults], Verdict]
    package: str = ""
    """The evaluator's Python package in a checkout, watched for edits; empty: it is in the task."""
    needs_cuda: Callable[[ForeignTask], bool] = lambda task: True


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
RESULT_TO_FILE = 'exec 3>"$1" && shift && export POPCORN_FD=3 && exec "$@"'
"""Runs a command with descriptor 3, named by POPCORN_FD, open for writing its result to a file."""
COLLECT_TRACES = """traces=$1; result=$2; shift 2; "$@"; code=$?
[ -d "$traces" ] && find "$traces" -name "*.jsonl" -exec cat {} + > "$result"; exit $code"""
"""Runs a command, then joins the traces that it wrote into one file."""


def _prepare_kernelbench(request: ForeignAnswer, folder: Path) -> list[Step]:
    """The step that runs KERNELBENCH_DRIVER on the answer; it writes `result.json` in `folder`."""
    result = folder / "result.json"
    packages = model.read_module(request.answer).imported_packages
    backend = "triton" if "triton" in packages else "cuda"
    files = (str(request.task.path), str(request.answer), str(result))
    return [((request.python, "-c", KERNELBENCH_DRIVER, *files, backend), result)]


def _read_kernelbench(results: StepResults) -> Verdict:
    """`right` if the answer compiled and every trial agreed, else `wrong`; `failed`: no report."""
    _, _, result = results[-1]
    report = json.loads(result)
    if not isinstance(report, dict):
        return Verdict(status="failed", why="its evaluator asks to try again", result=report)
    if not report.get("compiled") or not report.get("correctness"):
        problem = "wrong answer" if report.get("compiled") else "does not compile"
        return Verdict(status="wrong", why=problem, result=report)
    reference_time, answer_time = report.get("ref_runtime", -1), report.get("runtime", -1)
    has_times = reference_time > 0 and answer_time > 0
    speedup = reference_time / answer_time if has_times else None
    return Verdict(status="right", result=report, speedup=speedup)


def _prepare_gpumode(request: ForeignAnswer, folder: Path) -> list[Step]:
    """The steps that run the tests, then the benchmarks; `folder` gets the files that they need."""
    task = request.task
    manifest, _, files = gpumode.read_manifest(task.path)
    for name, path in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    shutil.copyfile(request.answer, folder / gpumode.ANSWER)
    checked = [case for case in task.cases if "time" not in case.use]
    timed = [case for case in task.cases if "time" in case.use]
    # The ranked mode only if it checks the outputs that it times.
    timing_mode = "leaderboard" if task.timing.checked else "benchmark"
    steps: list[Step] = []
    for mode, cases in (("test", checked), (timing_mode, timed)):
        if cases:
            result = folder / f"{mode}.result"
            rows = [case.arguments.items() for case in cases]
            lines = ["; ".join(f"{name}: {value}" for name, value in row) + "\n" for row in rows]
            (folder / f"{mode}.txt").write_text("".join(lines))
            evaluator = manifest.config.main or gpumode.EVALUATOR
            arguments = (request.python, evaluator, mode, f"{mode}.txt")
            command = ("/bin/sh", "-c", RESULT_TO_FILE, "sh", str(result), *arguments)
            steps.append((command, result))
    return steps


def _read_gpumode(results: StepResults) -> Verdict:
    """`right` if both runs wrote `check: pass`; `failed` if one wrote no check; else `wrong`, with
    its first error. Each line of a result file is `key: value`."""
    values_by_mode = {}
    for file, _, text in results:
        lines = (line.partition(": ") for line in text.splitlines() if ": " in line)
        values_by_mode[file.stem] = {key: value for key, _, value in lines}
    _, last_process, _ = results[-1]
    for mode, values in values_by_mode.items():
        if "check" not in values:
            last_line = (last_process.errors.strip().splitlines() or [last_process.ending])[-1]
            why = f"its {mode} ended without a `check`: {last_line}"
            return Verdict(status="failed", why=why, result=values_by_mode)
        if values["check"] != "pass":
            error_keys = [key for key in values if re.fullmatch(r"\w+\.\d+\.error", key)]
            errors = [f"{key}: {values[key]}" for key in error_keys[:1]]
            why = "; ".join([f"{mode} failed", *errors])
            return Verdict(status="wrong", why=why, result=values_by_mode)
    return Verdict(status="right", result=values_by_mode)


def _gpumode_needs_cuda(task: ForeignTask) -> bool:
    """Whether the task or its judging program uses CUDA; True if the program is unknown."""
    manifest, _, files = gpumode.read_manifest(task.path)
    evaluator = files.get(manifest.config.main or gpumode.EVALUATOR)
    if task.devices == ("cuda",) or evaluator is None:
        return True
    tree: Any = model.read_module(evaluator).tree
    return any(getattr(node, "attr", "") == "cuda" for node in ast.walk(tree))


def _prepare_sol(request: ForeignAnswer, folder: Path) -> list[Step]:
    """The step that runs SOL-ExecBench's command line on the answer: it writes traces."""
    result = folder / "traces.jsonl"
    launcher = (request.python, "-c", "from sol_execbench.cli import cli; cli()")
    files = (str(request.task.path), "--solution", str(request.answer), "-o", str(result))
    return [((*launcher, *files), result)]


def _prepare_trace(request: ForeignAnswer, folder: Path) -> list[Step]:
    """The step that runs FlashInfer-Bench on copies: it writes its results beside the task."""
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
    launcher = (request.python, "-c", "from flashinfer_bench.cli.main import cli; cli()")
    program = (*launcher, "run", "--local", str(root))
    command = ("/bin/sh", "-c", COLLECT_TRACES, "sh", str(root / "traces"), str(result), *program)
    return [(command, result)]


def _read_traces(results: StepResults) -> Verdict:
    """`right` if every workload passed, `failed` without any. `run_evaluator` catches errors."""
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
    speedup = geometric_mean(speedups) if speedups else None
    return Verdict(status="right", result=traces, speedup=speedup)


ROOT = Path(__file__).parents[2]
"""Folder to import `loop` from; appended last, so that their interpreter's packages come first."""
HEAD = '''"""Made by loop for an audit: the task's own reference, with a mistake put in."""

import json
import sys

sys.path.append({root!r})
from loop.mistakes import functions

SETTINGS = json.loads({settings!r})
'''
KERNELBENCH = """

from loop.calls.callee import import_file


class ModelNew(functions.erring_class(import_file({task!r}).Model, SETTINGS)):
    pass
"""
GPUMODE = """from reference import ref_kernel

erring = functions.erring_function(ref_kernel, SETTINGS)


def custom_kernel(data):
    return erring(data)
"""
SOLUTION = """
{reference}

erring = functions.erring_function(run, SETTINGS)


def erring_run(*inputs, **named):
    return erring(*inputs, **named)
"""


def wrong_answer(task: ForeignTask, mistake: Mapping[str, Any]) -> tuple[str, str]:
    """File suffix and text of a wrong answer, as a control: the task's reference with a mistake."""
    head = HEAD.format(root=str(ROOT), settings=json.dumps(mistake))
    if task.format == kernelbench.NAME:
        return ".py", head + KERNELBENCH.format(task=str(task.path))
    if task.format == gpumode.NAME:
        return ".py", head + GPUMODE
    definition, _ = read_json(task.files[0], Definition)
    spec: dict[str, Any] = {"language": "python", "target_hardware": ["cuda"], "dependencies": []}
    if task.format == flashinfer.SOL:
        spec = {"languages": ["pytorch"], "target_hardware": ["LOCAL"], "dependencies": []}
    spec |= {"entry_point": "main.py::erring_run", "destination_passing_style": False}
    content = head + SOLUTION.format(reference=definition.reference)
    solution = {
        "name": "control",
        "definition": definition.name,
        "author": "loop",
        "spec": spec,
        "sources": [{"path": "main.py", "content": content}],
    }
    return ".json", json.dumps(solution, indent=2)


EVALUATORS = {
    kernelbench.NAME: Evaluator(_prepare_kernelbench, _read_kernelbench, "src/kernelbench"),
    gpumode.NAME: Evaluator(_prepare_gpumode, _read_gpumode, needs_cuda=_gpumode_needs_cuda),
    flashinfer.SOL: Evaluator(_prepare_sol, _read_traces, "src/sol_execbench"),
    flashinfer.TRACE: Evaluator(_prepare_trace, _read_traces, "flashinfer_bench"),
}
NOTE = "their evaluator"


def run_evaluator(request: ForeignAnswer) -> Generator[Tick, None, Verdict]:
    """Let the evaluator of the task's format judge an answer, in a temporary folder. The verdict is
    `not available` without the GPU or checkout that it needs, and `tampered` if the answer changed
    its files. Raises UsageError if the named checkout is no folder."""
    checkout, evaluator = request.evaluator, EVALUATORS[request.task.format]
    if checkout is not None and not checkout.is_dir():
        raise UsageError(f"{checkout}: no checkout of its evaluator there", hint=EVALUATOR_HINT)
    if evaluator.needs_cuda(request.task) and not request.has_gpu:
        return Verdict(status="not available", why="it times by CUDA, and there is no GPU here")
    if evaluator.package and checkout is None:
        return Verdict(status="not available", why=f"no evaluator's checkout; {EVALUATOR_HINT}")
    folder = Path(tempfile.mkdtemp(prefix="loop-theirs-"))
    env, watched = {"PYTHONDONTWRITEBYTECODE": "1"}, list[Path]()
    if checkout and evaluator.package:
        package = checkout / evaluator.package
        env["PYTHONPATH"] = str(package.parent)
        watched = sorted(package.rglob("*.py"))
    results: StepResults = []
    used_s, changed = 0.0, list[str]()  # `changed`: files that the answer changed.
    try:
        steps = evaluator.make_steps(request, folder)
        watched += [*request.task.files, *sorted(folder.rglob("*"))]
        digests = {path: content_hash(path.read_bytes()) for path in watched if path.is_file()}
        for command, file in steps:
            left_s = max(request.limit_s - used_s, 0.0)
            completed = yield from run(command, limit_s=left_s, cwd=folder, env=env, note=NOTE)
            used_s += completed.seconds
            result = file.read_text(errors="replace") if file.is_file() else ""
            results.append((file, completed, result))
            if not completed.succeeded:
                break
        for path, digest in digests.items():
            if not path.is_file() or content_hash(path.read_bytes()) != digest:
                changed.append(str(path))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if completed.timed_out:
        why = f"its evaluator was {completed.ending}"
        verdict = Verdict(status="failed", why=why, result=result or None)
    elif result:
        try:
            verdict = evaluator.read_verdict(results)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            verdict = Verdict(status="failed", why=f"its result cannot be read: {error}")
    elif packages := re.findall(r"^ModuleNotFoundError:.*?'(.*?)'", completed.errors, re.MULTILINE):
        why = f"its evaluator needs the Python package {packages[-1]}"
        verdict = Verdict(status="not available", why=why)
    else:
        why = f"its evaluator gave no result: {completed.ending}"
        lines = (completed.errors or completed.output).strip().splitlines()[-KEPT_LINES:]
        verdict = Verdict(status="failed", why=why, result="\n".join(lines))
    content = content_hash("".join(digests.values()))
    verdict = verdict.model_copy(update={"command": command, "seconds": used_s, "content": content})
    if changed:  # Then the verdict is not trusted.
        why = f"changed while the answer ran: {', '.join(changed)}"
        return verdict.model_copy(update={"status": "tampered", "why": why})
    return verdict


class GateVerdict(NamedTuple):
    """The verdict of `loop` on one variant."""

    verdict: Literal["right", "wrong", "not judged"]
    why: str = ""
    cause: Cause = ""
    status: str = "wrong"  # Of the failed check; `crashed` and `hung`: without output.
    timed: bool = False  # Whether the variant was wrong only in a timed call.


def gate_verdict_on(name: str, finished: Sequence[Finished]) -> GateVerdict:
    """Verdict on a variant by all steps: wrong if any says so, else right if one does; `why` says
    why a right one has no speed. Without a verdict, it is the message of the first failed step."""
    verdicts, why_no_speed = list[GateVerdict](), ""
    for output in outputs_of(finished, VerifyOutput):
        checks = (each.first_failure for each in output.variants if each.variant == name)
        failure = next(filter(None, checks), None)
        if name in output.right:
            verdicts.append(GateVerdict("right"))
        elif name not in output.wrong or output.is_control_wrong:  # Or the baseline failed, too.
            verdicts.append(GateVerdict("not judged", output.message))
        elif failure:
            verdicts.append(GateVerdict("wrong", failure.message, failure.cause, failure.status))
        else:
            verdicts.append(GateVerdict("wrong", output.message))
    for measured in outputs_of(finished, MeasureOutput):
        for verdict in measured.verdicts:
            if verdict.variant == name and verdict.verdict == "incorrect":
                # `timed`: wrong only in a timed call, not in the verification.
                verdicts.append(GateVerdict("wrong", verdict.reason, verdict.cause, timed=True))
            elif verdict.variant == name and verdict.verdict == "invalid":
                why_no_speed = why_no_speed or f"no speed: {verdict.reason}"
    if not verdicts:
        messages = [record.message for record in finished if record.status == "failed"]
        return GateVerdict("not judged", messages[0] if messages else "no step judged it")
    worst_first = ("wrong", "right", "not judged")
    worst = min(verdicts, key=lambda verdict: worst_first.index(verdict.verdict))
    return worst if worst.why else GateVerdict(worst.verdict, why_no_speed)


VERDICTS = ("right", "wrong")
EXPLANATION_BY_CAUSE: Mapping[Cause, str] = {
    "changed input": "it changes its inputs: we compare them after each call, they do not",
    "outside": "it reads or writes beside its tensors: we put guard zones around them, they do not",
    "not written": "its output shows what stood there before a call: we fill outputs, they do not",
    "two outputs": "the same inputs gave two outputs: we call several times on the same inputs",
    "one output": "other values gave the very same output, within the tolerance: we look for that",
    "wrong result": "its outputs have not the reference's type, shape or class: they do not mind",
    "loose tolerance": "by the tolerance zeros would be right; we allow less where that is so",
    "NaN": "a NaN or infinity in place of a number is wrong for us, however few elements are off",
    "unusable": "it does not load on its own in a process of ours",
    "replaced": "it replaces what it is judged with: we look for that",
    "checker": "the task's own checker says no on our inputs, which come from other seeds",
}
"""Cause found by `loop` to a sentence on why the other evaluator may miss it."""


def verdicts_agree(own_verdict: str, foreign_verdict: Verdict) -> bool | None:
    """Whether `loop` and the task's evaluator agree on an answer; None if one gave no verdict."""
    if own_verdict not in VERDICTS or foreign_verdict.status not in VERDICTS:
        return None
    return own_verdict == foreign_verdict.status


def explain_disagreement(task: ForeignTask, own: GateVerdict, foreign: Verdict) -> list[str]:
    """Possible causes, likeliest first, if `loop` and the task's evaluator disagree; else none."""
    if verdicts_agree(own.verdict, foreign) is not False:
        return []
    judging, timing = task.judging, task.timing
    if foreign.status == "wrong":  # And ours is `right`; below, the reverse.
        packed = "their checker gets outputs as the answer packs them; we pack as the reference"
        has_integers = any(dtype not in FLOATS for dtype in task.dtypes)
        rules = {
            packed: bool(judging.checker),
            "they allow the larger of atol and rtol x expected; we allow their sum": judging.either,
            "they compare with a reference in its own type, we with one in float64": True,
            "we allow what plain code loses in the same type; they, their tolerance": True,
            "they cast whole numbers to floating point before the call": has_integers,
        }
    elif own.timed:  # Wrong only in a timed call.
        unchecked = "they do not check the outputs of timed calls; we check one, chosen at random"
        rules = {
            unchecked: timing.checked is False,
            "their timed calls get the same inputs; ours get others": timing.fresh_inputs is False,
            "they do not clear the cache between timed calls": timing.cold_cache is False,
        }
    elif own.status in ("crashed", "hung") or own.cause in EXPLANATION_BY_CAUSE:
        no_output = "it gives no output in a process of ours, and they took its word for it"
        return [EXPLANATION_BY_CAUSE.get(own.cause, no_output)]
    else:
        checker = f"only their own checker decides ({judging.checker}); we compare with float64"
        rules = {
            checker: bool(judging.checker),
            "our calls get other values at the same addresses; theirs may get new tensors": True,
            "their inputs come from fixed seeds, ours from a fresh one": True,
        }
    return [*(text for text, applies in rules.items() if applies), *task.hints]
