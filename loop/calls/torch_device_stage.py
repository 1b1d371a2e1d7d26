"""A Python function's calls on a CUDA device: a CUDA graph where that works, else launch by launch."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.cuda import CUDAGraph, Event, synchronize

from loop.calls.callee import spoil
from loop.calls.cuda.graph import LEFT_WORK
from loop.calls.orders import Windows
from loop.calls.refusal import Refused
from loop.calls.torch_side import WHOLE
from loop.calls.torch_stage import FunctionStage

FLUSH_BYTES = 256 << 20


class DeviceFunctionStage(FunctionStage):
    """Calls of a Python function on device tensors. Results stay there until they are given."""

    graph: Any = None
    again = 0
    """Calls that are made twice, because the variant is to be slower."""
    _flushed: Any = None
    _captured: dict[tuple[tuple[int, ...], ...], tuple[Any, list[Any]]]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        turns = [turn // pool.element_size() for turn, pool in zip(self.places.turns, self.pools, strict=True)]
        self.pools = [rolled(pool, turn).to("cuda") for turn, pool in zip(turns, self.pools, strict=True)]
        self.origins = [torch.cat([pool, pool]) for pool in self.pools]
        self._captured = {}
        self.given: list[list[Tensor]] = []
        """Of each call the outputs that are passed to it."""
        self.settled: list[Tensor] = []
        """Results on the device, as tensors that nothing is left to do for: of one output all calls' in one."""

    def ready(self, windows: Windows, rotations: Sequence[int], *, cold: bool) -> None:
        """Rotate inputs; capture the calls where these windows are new."""
        key = tuple(tuple(window) for window in windows)
        self.again = max(1, round(self.slow * len(windows))) if self.slow else 0
        if self._captured.get(key, (None,))[0] is None:
            self.bound = []
            runs = [self._bind(offsets, number) for number, offsets in enumerate(windows)]
            self.runs = [*runs[: self.again], *runs]
        if key not in self._captured:  # The values before: those that come now are new to all of the calls.
            self._captured[key] = self._capture()
        self.graph, self.results = self._captured[key]
        self.captured = self.graph is not None
        for made in (*self.results, *self.given):
            spoil(made)
        for pool, origin, count in zip(
            self.pools, self.origins, rotations, strict=True
        ):  # A result may be a view.
            first = count // pool.element_size()
            pool.copy_(origin[first : first + len(pool)])
        if cold:
            self._flush()
        synchronize()

    def _capture(self) -> tuple[Any, list[Any]]:
        stream, graph = torch.cuda.Stream(), CUDAGraph()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        results: list[Any] = []
        try:
            with torch.cuda.stream(stream):
                for run in self.runs:
                    run()
                stream.synchronize()
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    results = [run() for run in self.runs]
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            synchronize()
            if "unjoined work" in str(error):
                raise Refused(LEFT_WORK, "left work") from error
            return None, []
        return graph, results

    def _flush(self) -> None:
        """Write more than the second-level cache holds."""
        if self._flushed is None:
            self._flushed = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self._flushed.zero_()

    def run(self, count: int) -> int:
        """Make the calls so many times; nanoseconds by the device's events. All its work is done then."""
        self.settled = []
        begin, end = Event(enable_timing=True), Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(count):
            if self.graph is not None:
                self.graph.replay()
            else:
                self.results = [run() for run in self.runs]
        end.record()
        synchronize()
        return int(float(begin.elapsed_time(end)) * 1e6)

    def passed(self, number: int) -> list[Tensor]:
        """Where a call's outputs are on the device, if they are passed to it."""
        if not self.callee.terms.passed:
            return []
        while len(self.given) <= number:
            self.given.append([torch.empty_like(one, device="cuda") for one in super().passed(number)])
        return self.given[number]

    def settle(self) -> None:
        """Copy the result of each call on the device."""
        if self.callee.terms.passed:
            return
        outputs = [self.callee.outputs(result) for result in self.results[self.again :]]
        if self.call.parts:
            self.settled = [tensor.clone() for some in outputs for tensor in some]
        elif outputs:
            self.settled = [torch.stack([tensor for (tensor,) in outputs])]
        synchronize()

    def give(self) -> None:
        """Copy the result of each call into its slot."""
        given = self.results[self.again :]
        if self.call.parts or self.callee.terms.passed:
            for number, result in enumerate(given):
                for slot, one in zip(super().passed(number), self.passed(number), strict=True):
                    slot.copy_(one)
                self.give_one(number, result)
            return
        if not self.settled:
            self.settle()
        for host in [one.cpu() for one in self.settled]:  # One way to the host for all of them.
            for slots, row in zip(self.slots, host, strict=False):
                slots[0].copy_(row)

    def close(self) -> None:
        """Give the memory back."""
        super().close()
        self.origins, self.graph, self._captured, self.given, self.settled = [], None, {}, [], []


def rolled(pool: Tensor, turn: int) -> Tensor:
    """A pool rotated by so many elements, whatever their type."""
    return pool.view(WHOLE[pool.element_size()]).roll(turn).view(pool.dtype)
