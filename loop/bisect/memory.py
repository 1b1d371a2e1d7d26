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

    def probes(self) -> list[Probe]:
        """All of them."""
        return list(self._lines())

    def keep(self, probe: Probe) -> None:
        """Add one; it is written before anything else happens."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"format": 1, "probe": json.loads(to_json(probe))})
        with self.path.open("a") as file:
            file.write(line + "\n")
            file.flush()

    def _lines(self) -> Iterator[Probe]:
        """Whole lines; one that a kill cut short is passed over."""
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return
        for line in text.splitlines():
            try:
                yield Probe.model_validate(json.loads(line)["probe"], strict=False)
            except (ValueError, KeyError, TypeError, ValidationError):
                continue


def memory_of(*question: str) -> Memory:
    """The memory of a question: what is asked, of which kernel, on which machine."""
    return Memory(state_folder() / "bisects" / f"{content_hash(chr(0).join(question))[:32]}.jsonl")
