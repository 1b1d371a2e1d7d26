"""Their verdict: a format's own evaluator, unmodified, in a process of its own; its result is kept verbatim.

`loop` installs nothing and edits nothing of theirs. It hashes the files of the evaluator and of the task before
and after, so it notices an answer that edits them. Without a GPU, evaluators that time by CUDA are not available.
"""

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
from loop.model.output import Ours

LIMIT_S = 600.0
NAME_ONE = "name one: --evaluator DIR; LOOP_EVALUATOR_PYTHON is an interpreter that has what it needs"
TAIL = 20
"""Lines of an evaluator's output that are kept where it gave no result."""
Status = Literal["right", "wrong", "failed", "tampered", "not available"]


class Verdict(Model):
    """What the format's own evaluator says of an answer."""

    status: Status
    """`right` and `wrong` by its own rule; `failed`: it gave no result; `tampered`: its files were changed."""
    why: str = ""
    """Why it is not right."""
    result: Any = None
    """What it gave, verbatim."""
    speedup: float | None = None
    """Time of the task's reference over that of the answer, as it timed them."""
    command: tuple[str, ...] = ()
    """What was run."""
    seconds: float = 0.0
    """How long it took."""
    content: str = ""
    """Hash of the evaluator's and the task's files."""


@dataclass(frozen=True)
class ForeignAnswer:
    """An answer, and whose evaluator is to judge it."""

    task: ForeignTask
    answer: Path
    evaluator: Path | None
    """A checkout of the evaluator; None where the task brings its own."""
    python: str = sys.executable
    """The interpreter that has what the evaluator needs."""
    has_gpu: bool = False
    limit_s: float = LIMIT_S
    cases: int | None = None
    """Most of the task's cases that it judges, where its format keeps them in a file of their own; None: all."""


Each = TypeVar("Each")


def evenly_spread(items: Sequence[Each], most: int) -> list[Each]:
    """At most so many of them, evenly spread."""
    number = min(len(items), most)
    return [items[place * len(items) // number] for place in range(number)]


@dataclass(frozen=True)
class TheirStep:
    """One run of an evaluator."""

    command: tuple[str, ...]
    folder: Path
    result: Path
    """The file that its result goes to."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluator:
    """How one format's evaluator is asked, and how its answer is read."""

    steps: Callable[[ForeignAnswer, Path], list[TheirStep]]
    """What is run, one after the other, given an empty folder; a step that does not end with 0 is the last."""
    read: Callable[[list[tuple[TheirStep, Completed, str]]], Verdict]
    """The verdict, of every step that was run with what it wrote to its result."""
    package: str = ""
    """Its package in a checkout, which must not change while it judges; empty: the task brings its evaluator."""
    needs_cuda: Callable[[ForeignTask], bool] = lambda task: True


NO_GPU = "it times by CUDA, and there is no GPU here"


def ask_evaluator(asked: ForeignAnswer, evaluator: Evaluator) -> Generator[Tick, None, Verdict]:
    """What the evaluator says. Raises UsageError for a checkout that is not there."""
    if asked.evaluator is not None and not asked.evaluator.is_dir():
        raise UsageError(f"{asked.evaluator}: no checkout of its evaluator there", hint=NAME_ONE)
    if evaluator.needs_cuda(asked.task) and not asked.has_gpu:
        return Verdict(status="not available", why=NO_GPU)
    if evaluator.package and asked.evaluator is None:
        return Verdict(status="not available", why=f"no checkout of its evaluator; {NAME_ONE}")
    folder = Path(tempfile.mkdtemp(prefix="loop-theirs-"))
    try:
        steps = evaluator.steps(asked, folder)
        placed = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        package = asked.evaluator / evaluator.package if asked.evaluator and evaluator.package else None
        watched = [*(sorted(package.rglob("*.py")) if package else ()), *asked.task.files, *placed]
        before = {path: content_hash(path.read_bytes()) for path in watched if path.is_file()}
        verdict = yield from _run(asked, evaluator, steps)
        now = {path: content_hash(path.read_bytes()) if path.is_file() else "gone" for path in before}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdict = verdict.model_copy(update={"content": content_hash("".join(before.values()))})
    changed = [str(path) for path, content in now.items() if before[path] != content]
    if changed:
        why = f"changed while the answer ran: {', '.join(changed)}"
        return verdict.model_copy(update={"status": "tampered", "why": why})
    return verdict


def _run(asked: ForeignAnswer, evaluator: Evaluator, steps: list[TheirStep]) -> Generator[Tick, None, Verdict]:
    """Every step, in order; nothing of the user's is in their folder."""
    results: list[tuple[TheirStep, Completed, str]] = []
    seconds, verdict = 0.0, Verdict(status="failed")
    for step in steps:
        completed = yield from run(
            step.command,
            limit_s=max(asked.limit_s - seconds, 0.0),
            cwd=step.folder,
            env={"PYTHONDONTWRITEBYTECODE": "1", **step.environment},
            note="their evaluator",
        )
        seconds += completed.seconds
        results.append((step, completed, step.result.read_text(errors="replace") if step.result.is_file() else ""))
        if not completed.ok:
            break
    step, completed, result = results[-1]
    if completed.timed_out:
        verdict = Verdict(status="failed", why=f"its evaluator was {completed.how}", result=result or None)
    elif result:
        try:
            verdict = evaluator.read(results)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            verdict = Verdict(status="failed", why=f"its result cannot be read: {error}")
    elif missing := missing_package(completed.errors):
        verdict = Verdict(status="not available", why=f"its evaluator needs the Python package {missing}")
    else:
        tail = "\n".join((completed.errors or completed.output).strip().splitlines()[-TAIL:])
        verdict = Verdict(status="failed", why=f"its evaluator gave no result: {completed.how}", result=tail)
    return verdict.model_copy(update={"command": step.command, "seconds": seconds})


def missing_package(errors: str) -> str:
    """The package that an interpreter did not find, by its last words."""
    line = next((line for line in reversed(errors.splitlines()) if line.startswith("ModuleNotFoundError:")), "")
    return line.split("'")[1] if line.count("'") > 1 else ""


VERDICTS = ("right", "wrong")
ONLY_OURS: Mapping[Cause, str] = {
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
"""What we found, and why they may not find it."""


def verdicts_agree(own: str, foreign: Verdict) -> bool | None:
    """Whether two verdicts say the same; None where there are not two."""
    if own not in VERDICTS or foreign.status not in VERDICTS:
        return None
    return own == foreign.status


def causes(task: ForeignTask, own: Ours, foreign: Verdict) -> list[str]:
    """What may be behind a disagreement, the likeliest first; nothing where both say the same, or one nothing."""
    if verdicts_agree(own.verdict, foreign) is not False:
        return []
    judging, timing = task.judging, task.timing
    if foreign.status == "wrong":
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
    elif own.timed:
        rules = [
            (
                timing.checked is False,
                "they do not check the outputs of timed calls; we check one, chosen at random",
            ),
            (timing.fresh_inputs is False, "their timed calls all get the same inputs; ours get others"),
            (timing.cold_cache is False, "they do not clear the cache between timed calls"),
        ]
    elif own.status in ("crashed", "hung") or own.cause in ONLY_OURS:
        no_output = "it gives no output in a process of ours, and they took its word for it"
        return [ONLY_OURS.get(own.cause, no_output)]
    else:
        checker = f"only their own checker decides there ({judging.checker}); we compare with float64, too"
        rules = [
            (bool(judging.checker), checker),
            (True, "each of our calls has other values at the same addresses; theirs may have new tensors"),
            (True, "their inputs come from fixed seeds, ours from a fresh one"),
        ]
    return [*(text for applies, text in rules if applies), *task.hints]
