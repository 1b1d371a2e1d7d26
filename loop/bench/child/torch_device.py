"""Python functions on a CUDA device: timed by the device's own events, inputs in its memory."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch.cuda import Event, synchronize

from loop.bench.child.torch_side import Function, TensorCall
from loop.bench.child.variants import Run

FLUSH_BYTES = 256 << 20


class DeviceCall(TensorCall):
    """One call of a Python function on device tensors.

    Events stand around the calls on the current stream, behind enough queued work that launching is not timed;
    the whole device is waited for before the output is read, and what that waiting shows beyond the events is
    work on other streams: it is added.
    """

    def __init__(self, function: Function, call: dict[str, Any], device: str, layout: str) -> None:
        super().__init__(function, call, device, layout)
        self._busy: Any = None

    def _run(self, views: list[torch.Tensor]) -> None:
        self.result = self.function(*views, **self.attributes)

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call on windows of its inputs, as something to run; it is complete when the device is idle."""
        return super().bind(offsets)

    def refresh(self, draw: random.Random | None) -> None:
        """Other values at every address, in place before anything is timed."""
        super().refresh(draw)
        synchronize()

    def measure(self, runs: Sequence[Run]) -> float:
        """Seconds between two events of the device."""
        begin, end = Event(enable_timing=True), Event(enable_timing=True)
        synchronize()
        begin.record()
        for run in runs:
            run()
        end.record()
        synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def flush(self) -> None:
        """Write more than the second-level cache holds."""
        if self._busy is None:
            self._busy = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=self.device)
        self._busy.zero_()
        synchronize()
