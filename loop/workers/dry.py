"""A dry run: a variant's own host code says which kernels a call launches, and launches none of them.

An emulated library that finds LOOP_EMULATOR_DRY=1 in its environment appends a JSON line for each launch to the
file that LOOP_EMULATOR_LAUNCHES names. No tensor is read or written then: addresses are made up, so the size of a
workload does not matter.
"""

import json
import os
from pathlib import Path
from typing import Any

from loop.calls.call import Call, LibraryTerms
from loop.calls.refusal import Refused
from loop.calls.variants import Compiled
from loop.workers.worker_messages import Launched, Launches

DRY, TOLD = "LOOP_EMULATOR_DRY", "LOOP_EMULATOR_LAUNCHES"
APART = 1 << 40
"""Tensors lie so far from each other, and from zero: aligned, and nothing else is there."""


class DryRun:
    """An emulated library that only tells."""

    def __init__(self, request: Launches) -> None:
        self.told = Path(request.told)
        os.environ |= {DRY: "1", TOLD: str(self.told)}  # Before the library is loaded: it may look only then.
        if not isinstance(request.variant, LibraryTerms):
            raise Refused("only a library can be asked what it launches")
        self.variant = Compiled(request.variant)

    def launches(self, call: Call) -> Launched:
        """What one call launches, in order, and the error that its entry returned, where it did."""
        known, count = self._size(), len(call.inputs)
        inputs = call.c_inputs([(place + 1) * APART for place in range(count)])
        output = call.c_output((count + 1) * APART)
        try:
            self.variant.invoke(inputs, output, call.c_numbers(), None)
        except Refused as declined:
            return Launched(self._read(known), str(declined))
        return Launched(self._read(known), "")

    def _size(self) -> int:
        return self.told.stat().st_size if self.told.exists() else 0

    def _read(self, known: int) -> tuple[dict[str, Any], ...]:
        if not self.told.exists():
            return ()
        lines = self.told.read_bytes()[known:].decode(errors="replace").splitlines()
        try:
            return tuple(json.loads(line) for line in lines)
        except ValueError as error:
            raise Refused(f"a line of {TOLD} is no JSON: {error}") from error
