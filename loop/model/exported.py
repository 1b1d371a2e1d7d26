"""JSON that `loop report --format json` and `loop run session --json` print."""

from typing import Any, Literal

from loop.model.base import Model
from loop.model.campaign import Proposal
from loop.model.change import Confirmed, TriedChange
from loop.model.money import Bill
from loop.model.record import Conclusion, EndedStep, SessionFacts


class Diagnosis(Model):
    """The diagnosis of one wrong variant."""

    variant: str
    lines: tuple[tuple[str, str], ...]
    command: str
    """Command that reproduces the smallest failure; empty if none was searched for."""
    cause: str = ""
    rule: str = ""


class ExportedSession(SessionFacts, Conclusion):
    """One session as JSON. Releases may add fields; existing fields keep their names and meanings."""

    schema_version: Literal[3] = 3
    report: str
    waiting_for: str
    """What a paused session waits for; empty if it is not paused."""
    brief: str = ""
    """Path of the JSON brief of the change that the session waits for; a text page is next to it. Or empty."""
    steps: tuple[EndedStep, ...]
    failures: tuple[dict[str, Any], ...]
    """Each failed `step` with `message`, `signatures` (fingerprints) and earlier sessions (`seen_before`)."""
    diagnoses: tuple[Diagnosis, ...]
    changes: dict[str, tuple[TriedChange, ...] | tuple[Proposal, ...] | tuple[Confirmed, ...]]
    """`judged` changes, `proposals`, and final measurements against the start (`confirmed`), in order."""
    cost: Bill
    sections: tuple[dict[str, Any], ...] = ()
    """Sections of the report: `fold`, `title`, `note`, `lines`, and `columns` and `rows` of a table."""
