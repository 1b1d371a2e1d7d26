"""`loop targets judge` and `audit`: verdicts on tasks of another format, ours and its own evaluator's.

`judge` prints both on an answer. `audit` asks which wrong answers each side lets pass. Wrong answers are the
task's own reference with a mistake in it, as the gate is proved by (`proving.negative_controls`). Each goes
through our verification and the format's own evaluator. Where that cannot run here, a program of ours applies the
rule that the format states; the audit says which of the two it was.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from loop.base.documents import content_hash, did_you_mean, to_json
from loop.base.errors import ExitCode, Stopped, UsageError, WorkFailed
from loop.base.places import tasks_folder
from loop.base.processes import finish, python_path, run
from loop.base.screen import Screen
from loop.cli.bench import BenchRequest, walk_bench
from loop.formats import evaluators, flashinfer, gpumode, kernelbench, table
from loop.formats.evaluators import EVALUATORS
from loop.formats.gpumode import TESTS
from loop.formats.model import ForeignTask, hindrances
from loop.formats.table import as_target
from loop.formats.theirs import LIMIT_S, NO_GPU, VERDICTS, Verdict, causes, few
from loop.library import trust
from loop.machine.gpus import gpus
from loop.model.base import Model, Printed
from loop.model.causes import Cause
from loop.model.dtypes import Device
from loop.model.output import MeasureOutput, Ours, ours_on, outputs_of
from loop.model.target import PythonVariant
from loop.model.workloads import entry_of, expand, spelled
from loop.proving.prove import EXACT, WAY, Control, of_structure
from loop.steps.setting import Setting, choose_device, choose_threads, read_setting, trusted_setting
from loop.timing.theirs import HEADS, Both, EvaluatorTerms, line, reasons, two, verdict_of
from loop.workers.judge_process import UNTIMED
from loop.workers.program import within


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
    measure: bool = False
    controls: Sequence[str] = ()

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
    command = "measure" if request.measure else "verify"
    own_request = BenchRequest(
        command, names, folder, request.device, threads=request.threads, seed=request.seed, json=request.json
    )
    finished, code = walk_bench(own_request, screen)
    if code == ExitCode.INTERRUPTED:
        raise Stopped("interrupted", code)
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


Kind = Literal["honest", "idle", "mistake"]


@dataclass(frozen=True)
class Row:
    """One control, and what both said of it."""

    control: str
    make: str
    """Its short name, by which `--control` chooses it."""
    file: str
    kind: Kind
    """`honest` has to pass; `idle` makes no difference to this task, and is not counted."""
    ours: str
    theirs: str
    why: str
    ours_why: str
    ours_cause: Cause
    """The same as a code."""
    causes: Sequence[str]
    """What may be behind a disagreement."""


ROUNDS = 6
"""Rounds of timed calls: of each one output is judged, so half of them wrong are overlooked once in 64 times."""


class AuditFinding(Model):
    """Something odd about a task."""

    kind: str
    """What kind of thing."""
    what: str
    """What it is."""


class Audited(Printed):
    """Which wrong answers a task's own evaluator and loop's gate let pass."""

    task: str
    """Name of the task."""
    format: str
    """Its format."""
    theirs: str
    """Whose verdict `theirs` is."""
    findings: tuple[AuditFinding, ...]
    """What is odd about the task."""
    controls: tuple[Row, ...]
    """Each wrong answer, and what both said of it."""


def audit(request: TaskRequest, screen: Screen) -> None:
    """Print which controls each side lets pass, and what is odd about the task itself."""
    task = table.load(request.path.absolute(), request.form)
    if task.format not in evaluators.ANSWERS:
        raise UsageError(f"{request.path}: loop cannot audit {table.of(task.format).title} yet")
    folder, _ = as_target(request.path, (), request.form)
    setting = trusted_setting(folder, screen)
    device, threads = choose_device(request.device, setting.target), choose_threads(request.threads)
    terms = device, threads, request.terms.limit_s
    screen.status("inputs and reference")
    interface = Stated(task, setting, *terms).look()
    if not interface["inputs"] or not interface["outputs"]:
        raise UsageError(f"{request.path}: no floating-point inputs and outputs: loop has no controls for it")
    controls = named(list(chosen_controls(interface["inputs"], interface["outputs"][0], device)), request.controls)
    files = []  # The answer of each control; the same task has them at the same place.
    place = tasks_folder() / f"audit-{content_hash(f'{task.path} {request.form}')[:16]}"
    place.mkdir(parents=True, exist_ok=True)
    for control in controls:
        ending, text = evaluators.answer(task, control.mistake(setting.target, setting.target.dtypes["cpu"]))
        files.append(place / f"{re.sub(r'[^a-z0-9]+', '_', control.name.lower()).strip('_')}{ending}")
        files[-1].write_text(text)
    folder, names = as_target(request.path, [str(file) for file in files], request.form)
    own = read_setting(folder)
    # Beside what was allowed it may have only answers that were made here. Its first line names the task's files.
    firsts = [each.project.manifest.read_text().partition("\n")[0] for each in (own, setting)]
    rests = [each.target.model_dump_json(exclude={"variants"}) for each in (own, setting)]
    if firsts[0] != firsts[1] or rests[0] != rests[1]:
        raise trust.refusal(own.project)
    trust.grant(own.project, trust.definition_hash(own.project))
    answers = dict(zip(names, zip(controls, files, strict=True), strict=True))
    rows, why = _judged(request, task, own, answers, terms, screen)
    # FlashInfer's evaluator is slow: it is asked about some of the cases alone.
    is_cut = task.format == flashinfer.TRACE and len(task.cases) > MOST_CASES
    cut = f", on {MOST_CASES} of {len(task.cases)} workloads" if is_cut else ""
    whose = f"the evaluator of {task.format}, unmodified{cut}"
    if why:
        whose = f"the rule that {task.format} states, applied by loop: not its evaluator ({why})"
    findings = [AuditFinding(**finding) for finding in interface["findings"]]
    if task.timing.fresh_inputs is False and task.timing.checked is False:
        what = "timed calls all get the same inputs and are not checked: an answer cached by value counts as fast"
        findings.append(AuditFinding(kind="timing", what=what))
    findings += [AuditFinding(kind="text", what=hint) for hint in task.hints]
    audited = Audited(task=task.name, format=task.format, theirs=whose, findings=tuple(findings), controls=rows)
    if request.json:
        screen.data(to_json(audited))
    else:
        _show(audited, screen)


def _judged(
    request: TaskRequest,
    task: ForeignTask,
    setting: Setting,
    answers: Mapping[str, tuple[Control, Path]],
    terms: tuple[Device, int, float],
    screen: Screen,
) -> tuple[tuple[Row, ...], str]:
    """Our verdict and theirs on each answer; and why their evaluator gave none, empty where it did.

    `answers`: name of a variant of the target to its control and file.
    """
    screen.status("our verification")
    own = _ours(request, setting, "verify", [*answers])
    themes = {name: control.theme for name, (control, _) in answers.items()}
    if passing := [name for name in answers if themes[name] == "cheat" and own[name].passes]:
        # A cheat that gives back an earlier output is wrong only in timed calls: inputs change between them.
        screen.status("our timed calls of what verification lets pass")
        own |= _ours(request, setting, "measure", passing)
    others, why = _theirs(request, task, {name: path for name, (_, path) in answers.items()}, screen)
    # Without their evaluator the stated rule judges all. Else it only tells of each mistake that we let pass
    # whether it changes any value.
    names = [name for name in answers if why or (themes[name] != "honest" and own[name].passes)]
    screen.status("the rule that its format states")
    stated = Stated(task, setting, *terms).verdicts(names) if names else {}
    rows = []
    for name, (control, path) in answers.items():
        verdict, other = own[name], (others or stated)[name]
        kind: Kind = "honest" if control.theme == "honest" else "mistake"
        if kind == "mistake" and verdict.passes and name in stated and stated[name].result is True:
            kind = "idle"  # No output and no input differed from the reference's.
        words = (verdict.verdict, other.status, other.why, verdict.why, verdict.cause)
        rows.append(Row(control.name, control.make, str(path), kind, *words, causes(task, verdict, other)))
    return tuple(rows), why


def named(chosen: Sequence[Control], names: Sequence[str]) -> list[Control]:
    """Controls of those short names that fit, and the honest ones. Raises UsageError for a name that is none."""
    makes = [control.make for control in chosen]
    for name in names:
        if name not in makes and name not in {control.make for control, _ in of_structure(((2, 2),), (2, 2))}:
            hint = did_you_mean(name, makes) or f"there are {', '.join(makes)}"
            raise UsageError(f"no control {name!r} for this task", hint=hint)
    return [control for control in chosen if not names or control.make in names or control.theme == "honest"]


def chosen_controls(
    inputs: Sequence[Sequence[int]], output: Sequence[int], device: Device = "cpu"
) -> Iterator[Control]:
    """One control of each kind that tensors of these shapes allow: verification has to find it, call by call."""
    # An evaluator times what it finds right, in over a hundred calls: on a GPU none of them goes by the host.
    yield from (WAY, EXACT) if device == "cpu" else (EXACT,)
    makes: set[str] = set()
    for control, shows in of_structure(inputs, output):
        if shows and control.make not in makes:
            makes.add(control.make)
            yield control


def _ours(request: TaskRequest, erring_ones: Setting, command: str, names: Sequence[str]) -> dict[str, Ours]:
    """Our verdict on controls by the names of their answers, when they are verified or measured."""
    folder, target = erring_ones.project.target, erring_ones.target
    sets = [TESTS] if TESTS in target.workloads else list(target.workloads)
    every = expand(target, sets, target.dtypes[choose_device(request.device, target)])
    chosen = few(every, MOST_CASES) if len(every) > MOST_CASES or len(sets) < len(target.workloads) else []
    some = [spelled(entry_of(target.signature, workload)) for workload in chosen]
    terms = folder, request.device, some, request.threads, request.seed
    bench = BenchRequest(command, names, *terms, rounds=ROUNDS, enough=True)
    finished, code = walk_bench(bench, Screen(quiet=True))
    if code == ExitCode.INTERRUPTED:
        raise Stopped("interrupted", code)
    return {name: ours_on(name, finished) for name in names}


def _theirs(
    request: TaskRequest, task: ForeignTask, files: Mapping[str, Path], screen: Screen
) -> tuple[dict[str, Verdict], str]:
    """Verdicts of their evaluator by the names of answers, the honest one first; none, and why, without any."""
    evaluator = EVALUATORS[task.format]
    if evaluator.needs_cuda(task) and not gpus().usable:
        return {}, NO_GPU
    if evaluator.package and request.evaluator is None:
        return {}, "no --evaluator DIR"
    terms = request.terms.model_copy(update={"cases": MOST_CASES})
    verdicts: dict[str, Verdict] = {}
    for number, (name, path) in enumerate(files.items(), 1):
        screen.status(f"{task.format}: its own evaluator, control {number} of {len(files)}")
        verdicts[name] = finish(verdict_of(task, path, terms))
        if number == 1 and verdicts[name].status != "right":
            return {}, f"it does not pass an honest answer: {verdicts[name].status} {verdicts[name].why}"
    return verdicts, ""


def _show(audited: Audited, screen: Screen) -> None:
    """A row a control, then what follows from them, in lines."""
    words = {"right": "passes", "wrong": "found"}
    rows = []
    for row in audited.controls:
        if row.kind != "idle":
            # Why theirs says so; where they differ, why they may; where ours says nothing, why not.
            why = row.why or next(iter(row.causes), row.ours_why if row.ours not in VERDICTS else "")
            rows.append((row.control, words.get(row.ours, row.ours), words.get(row.theirs, row.theirs), why))
    screen.table(("control", "ours", "theirs", "why"), rows)
    screen.prose(f"theirs: {audited.theirs}")
    wrong = [row for row in audited.controls if row.kind == "mistake"]
    for name in ("ours", "theirs"):
        passed = [row.control for row in wrong if getattr(row, name) == "right"]
        judged = sum(getattr(row, name) in VERDICTS for row in wrong)
        listed = f": {', '.join(passed)}" if passed else ""
        unjudged = f"; {len(wrong) - judged} not judged" if judged < len(wrong) else ""
        screen.prose(f"{name}: lets {len(passed)} of {judged} mistakes pass{unjudged}{listed}")
    if any({row.ours, row.theirs} != {"right"} for row in audited.controls if row.kind == "honest"):
        screen.prose("the honest control did not pass: what was found may not be the mistakes")
    if idle := [row.control for row in audited.controls if row.kind == "idle"]:
        screen.prose(f"not counted, as they make no difference to this task: {', '.join(idle)}")
    for finding in audited.findings:
        screen.prose(f"{finding.kind}: {finding.what}")


TRIALS = {kernelbench.NAME: 5, gpumode.NAME: 1, flashinfer.TRACE: 3, flashinfer.SOL: 10}
"""Sets of inputs for each case that the format states."""
MOST_CASES = 8
"""Cases on which controls are tried: by us, by the stated rule and, in FlashInfer Trace, by the evaluator."""


@dataclass(frozen=True)
class Stated:
    """The program that looks at the task, and applies the rule that the format states."""

    task: ForeignTask
    setting: Setting
    device: Device
    threads: int
    limit_s: float
    """For each answer."""

    def look(self) -> dict[str, Any]:
        """Shapes of inputs and outputs, and what is odd about the task itself."""
        return self._run({})

    def verdicts(self, names: Sequence[str]) -> dict[str, Verdict]:
        """By the names of answers: right or wrong by the stated rule; the result is whether nothing differed."""
        variants = {name: self.setting.target.variants[name] for name in names}
        functions = {
            name: f"{variant.module}:{variant.function}"
            for name, variant in variants.items()
            if isinstance(variant, PythonVariant)
        }
        return {
            name: Verdict(status=answer["status"], why=answer["why"], result=answer.get("same", False))
            for name, answer in self._run(functions)["verdicts"].items()
        }

    def _run(self, answers: Mapping[str, str]) -> dict[str, Any]:
        """What the program says. Raises WorkFailed where it gives nothing."""
        scratch = Path(tempfile.mkdtemp(prefix="loop-audit-"))
        try:
            terms, result = scratch / "terms.json", scratch / "result.json"
            terms.write_text(json.dumps(self._terms(answers)))
            command = (sys.executable, "-m", "loop.workers.stated", str(terms), str(result))
            path = {"PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "1", **UNTIMED, **within(self.device)}
            limit = self.limit_s * max(len(answers), 1)
            completed = finish(run(command, limit_s=limit, cwd=scratch, env=path, note="stated rule"))
            if not result.is_file():
                last = (completed.errors.strip().splitlines() or [completed.how])[-1]
                raise WorkFailed(f"{self.task.path}: its inputs or its reference: {last}")
            return json.loads(result.read_text())  # type: ignore[no-any-return]
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _terms(self, answers: Mapping[str, str]) -> dict[str, Any]:
        target, judging, task = self.setting.target, self.task.judging, self.task
        generator, modules, checker = target.generator, target.modules, target.checker
        assert generator is not None
        if task.format == gpumode.NAME:  # Its cases have seeds of their own.
            able = [] if hindrances(task, len(gpus().usable)) else task.cases
            checked = [case for case in few(able, MOST_CASES) if "check" in case.use]
            cases = [{"name": case.name, "given": case.arguments} for case in checked]
        else:
            workloads = few(expand(target, target.workloads, target.dtypes[self.device]), MOST_CASES)
            cases = [{"name": load.name, "given": {**load.sizes, **load.attributes}} for load in workloads]
        return {
            "folder": str(self.setting.project.target),
            "device": self.device,
            "threads": self.threads,
            "generator": generator.python,
            "passes": generator.passes,
            "reference": target.reference.python,
            "is_class": modules is not None,
            "arguments": modules.arguments.python if modules and modules.arguments else None,
            "checker": checker.python if checker else None,
            "given": checker.given if checker else (),
            "cases": cases,
            "trials": TRIALS[task.format],
            **{name: getattr(judging, name) for name in ("atol", "rtol", "cap", "either")},
            "matched": judging.matched_ratio,
            "strict": task.format == flashinfer.SOL,
            "finite": task.format in (flashinfer.SOL, flashinfer.TRACE),
            "nan": task.format == gpumode.NAME,
            "limit_s": self.limit_s,
            "answers": dict(answers),
        }
