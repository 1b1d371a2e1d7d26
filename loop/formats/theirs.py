"""Run a format's own evaluator, unmodified, and compare its verdict with that of `loop`.

`loop` installs and edits nothing of the evaluator. It hashes the files of evaluator and task before and after the
run, to detect an answer that edits them. Evaluators that time by CUDA are not available without a GPU.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from loop.base.documents import content_hash
from loop.base.errors import UsageError
from loop.base.processes import Completed, Tick, run
from loop.formats.model import FLOATS, ForeignTask
from loop.model.base import Model
from loop.model.causes import Cause
from loop.model.output import GateVerdict

LIMIT_S = 600.0
EVALUATOR_HINT = "name one: --evaluator DIR; LOOP_EVALUATOR_PYTHON is an interpreter that has what it needs"
KEPT_LINES = 20
"""Last lines of an evaluator's output that are kept if it gave no result."""
Status = Literal["right", "wrong", "failed", "tampered", "not available"]


class Verdict(Model):
    """The verdict of the format's own evaluator on an answer."""

    status: Status
    """`right` or `wrong` by its own rule; `failed`: no result; `tampered`: its files changed."""
    why: str = ""
    """Why the status is not `right`."""
    result: Any = None
    """The evaluator's result, verbatim."""
    speedup: float | None = None
    """Reference time / answer time, as the evaluator timed them; None without times."""
    command: tuple[str, ...] = ()
    """The command that was run."""
    seconds: float = 0.0
    """Duration of all steps in seconds."""
    content: str = ""
    """Hash of the evaluator's and the task's files."""


@dataclass(frozen=True)
class ForeignAnswer:
    """An answer, and the evaluator to judge it."""

    task: ForeignTask
    answer: Path
    evaluator: Path | None
    """A checkout of the evaluator; None if the task contains its own."""
    python: str = sys.executable
    """The Python interpreter that has the evaluator's packages."""
    has_gpu: bool = False
    limit_s: float = LIMIT_S
    cases: int | None = None
    """Most cases to judge, if the format keeps cases in a separate file; None: all."""


Each = TypeVar("Each")


def spread_evenly(items: Sequence[Each], most: int) -> list[Each]:
    """At most `most` items, evenly spread over the sequence."""
    count = min(len(items), most)
    return [items[place * len(items) // count] for place in range(count)]


@dataclass(frozen=True)
class EvaluatorStep:
    """One run of an evaluator."""

    command: tuple[str, ...]
    folder: Path
    result: Path
    """The file for the evaluator's result."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluator:
    """How to run one format's evaluator, and how to read its result."""

    make_steps: Callable[[ForeignAnswer, Path], list[EvaluatorStep]]
    """Makes the commands to run in order, in an empty folder; a step that fails is the last."""
    read_verdict: Callable[[list[tuple[EvaluatorStep, Completed, str]]], Verdict]
    """Makes a verdict from each step that ran, its process and the text of its result file."""
    package: str = ""
    """Folder of the evaluator in a checkout, watched for edits; empty: the task contains it."""
    needs_cuda: Callable[[ForeignTask], bool] = lambda task: True


NO_GPU = "it times by CUDA, and there is no GPU here"


def run_evaluator(request: ForeignAnswer, evaluator: Evaluator) -> Generator[Tick, None, Verdict]:
    """Let the task's own evaluator judge an answer. Raises UsageError for a missing checkout of it."""
    checkout = request.evaluator
    if checkout is not None and not checkout.is_dir():
        raise UsageError(f"{checkout}: no checkout of its evaluator there", hint=EVALUATOR_HINT)
    if evaluator.needs_cuda(request.task) and not request.has_gpu:
        return Verdict(status="not available", why=NO_GPU)
    if evaluator.package and checkout is None:
        return Verdict(status="not available", why=f"no checkout of its evaluator; {EVALUATOR_HINT}")
    folder = Path(tempfile.mkdtemp(prefix="loop-theirs-"))
    try:
        steps = evaluator.make_steps(request, folder)
        watched = [*request.task.files, *sorted(folder.rglob("*"))]
        if checkout and evaluator.package:
            watched = [*sorted((checkout / evaluator.package).rglob("*.py")), *watched]
        before = {path: content_hash(path.read_bytes()) for path in watched if path.is_file()}
        verdict = yield from _run_steps(request, evaluator, steps)
        changed = []  # By the answer: then the verdict is not trusted.
        for path, digest in before.items():
            if not path.is_file() or content_hash(path.read_bytes()) != digest:
                changed.append(str(path))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdict = verdict.model_copy(update={"content": content_hash("".join(before.values()))})
    if changed:
        why = f"changed while the answer ran: {', '.join(changed)}"
        return verdict.model_copy(update={"status": "tampered", "why": why})
    return verdict


def _run_steps(
    request: ForeignAnswer, evaluator: Evaluator, steps: list[EvaluatorStep]
) -> Generator[Tick, None, Verdict]:
    """Run the evaluator's steps in order until one fails; returns the verdict, read from their results."""
    results: list[tuple[EvaluatorStep, Completed, str]] = []
    used_s = 0.0
    for step in steps:
        completed = yield from run(
            step.command,
            limit_s=max(request.limit_s - used_s, 0.0),
            cwd=step.folder,
            env={"PYTHONDONTWRITEBYTECODE": "1", **step.environment},
            note="their evaluator",
        )
        used_s += completed.seconds
        result = step.result.read_text(errors="replace") if step.result.is_file() else ""
        results.append((step, completed, result))
        if not completed.succeeded:
            break
    step, completed, result = results[-1]
    if completed.timed_out:
        verdict = Verdict(status="failed", why=f"its evaluator was {completed.ending}", result=result or None)
    elif result:
        try:
            verdict = evaluator.read_verdict(results)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            verdict = Verdict(status="failed", why=f"its result cannot be read: {error}")
    elif missing := re.findall(r"^ModuleNotFoundError:.*?'(.*?)'", completed.errors, re.MULTILINE):
        verdict = Verdict(status="not available", why=f"its evaluator needs the Python package {missing[-1]}")
    else:
        why = f"its evaluator gave no result: {completed.ending}"
        lines = (completed.errors or completed.output).strip().splitlines()[-KEPT_LINES:]
        verdict = Verdict(status="failed", why=why, result="\n".join(lines))
    return verdict.model_copy(update={"command": step.command, "seconds": used_s})


VERDICTS = ("right", "wrong")
EXPLANATION_BY_CAUSE: Mapping[Cause, str] = {
    "changed input": "it changes its inputs: we compare them after each call, they do not",
    "outside": "it reads or writes beside its tensors: we put guard zones around them, they do not",
    "not written": "what stood in its output before a call shows in it: we fill outputs first, they do not",
    "two outputs": "the same inputs gave two outputs: we call several times on the same inputs",
    "one output": "other values gave the very same output, which is within the tolerance: we look for that",
    "wrong result": "its outputs are not of the type, shape or class of the reference's: they do not mind",
    "loose tolerance": "by the tolerance zeros would be right; we allow less where that is so",
    "NaN": "a NaN or infinity in place of a number is wrong for us, however few elements are off",
    "unusable": "it does not load on its own in a process of ours",
    "replaced": "it replaces what it is judged with: we look for that",
    "checker": "the task's own checker says no on our inputs, which come from other seeds",
}
"""Cause found by `loop` to a sentence on why the other evaluator may miss it."""


def verdicts_agree(own: str, foreign: Verdict) -> bool | None:
    """Whether `loop`'s verdict (`own`) and that of the task's evaluator agree; None if one is no verdict."""
    if own not in VERDICTS or foreign.status not in VERDICTS:
        return None
    return own == foreign.status


def explain_disagreement(task: ForeignTask, own: GateVerdict, foreign: Verdict) -> list[str]:
    """Possible causes of a disagreement, the likeliest first; empty without disagreement."""
    if verdicts_agree(own.verdict, foreign) is not False:
        return []
    judging, timing = task.judging, task.timing
    if foreign.status == "wrong":  # And ours is `right`; below, the reverse.
        packed = "their checker is given outputs as the answer packs them; we pack them as the reference does"
        larger = "they allow the larger of atol and rtol times the expected value; we allow their sum"
        cast = "they cast whole numbers to floating point before the call"
        rules = [
            (bool(judging.checker), packed),
            (judging.either, larger),
            (True, "they compare with the reference in its own type, which may itself be off; we use float64"),
            (True, "we allow what the plain implementation loses in the same type; they allow their tolerance"),
            (any(dtype not in FLOATS for dtype in task.dtypes), cast),
        ]
    elif own.timed:  # Wrong only in a timed call.
        unchecked = "they do not check the outputs of timed calls; we check one, chosen at random"
        rules = [
            (timing.checked is False, unchecked),
            (timing.fresh_inputs is False, "their timed calls all get the same inputs; ours get others"),
            (timing.cold_cache is False, "they do not clear the cache between timed calls"),
        ]
    elif own.status in ("crashed", "hung") or own.cause in EXPLANATION_BY_CAUSE:
        no_output = "it gives no output in a process of ours, and they took its word for it"
        return [EXPLANATION_BY_CAUSE.get(own.cause, no_output)]
    else:
        checker = f"only their own checker decides there ({judging.checker}); we compare with float64, too"
        rules = [
            (bool(judging.checker), checker),
            (True, "each of our calls has other values at the same addresses; theirs may have new tensors"),
            (True, "their inputs come from fixed seeds, ours from a fresh one"),
        ]
    return [*(text for applies, text in rules if applies), *task.hints]
