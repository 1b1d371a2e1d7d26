"""The first sentence of a report: how it ended, as bold Markdown."""

from collections import Counter
from collections.abc import Iterator, Sequence

from loop.base.stats import geometric_mean
from loop.model.change import kept, standing
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
from loop.model.record import Finished, SessionRecord
from loop.model.verdict import SpeedVerdict
from loop.optimize import section as changes
from loop.report import format as say
from loop.report.findings import mean_of, speed_verdicts
from loop.report.markdown import Markdown, code, escape
from loop.report.plain import shortened

LONGEST = 600
"""Letters of a reason: the whole of it is in the record."""
LONGEST_NAME = 80
ENDINGS = {
    "passed": "Passed",
    "failed": "Failed",
    "skipped": "Nothing was run",
    "aborted": "Aborted",
    "paused": "Paused",
}
PHRASES = {
    "faster": "is faster than {}",
    "slower": "is slower than {}",
    "same": "is as fast as {}",
    "inconclusive": "is inconclusive against {}",
}


def headline(record: SessionRecord, finished: Sequence[Finished]) -> Markdown:
    """One bold sentence: correctness first, then speed, then whatever else decided the outcome."""
    wrong = list(_wrong(record, finished))
    speed = list(_speed(record, finished))
    reason = escape(shortened(record.reason.rstrip("."), LONGEST))
    kept = list(_kept(finished))
    if record.status == "passed":
        parts = [*kept, *speed] if speed else [reason, *kept, _no_speed(finished)]
    elif record.status == "failed":
        parts = [*(wrong or [reason]), *kept, *speed]
    else:
        parts = [reason, *wrong, *kept, *speed]
    return Markdown(f"**{_ending(record)}: {'; '.join(parts)}.**")


def _ending(record: SessionRecord) -> str:
    """`Passed`, `Failed`, ...; of a session whose gates passed also what became of its question."""
    speeds = {one.verdict for one in speed_verdicts(record.verdicts)}
    if record.status == "passed" and speeds == {"inconclusive"}:
        return "No verdict"
    missed = record.status == "passed" and record.objective is not None and record.objective.missed
    return "Objective missed" if missed else ENDINGS[record.status]


def _no_speed(finished: Sequence[Finished]) -> str:
    return "only changes were timed: see Changes" if changes.timed(finished) else "no speed was measured"


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
    for variant, verdict in dict.fromkeys((one.variant, one.verdict) for one in bad):
        names = [one.workload for one in bad if (one.variant, one.verdict) == (variant, verdict)]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        total = f" of {checked[variant]} workloads" if variant in checked and more else ""
        word = "incorrect" if verdict == "incorrect" else "not to be judged"
        where = escape(shortened(names[0], LONGEST_NAME))
        yield f"{_name(variant)} is {word} on {where}{more}{total}; no speed is reported for it"


def _speed(record: SessionRecord, finished: Sequence[Finished]) -> Iterator[str]:
    """`cpu` is faster than torch_sdpa on 11 of 11 workloads, geometric mean 1.63x. The main ones."""
    both_ways = {
        name: text for one in outputs_of(standing(finished), MeasureOutput) for name, text in one.both_ways.items()
    }
    of: dict[str, list[SpeedVerdict]] = {}
    speeds = speed_verdicts(record.verdicts)
    mains = [one for one in speeds if one.variant not in record.head.roles]
    for one in mains or speeds:
        of.setdefault(one.variant, []).append(one)
    for variant, mine in sorted(of.items(), key=_slowness):
        (word, most), *rest = Counter(one.verdict for one in mine).most_common()
        others = "".join(f", {other} on {number}" for other, number in rest)
        phrase = PHRASES[word].format(escape(shortened(record.head.baseline, LONGEST_NAME)))
        mean = mean_of(mine)
        ways = f" ({both_ways[variant]})" if variant in both_ways else ""
        yield f"{_name(variant)} {phrase} on {most} of {len(mine)} workloads{others}{mean and f', {mean}'}{ways}"


def _slowness(one: tuple[str, list[SpeedVerdict]]) -> float:
    """Where a variant stands in the sentence; one of which no mean is said comes last."""
    _, verdicts = one
    return -geometric_mean([verdict.ratio for verdict in verdicts]) if mean_of(verdicts) else 0.0
