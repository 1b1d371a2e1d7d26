"""What the report says of a search for the commit of a regression."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.model.bisect import BisectAnswer, BisectOutput, Probe
from loop.model.output import outputs_of
from loop.model.record import Finished
from loop.report import format as say
from loop.report.markdown import Table, columns, filled

OUTCOMES = {
    "culprit": "The commit is known",
    "several": "Several commits are to blame",
    "range": "One of these commits, which cannot be told apart",
    "no_regression": "It did not show again",
    "inconclusive": "No answer",
    "refused": "Not searched",
}
MOST_LINES = 60
"""Lines of the culprit's difference in the report; git has the rest."""


@dataclass(frozen=True)
class Search:
    """One search."""

    variant: str
    headline: str
    commits: tuple[str, ...]
    """Those that are blamed, or cannot be told apart."""
    lines: tuple[str, ...]
    probes: Table | None
    difference: tuple[str, ...]
    """Lines of the patch."""


def searches(finished: Sequence[Finished]) -> tuple[Search, ...]:
    """Every search of a session that came to an answer."""
    outputs = [output for output in outputs_of(finished, BisectOutput) if output.answer is not None]
    return tuple(_search(output, output.answer) for output in outputs if output.answer)


def _search(output: BisectOutput, answer: BisectAnswer) -> Search:
    commits = tuple(
        f"`{commit.short}` {commit.subject}{commit.origin}" for commit in answer.culprits or answer.range
    )
    patch = answer.difference.splitlines()
    shown = tuple(patch[:MOST_LINES])
    more = (f"... {len(patch) - MOST_LINES} more lines",) if len(patch) > MOST_LINES else ()
    return Search(
        variant=output.variant,
        headline=f"{OUTCOMES[answer.outcome]}: {answer.why}",
        commits=commits,
        lines=tuple(rests_on(answer)),
        probes=_probes(answer.probes),
        difference=shown + more,
    )


def rests_on(answer: BisectAnswer) -> Iterator[str]:
    """What an answer rests on: the culprit's step, what was judged and tried, and what could not be."""
    if answer.ratio is not None:
        yield f"Its parent's time over its own: {say.times(answer.ratio)}, in fresh pairs"
    if answer.scope:
        yield f"Judged on {answer.scope}"
    observations = sum(len(probe.values) for probe in answer.probes)
    yield f"{observations} observations in {len(answer.probes)} probes, {answer.builds} builds"
    yield from (f"Skipped `{commit[:12]}`: {reason}" for commit, reason in answer.skipped.items())


def _probes(probes: Sequence[Probe]) -> Table | None:
    """One row a commit that was tried."""
    commits = list(dict.fromkeys(probe.commit for probe in probes))
    rows = tuple(_row(commit, [probe for probe in probes if probe.commit == commit]) for commit in commits)
    return filled(columns("Commit", ">Observations", ">Mean", "What came of it"), rows)


def _row(commit: str, probes: Sequence[Probe]) -> tuple[str, ...]:
    values = [value for probe in probes for value in probe.values]
    mean = f"{sum(values) / len(values):+.3f}" if values else ""
    reason = next((probe.reason for probe in probes if probe.reason), "measured")
    return commit[:12], str(len(values)), mean, reason
