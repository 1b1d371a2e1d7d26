"""What a reader sees of a session: the first screen, the report's sections, and its short summary.

Report, summary and terminal all begin with `first_screen`. Markdown, HTML and JSON also print the
sections. To add one, write a function of a `View` that yields sections and list it in `FOLDS`.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from loop.base.errors import UsageError
from loop.gate.model import BuildOutput, DeviceOutput, NumpyOutput, TorchOutput
from loop.learning.prediction import prediction_table
from loop.model.bisect import BisectOutput
from loop.model.change import jobs_of, kept_gains
from loop.model.measurement import Against, SpeedVerdict, VariantChecks
from loop.model.output import DebugOutput, Diagnosis, MeasureOutput, VerifyOutput, outputs_of
from loop.model.profile import Profile
from loop.model.record import Finished, SessionHead, SessionRecord, latest_attempts
from loop.money import section as spending
from loop.optimize import section as changing
from loop.optimize.session_changes import SessionChanges
from loop.profile import actions as profiling
from loop.profile import resource_actions
from loop.profile.launch_limits import ParallelismOutput, ResourcesOutput
from loop.proving.prove import known_good_table, trust_sentences
from loop.report import findings, markdown
from loop.report import format as say
from loop.report.figures import Figure, draw_ratios
from loop.report.markdown import Table, drop_empty_columns, shortened
from loop.report.sections import Line, Section, SizeLimit, sections_as_markdown
from loop.report.templates import markdown_environment
from loop.session.objective import is_anything_judged, objective_text
from loop.timing.against_baseline import call_lines, sensor_lines
from loop.timing.against_known_good import CompareOutput

MOST_WRONG_VARIANTS = 2  # Most wrong variants that the headline names; the table lists all.
EMPTY_CELL = "-"
MOST_LISTED, LONGEST_LISTED = 2, 160  # Items of "Not exercised" that are named; characters of each.
COMMAND_BEGINNINGS = ("loop ", "git -C ")  # Only such a line of the proposal is a command to paste.
LONGEST_SENTENCE = 240  # Characters of a reason and of the next action; the record has all of it.
MOST_CAUSES, LONGEST_CAUSE = 3, 140  # Lines of a cause; characters of each, for a phone's screen.
MOST_FURTHER_LINES = 8  # Most further lines on a wrong variant; `--json` has all of its diagnosis.
ENDING_PHRASES = {"skipped": "judged nothing", "aborted": "was aborted", "paused": "is paused"}
"""Status to the words for it; any other status is its own word."""
COMPARISONS = {"same": "as fast as", "inconclusive": "inconclusive against"}  # Else: faster than.


@dataclass(frozen=True)
class FirstScreen:
    """What a reader sees before unfolding anything. Names of variants are between backticks."""

    headline: str  # The target, how its session ended, and what decided that.
    deciding_text: str  # The deciding facts alone, without target and status.
    cause: tuple[str, ...]  # Lines about what is wrong; empty when the headline says it all.
    next: str
    command: str  # The command to run next; empty when the proposal contains none.
    further_sections: tuple[Section, ...]  # Variants, details of the wrong ones, cost and duration.

    @property
    def sections(self) -> tuple[Section, ...]:
        """What is wrong, the proposal, then the further sections."""
        causes = Section(note="What is wrong:" if self.cause else "", lines=self.cause)
        command = (self.command,) if self.command else ()
        proposal = Section(note=f"Next: {self.next}", code=command)
        return causes, proposal, *self.further_sections


def first_screen(record: SessionRecord, finished: Sequence[Finished]) -> FirstScreen:
    """The first screen of a session that ended or is paused, with the proposal's first command."""
    proposal_lines = record.proposal.splitlines()
    commands = [line for line in proposal_lines[1:] if line.startswith(COMMAND_BEGINNINGS)]
    command = commands[0] if commands else ""
    proposal = " ".join(line for line in proposal_lines if line not in commands)
    diagnoses = make_diagnoses(record.head, finished)
    causes = _ranked_causes(diagnoses, finished)
    has_several = len({variant for variant, _label, _text in causes}) > 1
    cause_lines = []
    for variant, label, text in causes[:MOST_CAUSES]:
        name = f"{variant}: " if has_several else ""
        cause_lines.append(shortened(f"{name}{label}: {text}", LONGEST_CAUSE))
    further_causes = causes[MOST_CAUSES:]
    wrong_variants = []  # What else is known of each, and how to repeat its failure.
    for diagnosis in diagnoses:
        name = diagnosis.variant
        lines = [f"{label}: {text}" for variant, label, text in further_causes if variant == name]
        lines = lines[:MOST_FURTHER_LINES]
        if diagnosis.command not in ("", command):
            lines.append(f"Again: `{diagnosis.command}`")
        note = f"What else is known of `{name}`:" if lines else ""
        wrong_variants.append(Section(note=note, lines=tuple(lines)))
    ending = ENDING_PHRASES.get(record.status, record.status)
    speed_words = {verdict.verdict for verdict in findings.speed_verdicts(record.verdicts)}
    if record.status == "passed" and speed_words == {"inconclusive"}:
        ending = "has no verdict"
    elif record.status == "passed" and record.objective is not None and record.objective.missed:
        ending = "missed its objective"
    deciding_facts = deciding_text(record, finished)
    return FirstScreen(
        headline=f"`{record.head.target}` {ending}: {deciding_facts}.",
        deciding_text=deciding_facts,
        cause=tuple(cause_lines),
        next=shortened(proposal, LONGEST_SENTENCE),
        command=command,
        further_sections=(
            Section(table=variant_table(record, finished), after=_known_good_sentences(finished)),
            *wrong_variants,
            Section(lines=tuple(_grade_and_cost_lines(record, finished))),
        ),
    )


def deciding_text(record: SessionRecord, finished: Sequence[Finished]) -> str:
    """The facts that decided the outcome: what is wrong, changes that were kept, the best variant's
    speed. The record's reason comes first unless a wrong variant or a speed says it."""
    speed_text, kept_text = _speed_sentence(record), ""
    outcomes = [change.outcome for change in SessionChanges(finished).judged_changes]
    if outcomes:  # `2 of 5 changes kept, cpu is 1.12x as fast as what it replaced`.
        kept = f"{outcomes.count('kept')} of {say.count(len(outcomes), 'change')} kept"
        gains = (f"`{gain.variant}` is {say.gain_text(gain)}" for gain in kept_gains(finished))
        kept_text = ", ".join([kept, *gains])
    wrong_sentences = list(_wrong_variant_sentences(record, finished))
    reason = shortened(record.reason.rstrip("."), LONGEST_SENTENCE)
    if record.status == "failed":
        parts = [*(wrong_sentences or [reason]), kept_text, speed_text]
    elif record.status != "passed":
        parts = [reason, *wrong_sentences, kept_text, speed_text]
    elif speed_text:
        parts = [kept_text, speed_text]
    elif changing.has_change(finished, "timed"):
        parts = [reason, kept_text, "only changes were timed: see Changes"]
    else:
        is_judged = is_anything_judged(finished)
        parts = [reason, kept_text, "no speed was measured" if is_judged else "nothing was judged"]
    return "; ".join(filter(None, parts))


def _wrong_variant_sentences(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    """`cpu is incorrect on B1 and 3 more of 11 workloads; no speed ...`, then how many more are."""
    checked_workloads: dict[str, set[str]] = {}  # Variant to the workloads on which it was checked.
    for output in outputs_of(finished, VerifyOutput):
        for checks in output.variants:
            checked_workloads[checks.variant] = {check.workload.name for check in checks.checks}
    workloads_by_verdict: dict[tuple[str, str], list[str]] = {}  # (variant, verdict) to these.
    for wrong in (verdict for verdict in record.verdicts if not isinstance(verdict, SpeedVerdict)):
        workloads_by_verdict.setdefault((wrong.variant, wrong.verdict), []).append(wrong.workload)
    for (variant, word), workloads in list(workloads_by_verdict.items())[:MOST_WRONG_VARIANTS]:
        workloads_text = workloads[0]
        if len(workloads) > 1:
            workloads_text += f" and {len(workloads) - 1} more"
            if variant in checked_workloads:
                workloads_text += f" of {len(checked_workloads[variant])} workloads"
        verdict_text = "incorrect" if word == "incorrect" else "not to be judged"
        yield f"`{variant}` is {verdict_text} on {workloads_text}; no speed is reported for it"
    hidden_count = len(workloads_by_verdict) - MOST_WRONG_VARIANTS
    if hidden_count > 0:
        yield f"so {'is' if hidden_count == 1 else 'are'} {say.count(hidden_count, 'more variant')}"


def _speed_sentence(record: SessionRecord) -> str:
    """`cpu, the best of 3 variants, is faster than torch_sdpa on 11 of 11 workloads`; empty without
    speeds. The best has the highest mean ratio; a mean that is not trusted ranks last."""
    by_variant: dict[str, list[SpeedVerdict]] = {}
    speeds = findings.speed_verdicts(record.verdicts)
    # Examples and baselines count only if no main variant has a speed.
    for speed in [speed for speed in speeds if speed.variant not in record.head.roles] or speeds:
        by_variant.setdefault(speed.variant, []).append(speed)
    if not by_variant:
        return ""
    fastest = max(by_variant, key=lambda name: findings.trusted_mean(by_variant[name]) or 0.0)
    verdicts = by_variant[fastest]
    (verdict_word, count), *other_counts = Counter(v.verdict for v in verdicts).most_common()
    comparison = COMPARISONS.get(verdict_word, f"{verdict_word} than")
    texts = [f"{count} of {len(verdicts)} workloads"]
    texts += [f"{other_word} on {number}" for other_word, number in other_counts]
    texts += filter(None, [findings.mean_text(verdicts)])
    rank_text = f", the best of {len(by_variant)} variants," if len(by_variant) > 1 else ""
    return f"`{fastest}`{rank_text} is {comparison} {record.head.baseline} on {', '.join(texts)}"


def make_diagnoses(head: SessionHead, finished: Sequence[Finished]) -> tuple[Diagnosis, ...]:
    """One diagnosis for each wrong variant of a session that some debugging step examined. Its
    lines, in this order: fault, cause, rule, place, commits, components, smallest workload."""
    verified = [output.variants for output in outputs_of(finished, VerifyOutput)]
    failed = {each.variant: each for sides in verified for each in sides if each.first_failure}
    debugged = outputs_of(finished, DebugOutput)
    smallest_by_variant = {each.variant: each for output in debugged for each in output.smallest}
    explanations = {each.variant: each for output in debugged for each in output.explanations}
    diagnoses = []
    for variant, checks in failed.items():
        smallest = smallest_by_variant.get(variant)
        explanation = explanations.get(variant)
        lines = []
        # Without an output, the message of the variant or its emulator is the fault.
        for check in checks.checks:
            if check.status in ("refused", "crashed", "hung"):
                lines.append(("Fault", check.message))
                break
        lines += explanation.lines if explanation else ()
        searches = outputs_of(finished, BisectOutput)
        for answer in (search.answer for search in searches if search.variant == variant):
            if answer is not None:
                lines += [("Commit", commit.name) for commit in answer.culprits]
                names = ", ".join(commit.name for commit in answer.range)
                lines += [("Commit", f"one of {names}")] if names else []
        for output in debugged:
            parts = [part for part in output.components if part.variant == variant]
            right_names = [part.component for part in parts if not part.checks.first_failure]
            for part in parts:
                if part.checks.first_failure:
                    lines.append(("Component", f"{part.component} ({part.title}) {part.outcome}"))
            if right_names:
                text = f"right by itself: {', '.join(right_names)}"
                if len(right_names) == len(parts) and not output.not_exercised:  # All are right.
                    text += ", so the fault lies in how they are put together"
                lines.append(("Component", text))
        command = ""
        if smallest is not None:
            note = f"; {smallest.note}" if smallest.note else ""
            lines.append(("Smallest workload", smallest.check.workload.name + note))
            options = ["--workloads", smallest.words] if smallest.words else []
            options += [*head.target_options, "--device", head.device, "--seed", str(smallest.seed)]
            command = shlex.join(["loop", "kernels", "verify", variant, *options])
        if command or explanation or any(label == "Component" for label, _ in lines):
            facts = {"cause": explanation.cause, "rule": explanation.rule} if explanation else {}
            facts |= {"variant": variant, "command": command}
            diagnoses.append(Diagnosis(lines=tuple(lines), **facts))
    return tuple(diagnoses)


def _ranked_causes(
    diagnoses: Sequence[Diagnosis], finished: Sequence[Finished]
) -> list[tuple[str, str, str]]:
    """(variant, label, text) of all that is wrong; first the main cause of each variant."""
    causes_by_fault = []  # Of a diagnosis, a first failure, or a search: the main cause first.
    for diagnosis in diagnoses:
        variant = diagnosis.variant
        causes_by_fault.append([(variant, label, text) for label, text in diagnosis.lines])
    diagnosed = {diagnosis.variant for diagnosis in diagnoses}
    for output in outputs_of(finished, VerifyOutput):
        for checks in output.variants:
            failure = checks.first_failure
            if failure and checks.variant not in diagnosed:
                causes_by_fault.append([(checks.variant, "First failure", failure.message)])
    for search in outputs_of(finished, BisectOutput):
        if search.answer is not None and search.variant not in diagnosed:
            pairs = [("Regression", findings.headline(search.answer))]
            pairs += [("Commit", commit) for commit in findings.blamed_lines(search.answer)]
            causes_by_fault.append([(search.variant, label, text) for label, text in pairs])
    return [cause for rank in zip_longest(*causes_by_fault) for cause in rank if cause is not None]


def not_exercised_sentences(record: SessionRecord, finished: Sequence[Finished]) -> tuple[str, ...]:
    """What was not run, and why. A step that judges a change counts only if there was a change."""
    sentences = list(record.not_exercised)
    skipped = [step for step in latest_attempts(finished) if step.status == "skipped"]
    for step in skipped:
        if not step.output and not changing.skips_judging(step, finished):
            sentences.append(f"step {step.label} was skipped: {step.skipped_because}")
    return tuple(dict.fromkeys(sentences))


def variant_table(record: SessionRecord, finished: Sequence[Finished]) -> Table | None:
    """A row for each variant: wrong ones first, examples and baselines last; None without any."""
    head = record.head
    wrong = {v.variant: v.verdict for v in record.verdicts if not isinstance(v, SpeedVerdict)}
    compared = {v.variant for v in record.verdicts if v.against == "known_good"}
    names = [*head.variants, *head.emulated]  # False sorts before True.
    names.sort(key=lambda name: (name not in wrong, name in head.roles, name not in compared))
    outputs = outputs_of(finished, VerifyOutput)
    checks = {each.variant: each for output in outputs for each in output.variants}
    rows = []
    for name in names:
        cells = (
            _speed_cell(record, name, "known_good"),
            EMPTY_CELL if name in wrong else _speed_cell(record, name, "baseline"),
            _correctness_cell(checks.get(name), wrong.get(name)),
        )
        if set(cells) != {EMPTY_CELL}:
            role = head.roles.get(name)
            rows.append((f"{name} ({role})" if role else name, *cells))
    titles = ("Variant", "Against the known good", f"Against {head.baseline}", "Right")
    return drop_empty_columns(titles, rows)


def _speed_cell(record: SessionRecord, name: str, against: Against) -> str:
    """The cell `faster on 4 of 6, slower on 2: mean 1.20x`; against a known good with the lowest
    ratio, not the mean: one slower workload is a regression. A dash without a speed."""
    verdicts = [v for v in record.verdicts if (v.variant, v.against) == (name, against)]
    speeds = [verdict for verdict in verdicts if isinstance(verdict, SpeedVerdict)]
    if len(speeds) < len(verdicts):  # It is `incorrect` or `invalid`, which another column says.
        return EMPTY_CELL
    if len(speeds) == 1:
        return f"{speeds[0].verdict}: {say.ratio(speeds[0].ratio, speeds[0].interval)}"
    counts = Counter(speed.verdict for speed in speeds).most_common()
    counts.sort(key=lambda pair: pair[0] == "inconclusive")  # Which comes last; else as counted.
    texts = [f"{word} on {count}" for word, count in counts]
    if texts:
        texts[0] += f" of {len(speeds)}"
    figure = findings.mean_text(speeds).removeprefix("geometric ")
    if speeds and against == "known_good":
        worst = min(speeds, key=lambda speed: (speed.verdict != "slower", speed.ratio))
        figure = f"lowest {say.ratio(worst.ratio, worst.interval)}"
    return ": ".join(filter(None, [", ".join(texts), figure])) or EMPTY_CELL


def _correctness_cell(checks: VariantChecks | None, wrong_verdict: str | None) -> str:
    """The cell `12 of 12 checks, emulated`. `wrong_verdict`: `incorrect`, `invalid` or None."""
    if checks is None or not checks.checks:
        return wrong_verdict or EMPTY_CELL
    right_count = checks.count("right")
    failed_count = sum(not check.passed for check in checks.checks)
    # Calls that the variant does not support, or that nothing could judge, do not count.
    total = say.count(right_count + failed_count, "check")
    emulated_text = ", emulated" if checks.emulated else ""
    if not wrong_verdict:
        return f"{right_count} of {total}{emulated_text}"
    failures_text = f": {failed_count} of {total} failed" if failed_count else ""
    return f"{wrong_verdict}{failures_text}{emulated_text}"


def _known_good_sentences(finished: Sequence[Finished]) -> tuple[str, ...]:
    """`The known good is commit 0123456789ab (session ...).`, or why none was compared."""
    outputs = outputs_of(finished, CompareOutput)
    builds = [good for output in outputs for good in output.known_good]
    texts = []
    for good in sorted(builds, key=lambda good: good.session):
        branch = f" of branch {good.branch}" if good.branch else ""
        commit = f"commit {good.commit[:12]}{branch}" if good.commit else "an uncommitted build"
        texts.append(f"{commit} (session {good.session})")
    if texts:  # Variants whose known-good builds are of one session have equal texts.
        return (f"The known good is {'; '.join(dict.fromkeys(texts))}.",)
    texts = [text for output in outputs if not output.verdicts for text in output.not_exercised]
    return tuple(f"Not compared with another build: {shortened(text, 160)}." for text in texts[:2])


def _grade_and_cost_lines(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    """One line each on objective, grade, time, cost, what was not exercised, and the session."""
    head = record.head
    if objective := objective_text(record, finished):
        yield f"Objective: {objective}."
    text = shortened(record.grade_reason.rstrip("."), LONGEST_SENTENCE)
    full_stop = "" if text.endswith("...") else "."
    yield f"Grade {shortened(record.grade, 20)}: {text}{full_stop}"
    planned_time = say.seconds(60 * head.plan.plan.budget.minutes)
    yield f"Time: {say.seconds(record.seconds)} of {planned_time} planned."
    yield say.cost_and_return(record.bill, record.seconds)
    sentences = list(not_exercised_sentences(record, finished))
    sentences.sort(key=lambda text: "would pass" not in text)  # Wrong kernels come first.
    texts = [shortened(text, LONGEST_LISTED).replace("`", "") for text in sentences[:MOST_LISTED]]
    if len(sentences) > MOST_LISTED:
        texts.append(f"and {len(sentences) - MOST_LISTED} more, which the report lists")
    if texts:
        yield f"Not exercised: {'; '.join(texts)}."
    yield f"Session {head.id} on {head.device_text}; begun {say.day(head.started)}."


@dataclass(frozen=True)
class View:
    """Everything that the report of a session is made from."""

    record: SessionRecord
    finished: Sequence[Finished]
    recall_lines: Callable[[Finished], Sequence[str]] = lambda record: ()
    """Takes a failed step; returns lines about the same failure in earlier sessions."""

    @property
    def head(self) -> SessionHead:
        """What was known when the session began."""
        return self.record.head

    @property
    def profiles(self) -> list[Profile]:
        """All profiles that the steps made."""
        outputs = outputs_of(self.finished, profiling.ProfileOutput)
        return [profile for output in outputs for profile in output.profiles]


def render_session(templates: Path, view: View) -> tuple[str, tuple[Figure, ...]]:
    """A session's report as Markdown, and its figures. `templates`: the folder of report.md.j2."""
    folds: dict[str, list[Section]] = {}
    for name, section in sections_by_fold(view):
        folds.setdefault(name, []).append(section)
    picture = draw_ratios(view.record.verdicts, view.head.baseline)
    values = {
        "title": f"{view.head.target}: session {view.head.id} {view.record.status}",
        "first": first_screen(view.record, view.finished),
        "picture": picture,
        "folds": folds,
        "baseline": view.head.baseline,
    }
    template = markdown_environment(templates).get_template("report.md.j2")
    return template.render(view=values).rstrip() + "\n", (picture,) if picture else ()


def sections_by_fold(view: View) -> Iterator[tuple[str, Section]]:
    """(fold, section) of every section with content. A fold is a chapter that can be collapsed."""
    for name, make_sections in FOLDS:
        yield from ((name, section) for section in make_sections(view) if section)


def verdict_sections(view: View) -> Iterator[Section]:
    """The checks of each variant against the float64 reference. Every timed variant against the
    baseline, and how it was timed; or why nothing was timed. Then each against its known good."""
    finished, baseline = view.finished, view.head.baseline
    subject = "Only changes were" if changing.has_change(finished, "verified") else "Nothing was"
    yield from findings.correctness_sections(finished, f"{subject} verified.")
    roof = findings.find_roof(view.profiles)
    tables = list(findings.speed_sections(view.record.verdicts, finished, baseline, roof))
    yield from tables or [Section(f"Speed against {baseline}", note=_why_not_timed(finished))]
    outputs = outputs_of(finished, MeasureOutput)
    if texts := tuple(line for output in outputs for line in call_lines(output)):
        note = "How each side was called. Short calls of two kinds differ by an empty call's time:"
        yield Section(note=note, lines=texts)
    if sensors := sensor_lines(finished, baseline):
        note = "The GPU while each was timed, with all that is done between the samples:"
        yield Section(note=note, lines=sensors)
    if table := known_good_table(view.record.verdicts):
        note = "Against the last build with which all gates passed, in fresh processes of both, "
        note += "block after block until the evidence is enough:"
        yield Section("Speed against the known good", note=note, table=table)


def _why_not_timed(finished: Sequence[Finished]) -> str:
    """Why nothing was timed: only changes were, all are wrong, or as the last timing step says."""
    steps = [step for step in latest_attempts(finished) if step.action == "kernel.measure"]
    if changing.has_change(finished, "timed") and not steps:
        return "Only changes were timed."
    reason = "no step of this session measured speed"
    for step in steps:
        if step.status != "passed":
            reason = step.skipped_because or step.message.rstrip(".")
    checks = [each for output in outputs_of(finished, VerifyOutput) for each in output.variants]
    if checks and not any(each.is_right for each in checks):
        reason = "no variant is right, and a wrong kernel has no speed"
    return f"Nothing was measured: {reason}."


def modelled_gpu_sections(view: View) -> Iterator[Section]:
    """Estimates for GPUs that this machine does not have."""
    sections = map(resource_actions.section, outputs_of(view.finished, ResourcesOutput))
    note = "Nothing is modelled: no variant was compiled for a GPU."
    yield from list(filter(None, sections)) or [Section(note=note)]


def lines_or_note(title: str, lines: Sequence[Line], note: str) -> list[Section]:
    """One section of these lines; without any, of `note`, which says what that means."""
    return [Section(title, note="" if lines else note, lines=tuple(lines))]


LONGEST_MESSAGE = 110  # Characters of a message in the table; a failed step has it whole below.
LONGEST_INLINE_MESSAGE = 600  # Characters; a failed step's longer message goes into a code block.


def step_sections(view: View) -> Iterator[Section]:
    """A table of all steps: status, time, outcome; then the failed ones, and what was not run."""
    rows = []
    for record in latest_attempts(view.finished):
        status, took, message = str(record.status), say.seconds(record.seconds), record.message
        if record.status == "skipped":
            took, message = "-", record.skipped_because
        elif record.is_over_budget:
            status += f", over its {say.seconds(record.budget_s)}"
        status += f" (attempt {record.attempt})" if record.attempt > 1 else ""
        rows.append((record.label, status, took, shortened(message, LONGEST_MESSAGE)))
    table = drop_empty_columns(("Step", "Status", ">Took", "Outcome"), rows)
    between_text = f"Between the steps `loop` itself took {say.seconds(view.record.own_seconds)}."
    yield Section("Each step", note=between_text if table else "No step has ended.", table=table)
    yield from failed_step_sections(view)
    sentences = not_exercised_sentences(view.record, view.finished)
    yield from lines_or_note("Not exercised", sentences, "Everything that was planned was run.")


def failed_step_sections(view: View) -> Iterator[Section]:
    """A section for each failed step: message, hint, earlier failures, end of its output."""
    for record in latest_attempts(view.finished):
        if record.status != "failed":
            continue
        lines = [f"What usually cures it: {record.hint}"] if record.hint else []
        lines += [text[:1].upper() + text[1:] for text in view.recall_lines(record)]
        # Only the output of a user's command has a field `output`.
        texts = [record.output.get("output") or record.output.get("traceback", "")]
        has_several_lines = len(record.message.strip().splitlines()) > 1
        if has_several_lines or len(record.message) > LONGEST_INLINE_MESSAGE:
            texts.append(record.message)
        log = "\n".join(text.replace("\r\n", "\n").strip("\n") for text in texts if text)
        # A progress bar overwrites its line after each `\r`: print its last state.
        states = [line.rstrip("\r").rpartition("\r")[2] for line in log.split("\n") if log]
        code = tuple(map(markdown.plain_text, states))
        note = f"`{record.label}` failed: {record.message}"
        yield Section(note=note, lines=tuple(lines), code=code, language="text")


def environment_section(view: View) -> Iterator[Section]:
    """Machine, software and sources of the report's numbers, a line each; without unknown ones."""
    head, finished = view.head, view.finished
    machine, revision = head.machine, head.revision
    cores = say.count(machine.cores, "core")
    facts = {"Machine": f"{machine.name}, {machine.system}"}  # Label to text.
    facts["Processor"] = f"{machine.processor}, {cores}, {machine.memory_gb:.0f} GiB of memory"
    facts["GPU"] = machine.gpus_text
    for gpu in outputs_of(finished, DeviceOutput):
        if gpu.capability:
            cuda = f"its driver runs CUDA {gpu.cuda}" if gpu.cuda else ""
            facts["Compute capability"] = ", ".join(filter(None, [gpu.capability, gpu.uuid, cuda]))
    versions = [("torch", machine.torch)]  # What an imported package reported counts more.
    versions += [("torch", each.version) for each in outputs_of(finished, TorchOutput)]
    versions += [("NumPy", each.version) for each in outputs_of(finished, NumpyOutput)]
    packages = {name: f"{name} {version}" for name, version in versions if version}
    facts["Python"] = ", ".join((machine.python, *packages.values()))
    outputs = outputs_of(finished, BuildOutput)
    compilers = [build.compiler for output in outputs for build in output.builds]
    compilers = compilers or [machine.compiler or "no C++ compiler"]
    compilers.append(f"nvcc {machine.nvcc}" if machine.nvcc else "no CUDA compiler")
    facts["Compilers"] = ", ".join(dict.fromkeys(compilers))
    timed_threads = [output.threads for output in outputs_of(finished, MeasureOutput)]
    threads = say.count(next(filter(None, timed_threads), head.threads), "thread")
    facts["Ran on"] = f"{head.device}, timed with {threads} a process, base seed {head.seed}"
    sources = "not under version control"
    if revision.commit is not None:
        branch = f" on {revision.branch}" if revision.branch else ""
        state = "nothing changed since"
        if revision.dirty:
            changed = f": {', '.join(revision.changed)}" if revision.changed else ""
            state = f"with changes that are not committed{changed}"
        sources = f"commit {revision.commit[:12]}{branch}, {state}"
    facts |= {"Sources": sources, "Loop": head.loop_version}
    yield Section(lines=tuple(f"{label}: {text}" for label, text in facts.items() if text))


def jobs_section(view: View) -> Iterator[Section]:
    """The groups of equal devices that ran jobs."""
    lines, jobs = [], jobs_of(view.finished)
    for name in dict.fromkeys(job.group for job in jobs):
        uuids = [job.uuid for job in jobs if job.group == name]
        device_text = say.count(len(set(uuids)), "device")
        lines.append(f"{name}: {device_text}, {say.count(len(uuids), 'job')}")
    note = "Ratios are paired on one device. Raw times of two devices never stand side by side."
    yield Section(note=note if lines else "", lines=tuple(lines))


def bottleneck_sections(view: View) -> Iterator[Section]:
    """Each variant's worst workload, the advice (`leaf`) for it, and the profile."""
    profiles, outputs = view.profiles, outputs_of(view.finished, ParallelismOutput)
    for leaf, workload in map(profiling.describe_leaf, profiles):
        when = f", for `{leaf.when}`" if leaf.when and leaf.when != "true" else ""
        lines = [f"Look with: {leaf.tool}"] if leaf.tool else []
        lines += [f"Fix: {leaf.fix}", f"Expected gain: {leaf.gain}"] if leaf.fix else []
        lines += [f"Not decided: {text}" for text in leaf.undecided]
        note = f"`{leaf.variant}` does worst on {workload}. Severity: {leaf.severity}. "
        note += f"What holds it back: {leaf.bottleneck}{when}."
        yield Section(note=note, lines=tuple(lines))
    if not profiles:
        yield Section(note="Nothing was profiled.")
    yield Section(table=profiling.facts_table(profiles), after=profiling.note_lines(profiles))
    if kernel_table := profiling.kernels_table(profiles):
        note = (
            "One call of each, profiled alone, with warm caches and free clocks; its times do not "
        )
        note += "replace those above. Shares are of the peak, a warp's waits of its time:"
        yield Section(note=note, table=kernel_table, after=profiling.total_lines(profiles))
    if table := profiling.parallelism_table([row for output in outputs for row in output.fillings]):
        note = "Pieces of work that may run at the same time, against the places for them:"
        yield Section(note=note, table=table)


def memory_sections(view: View) -> Iterator[Section]:
    """Predicted and actual time and cost of the session; then facts that later sessions can use."""
    note = "What was expected when the session began: from earlier sessions, else from authors' "
    note += "estimates. Four times in five the actual figure should lie in the interval."
    table = prediction_table(view.record, view.finished)
    note = note if table else "This session stored no prediction."
    yield Section("Predicted and actual", note=note, table=table)
    yield from lines_or_note("Learnings", view.record.learnings, "Nothing is worth keeping.")


def origin_sections(view: View) -> Iterator[Section]:
    """The commands that repeat the session and its report, and where the raw records are."""
    head = view.head
    if view.record.status in ("aborted", "paused"):
        yield Section("Go on with this session", code=(head.resume_command,))
    note = "The whole session, with the same inputs, and this report from its records:"
    yield Section("Each number", note=note, code=(head.repeat_command(), head.report_command))
    places = "`journal.jsonl` in the session's folder; verdicts, cost and grade: `record.json`."
    lines = [f"Steps, times and outputs: {places}"]
    for record in (record for record in latest_attempts(view.finished) if record.artifacts):
        lines.append(f"Raw samples of `{record.label}`: `{'`, `'.join(record.artifacts)}`")
    yield Section(lines=tuple(lines))


FOLDS: tuple[tuple[str, Callable[[View], Iterable[Section]]], ...] = (
    ("Evidence", verdict_sections),
    ("Evidence", lambda view: findings.sections(view.finished)),
    ("Evidence", lambda view: changing.sections(view.finished)),
    ("Steps", step_sections),
    ("Environment", environment_section),
    ("Controls", lambda view: lines_or_note("", trust_sentences(view.finished), "No control ran.")),
    ("Jobs", jobs_section),
    ("Bottleneck", bottleneck_sections),
    ("Model of the GPU", modelled_gpu_sections),
    ("Money", lambda view: spending.sections(view.record.bill, view.record.seconds, view.finished)),
    ("Memory", memory_sections),
    ("How to have each number again", origin_sections),
)
"""Title of a fold of the report, and a function that yields sections of it."""


DEFAULT_BYTES = 65_536  # A GitHub comment holds 65,536 characters, a job summary 1 MiB.
FIRST_SECTIONS = 3  # Cause, next action and variants precede the output of failed steps.
SUMMARY_ROWS = (2000, 1000, 500, 200, 100, 40, 15, 5, 1, 0)  # Tried in order; 0: the headline only.
_LINK = re.compile(r"https?://[!-;=?-~]{1,290}")
_MENTION = re.compile(r"(?s)\\.|(`+)(?!`).+?(?<!`)\1(?!`)|(?P<mention>@(?=\w)|#(?=\d))")
"""An escaped character, code between backticks (these two stay), or a GitHub mention's sign."""


def markdown_summary(
    record: SessionRecord, finished: Sequence[Finished], limit: int = DEFAULT_BYTES, link: str = ""
) -> str:
    """A session in at most `limit` bytes of Markdown. `link`: to the report; UsageError if none."""
    if link and not _LINK.fullmatch(link):
        message = f"--link {shortened(link, 60)}: expected a web address"
        raise UsageError(message, hint="--link https://...")
    summary, target = first_screen(record, finished), record.head.target
    # A CI workflow looks for this mark to update its earlier comment: `<!-- loop: my-kernel -->`.
    comment_mark = f"<!-- loop: {re.sub(r'[^A-Za-z0-9._]+', '-', target)[:80].strip('-')} -->"
    title = markdown.escape_prose(f"`{target}` on {record.head.device_text}")
    headline = f"**{markdown.escape_prose(summary.headline)}**\n"
    link_text = f", or [here](<{link}>)" if link else ""
    end = f"\nThe whole report: {markdown.inline_code(record.head.report_command)}{link_text}.\n"
    sections = [*summary.sections[:FIRST_SECTIONS], *failed_step_sections(View(record, finished))]
    sections += summary.sections[FIRST_SECTIONS:]
    note = ""
    for rows in SUMMARY_ROWS:
        body = f"\n{sections_as_markdown(sections, SizeLimit(rows, 500, 12))}\n" if rows else ""
        # `@name` and `#12` are split, so that GitHub notifies no user and links no issue.
        prose = _MENTION.sub(
            lambda match: match[0] + ("<!-- -->" if match["mention"] else ""), headline + body
        )
        text = f"{comment_mark}\n### {title}\n\n{prose}{note}{end}"
        if len(text.encode()) <= limit:
            break
        note = "\nShortened for length.\n"
    return text
