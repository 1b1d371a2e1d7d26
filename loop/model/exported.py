"""What `loop report --format json` and `loop run session --json` print of a session; and `loop init`."""

from typing import Literal

from loop.model.base import Model, Printed
from loop.model.campaign import Proposal
from loop.model.change import Confirmed, TriedChange
from loop.model.index import Fingerprint
from loop.model.money import Bill
from loop.model.record import Conclusion, EndedStep, SessionFacts


class FailedStep(Model):
    """A step that failed, and what earlier sessions say of it."""

    step: str
    """Pattern and step."""
    message: str
    """What it said."""
    signatures: tuple[Fingerprint, ...]
    """By which the failure is recognised."""
    seen_before: tuple[str, ...]
    """What earlier sessions say of it, in lines."""


class Diagnosis(Model):
    """What is wrong with one variant, as far as it was found."""

    variant: str
    """Name of the variant."""
    lines: tuple[tuple[str, str], ...]
    """Label and text."""
    command: str
    """What repeats the smallest failure; empty where none was looked for."""
    cause: str = ""
    """What is wrong with it; empty where that was not found."""
    rule: str = ""
    """On which workloads it is wrong; empty where no rule foresaw fresh ones."""


class ExportedChanges(Model):
    """The changes of a session, and its campaign where it had one."""

    judged: tuple[TriedChange, ...] = ()
    """Changes that were judged, in order."""
    proposals: tuple[Proposal, ...] = ()
    """What proposers came to, in order."""
    confirmed: tuple[Confirmed, ...] = ()
    """What was kept against the start, measured at the end."""


class MadeTarget(Printed):
    """A target that was made."""

    target: str
    """Its folder."""
    files: tuple[str, ...]
    """Its files."""
    notes: tuple[str, ...] = ()
    """What was guessed, left at its default or not found."""
    next: tuple[str, ...]
    """Commands that follow."""


class ExportedSection(Model):
    """A section of the report."""

    fold: str
    """The fold of the report in which it stands."""
    title: str
    """Its heading; empty where it goes on with the section before it."""
    note: str
    """What is shown, and how to read it."""
    lines: tuple[str, ...]
    """Sentences."""
    columns: tuple[str, ...]
    """Heads of its table."""
    rows: tuple[tuple[str, ...], ...]
    """Rows of its table, as text."""


class ExportedSession(SessionFacts, Conclusion):
    """One session. New fields may come; those that are here keep their names and meanings."""

    schema_version: Literal[3] = 3
    """Number of this schema."""
    report: str
    """Where its report is."""
    waiting_for: str
    """What a paused session waits for; empty for any other."""
    brief: str = ""
    """The brief of the change that it waits for, as JSON, the page beside it; empty where it waits for none."""
    steps: tuple[EndedStep, ...]
    """Every step, in order."""
    failures: tuple[FailedStep, ...]
    """Steps that failed."""
    diagnoses: tuple[Diagnosis, ...]
    """What is wrong with variants that were looked into."""
    changes: ExportedChanges
    """Changes of the target that were judged."""
    cost: Bill
    """Cost and saving."""
    sections: tuple[ExportedSection, ...] = ()
    """The sections of the report, in order."""
