"""Compare our verdict with that of a task's own evaluator, for tasks of other formats."""

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from loop.base.errors import UsageError
from loop.base.places import shipped
from loop.base.processes import Tick
from loop.base.stats import speedup_text
from loop.formats.model import ForeignTask
from loop.formats.table import find_origin
from loop.formats.theirs import (
    LIMIT_S,
    ForeignAnswer,
    Verdict,
    explain_disagreement,
    run_evaluator,
    verdicts_agree,
)
from loop.library.definitions import read_file
from loop.machine.gpus import detect_gpus
from loop.model.base import Model
from loop.model.output import MeasureOutput, Output, gate_verdict_on, outputs_of
from loop.model.plan import Pattern
from loop.model.record import Finished
from loop.report.markdown import Table
from loop.report.sections import Section
from loop.steps.context import Context, Result, RunningAction
from loop.timing.readiness import hold_device


class EvaluatorTerms(Model):
    """Which evaluator to run, and its limits."""

    evaluator: str | None = None
    """Folder of a checkout of the format's evaluator, if the task does not include one."""
    evaluator_python: str | None = None
    """A Python interpreter with the evaluator's dependencies. Default: the one that runs loop."""
    limit_s: float = LIMIT_S
    """Seconds for one answer."""
    cases: int | None = None
    """Number of the task's cases to judge, in FlashInfer Trace; None: all."""


class VerdictPair(Model):
    """Our verdict and the evaluator's on one answer."""

    answer: str
    """Name of the variant."""
    ours: str
    """`right`, `wrong` or `not judged`."""
    ours_why: str = ""
    """Why the answer is not right, or has no speed."""
    ratio: float | None = None
    """Reference time / answer time, both timed by us."""
    theirs: Verdict
    """The evaluator's verdict."""
    causes: tuple[str, ...] = ()
    """Possible causes of a disagreement."""

    @property
    def same(self) -> bool | None:
        """Whether both verdicts agree; None if one of them is missing."""
        return verdicts_agree(self.ours, self.theirs)


class TheirsOutput(Output):
    """Both verdicts on every answer."""

    actions = ("kernel.theirs",)

    both: tuple[VerdictPair, ...] = ()
    """One entry for each answer."""


def theirs(context: Context, arguments: EvaluatorTerms) -> RunningAction[TheirsOutput]:
    """Have the task's own evaluator, unmodified, judge every answer; report where it disagrees.
    A disagreement fails nothing."""
    task_and_answers = find_origin(context.task.folder)
    if task_and_answers is None:
        raise UsageError("--evaluator: this target is no task of another format", hint="loop targets inspect PATH")
    task, answers = task_and_answers
    pairs = []
    with ExitStack() as stack:
        yield from hold_device(context.bench, stack)
        for name in context.task.variants:
            verdict = Verdict(status="not available", why="it is the task's own reference")
            if name in answers:
                verdict = yield from ask_evaluator(task, answers[name], arguments)
            pairs.append(pair_verdicts(task, name, context.finished, verdict))
    agreement_text = {True: "both say the same", False: "they differ"}
    texts, not_exercised = [], []
    for pair in pairs:
        agreement = pair.theirs.why or "no two verdicts" if pair.same is None else agreement_text[pair.same]
        texts.append(f"{pair.answer}: ours {pair.ours}, theirs {pair.theirs.status} ({agreement})")
        not_exercised += [f"their verdict on {pair.answer}: {pair.theirs.why}"] if pair.same is None else []
    message = "; ".join(texts)
    return Result(TheirsOutput(ok=True, message=message, both=tuple(pairs), not_exercised=tuple(not_exercised)))


def ask_evaluator(task: ForeignTask, answer: Path, terms: EvaluatorTerms) -> Generator[Tick, None, Verdict]:
    """The evaluator's verdict; `not available` without the GPU or checkout that it needs. Raises
    UsageError if the checkout does not exist."""
    checkout = Path(terms.evaluator).absolute() if terms.evaluator else None
    python = terms.evaluator_python or sys.executable
    evaluator_input = ForeignAnswer(
        task, answer.absolute(), checkout, python, bool(detect_gpus().usable), terms.limit_s, terms.cases
    )
    return (yield from run_evaluator(evaluator_input))


def pair_verdicts(task: ForeignTask, name: str, finished: Sequence[Finished], verdict: Verdict) -> VerdictPair:
    """Our verdict on answer `name`, from the session's steps, and the evaluator's (`verdict`). The
    ratio is the lowest of all workloads; None if ours has a complaint (`why`)."""
    outputs = outputs_of(finished, MeasureOutput)
    ratios = [m.ratio for output in outputs for m in output.measurements if m.variant == name]
    our_verdict = gate_verdict_on(name, finished)
    return VerdictPair(
        answer=name,
        ours=our_verdict.verdict,
        ours_why=our_verdict.why,
        ratio=min(ratios, default=None) if not our_verdict.why else None,
        theirs=verdict,
        causes=tuple(explain_disagreement(task, our_verdict, verdict)),
    )


HEADS = ("answer", "ours", "theirs", "agree")


def verdict_row(pair: VerdictPair) -> tuple[str, ...]:
    """Two verdicts as a row below `HEADS`."""
    ratio = f", {speedup_text(pair.ratio)}" if pair.ratio is not None else ""
    speedup = f", {speedup_text(pair.theirs.speedup)}" if pair.theirs.speedup is not None else ""
    same = {True: "yes", False: "no", None: ""}[pair.same]
    return pair.answer, pair.ours + ratio, pair.theirs.status + speedup, same


def reason_lines(pairs: Sequence[VerdictPair]) -> Iterator[str]:
    """Lines below the table: the reason for each verdict, and possible causes of disagreement."""
    answers_by_reason: dict[tuple[str, str], list[str]] = {}
    for pair in pairs:
        for side, why in (("ours", pair.ours_why), ("theirs", pair.theirs.why)):
            if why:
                answers_by_reason.setdefault((side, why), []).append(pair.answer)
    for (side, why), names in answers_by_reason.items():
        yield f"{'all' if len(names) == len(pairs) > 1 else ', '.join(names)}: {side}: {why}"
    yield from (f"{pair.answer}: may be behind it: {cause}" for pair in pairs for cause in pair.causes)


def evaluator_section(output: TheirsOutput) -> Section:
    """Both verdicts as a table, with the reasons of each."""
    table = Table(HEADS, tuple(map(verdict_row, output.both)))
    return Section("Their verdict", tuple(reason_lines(output.both)), table, screen=True)


def evaluator_pattern(terms: EvaluatorTerms) -> Pattern:
    """The evaluator step as a pattern, for the end of a session."""
    pattern = read_file(shipped("patterns") / "bench" / "theirs.yaml", Pattern).value
    (step,) = pattern.steps
    arguments = terms.model_dump(exclude_none=True)
    return pattern.model_copy(update={"steps": (step.model_copy(update={"arguments": arguments}),)})
