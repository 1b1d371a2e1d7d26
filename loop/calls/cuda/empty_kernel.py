"""Calls of a kernel that does nothing, in a CUDA graph: no call on a GPU is shorter. No torch."""

import ctypes

from loop.calls.cuda.call import the_device, the_stream
from loop.calls.cuda.graph import Stopwatch, capture
from loop.calls.orders import Stage

PTX = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n"
CALLS = 100
"""Kernels in the graph."""


class EmptyKernels(Stage):
    """As many launches of an empty kernel as a graph holds; a run tells the time of one."""

    captured = True

    def __init__(self) -> None:
        driver, stream = the_device().driver, the_stream()
        module = driver.make("cuModuleLoadData", ctypes.c_void_p, PTX)
        kernel = driver.make("cuModuleGetFunction", ctypes.c_void_p, module, b"empty")

        def launch() -> None:
            driver.call("cuLaunchKernel", kernel, 1, 1, 1, 32, 1, 1, 0, stream.handle, None, None)

        self.graph, self.watch = capture(stream, launch, CALLS), Stopwatch(stream)

    def run(self, count: int) -> int:
        """So many calls, a graph's at least; nanoseconds of them by the device's events."""
        replays = max(1, count // CALLS)
        return int(self.watch.replay(self.graph, replays).seconds * replays * CALLS * 1e9)

    def close(self) -> None:
        """Give the graph back."""
        self.graph.close()
