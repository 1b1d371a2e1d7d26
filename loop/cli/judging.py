"""`loop targets judge`: two verdicts on an answer to a task of another format, ours and its own evaluator's."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import UsageError
from loop.base.processes import finish
from loop.base.screen import Screen
from loop.cli.bench import BenchRequest, walk_bench
from loop.formats import table
from loop.formats.disagreements import agree, causes
from loop.formats.evaluators import EVALUATORS
from loop.formats.model import ForeignTask
from loop.formats.theirs import LIMIT_S, Asked, Verdict, judged
from loop.formats.translated import as_target
from loop.machine.gpus import gpus
from loop.model.base import Model, Printed
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
from loop.model.record import Finished


@dataclass(frozen=True)
class JudgeRequest:
    """What the user asked for."""

    path: Path
    answers: Sequence[str] = ()
    evaluator: Path | None = None
    """A checkout of the format's evaluator, where the task does not bring one."""
    evaluator_python: str | None = None
    """An interpreter that has what the evaluator needs; None: this one."""
    limit_minutes: float = LIMIT_S / 60
    form: str | None = None
    measure: bool = False
    """Whether ours measures the speed, too."""
    device: str = "auto"
    threads: int | None = None
    seed: int = 0
    json: bool = False


@dataclass(frozen=True)
class Both:
    """Two verdicts on one answer."""

    answer: str
    ours: str
    """`right`, `wrong`, or why there is none."""
    ratio: float | None
    """Time of the task's reference over that of the answer, as we timed them."""
    theirs: Verdict
    causes: list[str]
    """What may be behind a disagreement."""


def judge(request: JudgeRequest, screen: Screen) -> int:
    """Print both verdicts on each answer; the exit code is that of ours."""
    if not request.answers:
        raise UsageError("no answer to judge", hint="loop targets judge TASK ANSWER")
    task = table.load(request.path.absolute(), request.form)
    folder, names = as_target(request.path, request.answers, request.form)
    what = "measure" if request.measure else "verify"
    bench = BenchRequest(
        what, names, folder, request.device, threads=request.threads, seed=request.seed, json=request.json
    )
    finished, code = walk_bench(bench, screen)
    both = [
        _both(task, name, finished, _theirs(request, task, Path(answer), screen))
        for name, answer in zip(names, request.answers, strict=True)
    ]
    if request.json:
        screen.data(to_json(TwoVerdicts(task=task.name, format=task.format, verdicts=tuple(_rows(both)))))
        return code
    screen.table(("answer", "ours", "theirs", "agree", "why"), [_line(one) for one in both])
    for one in both:
        for cause in one.causes:
            screen.data(f"{one.answer}: may be behind it: {cause}")
    return code


def _theirs(request: JudgeRequest, task: ForeignTask, answer: Path, screen: Screen) -> Verdict:
    """Their verdict on one answer."""
    evaluator = EVALUATORS.get(task.format)
    if evaluator is None:
        return Verdict(status="not available", why=f"loop does not ask the evaluator of {task.format} yet")
    screen.status(f"{task.format}: its own evaluator")
    asked = Asked(
        task,
        answer.absolute(),
        request.evaluator.absolute() if request.evaluator else None,
        request.evaluator_python or sys.executable,
        has_gpu=bool(gpus().usable),
        limit_s=request.limit_minutes * 60,
    )
    verdict: Verdict = finish(judged(asked, evaluator))
    return verdict


def _both(task: ForeignTask, name: str, finished: Sequence[Finished], theirs: Verdict) -> Both:
    """Ours from the steps of the bench, beside theirs."""
    verified = outputs_of(finished, VerifyOutput)
    measured = [one for output in outputs_of(finished, MeasureOutput) for one in output.measurements]
    ratios = [one.ratio for one in measured if one.variant == name]
    ours = "not judged"
    if any(name in one.wrong for one in verified):
        ours = "wrong"
    elif any(name in one.right for one in verified):
        ours = "right"
    return Both(name, ours, min(ratios, default=None), theirs, causes(task, ours, theirs))


class JudgedAnswer(Model):
    """Two verdicts on one answer."""

    answer: str
    """The answer."""
    ours: str
    """`right`, `wrong`, or why there is none."""
    ratio: float | None
    """Time of the task's reference over that of the answer, as loop timed them."""
    agree: bool | None
    """Whether both say the same; None where one says nothing."""
    theirs: Verdict
    """The format's own, verbatim."""
    causes: tuple[str, ...]
    """What may be behind a disagreement."""


class TwoVerdicts(Printed):
    """Answers to a task, judged twice."""

    task: str
    """Name of the task."""
    format: str
    """Its format."""
    verdicts: tuple[JudgedAnswer, ...]
    """One for each answer."""


def _rows(both: Sequence[Both]) -> Iterator[JudgedAnswer]:
    for one in both:
        yield JudgedAnswer(
            answer=one.answer,
            ours=one.ours,
            ratio=one.ratio,
            agree=agree(one.ours, one.theirs),
            theirs=one.theirs,
            causes=tuple(one.causes),
        )


def _line(one: Both) -> tuple[str, ...]:
    same = {True: "yes", False: "no", None: ""}[agree(one.ours, one.theirs)]
    ratio = f", {one.ratio:.2f}x" if one.ratio is not None else ""
    speedup = f", {one.theirs.speedup:.2f}x" if one.theirs.speedup is not None else ""
    return one.answer, one.ours + ratio, one.theirs.status + speedup, same, one.theirs.why
