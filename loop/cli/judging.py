"""`loop targets judge`: two verdicts on an answer to a task of another format, ours and its own evaluator's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import UsageError
from loop.base.processes import finish
from loop.base.screen import Screen
from loop.cli.bench import BenchRequest, walk_first
from loop.formats import table
from loop.formats.theirs import LIMIT_S
from loop.formats.translated import as_target
from loop.model.base import Printed
from loop.model.output import MeasureOutput, outputs_of
from loop.timing.theirs import HEADS, Both, EvaluatorTerms, line, reasons, two, verdict_of


@dataclass(frozen=True)
class TaskRequest:
    """What the user asked for of a task in another format."""

    path: Path
    evaluator: Path | None = None
    """A checkout of the format's evaluator, where the task does not bring one."""
    evaluator_python: str | None = None
    """An interpreter that has what the evaluator needs; None: this one."""
    limit_minutes: float = LIMIT_S / 60
    form: str | None = None
    device: str = "auto"
    threads: int | None = None
    seed: int = 0
    json: bool = False
    answers: Sequence[str] = ()
    """Files of answers that are judged."""
    measure: bool = False
    """Whether ours measures their speed, too."""
    controls: Sequence[str] = ()
    """Names of the controls that an audit tries; all where none is named."""

    @property
    def terms(self) -> EvaluatorTerms:
        """Whose evaluator is asked."""
        return EvaluatorTerms(
            evaluator=str(self.evaluator) if self.evaluator else None,
            evaluator_python=self.evaluator_python,
            limit_s=self.limit_minutes * 60,
        )


def judge(request: TaskRequest, screen: Screen) -> int:
    """Print both verdicts on each answer; the exit code is that of ours."""
    if not request.answers:
        raise UsageError("no answer to judge", hint="loop targets judge TASK ANSWER")
    task = table.load(request.path.absolute(), request.form)
    folder, names = as_target(request.path, request.answers, request.form)
    what = "measure" if request.measure else "verify"
    own = BenchRequest(
        what, names, folder, request.device, threads=request.threads, seed=request.seed, json=request.json
    )
    finished, code = walk_first(own, screen)
    both = []
    for name, answer in zip(names, request.answers, strict=True):
        screen.status(f"{task.format}: its own evaluator")
        both.append(two(task, name, finished, finish(verdict_of(task, Path(answer), request.terms))))
    if request.json:
        verdicts = tuple(JudgedAnswer(**dict(verdicts), agree=verdicts.same) for verdicts in both)
        screen.data(to_json(TwoVerdicts(task=task.name, format=task.format, verdicts=verdicts)))
        return code
    screen.table(HEADS, map(line, both))
    for text in (text for output in outputs_of(finished, MeasureOutput) for text in output.not_exercised):
        screen.data(f"not exercised: {text}")
    for text in reasons(both):
        screen.prose(text)
    return code


class JudgedAnswer(Both):
    """Two verdicts on one answer."""

    agree: bool | None
    """Whether both say the same; None where one says nothing."""


class TwoVerdicts(Printed):
    """Answers to a task, judged twice."""

    task: str
    """Name of the task."""
    format: str
    """Its format."""
    verdicts: tuple[JudgedAnswer, ...]
    """One for each answer."""
