"""The first screen of a report, a summary and a terminal, in the same words."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.base.stats import geometric_mean
from loop.bisect.section import searches
from loop.debug.section import Diagnosis, diagnoses
from loop.model.change import kept
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import Finished, SessionRecord, latest_attempts
from loop.model.verdict import Against, SpeedVerdict
from loop.money.section import money_line
from loop.optimize import section as changes
from loop.optimize.section import spared
from loop.report import format as say
from loop.report.findings import mean_of, speed_verdicts
from loop.report.markdown import Markdown, Table, code, columns, escape, filled
from loop.report.plain import shortened
from loop.session import course
from loop.session.objective import anything_judged, verdict
from loop.timing.model import CompareOutput

LONGEST_REASON = 300
"""Letters of a reason: the whole of it is in the record."""
LONGEST_NAME = 80
MOST_WRONG = 2
"""Wrong variants that the verdict names; the table has all."""
ENDINGS = {
    "passed": "passed",
    "failed": "failed",
    "skipped": "judged nothing",
    "aborted": "was aborted",
    "paused": "is paused",
}
PHRASES = {
    "faster": "is faster than {}",
    "slower": "is slower than {}",
    "same": "is as fast as {}",
    "inconclusive": "is inconclusive against {}",
}


def headline(record: SessionRecord, finished: Sequence[Finished]) -> Markdown:
    """One bold sentence: the target, how its session ended, and what decided that."""
    return Markdown(f"**{_name(record.head.target)} {_ending(record)}: {decided(record, finished)}.**")


def decided(record: SessionRecord, finished: Sequence[Finished]) -> Markdown:
    """Correctness first, then the best variant's speed, then whatever else decided the outcome."""
    wrong = list(_wrong(record, finished))
    speed = list(_speed(record, finished))
    reason = escape(shortened(record.reason.rstrip("."), LONGEST_REASON))
    kept = list(_kept(finished))
    if record.status == "passed":
        parts = [*kept, *speed] if speed else [reason, *kept, _no_speed(finished)]
    elif record.status == "failed":
        parts = [*(wrong or [reason]), *kept, *speed]
    else:
        parts = [reason, *wrong, *kept, *speed]
    return Markdown("; ".join(parts))


def _ending(record: SessionRecord) -> str:
    """`passed`, `failed`, ...; of a session whose gates passed also what became of its question."""
    speeds = {one.verdict for one in speed_verdicts(record.verdicts)}
    if record.status == "passed" and speeds == {"inconclusive"}:
        return "has no verdict"
    missed = record.status == "passed" and record.objective is not None and record.objective.missed
    return "missed its objective" if missed else ENDINGS[record.status]


def _no_speed(finished: Sequence[Finished]) -> str:
    if changes.timed(finished):
        return "only changes were timed: see Changes"
    return "no speed was measured" if anything_judged(finished) else "nothing was judged"


def _kept(finished: Sequence[Finished]) -> Iterator[str]:
    """`1 of 3 changes kept, cpu is 1.20x as fast as what it replaced`; nothing where no change was judged."""
    outcomes = changes.outcomes(finished)
    if not outcomes:
        return
    counted = f"{outcomes.count('kept')} of {say.count(len(outcomes), 'change')} kept"
    yield ", ".join([counted, *(f"{_name(one.variant)} is {escape(say.gained(one))}" for one in kept(finished))])


def _name(variant: str) -> str:
    return code(shortened(variant, LONGEST_NAME))


def _wrong(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    """`cpu` is incorrect on B1 ... and 3 more of 11 workloads; no speed is reported for it."""
    checked = {
        c.variant: len({check.workload.name for check in c.checks})
        for output in outputs_of(finished, VerifyOutput)
        for c in output.variants
    }
    bad = [one for one in record.verdicts if not isinstance(one, SpeedVerdict)]
    variants = list(dict.fromkeys((one.variant, one.verdict) for one in bad))
    for variant, found in variants[:MOST_WRONG]:
        names = [one.workload for one in bad if (one.variant, one.verdict) == (variant, found)]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        total = f" of {checked[variant]} workloads" if variant in checked and more else ""
        word = "incorrect" if found == "incorrect" else "not to be judged"
        where = escape(shortened(names[0], LONGEST_NAME))
        yield f"{_name(variant)} is {word} on {where}{more}{total}; no speed is reported for it"
    if len(variants) > MOST_WRONG:
        yield f"so are {say.count(len(variants) - MOST_WRONG, 'more variant')}"


def _speed(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    """`cpu` is faster than torch_sdpa on 11 of 11 workloads, geometric mean 1.63x: the best of the main ones."""
    of: dict[str, list[SpeedVerdict]] = {}
    speeds = speed_verdicts(record.verdicts)
    mains = [one for one in speeds if one.variant not in record.head.roles]
    for one in mains or speeds:
        of.setdefault(one.variant, []).append(one)
    for variant, mine in sorted(of.items(), key=_slowness)[:1]:
        (word, most), *rest = Counter(one.verdict for one in mine).most_common()
        others = "".join(f", {other} on {number}" for other, number in rest)
        phrase = PHRASES[word].format(escape(shortened(record.head.baseline, LONGEST_NAME)))
        mean = mean_of(mine)
        yield f"{_name(variant)} {phrase} on {most} of {len(mine)} workloads{others}{mean and f', {mean}'}"
    if len(of) > 1:
        yield f"the best of {len(of)} variants"


def _slowness(one: tuple[str, list[SpeedVerdict]]) -> float:
    """Where a variant stands in the sentence; one of which no mean is said comes last."""
    _, verdicts = one
    return -geometric_mean([verdict.ratio for verdict in verdicts]) if mean_of(verdicts) else 0.0


NOTHING = "-"
NAMED, LONGEST = 2, 80
"""Things not exercised that are named, and letters of each; the rest is counted."""
PASTED = ("loop ", "git -C ")
"""How commands begin; nothing else of a proposal is offered to be pasted."""
SENTENCE = 240
"""Letters of what to do next."""
CAUSES, LONGEST_CAUSE = 3, 140
"""Lines of a cause before what to do next, and letters of each: both have to fit on a telephone's first screen."""
MOST_LINES = 8
"""Further lines of what is wrong with a variant; the evidence has all."""


@dataclass(frozen=True)
class FirstScreen:
    """What a reader sees before anything is unfolded."""

    headline: Markdown
    """The target, how its session ended, and what decided that."""
    decided: Markdown
    """What decided it, without the target."""
    cause: tuple[str, ...]
    """What is wrong, in the most telling lines; empty where the headline says it all."""
    next: str
    command: str
    """What to paste next; empty where nothing of a proposal may be pasted."""
    wrong: tuple[Diagnosis, ...]
    """What else is known of each wrong variant."""
    variants: Table | None
    known_good: str
    """What that is, in a sentence; empty where nothing was compared with it."""
    lines: tuple[str, ...]
    """Objective and grade, cost and time, what was not exercised, and where it ran."""


def first_screen(record: SessionRecord, finished: Sequence[Finished]) -> FirstScreen:
    """That of a session which has ended, or is paused."""
    proposed = record.proposal.splitlines()
    commands = [line for line in proposed[1:] if line.startswith(PASTED)]
    command = commands[0] if commands else ""
    found = diagnoses(record.head, finished)
    causes = _causes(found, finished)
    variants_wrong = {variant for variant, _, _ in causes}
    several = len(variants_wrong) > 1
    return FirstScreen(
        headline=headline(record, finished),
        decided=decided(record, finished),
        cause=tuple(
            shortened(f"{f'{variant}: ' if several else ''}{label}: {text}", LONGEST_CAUSE)
            for variant, label, text in causes[:CAUSES]
        ),
        next=_sentences(" ".join(line for line in proposed if line not in commands)),
        command=command,
        wrong=tuple(_further(one, causes[CAUSES:], command) for one in found),
        variants=variants(record, finished),
        known_good=_good(finished),
        lines=tuple(_lines(record, finished, not_exercised(record, finished))),
    )


def _causes(found: Sequence[Diagnosis], finished: Sequence[Finished]) -> list[tuple[str, str, str]]:
    """Variant, label and text of all that is known to be wrong: of each variant first what tells most."""
    explained = [(place, one.variant, *line) for one in found for place, line in enumerate(one.lines)]
    known = {one.variant for one in found}
    for output in outputs_of(finished, VerifyOutput):
        for one in output.variants:
            if one.first_failure and one.variant not in known:
                explained.append((0, one.variant, "First failure", one.first_failure.message))
    for search in searches(finished):
        if search.variant not in known:
            told = [("Regression", search.headline), *(("Commit", commit) for commit in search.commits)]
            explained += [(place, search.variant, *line) for place, line in enumerate(told)]
    return [(variant, label, text) for _, variant, label, text in sorted(explained, key=lambda line: line[0])]


def _further(found: Diagnosis, left: Sequence[tuple[str, str, str]], command: str) -> Diagnosis:
    """What is known of a variant beside the causes shown, and its command where that is not what comes next."""
    lines = tuple((label, text) for variant, label, text in left if variant == found.variant)
    return Diagnosis(found.variant, lines[:MOST_LINES], "" if found.command == command else found.command)


def _sentences(text: str) -> str:
    """As many of its sentences as there is room for; the first one shortened where it has none."""
    kept = text[: text.rfind(". ", 0, SENTENCE) + 1] if len(text) > SENTENCE else text
    return shortened(kept or text, SENTENCE)


def not_exercised(record: SessionRecord, finished: Sequence[Finished]) -> tuple[str, ...]:
    """What was not run, and why; steps of the gate for changes only where a change came so far."""
    skipped = (one for one in latest_attempts(finished) if one.status == "skipped" and not spared(one, finished))
    said = (f"step {course.name_of(one)} was skipped: {one.skipped_because}" for one in skipped)
    return tuple(dict.fromkeys((*record.not_exercised, *said)))


def variants(record: SessionRecord, finished: Sequence[Finished]) -> Table | None:
    """A row a variant: wrong ones first, examples and baselines last; None where nothing was judged."""
    head = record.head
    wrong = {one.variant: one.verdict for one in record.verdicts if not isinstance(one, SpeedVerdict)}
    compared = {one.variant for one in record.verdicts if one.against == "known_good"}
    names = sorted(
        (*head.variants, *head.emulated),
        key=lambda name: (name not in wrong, name in head.roles, name not in compared),
    )
    rows = []
    for name in names:
        mine = [one for one in speed_verdicts(record.verdicts) if one.variant == name]
        speed = NOTHING if name in wrong else _against(mine)
        role = head.roles.get(name)
        shown = f"{name} ({role})" if role else name
        rows.append((shown, _known_good(record, name), speed, _right(record, finished, name, wrong.get(name))))
    heads = columns("Variant", "Against the known good", f"Against {head.baseline}", "Right")
    return filled(heads, [row for row in rows if row[1:] != (NOTHING,) * 3])


def _right(record: SessionRecord, finished: Sequence[Finished], name: str, wrong: str | None) -> str:
    """`12 of 12 checks, emulated`, by the last verification; of a wrong one that it is wrong."""
    checked = {one.variant: one.checks for output in outputs_of(finished, VerifyOutput) for one in output.variants}
    checks = checked.get(name)
    if not checks:
        return wrong or NOTHING
    declined = sum(one.passed and one.status != "right" for one in checks)
    passed, of = sum(one.status == "right" for one in checks), say.count(len(checks) - declined, "check")
    emulated = ", emulated" if name in record.head.emulated else ""
    if not wrong:
        return f"{passed} of {of}{emulated}"
    failed = len(checks) - declined - passed
    return f"{wrong}{f': {failed} of {of} failed' if failed else ''}{emulated}"


def _against(verdicts: Sequence[SpeedVerdict]) -> str:
    """`faster: 1.40x [1.35, 1.45]`, or of several workloads `faster on 4 of 6, slower on 2: mean 1.40x`."""
    if len(verdicts) == 1:
        return f"{verdicts[0].verdict}: {say.ratio(verdicts[0].ratio, verdicts[0].interval)}"
    mean = mean_of(verdicts).removeprefix("geometric ")
    return ": ".join(filter(None, [_words([one.verdict for one in verdicts]), mean])) or NOTHING


def _known_good(record: SessionRecord, name: str) -> str:
    """`slower on 1 of 3: 0.80x [0.75, 0.85]`: the workload that lost most."""
    good: Against = "known_good"
    mine = [one for one in record.verdicts if (one.variant, one.against) == (name, good)]
    speeds = [one for one in mine if isinstance(one, SpeedVerdict)]
    worst = min(speeds, key=lambda one: (one.verdict != "slower", one.ratio), default=None)
    if worst is None or len(speeds) < len(mine):
        return mine[0].verdict if mine else NOTHING
    words = worst.verdict if len(mine) == 1 else _words([one.verdict for one in mine], worst.verdict)
    return f"{words}: {'' if len(mine) == 1 else 'lowest '}{say.ratio(worst.ratio, worst.interval)}"


def _words(verdicts: Sequence[str], leads: str = "") -> str:
    """`faster on 4 of 6, slower on 2`: what leads, then what is known, the most frequent first; empty for none."""
    counted = sorted(Counter(verdicts).most_common(), key=lambda one: (one[0] != leads, one[0] == "inconclusive"))
    first = f" of {len(verdicts)}"
    return ", ".join(f"{word} on {number}{'' if place else first}" for place, (word, number) in enumerate(counted))


def _good(finished: Sequence[Finished]) -> str:
    """`The known good is main at 0123456789ab (session ...).`, or that there is nothing else to compare with."""
    compared = outputs_of(finished, CompareOutput)
    known = [one for output in compared for one in output.known_good]
    said = dict.fromkeys(  # Variants that came from one session have the same words.
        f"{f'{one.branch} at ' if one.branch else ''}{(one.commit or '')[:12] or 'sources without a commit'}"
        f" (session {one.session})"
        for one in sorted(known, key=lambda one: one.session)
    )
    if said:
        return f"The known good is {'; '.join(said)}."
    if not compared or any(one.verdicts for one in compared):
        return ""
    why = next((text for one in compared for text in one.not_exercised), "no earlier build of it is known")
    return f"Not compared with another build: {shortened(why, SENTENCE)}."


def _lines(record: SessionRecord, finished: Sequence[Finished], missing: Sequence[str]) -> Iterator[str]:
    """Objective and grade, cost, what was not exercised, and what this was of, a line each."""
    said = verdict(record, finished)
    if said:
        yield f"Objective: {said}."
    yield f"Grade {shortened(record.grade, 20)}: {shortened(record.grade_reason.rstrip('.'), SENTENCE)}."
    planned = say.seconds(60 * record.head.plan.plan.budget.minutes)
    yield f"Time: {say.seconds(record.seconds)} of {planned} planned."
    yield money_line(record.bill, record.seconds)
    if missing:
        more = len(missing) - NAMED
        named = "; ".join(shortened(one.replace("`", ""), LONGEST) for one in missing[:NAMED])
        yield f"Not exercised: {named}{f'; {more} more' if more > 0 else ''}."
    head = record.head
    yield f"Session {head.id} on {course.device(head)}; begun {say.day(head.started)}."
