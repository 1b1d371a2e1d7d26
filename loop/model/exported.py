"""What `loop report --format json` and `loop run session --json` print of a session; and `loop init`."""

from typing import Any, Literal

from loop.model.base import Model, Printed
from loop.model.campaign import Proposal
from loop.model.change import Confirmed, TriedChange
from loop.model.money import Bill
from loop.model.record import Conclusion, EndedStep, SessionFacts


class Diagnosis(Model):
    """What is wrong with one variant, as far as it was found."""

    variant: str
    lines: tuple[tuple[str, str], ...]
    command: str
    """What repeats the smallest failure; empty where none was looked for."""
    cause: str = ""
    rule: str = ""


class MadeTarget(Printed):
    """A target that was made."""

    target: str
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What was guessed, left at its default or not found."""
    next: tuple[str, ...]


class ExportedSession(SessionFacts, Conclusion):
    """One session. New fields may come; those that are here keep their names and meanings."""

    schema_version: Literal[3] = 3
    report: str
    waiting_for: str
    """What a paused session waits for; empty for any other."""
    brief: str = ""
    """The brief of the change that it waits for, as JSON, the page beside it; empty where it waits for none."""
    steps: tuple[EndedStep, ...]
    failures: tuple[dict[str, Any], ...]
    """Each `step` that failed with its `message`, `signatures` and, in lines, where it was `seen_before`."""
    diagnoses: tuple[Diagnosis, ...]
    changes: dict[str, tuple[TriedChange, ...] | tuple[Proposal, ...] | tuple[Confirmed, ...]]
    """`judged` changes and `proposals` in order; what was `confirmed` against the start at the end."""
    cost: Bill
    sections: tuple[dict[str, Any], ...] = ()
    """Of the report, each with its `fold`, `title`, `note` and `lines`, `columns` and `rows` of its table."""
