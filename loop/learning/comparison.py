"""Compare sessions: which ratios are comparable, and the page that shows them.

A ratio is measured against the library in the same session, so ratios of one target, device and
baseline are comparable. Latencies are not: they depend on the machine and the day.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from loop.model.base import Model, Printed
from loop.model.change import KeptChange
from loop.model.dtypes import Device
from loop.model.measurement import SpeedVerdict, Verdict, is_vague
from loop.report import format as say
from loop.report.markdown import drop_empty_columns
from loop.report.screen import Screen
from loop.report.sections import Section, print_sections

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # The page names each session by a letter.
UNKNOWN = "?"
MOVED_WORDS = {"higher": "higher", "lower": "lower", "within": "overlap"}


class ComparedSession(Model):
    """One session in a comparison."""

    id: str
    target: str
    device: Device
    status: str
    """Final status; `open` if it has not ended."""
    grade: str = ""
    baseline: str
    """Library function that ratios are measured against."""
    facts: dict[str, str | None]
    """Facts about the environment, by name; None: not recorded."""
    files: dict[str, str]
    """Each file of the target, to the beginning of its hash; empty if not recorded. A file that a
    kept change edited has that of `ground`."""
    ground: str
    """Hash of the target's files with the changes that were kept: what the ratios are of."""
    verdicts: dict[str, dict[str, Verdict]]
    """Variant to workload to its verdict against the baseline."""
    kept: tuple[KeptChange, ...] = ()
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
    """Ratio of the last session that has one that is not vague, divided by the first's."""
    moved: Literal["higher", "lower", "within"] | None = None
    """Whether the last interval is above or below the first, or overlaps it."""


class SessionComparison(Printed):
    """Several sessions, compared."""

    schema_version: Literal[4] = 4
    sessions: tuple[ComparedSession, ...]
    """The sessions, in the order of the command line."""
    rows: tuple[ComparedRow, ...]
    refused: tuple[str, ...]
    """Sessions whose ratios are not compared, with the reason."""
    changed_files: tuple[str, ...]
    """Files of the target that are not the same in all sessions that recorded theirs."""

    def show(self, screen: Screen) -> None:
        """Print the page."""
        print_sections(sections(self), screen)


def compare(sessions: Sequence[ComparedSession]) -> SessionComparison:
    """Compare sessions. The first that has ended decides which others are comparable."""
    reference = next((session for session in sessions if session.status != "open"), None)
    refusals: dict[str, str] = {}  # Session id to the reason why its ratios are not compared.
    for session in sessions:
        if session.status == "open" or reference is None:
            refusals[session.id] = "it has not ended: it has no verdict yet"
            continue
        for name in ("target", "device", "baseline"):
            expected, value = getattr(reference, name), getattr(session, name)
            if value != expected:
                refusals.setdefault(session.id, f"another {name}, {value} and not {expected}")
    verdicts = [session.verdicts if session.id not in refusals else {} for session in sessions]
    by_variants = [item for by_variant in verdicts for item in by_variant.items()]
    pairs = dict.fromkeys((variant, name) for variant, names in by_variants for name in names)
    rows = []
    for variant, workload in pairs:
        cells = tuple(by_variant.get(variant, {}).get(workload) for by_variant in verdicts)
        row = ComparedRow(variant=variant, workload=workload, cells=cells)
        timed = [cell for cell in cells if isinstance(cell, SpeedVerdict)]
        speeds = [cell for cell in timed if not is_vague(cell.interval)]
        if len(speeds) > 1:
            first, last = speeds[0], speeds[-1]
            moved = "higher" if last.interval[0] > first.interval[1] else "within"
            moved = "lower" if last.interval[1] < first.interval[0] else moved
            row = row.model_copy(update={"change": last.ratio / first.ratio, "moved": moved})
        rows.append(row)
    refused = tuple(f"ratios of {name}: {reason}" for name, reason in refusals.items())
    files_by_ground: dict[str, dict[str, str]] = {}
    for session in sorted(sessions, key=lambda session: bool(session.kept)):
        files_by_ground.setdefault(session.ground, session.files)
    recorded = [files_by_ground[session.ground] for session in sessions if session.files]
    names = sorted({name for files in recorded for name in files})
    changed = tuple(name for name in names if len({files.get(name) for files in recorded}) > 1)
    return SessionComparison(
        sessions=tuple(sessions), rows=tuple(rows), refused=refused, changed_files=changed
    )


def sections(comparison: SessionComparison) -> Iterator[Section]:
    """Sections of the comparison page."""
    sessions = comparison.sessions
    lettered = list(zip(LETTERS[: len(sessions)], sessions, strict=True))
    rows = []
    for letter, session in lettered:
        ending = ", ".join(filter(None, (session.status, session.grade)))
        took = UNKNOWN if session.seconds is None else say.seconds(session.seconds)
        cost = UNKNOWN if session.usd is None else say.billed_usd(session.usd)
        rows.append((letter, session.id, ending, session.target, session.device, took, cost))
    heads = ("", "Session", "Ended", "Target", "Device", ">Took", ">Cost")
    yield Section("Sessions", table=drop_empty_columns(heads, rows), folded_column=-1)
    yield Section("Not compared", comparison.refused)
    sources_text = "the files of the target are the same"
    if unrecorded := [letter for letter, session in lettered if not session.files]:
        sources_text = f"the files of {', '.join(unrecorded)} were not recorded"
    if comparison.changed_files:
        sources_text = f"they differ in {', '.join(comparison.changed_files)}"
    yield Section("Sources", (sources_text,))
    for variant in dict.fromkeys(row.variant for row in comparison.rows):
        yield _variant_section(variant, comparison)
    lines = []
    for fact in dict.fromkeys(fact for session in sessions for fact in session.facts):
        values = [(letter, session.facts.get(fact)) for letter, session in lettered]
        if len({value for _, value in values if value is not None}) > 1:
            texts = (f"{letter} {value or UNKNOWN}" for letter, value in values)
            lines.append(f"{fact}: {', '.join(texts)}")
    if lines:
        lines.append("a ratio may move because the library or the machine did, and not the kernel")
    yield Section("Environment", tuple(lines or ["nothing else that is on record differs"]))


def _variant_section(variant: str, comparison: SessionComparison) -> Section:
    """Section for one variant: its ratios by workload and session, and its kept changes."""
    sessions, letters = comparison.sessions, LETTERS[: len(comparison.sessions)]
    table_rows: list[tuple[str, ...]] = []
    for row in comparison.rows:
        if row.variant != variant:
            continue
        texts = []
        for cell in row.cells:
            text: str = cell.verdict if cell is not None else "-"
            if isinstance(cell, SpeedVerdict):
                text = say.ratio(cell.ratio, cell.interval)
            texts.append(text)
        change = "-"
        if row.change and row.moved:
            change = f"{say.speedup_text(row.change)} {MOVED_WORDS[row.moved]}"
        table_rows.append((row.workload, *texts, change))
    lines = list[str]()
    for letter, session in zip(letters, sessions, strict=True):
        changes = [kept for kept in session.kept if kept.variant == variant]
        lines += [f"{letter} kept a change: {say.gain_text(kept)}" for kept in changes]
    heads = ("Workload", *(f">{letter}" for letter in letters), "Change")
    baseline = next(session.baseline for session in sessions if session.baseline)
    table = drop_empty_columns(heads, table_rows)
    return Section(f"{variant} against {baseline}", table=table, lines=tuple(lines))
