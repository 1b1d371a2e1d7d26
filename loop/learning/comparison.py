"""Compare sessions: which figures are comparable, and the page that shows them.

A ratio is measured against the library in the same session, so ratios of one target, device and
baseline are comparable. Latencies are not: they depend on the machine and the day.
"""

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import geometric_mean
from typing import Literal

from pydantic import Field

from loop.model.base import Model, Printed
from loop.model.index import SessionResults
from loop.model.verdict import SpeedVerdict, Verdict
from loop.report import format as say
from loop.report.markdown import drop_empty_columns
from loop.report.screen import Screen
from loop.report.sections import Section, print_sections

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The page names each session by a letter."""
UNKNOWN = "?"


class ComparedSession(SessionResults):
    """One session in a comparison."""

    started: datetime.datetime
    status: str
    """Final status; `open` if it has not ended."""
    baseline: str
    """Library function that ratios are measured against."""
    plan: str = ""
    sets: tuple[str, ...] = ()
    facts: dict[str, str | None] = Field(default_factory=dict)
    """Facts about the environment, by name; None: not recorded."""
    verdicts: dict[str, dict[str, Verdict]] = Field(default_factory=dict)
    seconds: float | None = None
    """Wall time of the session in seconds, all resumed parts included; None if unknown."""
    usd: float | None = None
    """Sum of the charges in dollars; None if the session has not ended."""


class ComparedRow(Model):
    """One variant on one workload, in each session."""

    variant: str
    workload: str
    cells: tuple[Verdict | None, ...]
    """A verdict for each session, in order; None: no verdict, or not comparable."""
    change: float | None = None
    """Ratio of the last session that has one, divided by the first's."""
    moved: Literal["higher", "lower", "within"] | None = None
    """Whether the last interval is above or below the first, or overlaps it."""
    verdict_changed: bool = False

    @classmethod
    def from_cells(cls, variant: str, workload: str, cells: tuple[Verdict | None, ...]) -> "ComparedRow":
        """A row, with the change between its first and last ratio that is not vague (interval too wide)."""
        verdicts = [cell.verdict for cell in cells if cell is not None]
        timed = [cell for cell in cells if isinstance(cell, SpeedVerdict) and not cell.vague]
        change: float | None = None
        moved: Literal["higher", "lower", "within"] | None = None
        if len(timed) > 1:
            first, last = timed[0], timed[-1]
            change, moved = last.ratio / first.ratio, "within"
            if last.interval[0] > first.interval[1]:
                moved = "higher"
            elif last.interval[1] < first.interval[0]:
                moved = "lower"
        changed = len(verdicts) > 1 and verdicts[0] != verdicts[-1]
        fields = {"change": change, "moved": moved, "verdict_changed": changed}
        return cls(variant=variant, workload=workload, cells=cells, **fields)


class SessionComparison(Printed):
    """Several sessions, compared."""

    schema_version: Literal[3] = 3
    sessions: tuple[ComparedSession, ...]
    """The sessions, in the order of the command line."""
    environment: dict[str, tuple[str | None, ...]]
    """Facts that differ: name to a value for each session, in order; None: not recorded."""
    same: dict[str, str]
    """Facts that all sessions share, by name."""
    rows: tuple[ComparedRow, ...]
    refused: tuple[str, ...]
    """Figures that are not compared, with the reason."""

    def show(self, screen: Screen) -> None:
        """Print the page."""
        print_sections(sections(self), screen)


def compare(sessions: Sequence[ComparedSession]) -> SessionComparison:
    """Compare sessions. The first that has ended decides which others are comparable."""
    reference = next((session for session in sessions if session.status != "open"), None)
    refusals: dict[str, str] = {}  # Session id to the reason why its ratios are not compared.
    for session in sessions:
        if session.status == "open" or reference is None:
            refusals[session.id] = "it has not ended: it has no verdict yet" if reference else "none has ended"
            continue
        for name in ("target", "device", "baseline"):
            reference_value, value = getattr(reference, name), getattr(session, name)
            if value != reference_value:
                refusals.setdefault(session.id, f"another {name}, {value} and not {reference_value}")
    environment: dict[str, tuple[str | None, ...]] = {}
    same: dict[str, str] = {}
    for fact in dict.fromkeys(fact for session in sessions for fact in session.facts):
        values = tuple(session.facts.get(fact) for session in sessions)
        recorded_values = {value for value in values if value is not None}
        if len(recorded_values) > 1:
            environment[fact] = values
        elif recorded_values and None not in values:
            same[fact] = recorded_values.pop()
    rows = []
    verdicts_by_session = [session.verdicts if session.id not in refusals else {} for session in sessions]
    for variant in dict.fromkeys(name for verdicts in verdicts_by_session for name in verdicts):
        by_workload = [verdicts.get(variant, {}) for verdicts in verdicts_by_session]
        for workload in dict.fromkeys(name for verdicts in by_workload for name in verdicts):
            cells = tuple(verdicts.get(workload) for verdicts in by_workload)
            rows.append(ComparedRow.from_cells(variant, workload, cells))
    return SessionComparison(
        sessions=tuple(sessions),
        environment=environment,
        same=same,
        rows=tuple(rows),
        refused=tuple(f"ratios of {name}: {reason}" for name, reason in refusals.items()),
    )


def sections(comparison: SessionComparison) -> Iterator[Section]:
    """Sections of the comparison page."""
    sessions, letters = comparison.sessions, LETTERS[: len(comparison.sessions)]
    rows = []
    for letter, session in zip(letters, sessions, strict=True):
        gpu = session.facts.get("GPU") if session.device == "cuda" else None
        ending = ", ".join(filter(None, (session.status, session.grade)))
        device = f"{session.device} ({gpu})" if gpu else session.device
        rows.append((letter, session.id, ending, session.target, device))
    heads = ("", "Session", "Ended", "Target", "Device")
    yield Section("Sessions", table=drop_empty_columns(heads, rows), wrap=-1)
    yield Section("Not compared", comparison.refused)
    for variant in dict.fromkeys(row.variant for row in comparison.rows):
        yield _variant_section(variant, comparison)
    lines = []
    for fact, values in comparison.environment.items():
        pairs = zip(letters, values, strict=True)
        lines.append(f"{fact}: {', '.join(f'{letter} {value or UNKNOWN}' for letter, value in pairs)}")
    lines = lines or ["nothing that is on record differs"]
    if comparison.same:
        lines.append(f"the same: {', '.join(f'{fact} {value}' for fact, value in comparison.same.items())}")
    if comparison.environment:
        lines.append("a ratio may move because the library or the machine did, and not the kernel")
    yield Section("Environment", tuple(lines))
    costs = [
        ("took", *(UNKNOWN if session.seconds is None else say.seconds(session.seconds) for session in sessions)),
        ("cost", *(UNKNOWN if session.usd is None else say.billed_usd(session.usd) for session in sessions)),
    ]
    letter_heads = ("", *(f">{letter}" for letter in letters))
    yield Section("Cost and time", table=drop_empty_columns(letter_heads, costs))


def _variant_section(variant: str, comparison: SessionComparison) -> Section:
    """Section for one variant: its ratios by workload and session, kept changes, verdicts."""
    sessions, letters = comparison.sessions, LETTERS[: len(comparison.sessions)]
    rows = [row for row in comparison.rows if row.variant == variant]
    baseline = next(session.baseline for session in sessions if session.baseline)
    moved_words = {"higher": "higher", "lower": "lower", "within": "overlap"}
    table_rows: list[tuple[str, ...]] = []
    has_vague = False
    for row in rows:
        texts = []
        for cell in row.cells:
            text: str = cell.verdict if cell else "-"
            if isinstance(cell, SpeedVerdict):
                has_vague = has_vague or cell.vague
                text = say.ratio(cell.ratio, cell.interval)
            texts.append(text)
        change = f"{say.speedup_text(row.change)} {moved_words[row.moved]}" if row.change and row.moved else "-"
        table_rows.append((row.workload, *texts, change))
    kept_lines, verdict_lines = [], []
    for place, (letter, session) in enumerate(zip(letters, sessions, strict=True)):
        for kept in session.kept:
            if kept.variant == variant:
                kept_lines.append(f"{letter} kept a change: {say.gain_text(kept)}")
        verdicts = Counter(cell.verdict for row in rows if (cell := row.cells[place]))
        if verdicts:
            counts = ", ".join(f"{verdict} on {count}" for verdict, count in verdicts.most_common())
            regressed = "; slower than its known good of then" if variant in session.regressed else ""
            verdict_lines.append(f"{letter}: {counts}{regressed}")
    for row in rows:
        if row.verdict_changed:
            verdicts_text = " -> ".join(cell.verdict for cell in row.cells if cell)
            verdict_lines.append(f"verdict changed on {row.workload}: {verdicts_text}")
    if has_vague:
        verdict_lines.append("an interval whose ends differ by more than a factor of 10 is compared with none")
    heads = ("Workload", *(f">{letter}" for letter in letters), "Change")
    table = drop_empty_columns(heads, [*table_rows, *_mean_row(rows)])
    title = f"{variant} against {baseline}"
    return Section(title, table=table, lines=tuple(kept_lines), after=tuple(verdict_lines))


def _mean_row(rows: Sequence[ComparedRow]) -> list[tuple[str, ...]]:
    """A row of geometric means over the workloads that all timed sessions measured, with the last mean / the
    first; no row for fewer than two such workloads or sessions."""
    ratio_rows: list[dict[int, float]] = []  # For each: index of a session to its ratio.
    for row in rows:
        cells = {place: cell for place, cell in enumerate(row.cells) if isinstance(cell, SpeedVerdict)}
        ratio_rows.append({place: cell.ratio for place, cell in cells.items() if not cell.vague})
    sessions = range(len(rows[0].cells))
    timed = [place for place in sessions if any(place in ratios for ratios in ratio_rows)]
    common = [ratios for ratios in ratio_rows if set(ratios) == set(timed)]
    if len(common) < 2 or len(timed) < 2:
        return []
    means = {place: geometric_mean([ratios[place] for ratios in common]) for place in timed}
    cells_text = [say.speedup_text(means[place]) if place in means else "-" for place in sessions]
    change = means[timed[-1]] / means[timed[0]]
    return [(f"geometric mean of {len(common)}", *cells_text, say.speedup_text(change))]
