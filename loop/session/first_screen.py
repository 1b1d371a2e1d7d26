"""The most important part of a report; the report, the summary and the terminal all print it."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.base.errors import UsageError
from loop.base.stats import geometric_mean
from loop.bisect.section import blamed_lines, headline, search_answers
from loop.debug.explaining import diagnoses
from loop.model.change import kept_gains
from loop.model.exported import Diagnosis
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import Finished, SessionRecord, latest_attempts
from loop.model.verdict import SpeedVerdict
from loop.money.section import money_line
from loop.optimize import section as changes
from loop.optimize.section import skips_judging
from loop.report import format as say
from loop.report.findings import mean_of, speed_verdicts
from loop.report.markdown import Table, code, columns, filled_table, prose, shortened
from loop.report.sections import Section, SizeLimit, in_markdown
from loop.session import course
from loop.session.course import View
from loop.session.objective import anything_judged, objective_verdict
from loop.timing.against_known_good import CompareOutput

LONGEST_REASON = 300
"""Most characters of a session's reason; the record has the whole text."""
LONGEST_NAME = 80
MOST_WRONG = 2
"""Most wrong variants that the headline names; the table lists all."""
NOTHING = "-"
NAMED, LONGEST = 2, 80
"""Most items of "Not exercised" that are named, and characters of each. The rest is counted."""
PASTED = ("loop ", "git -C ")
"""Only a line of the proposal that begins so is offered as a command to paste."""
SENTENCE = 240
"""Most characters of the proposed next action."""
CAUSES, LONGEST_CAUSE = 3, 140
"""Most lines of a cause, and characters of each: cause and next action must fit on a phone's screen."""
MOST_LINES = 8
"""Most further lines on a wrong variant; the report's section `Evidence` has all."""
ENDINGS = {
    "passed": "passed",
    "failed": "failed",
    "skipped": "judged nothing",
    "aborted": "was aborted",
    "paused": "is paused",
}
PHRASES = {
    "faster": "faster than {}",
    "slower": "slower than {}",
    "same": "as fast as {}",
    "inconclusive": "inconclusive against {}",
}


@dataclass(frozen=True)
class FirstScreen:
    """What a reader sees before unfolding anything. Names of variants are between backticks."""

    headline: str
    """The target, how its session ended, and what decided that."""
    decided: str
    """The deciding facts alone, without target and status."""
    cause: tuple[str, ...]
    """The most informative lines about what is wrong; empty when the headline says it all."""
    next: str
    command: str
    """The command to run next; empty when the proposal contains none."""
    further: dict[str, Section]
    """Further sections by topic: the variants, details of each wrong variant, cost and duration."""

    @property
    def sections(self) -> dict[str, Section]:
        """All sections by topic, the most important first."""
        wrong = Section(note="What is wrong:" if self.cause else "", lines=self.cause)
        command = (self.command,) if self.command else ()
        proposed = Section(note=f"Next: {self.next}", code=command)
        return {"what is wrong": wrong, "what to do next": proposed, **self.further}


def first_screen(record: SessionRecord, finished: Sequence[Finished]) -> FirstScreen:
    """The first screen of a session that has ended or is paused."""
    proposed = record.proposal.splitlines()
    commands = [line for line in proposed[1:] if line.startswith(PASTED)]
    command = commands[0] if commands else ""
    proposal = " ".join(line for line in proposed if line not in commands)
    if len(proposal) > SENTENCE:  # Keep only whole sentences.
        proposal = proposal[: proposal.rfind(". ", 0, SENTENCE) + 1] or proposal
    known = diagnoses(record.head, finished)
    causes = _causes(known, finished)
    several = len({variant for variant, _, _ in causes}) > 1
    further = {"variants": Section(table=variants(record, finished), after=_known_good(finished))}
    for diagnosis in known:
        own = [f"{label}: {text}" for variant, label, text in causes[CAUSES:] if variant == diagnosis.variant]
        repeat = [f"Again: `{diagnosis.command}`"] if diagnosis.command not in ("", command) else []
        lines = (*own[:MOST_LINES], *repeat)
        note = f"What else is known of `{diagnosis.variant}`:" if lines else ""
        further[f"what else is wrong with {diagnosis.variant}"] = Section(note=note, lines=lines)
    further["cost"] = Section(lines=tuple(_lines(record, finished)))
    # A session can pass its gates without an answer: no verdict on speed, or a missed objective.
    ending, decisive = ENDINGS[record.status], deciding_lines(record, finished)
    if record.status == "passed" and {v.verdict for v in speed_verdicts(record.verdicts)} == {"inconclusive"}:
        ending = "has no verdict"
    elif record.status == "passed" and record.objective is not None and record.objective.missed:
        ending = "missed its objective"
    return FirstScreen(
        headline=f"{_name(record.head.target)} {ending}: {decisive}.",
        decided=decisive,
        cause=tuple(
            shortened(f"{f'{variant}: ' if several else ''}{label}: {text}", LONGEST_CAUSE)
            for variant, label, text in causes[:CAUSES]
        ),
        next=shortened(proposal, SENTENCE),
        command=command,
        further=further,
    )


def deciding_lines(record: SessionRecord, finished: Sequence[Finished]) -> str:
    """The facts that decided the outcome: wrong variants, changes, the best variant's speed, the reason."""
    wrong, speed, changed = list(_wrong(record, finished)), list(_speed(record)), list[str]()
    if outcomes := changes.outcomes(finished):
        counted = f"{outcomes.count('kept')} of {say.count(len(outcomes), 'change')} kept"
        gains = (f"{_name(change.variant)} is {say.gain_text(change)}" for change in kept_gains(finished))
        changed = [", ".join([counted, *gains])]
    reason = shortened(record.reason.rstrip("."), LONGEST_REASON)
    if record.status == "failed":
        parts = [*(wrong or [reason]), *changed, *speed]
    elif record.status != "passed":
        parts = [reason, *wrong, *changed, *speed]
    elif speed:
        parts = [*changed, *speed]
    else:
        only = "no speed was measured" if anything_judged(finished) else "nothing was judged"
        only = "only changes were timed: see Changes" if changes.has_timed_change(finished) else only
        parts = [reason, *changed, only]
    return "; ".join(parts)


def _name(variant: str) -> str:
    """A variant's name as code, shortened."""
    return f"`{shortened(variant, LONGEST_NAME)}`"


def _wrong(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    """Sentences such as `cpu is incorrect on B1 and 3 more of 11 workloads; no speed is reported for it`."""
    checked = {
        checks.variant: len({check.workload.name for check in checks.checks})
        for output in outputs_of(finished, VerifyOutput)
        for checks in output.variants
    }
    bad: dict[tuple[str, str], list[str]] = {}
    for judged in record.verdicts:
        if not isinstance(judged, SpeedVerdict):
            bad.setdefault((judged.variant, judged.verdict), []).append(judged.workload)
    for (variant, word), names in list(bad.items())[:MOST_WRONG]:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        total = f" of {checked[variant]} workloads" if variant in checked and more else ""
        what = "incorrect" if word == "incorrect" else "not to be judged"
        where = shortened(names[0], LONGEST_NAME)
        yield f"{_name(variant)} is {what} on {where}{more}{total}; no speed is reported for it"
    if (left := len(bad) - MOST_WRONG) > 0:
        yield f"so {'is' if left == 1 else 'are'} {say.count(left, 'more variant')}"


def _speed(record: SessionRecord) -> Iterator[str]:
    """The sentence `cpu, the best of 3 variants, is faster than torch_sdpa on 11 of 11 workloads, ...`."""
    by_variant: dict[str, list[SpeedVerdict]] = {}
    speeds = speed_verdicts(record.verdicts)
    for speed in [speed for speed in speeds if speed.variant not in record.head.roles] or speeds:
        by_variant.setdefault(speed.variant, []).append(speed)
    if not by_variant:
        return
    # A variant without a trusted mean ranks last.
    fastest = max(
        by_variant, key=lambda n: geometric_mean([v.ratio for v in by_variant[n]]) * bool(mean_of(by_variant[n]))
    )
    verdicts = by_variant[fastest]
    (word, most), *rest = Counter(speed.verdict for speed in verdicts).most_common()
    others = "".join(f", {other} on {number}" for other, number in rest)
    phrase = PHRASES[word].format(shortened(record.head.baseline, LONGEST_NAME))
    mean = mean_of(verdicts)
    best = f", the best of {len(by_variant)} variants," if len(by_variant) > 1 else ""
    on = f"{most} of {len(verdicts)} workloads{others}{mean and f', {mean}'}"
    yield f"{_name(fastest)}{best} is {phrase} on {on}"


def _causes(known: Sequence[Diagnosis], finished: Sequence[Finished]) -> list[tuple[str, str, str]]:
    """(variant, label, text) of everything known to be wrong; each variant's main cause comes first."""
    ranked = [(place, d.variant, *line) for d in known for place, line in enumerate(d.lines)]
    explained = {diagnosis.variant for diagnosis in known}
    for output in outputs_of(finished, VerifyOutput):
        for checks in output.variants:
            if checks.first_failure and checks.variant not in explained:
                ranked.append((0, checks.variant, "First failure", checks.first_failure.message))
    for variant, answer in search_answers(finished):
        if variant not in explained:
            lines = [("Regression", headline(answer)), *(("Commit", commit) for commit in blamed_lines(answer))]
            ranked += [(place, variant, *line) for place, line in enumerate(lines)]
    return [(variant, label, text) for _, variant, label, text in sorted(ranked, key=lambda line: line[0])]


def not_exercised(record: SessionRecord, finished: Sequence[Finished]) -> tuple[str, ...]:
    """Sentences on what was not run, and why. Steps that judge a change count only if there was a change."""
    skipped = (
        run for run in latest_attempts(finished) if run.status == "skipped" and not skips_judging(run, finished)
    )
    steps = (f"step {course.name_of(run)} was skipped: {run.skipped_because}" for run in skipped)
    return tuple(dict.fromkeys((*record.not_exercised, *steps)))


def variants(record: SessionRecord, finished: Sequence[Finished]) -> Table | None:
    """A table with a row per variant: wrong first, examples and baselines last; None if nothing was judged."""
    head = record.head
    wrong = {v.variant: v.verdict for v in record.verdicts if not isinstance(v, SpeedVerdict)}
    compared = {v.variant for v in record.verdicts if v.against == "known_good"}
    names = sorted(
        (*head.variants, *head.emulated),
        key=lambda name: (name not in wrong, name in head.roles, name not in compared),
    )
    rows = []
    for name in names:
        speeds = [speed for speed in speed_verdicts(record.verdicts) if speed.variant == name]
        against = NOTHING
        if name not in wrong and len(speeds) == 1:
            against = f"{speeds[0].verdict}: {say.ratio(speeds[0].ratio, speeds[0].interval)}"
        elif name not in wrong:
            mean = mean_of(speeds).removeprefix("geometric ")
            against = ": ".join(filter(None, [_counted([speed.verdict for speed in speeds]), mean])) or NOTHING
        role = head.roles.get(name)
        right = _right(record, finished, name, wrong.get(name))
        rows.append((f"{name} ({role})" if role else name, _against_good(record, name), against, right))
    heads = columns("Variant", "Against the known good", f"Against {head.baseline}", "Right")
    return filled_table(heads, [row for row in rows if row[1:] != (NOTHING,) * 3])


def _right(record: SessionRecord, finished: Sequence[Finished], name: str, wrong: str | None) -> str:
    """The cell `12 of 12 checks, emulated`, from the last verification. `wrong`: the verdict if incorrect."""
    verified = {v.variant: v.checks for output in outputs_of(finished, VerifyOutput) for v in output.variants}
    checks = verified.get(name)
    if not checks:
        return wrong or NOTHING
    declined = sum(check.passed and check.status != "right" for check in checks)
    passed, of = sum(check.status == "right" for check in checks), say.count(len(checks) - declined, "check")
    emulated = ", emulated" if name in record.head.emulated else ""
    if not wrong:
        return f"{passed} of {of}{emulated}"
    failed = len(checks) - declined - passed
    return f"{wrong}{f': {failed} of {of} failed' if failed else ''}{emulated}"


def _against_good(record: SessionRecord, name: str) -> str:
    """The cell `slower on 1 of 3: lowest 0.80x [0.75, 0.85]`: speed against the known-good build."""
    verdicts = [v for v in record.verdicts if (v.variant, v.against) == (name, "known_good")]
    speeds = [v for v in verdicts if isinstance(v, SpeedVerdict)]
    worst = min(speeds, key=lambda speed: (speed.verdict != "slower", speed.ratio), default=None)
    if worst is None or len(speeds) < len(verdicts):
        return verdicts[0].verdict if verdicts else NOTHING
    ratio = say.ratio(worst.ratio, worst.interval)
    if len(verdicts) == 1:
        return f"{worst.verdict}: {ratio}"
    return f"{_counted([v.verdict for v in verdicts], worst.verdict)}: lowest {ratio}"


def _counted(verdicts: Sequence[str], leads: str = "") -> str:
    """`faster on 4 of 6, slower on 2`: `leads` first, then by frequency, `inconclusive` last."""
    words = sorted(Counter(verdicts).most_common(), key=lambda pair: (pair[0] != leads, pair[0] == "inconclusive"))
    first = f" of {len(verdicts)}"
    return ", ".join(f"{word} on {number}{'' if place else first}" for place, (word, number) in enumerate(words))


def _known_good(finished: Sequence[Finished]) -> tuple[str, ...]:
    """`The known good is main at 0123456789ab (session ...).`, or why there was no known-good build."""
    compared = outputs_of(finished, CompareOutput)
    known = sorted((good for output in compared for good in output.known_good), key=lambda good: good.session)
    builds = dict.fromkeys(  # Variants that came from one session have the same words.
        f"{f'{good.branch} at ' if good.branch else ''}{(good.commit or '')[:12] or 'sources without a commit'}"
        f" (session {good.session})"
        for good in known
    )
    if builds:
        return (f"The known good is {'; '.join(builds)}.",)
    if not compared or any(output.verdicts for output in compared):
        return ()
    why = next((text for output in compared for text in output.not_exercised), "no earlier build of it is known")
    return (f"Not compared with another build: {shortened(why, SENTENCE)}.",)


def _lines(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    """One line each on objective, grade, time, cost, what was not exercised, and the session."""
    if objective := objective_verdict(record, finished):
        yield f"Objective: {objective}."
    yield f"Grade {shortened(record.grade, 20)}: {shortened(record.grade_reason.rstrip('.'), SENTENCE)}."
    planned = say.seconds(60 * record.head.plan.plan.budget.minutes)
    yield f"Time: {say.seconds(record.seconds)} of {planned} planned."
    yield money_line(record.bill, record.seconds)
    if missing := not_exercised(record, finished):
        hidden = len(missing) - NAMED
        more = f"; and {hidden} more, which the report lists" if hidden > 0 else ""
        named = "; ".join(shortened(text.replace("`", ""), LONGEST) for text in missing[:NAMED])
        yield f"Not exercised: {named}{more}."
    head = record.head
    yield f"Session {head.id} on {course.device(head)}; begun {say.day(head.started)}."


LIMIT = 65_536
"""Default limit in bytes: a GitHub comment holds 65,536 characters, a job summary 1 MiB."""
LEAST = 1_500
"""The smallest limit in bytes: headline and link need that much."""
LEFT_OUT = 160
"""Bytes reserved for the note that names omitted sections."""
IMPORTANT = 3
"""The first sections (cause, next action, variants) precede the output of failed steps."""
ROOMS = tuple(SizeLimit(rows, 500, 12) for rows in (2000, 1000, 500, 200, 100, 40, 15, 5, 1))
"""Sizes to which a section is cut, tried from the largest until the section fits."""
_LINK = re.compile(r"https?://[!-;=?-~]{1,290}")
_CALL = re.compile(r"\\.|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|(?P<call>@(?=\w)|#(?=\d))", re.DOTALL)


def digest_of_session(
    record: SessionRecord, finished: Sequence[Finished], limit: int = LIMIT, link: str = ""
) -> str:
    """A session in at most `limit` bytes of Markdown. Raises UsageError for a small `limit` or bad `link`."""
    if limit < LEAST:
        raise UsageError(f"--limit {limit}: expected {LEAST} or more", hint=f"--limit {LIMIT} is a comment's")
    if link and not _LINK.fullmatch(link):
        raise UsageError(f"--link {shortened(link, 60)}: expected a web address", hint="--link https://...")
    screen, target = first_screen(record, finished), shortened(record.head.target, 40)
    headline = without_mentions(prose(screen.headline))
    if len(headline.encode()) > limit // 4:
        headline = without_mentions(prose(f"`{target}` {ENDINGS[record.status]}."))
    # A CI workflow searches for this mark to update its earlier comment: `<!-- loop: my-kernel -->`.
    mark = f"<!-- loop: {re.sub(r'[^A-Za-z0-9._]+', '-', record.head.target)[:80].strip('-')} -->"
    title = prose(f"`{target}` on {shortened(course.device(record.head), 40)}")
    head = f"{mark}\n### {title}\n\n**{headline}**\n"
    command = record.head.report_command
    command = command if len(command.encode()) <= limit // 4 else f"loop report {shortened(record.head.id, 80)}"
    foot = f"\nThe whole report: {code(command)}{f', or [here](<{link}>)' if link else ''}.\n"
    room = limit - len(head.encode()) - len(foot.encode()) - LEFT_OUT
    pieces = list(screen.sections.items())
    records = [record for record in latest_attempts(finished) if record.status == "failed"]
    titles = [f"what {course.name_of(record)} said" for record in records]
    failed = zip(titles, course.failed_steps(View(record, finished)), strict=True)
    pieces[IMPORTANT:IMPORTANT] = failed
    parts, omitted = [head], []
    for name, section in pieces:
        texts = (f"\n{without_mentions(in_markdown([section], cut))}\n" for cut in ROOMS) if section else ()
        fitting = next(((n, text) for n, text in enumerate(texts) if len(text.encode()) <= room), None)
        if fitting:
            parts.append(fitting[1])
            room -= len(fitting[1].encode())
        if section and (not fitting or fitting[0]):
            omitted.append(name)
    names = [prose(shortened(name, 60)) for name in omitted[:2]]
    names += [f"{len(omitted) - 2} more"] if len(omitted) > 2 else []
    note = f"\nShortened for length: {say.listed_words(names)}.\n" if omitted else ""
    return "".join([*parts, note, foot])


def without_mentions(text: str) -> str:
    """The Markdown, with `@name` and `#12` split so that GitHub notifies no user and links no issue."""
    return _CALL.sub(lambda match: f"{match[0]}<!-- -->" if match["call"] else match[0], text)
