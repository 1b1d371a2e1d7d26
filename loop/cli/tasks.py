"""`loop targets judge` and `audit`: judge a task of another format by loop and by its evaluator.

`judge` prints both verdicts on an answer. `audit` reports which wrong answers each judge accepts.
Wrong answers are the task's own reference with a bug (`proving.negative_controls`). If the format's
evaluator cannot run here, loop applies the rule that the format states, and the audit says so.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from loop.base.documents import content_hash
from loop.base.errors import ExitCode, Stopped, UsageError, WorkFailed
from loop.base.places import tasks_folder
from loop.base.processes import run_to_end
from loop.cli.command import make_request
from loop.cli.runs import BenchRequest, run_bench
from loop.formats import flashinfer, gpumode, kernelbench, table, theirs
from loop.formats.model import ForeignTask, find_hindrances
from loop.formats.theirs import VERDICTS, Verdict, explain_disagreement, spread_evenly
from loop.library import trust
from loop.library.definitions import name_hint
from loop.machine.machine import detect_gpus
from loop.model.base import Model, Printed
from loop.model.causes import Cause
from loop.model.dtypes import Device
from loop.model.output import MeasureOutput, outputs_of
from loop.model.record import Finished
from loop.model.target import PythonVariant
from loop.model.workloads import expand_sets, format_entry, make_entry
from loop.proving.prove import EXACT, HONEST_COPY, Control, controls_by_shape
from loop.report.format import speedup_text
from loop.report.screen import Screen
from loop.steps.setting import Setting, choose_device, choose_threads, read_setting, trusted_setting
from loop.workers.program import run_untimed

ROUNDS = 6  # Rounds of timed calls, each with one judged output: half wrong is missed once in 64.
TRIALS = {kernelbench.NAME: 5, gpumode.NAME: 1, flashinfer.TRACE: 3, flashinfer.SOL: 10}
"""Format to its stated number of input sets per case."""
MOST_CASES = 8  # Most cases on which controls are tried.
ControlKind = Literal["honest", "idle", "mistake"]
Answers = dict[str, tuple[Control, Path]]  # Name of a variant to its control and its file.


@dataclass(frozen=True)
class TaskRequest:
    """The options of `loop targets judge` and `audit`; see their --help."""

    path: Path
    evaluator: Path | None = None
    evaluator_python: str | None = None
    limit_minutes: float = theirs.LIMIT_S / 60  # That the evaluator may take for one answer.
    format_name: str | None = None
    device: str = "auto"
    threads: int | None = None
    seed: int = 0
    answers: Sequence[str] = ()
    measure: bool = False
    controls: Sequence[str] = ()

    def ask_evaluator(self, task: ForeignTask, answer: Path, cases: int | None = None) -> Verdict:
        """The verdict of the format's evaluator on an answer; `not available` without its GPU or
        checkout. `cases`: most, in FlashInfer Trace; None: all. UsageError: no such checkout."""
        checkout = self.evaluator.absolute() if self.evaluator else None
        python, has_gpu = self.evaluator_python or sys.executable, bool(detect_gpus().usable)
        limit_s = 60 * self.limit_minutes
        place = answer.absolute()
        terms = theirs.ForeignAnswer(task, place, checkout, python, has_gpu, limit_s, cases)
        verdict: Verdict = run_to_end(theirs.run_evaluator(terms))
        return verdict


class JudgedAnswer(Model):
    """Both verdicts on one answer."""

    answer: str
    """Name of the variant."""
    ours: str
    """`right`, `wrong` or `not judged`."""
    ours_why: str = ""
    """Why the answer is not right, or has no speed."""
    ratio: float | None = None
    """Reference time / answer time, both timed by us: the lowest of all workloads."""
    theirs: Verdict
    """The evaluator's verdict."""
    causes: tuple[str, ...] = ()
    """Possible causes of a disagreement."""
    agree: bool | None
    """Whether both verdicts are equal; None if one judge gave none."""

    @classmethod
    def from_steps(
        cls, task: ForeignTask, name: str, finished: Sequence[Finished], verdict: Verdict
    ) -> "JudgedAnswer":
        """Our verdict on answer `name`, from finished steps, beside the evaluator's (`verdict`)."""
        outputs = outputs_of(finished, MeasureOutput)
        ratios = [m.ratio for output in outputs for m in output.measurements if m.variant == name]
        our_verdict = theirs.gate_verdict_on(name, finished)
        return cls(
            answer=name,
            ours=our_verdict.verdict,
            ours_why=our_verdict.why,
            ratio=min(ratios, default=None) if not our_verdict.why else None,
            theirs=verdict,
            causes=tuple(explain_disagreement(task, our_verdict, verdict)),
            agree=theirs.verdicts_agree(our_verdict.verdict, verdict),
        )


class TwoVerdicts(Printed):
    """What `loop targets judge --json` prints."""

    task: str
    format: str
    verdicts: tuple[JudgedAnswer, ...]
    not_exercised: tuple[str, ...] = ()
    """What loop's measurement did not exercise."""

    def show(self, screen: Screen) -> None:
        """Print a row per answer, what was not exercised, reasons, and causes of disagreement."""
        rows, answers_by_reason = [], dict[tuple[str, str], list[str]]()
        for verdict in self.verdicts:
            their, cells = verdict.theirs, [verdict.answer]
            for word, ratio in ((verdict.ours, verdict.ratio), (their.status, their.speedup)):
                cells.append(word if ratio is None else f"{word}, {speedup_text(ratio)}")
            rows.append((*cells, {True: "yes", False: "no", None: ""}[verdict.agree]))
            for side, why in (("ours", verdict.ours_why), ("theirs", their.why)):
                if why:
                    answers_by_reason.setdefault((side, why), []).append(verdict.answer)
        screen.table(("answer", "ours", "theirs", "agree"), rows)
        for text in self.not_exercised:
            screen.data(f"not exercised: {text}")
        for (side, why), names in answers_by_reason.items():
            answers = "all" if len(names) == len(rows) > 1 else ", ".join(names)
            screen.prose(f"{answers}: {side}: {why}")
        for verdict in self.verdicts:
            for cause in verdict.causes:
                screen.prose(f"{verdict.answer}: may be behind it: {cause}")


def judge(request: TaskRequest, screen: Screen) -> tuple[TwoVerdicts, int]:
    """Judge each answer by loop and by the format's evaluator. The exit code is loop's."""
    if not request.answers:
        raise UsageError("no answer to judge", hint="loop targets judge TASK ANSWER")
    task = table.load_task(request.path.absolute(), request.format_name)
    folder, names = table.write_as_target(request.path, request.answers, request.format_name)
    subcommand = "measure" if request.measure else "verify"
    options = {"subcommand": subcommand, "variants": names, "target": folder}
    finished, code = _run_steps(request, options, screen)
    judged = []
    for name, answer in zip(names, request.answers, strict=True):
        screen.status(f"{task.format}: its own evaluator")
        verdict = request.ask_evaluator(task, Path(answer))
        judged.append(JudgedAnswer.from_steps(task, name, finished, verdict))
    outputs = outputs_of(finished, MeasureOutput)
    missing = tuple(text for output in outputs for text in output.not_exercised)
    verdicts = TwoVerdicts(
        task=task.name, format=task.format, verdicts=tuple(judged), not_exercised=missing
    )
    return verdicts, code


def _run_steps(
    request: TaskRequest, options: Mapping[str, Any], screen: Screen
) -> tuple[Sequence[Finished], int]:
    """The finished steps of `loop kernels verify` or `measure`, and the exit code. `options`: of a
    `BenchRequest`, besides those of the task. Raises Stopped after Ctrl-C."""
    answer, code = run_bench(make_request(BenchRequest, {**vars(request), **options}), screen)
    if code == ExitCode.INTERRUPTED:
        raise Stopped("interrupted", code)
    return answer.steps, code


class JudgedControl(Model):
    """One control (an answer known to be right or wrong) and both verdicts on it."""

    control: str
    make: str
    """Short name of the control, for `--control`."""
    file: str
    kind: ControlKind
    """`honest`: must pass. `mistake`: must fail. `idle`: changes no value here: not counted."""
    ours: str
    theirs: str
    why: str
    ours_why: str
    ours_cause: Cause
    """The reason of loop's verdict, as a code."""
    causes: tuple[str, ...]
    """Possible causes of a disagreement."""


class Audited(Printed):
    """What `loop targets audit --json` prints: which wrong answers each judge accepts."""

    task: str
    format: str
    theirs: str
    """The judge behind each control's `theirs`: the format's evaluator, or its stated rule."""
    findings: tuple[dict[Literal["kind", "what"], str], ...]
    """Weak points of the task itself, such as inputs that never vary."""
    controls: tuple[JudgedControl, ...]
    """Each control with both verdicts."""

    def show(self, screen: Screen) -> None:
        """Print a row per control, then how many mistakes each judge accepts."""
        words, rows = {"right": "passes", "wrong": "found"}, []
        for control in self.controls:
            if control.kind != "idle":
                # Their reason; else a cause of the disagreement; else why loop gave no verdict.
                our_reason = control.ours_why if control.ours not in VERDICTS else ""
                reason = control.why or next(iter(control.causes), our_reason)
                verdicts = [words.get(status, status) for status in (control.ours, control.theirs)]
                rows.append((control.control, *verdicts, reason))
        screen.table(("control", "ours", "theirs", "why"), rows)
        screen.prose(f"theirs: {self.theirs}")
        mistakes = [control for control in self.controls if control.kind == "mistake"]
        for side in ("ours", "theirs"):
            passed = [control.control for control in mistakes if getattr(control, side) == "right"]
            judged = sum(getattr(control, side) in VERDICTS for control in mistakes)
            names = f": {', '.join(passed)}" if passed else ""
            unjudged = f"; {len(mistakes) - judged} not judged" if judged < len(mistakes) else ""
            screen.prose(f"{side}: lets {len(passed)} of {judged} mistakes pass{unjudged}{names}")
        honest = [control for control in self.controls if control.kind == "honest"]
        if any({control.ours, control.theirs} != {"right"} for control in honest):
            screen.prose("the honest control did not pass: what was found may not be the mistakes")
        if idle := [control.control for control in self.controls if control.kind == "idle"]:
            screen.prose(f"not counted, as they make no difference to this task: {', '.join(idle)}")
        for finding in self.findings:
            screen.prose(f"{finding['kind']}: {finding['what']}")


def audit(request: TaskRequest, screen: Screen) -> Audited:
    """Have both judges judge controls (answers known to be right or wrong); find weak points of the
    task. Raises UsageError for one without floating-point tensors, and for an unknown control."""
    task = table.load_task(request.path.absolute(), request.format_name)
    folder, _ = table.write_as_target(request.path, (), request.format_name)
    task_audit = Audit(request, task, trusted_setting(folder, screen), screen)
    screen.status("inputs and reference")
    interface = task_audit.apply_stated_rule(())
    inputs, outputs = interface["inputs"], interface["outputs"]
    if not inputs or not outputs:
        message = "no floating-point inputs and outputs: loop has no controls for it"
        raise UsageError(f"{request.path}: {message}")
    controls = list(choose_controls(inputs, outputs[0], task_audit.device))
    makes = [control.make for control in controls]
    chosen = request.controls
    for name in chosen:
        if name not in makes:
            raise UsageError(f"no control {name!r} for this task", hint=name_hint(name, makes))
    if chosen:  # An honest one shows whether the judges work at all.
        controls = [each for each in controls if each.make in chosen or each.theme == "honest"]
    rows, no_evaluator = task_audit.judge_controls(controls)
    source = f"the evaluator of {task.format}, unmodified"
    if no_evaluator:
        source = f"the rule of {task.format}, applied by loop: not its evaluator ({no_evaluator})"
    elif task.format == flashinfer.TRACE and len(task.cases) > MOST_CASES:  # Its evaluator is slow.
        source += f", on {MOST_CASES} of {len(task.cases)} workloads"
    findings = [*interface["findings"], *({"kind": "text", "what": hint} for hint in task.hints)]
    if task.timing.fresh_inputs is False and task.timing.checked is False:
        weakness = "timed calls repeat inputs, unchecked: an answer cached by value counts as fast"
        findings.append({"kind": "timing", "what": weakness})
    return Audited(
        task=task.name, format=task.format, theirs=source, findings=tuple(findings), controls=rows
    )


def choose_controls(
    inputs: Sequence[Sequence[int]], output: Sequence[int], device: Device = "cpu"
) -> Iterator[Control]:
    """One control of each kind that loop's verification must reject, and honest ones that it must
    accept. `inputs`, `output`: shapes of the task's tensors, which decide what is possible."""
    # An evaluator times right answers in over 100 calls: on a GPU, none may use the host.
    yield from (HONEST_COPY, EXACT) if device == "cpu" else (EXACT,)
    makes: set[str] = set()
    for control in controls_by_shape(inputs, output):
        if control.shows and control.make not in makes:
            makes.add(control.make)
            yield control


@dataclass(frozen=True)
class Audit:
    """A task under audit, and the target made from it."""

    request: TaskRequest
    task: ForeignTask
    setting: Setting
    screen: Screen

    @property
    def device(self) -> Device:
        """The device of the audit."""
        return choose_device(self.request.device, self.setting.target)

    def with_answers(self, controls: Sequence[Control]) -> tuple["Audit", Answers]:
        """The audit of a target with an answer for each control, whose file this writes; and these
        answers. Trusts the target; raises Untrusted if the task differs from what is allowed."""
        files, target = [], self.setting.target
        # The same task reuses the same folder.
        digest = content_hash(f"{self.task.path} {self.request.format_name}")[:16]
        place = tasks_folder() / f"audit-{digest}"
        place.mkdir(parents=True, exist_ok=True)
        for control in controls:
            settings = control.mistake_settings(target, target.dtypes["cpu"])
            ending, text = theirs.wrong_answer(self.task, settings)
            stem = re.sub(r"[^a-z0-9]+", "_", control.name.lower()).strip("_")
            files.append(place / f"{stem}{ending}")
            files[-1].write_text(text)
        paths, format_name = [str(file) for file in files], self.request.format_name
        folder, names = table.write_as_target(self.request.path, paths, format_name)
        with_answers = read_setting(folder)
        # The first line of a manifest has a hash of the task's files: those that the user allowed.
        manifests = [each.project.manifest.read_text() for each in (with_answers, self.setting)]
        if manifests[0].partition("\n")[0] != manifests[1].partition("\n")[0]:
            raise trust.untrusted_error(with_answers.project)
        trust.grant(with_answers.project.target, trust.definition_hash(with_answers.project))
        answers = dict(zip(names, zip(controls, files, strict=True), strict=True))
        return replace(self, setting=with_answers), answers

    def judge_controls(self, controls: Sequence[Control]) -> tuple[tuple[JudgedControl, ...], str]:
        """Both verdicts on each control; and why the evaluator gave none, empty if it did."""
        with_answers, answers = self.with_answers(controls)
        self.screen.status("our verification")
        our_verdicts = with_answers.judge_by_loop("verify", [*answers])
        mistakes = [name for name, (control, _) in answers.items() if control.theme != "honest"]
        accepted = [name for name in mistakes if our_verdicts[name].verdict == "right"]
        cheats = [name for name in accepted if answers[name][0].theme == "cheat"]
        if cheats:  # A cached output is wrong only in timed calls, where inputs change.
            self.screen.status("our timed calls of what verification lets pass")
            our_verdicts |= with_answers.judge_by_loop("measure", cheats)
        evaluated, no_evaluator = with_answers.judge_by_evaluator(answers)
        # Without their evaluator, the stated rule judges all controls. Else it only checks, for
        # mistakes that loop accepted, whether they change any value.
        accepted = [name for name in mistakes if our_verdicts[name].verdict == "right"]
        names = [*answers] if no_evaluator else accepted
        self.screen.status("the rule that its format states")
        rule_verdicts = with_answers.apply_stated_rule(names)["verdicts"] if names else {}
        rows = []
        for name, (control, path) in answers.items():
            our_verdict, rule = our_verdicts[name], rule_verdicts.get(name, {})
            their_verdict = evaluated.get(name) or Verdict(status=rule["status"], why=rule["why"])
            kind: ControlKind = "honest" if control.theme == "honest" else "mistake"
            if kind == "mistake" and our_verdict.verdict == "right" and rule.get("same", False):
                kind = "idle"  # All outputs and inputs equal the reference's.
            row = JudgedControl(
                control=control.name,
                make=control.make,
                file=str(path),
                kind=kind,
                ours=our_verdict.verdict,
                theirs=their_verdict.status,
                why=their_verdict.why,
                ours_why=our_verdict.why,
                ours_cause=our_verdict.cause,
                causes=tuple(explain_disagreement(self.task, our_verdict, their_verdict)),
            )
            rows.append(row)
        return tuple(rows), no_evaluator

    def judge_by_loop(self, subcommand: str, names: list[str]) -> dict[str, theirs.GateVerdict]:
        """loop's verdict on each answer, on `MOST_CASES` workloads, by `verify` or `measure`."""
        request, target = self.request, self.setting.target
        sets = [gpumode.TESTS] if gpumode.TESTS in target.workloads else list(target.workloads)
        workloads = expand_sets(target, sets, target.dtypes[self.device])
        texts: list[str] = []  # Empty: all workloads of the target.
        if len(workloads) > MOST_CASES or len(sets) < len(target.workloads):
            for workload in spread_evenly(workloads, MOST_CASES):
                texts.append(format_entry(make_entry(target.signature, workload)))
        options: dict[str, Any] = {"subcommand": subcommand, "variants": names, "workloads": texts}
        options |= {"target": self.setting.project.target, "rounds": ROUNDS}
        options["first_failure_only"] = True
        finished, _ = _run_steps(request, options, Screen(is_quiet=True))
        return {name: theirs.gate_verdict_on(name, finished) for name in names}

    def judge_by_evaluator(self, answers: Answers) -> tuple[dict[str, Verdict], str]:
        """The evaluator's verdict on each answer, by name, and an empty text; or no verdict, and
        the reason: it cannot run here, or does not pass the first answer, which is honest."""
        task = self.task
        verdicts: dict[str, Verdict] = {}
        for number, (name, (_, path)) in enumerate(answers.items(), 1):
            place = f"control {number} of {len(answers)}"
            self.screen.status(f"{task.format}: its own evaluator, {place}")
            verdict = self.request.ask_evaluator(task, path, MOST_CASES)
            if number == 1 and verdict.status == "not available":
                return {}, verdict.why
            if number == 1 and verdict.status != "right":  # The first answer is an honest one.
                return {}, f"it does not pass an honest answer: {verdict.status} {verdict.why}"
            verdicts[name] = verdict
        return verdicts, ""

    def apply_stated_rule(self, names: Sequence[str]) -> dict[str, Any]:
        """Run `loop.workers.stated`, which applies the format's stated rule. Returns its JSON:
        shapes of `inputs` and `outputs`, and `findings` on the task; or, with names of answers,
        `verdicts` by name, each with `status`, `why` and `same` (no value differs from the
        reference's). Raises WorkFailed without a result."""
        target, judging, task = self.setting.target, self.task.judging, self.task
        generator, modules, checker = target.generator, target.modules, target.checker
        assert generator is not None
        if task.format == gpumode.NAME:  # Each of its cases has its own seed.
            runnable = [] if find_hindrances(task, len(detect_gpus().usable)) else task.cases
            checked = [case for case in spread_evenly(runnable, MOST_CASES) if "check" in case.use]
            cases = [{"name": case.name, "given": case.arguments} for case in checked]
        else:
            workloads = expand_sets(target, target.workloads, target.dtypes[self.device])
            cases = []
            for workload in spread_evenly(workloads, MOST_CASES):
                arguments = {**workload.sizes, **workload.attributes}
                cases.append({"name": workload.name, "given": arguments})
        functions, limit_s = dict[str, str](), 60 * self.request.limit_minutes
        for name in names:
            if isinstance(variant := target.variants[name], PythonVariant):
                functions[name] = f"{variant.module}:{variant.function}"
        terms = {
            "folder": str(self.setting.project.target),
            "device": self.device,
            "threads": choose_threads(self.request.threads),
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
            "limit_s": limit_s,
            "answers": functions,
        }
        limit_s, program = limit_s * max(len(names), 1), "loop.workers.stated"
        try:
            text = run_untimed(program, json.dumps(terms), limit_s=limit_s, device=self.device)
        except WorkFailed as error:
            message = f"{task.path}: its inputs or its reference: {error.message}"
            raise WorkFailed(message) from error
        return json.loads(text)  # type: ignore[no-any-return]
