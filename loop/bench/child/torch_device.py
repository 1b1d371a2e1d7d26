"""Python functions on a CUDA device: timed by the device's own events, inputs in its memory."""

import random
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch
from torch.cuda import CUDAGraph, Event, synchronize

from loop.bench.child.refusal import Refused
from loop.bench.child.torch_side import TensorCall
from loop.bench.child.variants import Run

FLUSH_BYTES = 256 << 20
LATE_S = 20e-3
"""Work that goes on for longer after the stream is done was not all on the stream. What is shorter shows in the
output, which is read before: the host's clock cannot tell it from an interruption."""


def need_device() -> None:
    """Raise Refused where this torch has no GPU, saying why."""
    if torch.version.cuda is None:
        raise Refused(f"torch {torch.__version__} is a CPU build: it computes nothing on a GPU")
    if torch.cuda.is_available():
        return
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        raise Refused(f"torch {torch.__version__} finds no GPU: {str(error).strip().splitlines()[0]}") from error


class DeviceCall(TensorCall):
    """One call of a Python function on device tensors: a CUDA graph where that works, else launch by launch."""

    replays = True
    _flushed: Any = None

    def refresh(self, draw: random.Random | None) -> None:
        """Other values at every address, in place before anything is timed."""
        super().refresh(draw)
        synchronize()

    def measure(self, runs: Sequence[Run]) -> float:
        """Seconds between two events around a replay, or around the launches where nothing can be captured."""
        graph = self._graph(tuple(runs))
        begin, end = Event(enable_timing=True), Event(enable_timing=True)  # type: ignore[no-untyped-call]
        synchronize()
        begin.record()
        if graph is not None:
            graph.replay()
        else:
            for run in runs:
                run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def _graph(self, runs: tuple[Run, ...]) -> Any:
        """The runs as one graph, captured once on a stream of its own; None when they cannot be captured."""
        known = self.__dict__.setdefault("graphs", {})
        if runs not in known:
            known[runs] = self._capture(runs)
        graph, self.result = known[runs]
        return graph

    def _capture(self, runs: tuple[Run, ...]) -> tuple[Any, Any]:
        stream, graph = torch.cuda.Stream(), CUDAGraph()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for run in runs:
                    run()
                stream.synchronize()
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    for run in runs:
                        run()
                finally:
                    graph.capture_end()
        except RuntimeError:
            synchronize()
            return None, None
        return graph, self.result

    def flush(self) -> None:
        """Write more than the second-level cache holds."""
        if self._flushed is None:
            self._flushed = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=self.device)
        self._flushed.zero_()
        synchronize()

    def output(self) -> bytes:
        """The last output's bytes. Raises Refused when work went on elsewhere after the stream was done."""
        torch.cuda.current_stream().synchronize()
        data = super().output()
        begin = perf_counter()
        synchronize()
        late = perf_counter() - begin
        if late > LATE_S:
            raise Refused(f"work went on for {late * 1e3:.0f} ms on another stream after its own was done")
        return data
