"""A dry run: a variant's own host code says which kernels a call launches, and launches none of them.

An emulated library that finds LOOP_EMULATOR_DRY=1 in its environment appends a JSON line for each launch to the
file that LOOP_EMULATOR_LAUNCHES names. No tensor is read or written then: addresses are made up, so the size of a
workload does not matter.
"""

import ctypes
import json
import os
from pathlib import Path
from typing import Any

from loop.calls.refusal import Declined, Refused
from loop.calls.tensors import LoopTensor, describe, strides_of
from loop.calls.variants import Compiled

DRY, TOLD = "LOOP_EMULATOR_DRY", "LOOP_EMULATOR_LAUNCHES"
APART = 1 << 40
"""Tensors lie so far from each other, and from zero: aligned, and nothing else is there."""


class DryRun:
    """An emulated library that only tells."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.told = Path(request["told"])
        os.environ |= {DRY: "1", TOLD: str(self.told)}  # Before the library is loaded: it may look only then.
        self.variant = Compiled(request)

    def launches(self, call: dict[str, Any]) -> dict[str, Any]:
        """What one call launches, in order, and the error that its entry returned, where it did."""
        known = self._size()
        tensors = [_made_up(place, one) for place, one in enumerate([*call["inputs"], call["output"]])]
        inputs, output = (LoopTensor * len(call["inputs"]))(*tensors[:-1]), (LoopTensor * 1)(tensors[-1])
        numbers = [float("nan") if number is None else number for number in call["numbers"]]
        attributes = (ctypes.c_double * max(len(numbers), 1))(*numbers)
        try:
            self.variant.invoke(inputs, output, attributes, None)
        except Declined as declined:
            return {"launches": self._read(known), "declined": str(declined)}
        return {"launches": self._read(known), "declined": ""}

    def _size(self) -> int:
        return self.told.stat().st_size if self.told.exists() else 0

    def _read(self, known: int) -> list[dict[str, Any]]:
        if not self.told.exists():
            return []
        lines = self.told.read_bytes()[known:].decode(errors="replace").splitlines()
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise Refused(f"a line of {TOLD} is no JSON: {error}") from error


def _made_up(place: int, tensor: dict[str, Any]) -> Any:
    shape = tuple(tensor["shape"])
    return describe((place + 1) * APART, shape, strides_of(shape, "contiguous"), tensor["dtype"])
