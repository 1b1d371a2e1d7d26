"""The CUDA layer on a GPU: memory, streams, graphs, clocks and sensors. Skipped where there is no GPU."""

import array
import ctypes
import mmap
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import pytest
import torch

from loop.calls.call import DTYPE_NUMBERS, Call, FunctionTerms, LoopTensor, Refused, TensorFile
from loop.calls.callee import Callee
from loop.calls.cuda import stage as cuda_graph
from loop.calls.cuda.driver import Device, DeviceMemory, Stream
from loop.calls.invocation import Places
from loop.calls.torch_call import DeviceFunctionCalls
from tests.device.compiling import build_scale

pytestmark = pytest.mark.cuda
SHAPE = (1000, 1000)
BYTES = 4 * SHAPE[0] * SHAPE[1]
"""Work on another stream takes 20 ms; a context with nothing left to do is through much sooner than this."""


@pytest.fixture(scope="module")
def device() -> Device:
    return Device()


@pytest.fixture
def stream(device: Device) -> Iterator[Stream]:
    """A stream of this test's own; all work is done at the end."""
    own_stream = Stream(device.driver)
    yield own_stream
    device.synchronise_all()


@pytest.fixture(scope="module")
def library(device: Device, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The compiled variants, for the GPU that is here."""
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc on the PATH")
    return ctypes.CDLL(str(build_scale(tmp_path_factory.mktemp("scale"), "-arch=native")))


class Scale:
    """One call of a variant: a matrix of ones to twos."""

    def __init__(self, device: Device, library: ctypes.CDLL, entry: str, stream: Stream) -> None:
        self.entry, self.library, self.stream = getattr(library, entry), library, stream
        self.entry.argtypes = [ctypes.c_void_p] * 4
        library.loop_error.restype = ctypes.c_char_p
        self.x, self.y = DeviceMemory(device, BYTES), DeviceMemory(device, BYTES)
        self.x.fill(array.array("f", [1.0] * (BYTES // 4)).tobytes())
        self._inputs, self._outputs = describe(self.x), describe(self.y)

    def run(self) -> None:
        error = self.entry(ctypes.byref(self._inputs), ctypes.byref(self._outputs), None, self.stream.handle)
        if error:
            raise Refused(f"error {error}: {self.library.loop_error(error).decode()}")

    @property
    def right(self) -> bool:
        """Whether the output is right, and no byte beside it was written."""
        wanted = array.array("f", [2.0] * (BYTES // 4)).tobytes()
        return self.y.read_tensor() == wanted and not self.y.stray_write_text and not self.x.stray_write_text


def describe(buffer: DeviceMemory) -> LoopTensor:
    """A matrix of SHAPE as the C interface sees it."""
    tensor = LoopTensor(buffer.address, DTYPE_NUMBERS["float32"], 2)
    tensor.sizes[0], tensor.sizes[1] = SHAPE
    tensor.strides[0], tensor.strides[1] = SHAPE[1], 1
    return tensor


@pytest.fixture
def scale(device: Device, library: ctypes.CDLL, stream: Stream) -> Callable[[str], Scale]:
    """Makes a call of a variant on this test's stream."""
    return partial(Scale, device, library, stream=stream)


def test_a_graph_replays_the_calls(scale: Callable[[str], Scale], stream: Stream) -> None:
    """A replay launches as many kernels as there were calls, and writes the output again."""
    call = scale("right")
    graph = cuda_graph.capture(stream, [call.run] * 25)
    assert 25 == graph.nodes
    call.y.poison()
    graph.replay()
    stream.synchronise()
    assert call.right


def test_graph_and_events_agree_on_the_time(scale: Callable[[str], Scale], stream: Stream) -> None:
    """A kernel of 8 MB takes microseconds either way, and everything was queued before it began."""
    call, watch = scale("right"), cuda_graph.Stopwatch(stream)
    graph = cuda_graph.capture(stream, [call.run] * 25)
    replayed = sorted(watch.time(graph.replay, 1, None) / 25 for _ in range(5))[2]
    timed = sorted(watch.time(call.run, 25) for _ in range(5))[2]
    assert watch.can_queue_all
    assert 5e-7 < replayed < 1e-3
    assert replayed / 3 < timed < replayed * 5
    assert cuda_graph.Stopwatch(stream).time(call.run, 10) < 1e-3


def test_a_variant_that_waits_for_the_gpu_is_timed_without_a_graph(
    scale: Callable[[str], Scale], stream: Stream
) -> None:
    """It cannot be captured, and behind the gate it would wait for ever: both are noticed, and it still works."""
    call = scale("synchronises")
    assert cuda_graph.capture(stream, [call.run] * 5) is None
    call.y.poison()
    watch = cuda_graph.Stopwatch(stream)
    assert 0 < watch.time(call.run, 5) < 0.1
    assert not watch.can_queue_all
    assert call.right
    assert 5 == cuda_graph.capture(stream, [scale("right").run] * 5).nodes


def test_a_graph_of_torch_is_timed_without_its_launch(device: Device) -> None:
    """One replay takes as long as each of ten, as a compiled variant's does: all wait until they are launched."""
    x, y = (TensorFile(name, "", (4096,), "float32") for name in "xy")
    call = Call("w", "float32", (x,), y, {}, ())
    places = cuda_graph.DevicePlaces(Places(mmap.mmap(-1, 1 << 22), call, 100), holds_outputs=False)
    callee = Callee(torch.neg, None, FunctionTerms(""), call, "cuda", watches_state=False)
    watch = cuda_graph.Stopwatch(Stream(device.driver, is_default=True), can_queue_all=False)
    stage = cuda_graph.DeviceStage(DeviceFunctionCalls(callee, places), 0.0, watch)
    times_ns = {1: list[float](), 10: list[float]()}
    for replays in [1, 10] * 40:
        stage.prepare_calls([(0,)] * 100, (0,))
        times_ns[replays].append(stage.run(replays) / replays)
    assert 0 < stage.graph_nodes
    assert median(times_ns[1]) < 1.07 * median(times_ns[10])
