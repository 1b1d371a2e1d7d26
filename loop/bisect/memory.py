"""Everything that was observed of a commit, kept: an interrupted search goes on, a second one is nearly free."""

import json
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import content_hash, sums, to_json
from loop.base.places import state_folder
from loop.model.base import Model
from loop.model.bisect import Probe


class Remembered(Model):
    """One line."""

    format: int
    """Format number."""
    probe: Probe
    """What was observed."""


@dataclass(frozen=True)
class ProbeMemory:
    """Probes of one question: a file with a line for each, in the order in which they were made."""

    path: Path | None
    """None: nothing is kept."""

    def probes(self) -> list[Probe]:
        """All whole lines; what is damaged is named, and tried again."""
        try:
            return [line.probe for line in sums.sealed_lines(self.path, Remembered)] if self.path else []
        except FileNotFoundError:
            return []

    def keep(self, probe: Probe) -> None:
        """Add one; it is written before anything else happens."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        sums.append_sealed(self.path, json.dumps({"format": 1, "probe": json.loads(to_json(probe))}))


def memory_of(*question: str) -> ProbeMemory:
    """The memory of a question: what is asked, of which kernel, on which machine."""
    return ProbeMemory(state_folder() / "bisects" / f"{content_hash(chr(0).join(question))[:32]}.jsonl")
