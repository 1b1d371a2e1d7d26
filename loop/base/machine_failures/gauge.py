"""What was left of the machine while a step ran: a child that met a full disk tidies up before it is asked."""

import errno
import time
from pathlib import Path

from loop.base.errors import MachineFailure
from loop.base.machine_failures import limits
from loop.base.machine_failures.folders import LEAST_BYTES, PLENTY_BYTES, REFUSED, Folders
from loop.base.machine_failures.reasons import OF_FOLDERS, failure

LOOKED_S = 0.02
"""Ticks may come quicker than a look is worth."""


class Gauge:
    """Measures from the beginning of a step to its end."""

    def __init__(self, folders: Folders, refused: frozenset[Path] | None = None) -> None:
        self.folders = folders
        self._begin, self._counts = folders.short(), limits.counts()
        self.refused = frozenset(self._begin) if refused is None else refused
        """Folders that could not be written when the command began: it was able to do without."""
        self._met: dict[Path, int] = {}
        self._looked = 0.0

    def tick(self) -> None:
        """Look, unless that was done a moment ago."""
        if time.monotonic() - self._looked > LOOKED_S:
            self.look()

    def look(self) -> None:
        """Look now."""
        self._looked = time.monotonic()
        for folder, number in self.folders.short().items():
            if folder not in self._begin:
                self._met.setdefault(folder, number)

    def failure(self, *, bad: bool, said: str) -> MachineFailure | None:
        """What failed while the step ran, so that its outcome means nothing; None where nothing did.

        `bad`: whether the outcome is a failure of anything. A good one stands on a disk that was full before.
        `said`: everything that the step says.
        """
        self.look()
        found = self._met or (self._explained(said) if bad else {})
        for folder, number in found.items():
            if number in OF_FOLDERS:
                return failure(number, folder)
        number = limits.short_of(said, self._counts) if bad else 0
        return failure(number) if number else None

    def _explained(self, said: str) -> dict[Path, int]:
        """Folders that explain a bad outcome, those first that the step names.

        Where it speaks of a full disk, little room is too little.
        """
        numbers = limits.named(said)
        named = {folder for folder in self.folders.own if str(folder) in said}
        excused = set() if errno.EROFS in numbers else self.refused - named
        for room in (LEAST_BYTES, PLENTY_BYTES) if {errno.ENOSPC, errno.EDQUOT} & set(numbers) else (LEAST_BYTES,):
            short = self.folders.tried(room).items()
            found = {one: number for one, number in short if number not in REFUSED or one not in excused}
            if found:
                return dict(sorted(found.items(), key=lambda pair: pair[0] not in named))
        return {}
