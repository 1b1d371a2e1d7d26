"""The most important part of a report; the report, the summary and the terminal all print it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.bisect.section import blamed_lines, headline, search_answers
from loop.debug.explaining import make_diagnoses
from loop.model.change import kept_gains
from loop.model.exported import Diagnosis
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import Finished, SessionRecord, latest_attempts
from loop.model.verdict import Against, SpeedVerdict
from loop.optimize import section as changes
from loop.optimize.section import skips_judging
from loop.optimize.session_changes import SessionChanges
from loop.report import format as say
from loop.report.findings import mean_text, speed_verdicts, trusted_mean
from loop.report.markdown import Table, drop_empty_columns, shortened
from loop.report.sections import Section
from loop.session.objective import is_anything_judged, objective_text
from loop.timing.against_known_good import CompareOutput

MOST_WRONG_VARIANTS = 2
"""Most wrong variants that the headline names; the table lists all."""
EMPTY_CELL = "-"
MOST_LISTED, LONGEST_LISTED = 2, 160
"""Most items of "Not exercised" that are named, and characters of each. The rest is counted."""
COMMAND_BEGINNINGS = ("loop ", "git -C ")
"""Only a line of the proposal that begins so is offered as a command to paste."""
LONGEST_SENTENCE = 240
"""Most characters of a reason and of the proposed next action; the record has the whole text."""
MOST_CAUSES, LONGEST_CAUSE = 3, 140
"""Most lines of a cause, and characters of each: cause and next action must fit on a phone's screen."""
MOST_FURTHER_LINES = 8
"""Most further lines on a wrong variant; `--json` has all of its diagnosis."""
ENDING_PHRASES = {"skipped": "judged nothing", "aborted": "was aborted", "paused": "is paused"}
"""Status to the words for it; any other status is its own word."""
COMPARISONS = {"same": "as fast as", "inconclusive": "inconclusive against"}
"""Speed verdict to the words before the baseline's name; for any other verdict: `faster than`."""


@dataclass(frozen=True)
class FirstScreen:
    """What a reader sees before unfolding anything. Names of variants are between backticks."""

    headline: str
    """The target, how its session ended, and what decided that."""
    deciding_text: str
    """The deciding facts alone, without target and status."""
    cause: tuple[str, ...]
    """The most informative lines about what is wrong; empty when the headline says it all."""
    next: str
    command: str
    """The command to run next; empty when the proposal contains none."""
    further_sections: tuple[Section, ...]
    """The variants, details of each wrong variant, cost and duration."""

    @property
    def sections(self) -> tuple[Section, ...]:
        """All sections, the most important first."""
        causes = Section(note="What is wrong:" if self.cause else "", lines=self.cause)
        command = (self.command,) if self.command else ()
        proposal = Section(note=f"Next: {self.next}", code=command)
        return causes, proposal, *self.further_sections


def first_screen(record: SessionRecord, finished: Sequence[Finished]) -> FirstScreen:
    """The first screen of a session that has ended or is paused. Its command is the first one in the proposal."""
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
    wrong_variants = []  # What else is known of each, and how to repeat its failure.
    for diagnosis in diagnoses:
        name = diagnosis.variant
        lines = [f"{label}: {text}" for variant, label, text in causes[MOST_CAUSES:] if variant == name]
        lines = lines[:MOST_FURTHER_LINES]
        if diagnosis.command not in ("", command):
            lines.append(f"Again: `{diagnosis.command}`")
        note = f"What else is known of `{name}`:" if lines else ""
        wrong_variants.append(Section(note=note, lines=tuple(lines)))
    deciding_facts = deciding_text(record, finished)
    return FirstScreen(
        headline=f"`{record.head.target}` {_ending_phrase(record)}: {deciding_facts}.",
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


def _ending_phrase(record: SessionRecord) -> str:
    """How the session ended, as in `passed`; of a passed one also whether it has a verdict and its objective."""
    if record.status != "passed":
        return ENDING_PHRASES.get(record.status, record.status)
    if {verdict.verdict for verdict in speed_verdicts(record.verdicts)} == {"inconclusive"}:
        return "has no verdict"
    is_missed = record.objective is not None and bool(record.objective.missed)
    return "missed its objective" if is_missed else "passed"


def deciding_text(record: SessionRecord, finished: Sequence[Finished]) -> str:
    """The facts that decided the outcome: what is wrong, changes that were kept, the best variant's speed. The
    record's reason comes first unless a wrong variant or a speed says it."""
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
    elif changes.has_change(finished, "timed"):
        parts = [reason, kept_text, "only changes were timed: see Changes"]
    else:
        is_judged = is_anything_judged(finished)
        parts = [reason, kept_text, "no speed was measured" if is_judged else "nothing was judged"]
    return "; ".join(filter(None, parts))


def _wrong_variant_sentences(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    """`cpu is incorrect on B1 and 3 more of 11 workloads; no speed is reported for it`, for at most
    `MOST_WRONG_VARIANTS`; then how many more are wrong."""
    checked_workloads: dict[str, set[str]] = {}  # Variant to the workloads on which it was checked.
    for output in outputs_of(finished, VerifyOutput):
        for checks in output.variants:
            checked_workloads[checks.variant] = {check.workload.name for check in checks.checks}
    workloads_by_verdict: dict[tuple[str, str], list[str]] = {}  # (variant, verdict) to these.
    for verdict in record.verdicts:
        if not isinstance(verdict, SpeedVerdict):
            key = verdict.variant, verdict.verdict
            workloads_by_verdict.setdefault(key, []).append(verdict.workload)
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
    """`cpu, the best of 3 variants, is faster than torch_sdpa on 11 of 11 workloads`; empty without speeds. The
    best has the highest mean ratio; a mean that is not trusted ranks last."""
    speeds_by_variant: dict[str, list[SpeedVerdict]] = {}
    speeds = speed_verdicts(record.verdicts)
    # Examples and baselines count only if no main variant has a speed.
    for speed in [speed for speed in speeds if speed.variant not in record.head.roles] or speeds:
        speeds_by_variant.setdefault(speed.variant, []).append(speed)
    if not speeds_by_variant:
        return ""
    fastest = max(speeds_by_variant, key=lambda name: trusted_mean(speeds_by_variant[name]) or 0.0)
    verdicts = speeds_by_variant[fastest]
    (verdict_word, count), *other_counts = Counter(speed.verdict for speed in verdicts).most_common()
    comparison = COMPARISONS.get(verdict_word, f"{verdict_word} than")
    phrase = f"{comparison} {record.head.baseline}"
    texts = [f"{count} of {len(verdicts)} workloads"]
    texts += [f"{other_word} on {number}" for other_word, number in other_counts]
    texts += filter(None, [mean_text(verdicts)])
    rank_text = f", the best of {len(speeds_by_variant)} variants," if len(speeds_by_variant) > 1 else ""
    return f"`{fastest}`{rank_text} is {phrase} on {', '.join(texts)}"


def _ranked_causes(diagnoses: Sequence[Diagnosis], finished: Sequence[Finished]) -> list[tuple[str, str, str]]:
    """(variant, label, text) of all that is known to be wrong; first the main cause of each variant."""
    ranked: list[tuple[int, str, str, str]] = []  # First the line's rank within its variant.
    for diagnosis in diagnoses:
        for rank, (label, text) in enumerate(diagnosis.lines):
            ranked.append((rank, diagnosis.variant, label, text))
    diagnosed = {diagnosis.variant for diagnosis in diagnoses}
    for output in outputs_of(finished, VerifyOutput):
        for checks in output.variants:
            if checks.first_failure and checks.variant not in diagnosed:
                ranked.append((0, checks.variant, "First failure", checks.first_failure.message))
    for variant, answer in search_answers(finished):
        if variant not in diagnosed:
            ranked.append((0, variant, "Regression", headline(answer)))
            for rank, commit in enumerate(blamed_lines(answer), start=1):
                ranked.append((rank, variant, "Commit", commit))
    ranked.sort(key=lambda cause: cause[0])
    return [(variant, label, text) for _rank, variant, label, text in ranked]


def not_exercised_sentences(record: SessionRecord, finished: Sequence[Finished]) -> tuple[str, ...]:
    """What was not run, and why. A step that judges a change counts only if there was a change to judge."""
    sentences = list(record.not_exercised)
    for step in latest_attempts(finished):
        if step.status == "skipped" and not step.output and not skips_judging(step, finished):
            sentences.append(f"step {step.label} was skipped: {step.skipped_because}")
    return tuple(dict.fromkeys(sentences))


def variant_table(record: SessionRecord, finished: Sequence[Finished]) -> Table | None:
    """A row for each variant: wrong ones first, examples and baselines last; None if nothing was judged."""
    head = record.head
    wrong_verdicts = {v.variant: v.verdict for v in record.verdicts if not isinstance(v, SpeedVerdict)}
    compared_variants = {v.variant for v in record.verdicts if v.against == "known_good"}

    def sort_key(name: str) -> tuple[bool, bool, bool]:  # False sorts before True.
        return name not in wrong_verdicts, name in head.roles, name not in compared_variants

    names = sorted((*head.variants, *head.emulated), key=sort_key)
    rows = []
    for name in names:
        cells = (
            _speed_cell(record, name, "known_good"),
            EMPTY_CELL if name in wrong_verdicts else _speed_cell(record, name, "baseline"),
            _correctness_cell(record, finished, name, wrong_verdicts.get(name)),
        )
        if set(cells) != {EMPTY_CELL}:
            role = head.roles.get(name)
            rows.append((f"{name} ({role})" if role else name, *cells))
    heads = ("Variant", "Against the known good", f"Against {head.baseline}", "Right")
    return drop_empty_columns(heads, rows)


def _speed_cell(record: SessionRecord, name: str, against: Against) -> str:
    """The cell `faster on 4 of 6, slower on 2: mean 1.20x`; against a known good with the lowest ratio, not the
    mean: one slower workload is a regression. A dash without a speed."""
    verdicts = [v for v in record.verdicts if (v.variant, v.against) == (name, against)]
    speeds = [verdict for verdict in verdicts if isinstance(verdict, SpeedVerdict)]
    if len(speeds) < len(verdicts):  # It is `incorrect` or `invalid`, which another column says.
        return EMPTY_CELL
    if len(speeds) == 1:
        return f"{speeds[0].verdict}: {say.ratio(speeds[0].ratio, speeds[0].interval)}"
    counts = Counter(speed.verdict for speed in speeds)
    words = [word for word, _count in counts.most_common()]
    words.sort(key=lambda word: word == "inconclusive")  # The most frequent verdict first, this one last.
    texts = [f"{word} on {counts[word]}" for word in words]
    if texts:
        texts[0] += f" of {len(speeds)}"
    figure = mean_text(speeds).removeprefix("geometric ")
    if speeds and against == "known_good":
        worst = min(speeds, key=lambda speed: (speed.verdict != "slower", speed.ratio))
        figure = f"lowest {say.ratio(worst.ratio, worst.interval)}"
    return ": ".join(filter(None, [", ".join(texts), figure])) or EMPTY_CELL


def _correctness_cell(
    record: SessionRecord, finished: Sequence[Finished], name: str, wrong_verdict: str | None
) -> str:
    """The cell `12 of 12 checks, emulated`. `wrong_verdict`: `incorrect`, `invalid`, or None if right."""
    variants = [checked for output in outputs_of(finished, VerifyOutput) for checked in output.variants]
    checks = {checked.variant: checked.checks for checked in variants}.get(name)
    if not checks:
        return wrong_verdict or EMPTY_CELL
    right_count = sum(check.status == "right" for check in checks)
    failed_count = sum(not check.passed for check in checks)
    # Calls that the variant does not support, or that nothing could judge, do not count.
    total = say.count(right_count + failed_count, "check")
    emulated_text = ", emulated" if name in record.head.emulated else ""
    if not wrong_verdict:
        return f"{right_count} of {total}{emulated_text}"
    failures_text = f": {failed_count} of {total} failed" if failed_count else ""
    return f"{wrong_verdict}{failures_text}{emulated_text}"


def _known_good_sentences(finished: Sequence[Finished]) -> tuple[str, ...]:
    """`The known good is commit 0123456789ab (session ...).`, or why no variant was compared with one."""
    outputs = outputs_of(finished, CompareOutput)
    texts = []
    for good in sorted((good for output in outputs for good in output.known_good), key=lambda good: good.session):
        branch = f" of branch {good.branch}" if good.branch else ""
        known = f"commit {good.commit[:12]}{branch}" if good.commit else "a build of uncommitted files"
        texts.append(f"{known} (session {good.session})")
    if texts:  # Variants whose known-good builds are of one session have equal texts.
        return (f"The known good is {'; '.join(dict.fromkeys(texts))}.",)
    if not outputs or any(output.verdicts for output in outputs):
        return ()
    reasons = [reason for output in outputs for reason in output.not_exercised]
    reason = reasons[0] if reasons else "no earlier build of it is known"
    return (f"Not compared with another build: {_sentence(reason)}",)


def _sentence(text: str) -> str:
    """The text with one full stop, or cut with `...`."""
    line = shortened(text.rstrip("."), LONGEST_SENTENCE)
    return line if line.endswith("...") else f"{line}."


def _grade_and_cost_lines(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    """One line each on objective, grade, time, cost, what was not exercised, and the session."""
    head = record.head
    if objective := objective_text(record, finished):
        yield f"Objective: {objective}."
    yield f"Grade {shortened(record.grade, 20)}: {_sentence(record.grade_reason)}"
    planned_time = say.seconds(60 * head.plan.plan.budget.minutes)
    yield f"Time: {say.seconds(record.seconds)} of {planned_time} planned."
    yield say.cost_and_return(record.bill, record.seconds)
    if sentences := not_exercised_sentences(record, finished):
        texts = [shortened(text, LONGEST_LISTED).replace("`", "") for text in sentences[:MOST_LISTED]]
        if len(sentences) > MOST_LISTED:
            texts.append(f"and {len(sentences) - MOST_LISTED} more, which the report lists")
        yield f"Not exercised: {'; '.join(texts)}."
    yield f"Session {head.id} on {head.device_text}; begun {say.day(head.started)}."
