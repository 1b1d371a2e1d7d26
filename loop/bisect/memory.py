"""Everything that was observed of a commit, kept: an interrupted search goes on, a second one is nearly free."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from loop.documents import content_hash, to_json
from loop.model.bisect import Probe
from loop.places import state_folder


@dataclass(frozen=True)
class Memory:
    """Probes of one question: a file with a line for each, in the order in which they were made."""

    path: Path

    def probes(self, tree: str) -> list[Probe]:
        """What was observed of a kernel, by the hash of its sources."""
        return [probe for kept, probe in self._lines() if kept == tree]

    def keep(self, tree: str, probe: Probe) -> None:
        """Add what was observed; on disk before anything else happens."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"format": 1, "tree": tree, "probe": json.loads(to_json(probe))})
        with self.path.open("a") as file:
            file.write(line + "\n")
            file.flush()

    def _lines(self) -> Iterator[tuple[str, Probe]]:
        """Whole lines; one that a kill cut short is passed over."""
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return
        for line in text.splitlines():
            try:
                read = json.loads(line)
                yield read["tree"], Probe.model_validate(read["probe"], strict=False)
            except (ValueError, KeyError, TypeError, ValidationError):
                continue


def memory_of(*question: str) -> Memory:
    """The memory of a question: what is asked, of which kernel, against what, on which machine."""
    return Memory(state_folder() / "bisects" / f"{content_hash(chr(0).join(question))[:32]}.jsonl")
