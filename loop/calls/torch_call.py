"""Calls of a Python function on torch tensors, on the host and on a GPU."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.cuda import CUDAGraph, synchronize
from torch.utils._python_dispatch import TorchDispatchMode

from loop.calls.call import Call, FunctionTerms, Refused, Sizes, TensorFile, elements_spanned
from loop.calls.callee import TORCH_DTYPES, Callee, bytes_of, find_function, overwrite_result
from loop.calls.cuda.driver import Stream
from loop.calls.cuda.stage import LEFT_WORK, DevicePlaces, DeviceStage, Stopwatch, the_device
from loop.calls.invocation import HostStage, Places, Prepared, Run, Stage, TimedCalls, Windows
from loop.calls.memory import LARGEST, Guard, Memory, draw_guard, guard_zone_bytes
from loop.calls.own_modules import search_folder
from loop.model.dtypes import Device

NAMES = "empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros"
NAMES += " ones ones_like new_ones full full_like new_full"
FACTORIES = {getattr(torch.ops.aten, name) for name in NAMES.split()}
"""Operators that allocate the tensor they return."""


class TorchMemory(Memory):
    """Memory of one tensor, with a guard zone on either side in the same torch storage."""

    def __init__(
        self, device: str, nbytes: int, shift_bytes: int, dtype: str, zone_bytes: int
    ) -> None:
        """Allocate a tensor of `nbytes`, `shift_bytes` behind an aligned address, between zones."""
        self._begin = zone_bytes + shift_bytes
        super().__init__(nbytes, dtype, self._begin, zone_bytes)
        size = self._begin + nbytes + zone_bytes
        self._block = torch.empty(size, dtype=torch.uint8, device=device)
        self.bytes_view = self._block[self._begin : self._begin + nbytes]
        self.address = self._block.data_ptr() + self._begin
        self._filled_bytes = self.bytes_view[:0]
        """`filled_bytes` on the same device, so that a large tensor is transferred once."""

    def view(self, part: TensorFile, layout: str = "contiguous") -> Tensor:
        """The tensor with its own element type, in the shape of `part`."""
        elements = self.bytes_view.view(TORCH_DTYPES[self.dtype])
        return elements.as_strided(part.shape, part.strides(layout))

    def write(self, offset: int, data: bytes) -> None:
        begin = self._begin + offset
        self._block[begin : begin + len(data)].copy_(_bytes_tensor(data))

    def read(self, offset: int, size: int) -> bytes:
        begin = self._begin + offset
        return bytes_of(self._block[begin : begin + size].cpu())

    def fill(self, data: bytes) -> None:
        """As in `Memory`; the same `bytes` object is not transferred to a GPU again."""
        if data is not self.filled_bytes:
            self.filled_bytes = data
            self._filled_bytes = _bytes_tensor(data).to(self._block.device)
        self.bytes_view.copy_(self._filled_bytes)

    @property
    def has_changed(self) -> bool:
        """Whether any byte differs from what was filled in: somebody wrote to this memory."""
        return not torch.equal(self.bytes_view, self._filled_bytes)


def _bytes_tensor(data: bytes) -> Tensor:
    """View bytes as a uint8 tensor that must not be written to."""
    if not data:
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings(action="ignore"):  # Torch warns that the memory is read-only.
        return torch.frombuffer(data, dtype=torch.uint8)


class GuardedAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context in which new tensors are allocated between guard zones."""

    allocated: list[TorchMemory]  # Memory of each tensor that was allocated.

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch no: otherwise it would import its compiler, which takes a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator. What a factory (as `empty`) allocates moves to guarded memory."""
        result = func(*args, **(kwargs or {}))
        is_new = func.overloadpacket in FACTORIES and type(result) is Tensor
        if not is_new or result.layout != torch.strided:
            return result
        if result.device.type not in ("cpu", "cuda") or not result.numel():
            return result
        if torch.cuda.is_current_stream_capturing() if result.is_cuda else result.is_pinned():
            return result
        shape, strides = tuple(result.shape), tuple(result.stride())
        nbytes = elements_spanned(shape, strides) * result.element_size()
        zone_bytes = guard_zone_bytes(shape, strides, "float32")
        memory = TorchMemory(str(result.device), nbytes, 0, "uint8", zone_bytes)
        memory.write_guard(draw_guard(LARGEST))
        memory.name = f"a tensor {list(shape)} that it allocated"
        self.allocated.append(memory)
        if result.is_cuda:  # Not a slice of `memory`, whose storage is larger than the tensor.
            content = torch.as_tensor(memory, device=result.device)
        else:
            content = torch.from_numpy(memory.bytes_view.numpy())
        return content.view(result.dtype).as_strided(shape, strides).copy_(result)


def stray_writes(run: Callable[[], Any]) -> list[str]:
    """Describe the writes of one call outside of tensors that it allocated, a sentence each. Empty
    if the call raises, because some code does not work with guarded tensors."""
    guarded = GuardedAllocations()  # type: ignore[no-untyped-call]
    guarded.allocated = []
    try:
        with guarded:
            result = run()
    except Exception:
        return []
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        synchronize()
    sentences = []
    for memory in guarded.allocated:
        if stray := memory.stray_write_text:
            is_output = type(result) is Tensor and result.data_ptr() == memory.address
            name = "its output" if is_output else memory.name
            sentences.append(f"writes outside {name}: {stray}")
    return sentences


class Importable:
    """A loaded Python function of a variant or target."""

    def __init__(self, terms: FunctionTerms, device: Device) -> None:
        """Import the function. Raises Refused if it comes from other files than the built copy."""
        self.device, self.terms = device, terms
        if terms.folder:
            search_folder(terms.folder)
        self.function = find_function(terms.python, terms.folder)
        self.arguments = find_function(terms.arguments) if terms.arguments else None

    def prepare(self, call: Call, layout: str = "contiguous") -> "TensorCall":
        callee = Callee(self.function, self.arguments, self.terms, call, self.device)
        return TensorCall(callee, call, self.device, layout)

    def stage(self, places: Places, slowdown: float) -> Stage:
        """Prepare timed calls in shared memory or on the GPU, without watching a module's state."""
        terms, call, device = self.terms, places.call, self.device
        callee = Callee(self.function, self.arguments, terms, call, device, watches_state=False)
        if self.device == "cpu":
            return HostStage(FunctionCalls(callee, places), slowdown)
        torch.cuda.empty_cache()  # What torch keeps for later is not free for others.
        device_places = DevicePlaces(places, holds_outputs=self.terms.passes_outputs)
        calls = DeviceFunctionCalls(callee, device_places)
        stream = Stream(the_device().driver, is_default=True)  # Where torch works.
        stopwatch = Stopwatch(stream, can_queue_all=False)  # Separate launches count as time.
        return DeviceStage(calls, slowdown, stopwatch)


def require_device() -> None:
    """Raise Refused, with the reason, if torch has no usable GPU."""
    if torch.cuda.is_available():
        return
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise Refused(f"torch {torch.__version__} finds no GPU: {reason}") from error


class TensorCall(Prepared):
    """A checked call of a Python function. Outputs are in our memory only if they are passed. Zones
    stay accessible, because Python code may copy a tensor's whole storage."""

    def __init__(self, callee: Callee, call: Call, device: str, layout: str) -> None:
        self.callee, self.device = callee, device
        super().__init__(call)
        if device == "cuda":
            self.wait_for_all = synchronize
        outputs = call.separate_outputs if callee.terms.passes_outputs else ()
        self.allocate_tensors(partial(TorchMemory, device), layout, outputs)
        memories = (memory for memory in self.memories if isinstance(memory, TorchMemory))
        self.arguments = [next(memories).view(part, layout) for part in call.inputs]
        """The input tensors as the function receives them."""
        self.output_buffers = [next(memories).view(part) for part in outputs]
        """The outputs that are passed; empty if the function returns them."""
        self.result: Any = None  # What the last call returned.

    def bind(self) -> Run:
        """Return a function that makes the call and keeps its result."""
        bound = self.callee.bind(self.arguments, self.output_buffers)

        def run() -> None:
            self.result = bound()

        return run

    def describe_allocation_strays(self) -> list[str]:
        """As in `Prepared`: makes one more call, in which new tensors lie between guard zones."""
        return stray_writes(self.callee.bind(self.arguments, self.output_buffers))

    def poison_outputs(self, guard: Guard | None = None) -> None:
        """Fill the last outputs with NaN and drop them, so that reuse shows; reset the module."""
        self.callee.restore_state()
        super().poison_outputs(guard)
        result, self.result = self.result, None
        if not self.output_buffers:
            overwrite_result(result, self.arguments)

    def read_separate_outputs(self) -> list[bytes]:
        """As in `Prepared`: of the outputs passed, or of what the call returned."""
        if self.device == "cuda":
            torch.cuda.current_stream().synchronize()
        tensors = self.output_buffers or self.callee.checked_outputs(self.result)
        return [bytes_of(tensor.detach().cpu()) for tensor in tensors]

    def changed_inputs(self) -> list[str]:
        """Names of changed inputs and of changed module state."""
        return [*super().changed_inputs(), *self.callee.changed_state]


class FunctionCalls(TimedCalls):
    """Timed calls of a Python function on tensors in shared memory."""

    has_results = True

    def __init__(self, callee: Callee, places: Places) -> None:
        super().__init__(places)
        self.callee = callee
        self.pools: list[Tensor] = []
        """Each input with its extra elements, one-dimensional: calls see windows of it."""
        for begin, tensor in zip(places.input_offsets, self.call.inputs, strict=True):
            elements = tensor.elements + tensor.extra_elements
            self.pools.append(self._view(begin, (elements,), tensor.dtype))
        self.output_views: list[list[Tensor]] = []
        """For each call, views of the shared memory from which the judge reads its outputs."""
        parts = self.call.separate_outputs
        for begin in places.output_offsets:
            views = [self._view(begin + part.offset, part.shape, part.dtype) for part in parts]
            self.output_views.append(views)
        self.buffers = self.output_views  # The outputs to pass to each call, if they are passed.

    def _view(self, offset: int, shape: Sizes, dtype: str) -> Tensor:
        """View shared memory from byte `offset` on as a tensor."""
        options: dict[str, Any] = {"dtype": TORCH_DTYPES[dtype]}
        if 0 in shape:
            return torch.empty(shape, **options)
        options |= {"count": prod(shape), "offset": offset}
        return torch.frombuffer(self.places.memory, **options).reshape(shape)

    def bind(self, windows: Windows) -> Sequence[Run]:
        runs = []
        for window, buffers in zip(windows, self.buffers, strict=False):
            inputs = []
            for pool, part, first in zip(self.pools, self.call.inputs, window, strict=True):
                inputs.append(pool.as_strided(part.shape, part.strides("contiguous"), first))
            outputs = buffers if self.callee.terms.passes_outputs else ()
            runs.append(self.callee.bind(inputs, outputs))
        return runs

    def copy_results(self, windows: Windows, results: Any) -> None:
        """As in `TimedCalls`. Raises Refused for results of wrong number, kind, shape or type."""
        self.places.return_outputs(windows)
        if self.callee.terms.passes_outputs:
            return
        with torch.inference_mode():
            for views, result in zip(self.output_views, results, strict=False):
                for view, tensor in zip(views, self.callee.checked_outputs(result), strict=True):
                    view.copy_(tensor)


class DeviceFunctionCalls(FunctionCalls):
    """Timed calls of a Python function on GPU tensors."""

    def __init__(self, callee: Callee, places: DevicePlaces) -> None:
        super().__init__(callee, places)
        for number, pool in enumerate(places.pools):
            device_bytes = torch.as_tensor(pool, device="cuda")
            self.pools[number] = device_bytes.view(self.pools[number].dtype)
        if callee.terms.passes_outputs:
            block, self.buffers = torch.as_tensor(places.output_block, device="cuda"), []
            for begin in range(0, len(block), places.output_stride):
                views = []
                for part in self.call.separate_outputs:
                    data = block[begin + part.offset :][: part.nbytes]
                    views.append(data.view(TORCH_DTYPES[part.dtype]).reshape(part.shape))
                self.buffers.append(views)

    def capture(self, runs: Sequence[Run]) -> tuple[Any, list[Any]]:
        stream, graph = torch.cuda.Stream(), CUDAGraph()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for run in runs:  # First calls load code, which cannot be captured.
                    run()
                stream.synchronize()
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    results = [run() for run in runs]
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            synchronize()
            if "unjoined work" in str(error):
                raise Refused(LEFT_WORK, "left work") from error
            return None, []
        return graph, results

    def overwrite(self, results: Sequence[Any]) -> None:
        """As in `TimedCalls`. Waits for the work: the inputs are written on another stream."""
        for result in results:
            overwrite_result(result)
        synchronize()

    def finish(self, results: list[Any]) -> Any:
        """As in `TimedCalls`, after timing: copy results; lazy ones compute. Stacks single ones."""
        if self.callee.terms.passes_outputs:
            return results
        all_outputs = [self.callee.checked_outputs(result) for result in results]
        if self.call.several_outputs:
            copies: Any = [tuple(tensor.clone() for tensor in outputs) for outputs in all_outputs]
        else:
            copies = torch.stack([output for (output,) in all_outputs])
        synchronize()
        return copies

    def copy_results(self, windows: Windows, results: Any) -> None:
        """As in `FunctionCalls`; a stacked tensor is transferred to the host at once."""
        super().copy_results(windows, results.cpu() if isinstance(results, Tensor) else results)
