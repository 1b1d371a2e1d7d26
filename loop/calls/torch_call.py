"""Calls of a Python function on torch tensors, on the host and on a GPU."""

import ctypes
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.cuda import CUDAGraph, Event, synchronize
from torch.utils._python_dispatch import TorchDispatchMode

from loop.calls import torch_side
from loop.calls.call import Call, FunctionTerms, Refused, TensorFile, elements_spanned, refuse_late_work
from loop.calls.callee import Callee, outputs_of, overwrite_result
from loop.calls.cuda.stage import LEFT_WORK
from loop.calls.invocation import HostStage, Places, Prepared, Run, Windows
from loop.calls.memory import HIGH, Guard, Memory, draw_guard, guard_zone_bytes
from loop.calls.own_modules import search_folder
from loop.calls.torch_side import INTEGER_TYPES, TORCH_DTYPES, bytes_of
from loop.model.dtypes import Device


class TorchMemory(Memory):
    """Memory of one tensor, with a guard zone on either side in the same torch storage."""

    def __init__(self, size: int, shift: int, dtype: str, zone: int, device: str) -> None:
        self._begin, kind = zone + shift, TORCH_DTYPES[dtype]
        super().__init__(size, dtype, self._begin, zone)
        self._block = torch.empty(self._begin + size + zone, dtype=torch.uint8, device=device)
        self.byte_view = self._block[self._begin : self._begin + size]
        """The tensor's bytes as a uint8 tensor."""
        self.typed_view = self._block.view(kind)[self._begin // kind.itemsize :][: size // kind.itemsize]
        self.address = self.typed_view.data_ptr()
        self._origin = self.byte_view[:0]
        """Copy of the contents on the same device, so that a large tensor is transferred once."""

    def write(self, offset: int, data: bytes) -> None:
        begin = self._begin + offset
        self._block[begin : begin + len(data)].copy_(_bytes_tensor(data))

    def read(self, offset: int, size: int) -> bytes:
        begin = self._begin + offset
        return bytes_of(self._block[begin : begin + size].cpu())

    def fill(self, data: bytes) -> None:
        if data is not self.known_bytes:
            self.known_bytes, self._origin = data, _bytes_tensor(data).to(self._block.device)
        self.rotate(0)

    def rotate(self, count: int) -> None:
        self.rotation_bytes = count
        self.byte_view.copy_(self._origin.roll(-count) if count else self._origin)

    @property
    def has_changed(self) -> bool:
        return not torch.equal(self.byte_view, self._origin.roll(-self.rotation_bytes))


def _bytes_tensor(data: bytes) -> Tensor:
    """View bytes as a tensor that must not be written to."""
    with warnings.catch_warnings(action="ignore"):
        return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


class _Bytes(NamedTuple):
    """Device memory in the form of NVIDIA's array interface, as bytes."""

    memory: TorchMemory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        shape, data = (self.memory.nbytes,), (self.memory.address, False)
        return {"shape": shape, "typestr": "|u1", "data": data, "version": 3}


NAMES = "empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones ones_like"
NAMES += " new_ones full full_like new_full"
FACTORIES = {getattr(torch.ops.aten, name) for name in NAMES.split()}


class GuardedAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context in which new tensors are allocated between guard zones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocated: list[tuple[tuple[int, ...], TorchMemory]] = []
        """Shape and memory of each tensor that was allocated."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tell torch no: otherwise it would import its compiler, which takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator; move the result of a factory function into guarded memory."""
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket not in FACTORIES or type(result) is not Tensor:
            return result
        if result.layout != torch.strided or result.device.type not in ("cpu", "cuda") or not result.numel():
            return result
        if torch.cuda.is_current_stream_capturing() if result.is_cuda else result.is_pinned():
            return result
        shape, strides, item = tuple(result.shape), tuple(result.stride()), result.element_size()
        zone, size = guard_zone_bytes(shape, strides, "float32"), elements_spanned(shape, strides) * item
        memory = TorchMemory(size, 0, "uint8", zone, str(result.device))
        memory.write_guard(draw_guard(HIGH))
        if result.is_cuda:  # The new tensor's storage has exactly its size.
            inside = torch.as_tensor(_Bytes(memory), device=result.device)
        else:
            kind: Any = type("_Array", (ctypes.c_char * size,), {})
            array = kind.from_address(memory.address)
            array.memory = memory  # Keeps the memory alive as long as the tensor.
            inside = torch.frombuffer(array, dtype=torch.uint8)
        self.allocated.append((shape, memory))
        return inside.view(result.dtype).as_strided(shape, strides).copy_(result)


def stray_writes(call: Callable[[], Any]) -> list[str]:
    """Describe the writes of one call outside of tensors that it allocated, a sentence each. Empty
    if the call raises under guarded allocation."""
    mode = GuardedAllocations()
    try:
        with mode:
            result = call()
    except Exception:
        return []
    if any(memory.byte_view.is_cuda for _, memory in mode.allocated):
        synchronize()
    sentences = []
    for shape, memory in mode.allocated:
        if stray := memory.stray_write:
            is_output = type(result) is Tensor and result.data_ptr() == memory.address
            name = "its output" if is_output else f"a tensor {list(shape)} that it allocated"
            sentences.append(f"writes outside {name}: {stray}")
    return sentences


class Importable:
    """A loaded Python function of a variant or target."""

    def __init__(self, terms: FunctionTerms, device: Device) -> None:
        self.device, self.terms = device, terms
        if terms.folder:
            search_folder(terms.folder)
        self.function = torch_side.find_function(terms.python)
        if terms.folder:
            # The module must come from the built copy, not from a namesake elsewhere.
            module = torch_side.import_module(terms.python.partition(":")[0])
            if not os.path.realpath(module.__file__ or "").startswith(os.path.realpath(terms.folder) + os.sep):
                raise Refused(f"{module.__name__} is not what was built, but {module.__file__}")
        self.arguments = torch_side.find_function(terms.arguments) if terms.arguments else None

    def prepare(self, call: Call, layout: str = "contiguous") -> "TensorCall":
        """Bring a call's inputs into host or device memory for a check."""
        callee = Callee(self.function, self.arguments, self.terms, call, self.device)
        return TensorCall(callee, call, self.device, layout)

    def stage(self, places: Places, call: Call, slow: float) -> "FunctionStage":
        """Lay a call out in shared memory."""
        kind = DeviceFunctionStage if self.device == "cuda" else FunctionStage
        callee = Callee(self.function, self.arguments, self.terms, call, self.device, watches_state=False)
        return kind(callee, places, call, slow)


def require_device() -> None:
    """Raise Refused, with the reason, if torch has no usable GPU."""
    if torch.version.cuda is None:
        raise Refused(f"torch {torch.__version__} is a CPU build: it computes nothing on a GPU")
    if torch.cuda.is_available():
        return
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        raise Refused(f"torch {torch.__version__} finds no GPU: {str(error).strip().splitlines()[0]}") from error


class TensorCall(Prepared):
    """A checked call of a Python function. Outputs are in our memory only if they are passed. Zones
    stay accessible, because Python code may copy a tensor's whole storage."""

    def __init__(self, callee: Callee, call: Call, device: str, layout: str) -> None:
        self.callee, self.device = callee, device
        super().__init__(call)
        self.allocate_tensors(layout, call.separate_outputs if callee.terms.passes_outputs else ())
        flats = [memory.typed_view for _, memory in self.named_memories() if isinstance(memory, TorchMemory)]
        placed = zip(flats, call.inputs, self.strides, strict=False)
        self.arguments = [flat.as_strided(each.shape, at, flat.storage_offset()) for flat, each, at in placed]
        """The input tensors as the function receives them."""
        written = zip(flats[len(call.inputs) :], call.separate_outputs, strict=False)
        self.output_buffers = [flat.reshape(part.shape) for flat, part in written]
        self.result: Any = None

    def allocate(self, size: int, shift: int, dtype: str, zone: int) -> Memory:
        return TorchMemory(size, shift, dtype, zone, self.device)

    def write_guards(self, guards: Sequence[Guard]) -> None:
        super().write_guards(guards)
        if self.device == "cuda":
            synchronize()

    def bind(self) -> Run:
        bound = self.callee.bind(self.arguments, self.output_buffers)

        def run() -> None:
            self.result = bound()

        return run

    def allocation_strays(self) -> list[str]:
        return stray_writes(self.callee.bind(self.arguments, self.output_buffers))

    def poison_outputs(self, guard: Guard | None = None) -> None:
        """Fill the last outputs with NaN and drop them, so that reusing them fails the check."""
        self.callee.restore_state()
        super().poison_outputs(guard)
        result, self.result = self.result, None
        if self.output_buffers:
            return
        inputs = [tensor.untyped_storage().data_ptr() for tensor in self.arguments]
        outputs = [output for output in outputs_of(result).values() if type(output) is Tensor]
        if not any(output.untyped_storage().data_ptr() in inputs for output in outputs):
            overwrite_result(result)

    def read_output(self) -> bytes:
        """Bytes of the last outputs. Raises Refused if shapes or types are wrong. On a GPU also if
        work continued on another stream."""
        if self.device == "cuda":
            torch.cuda.current_stream().synchronize()
        tensors = self.output_buffers or self.callee.checked_outputs(self.result)
        data = self.call.join_outputs([bytes_of(tensor.detach().cpu()) for tensor in tensors], self.read_input)
        if self.device == "cuda":
            begin = perf_counter()
            synchronize()
            refuse_late_work(perf_counter() - begin)
        return data

    def changed_inputs(self) -> list[str]:
        """Names of changed inputs and of changed module state."""
        return [*super().changed_inputs(), *self.callee.changed_state]


class FunctionStage(HostStage):
    """Timed calls on tensors in shared memory. Results are copied into slots only in `give`."""

    def __init__(self, callee: Callee, places: Places, call: Call, slow: float) -> None:
        super().__init__(places, call, slow)
        self.callee = callee
        self.pools = [
            self._view(offset, (tensor.elements + tensor.extra_elements,), tensor.dtype)
            for offset, tensor in zip(places.input_offsets, call.inputs, strict=True)
        ]
        self.output_views = [self._in_slot(offset, call.separate_outputs) for offset in places.output_offsets]
        """For each call, views of the slots of its separate outputs."""
        self.results: list[Any] = []
        self.repeated_calls = 0
        """Number of calls that run twice on a GPU, for a positive control."""

    def _view(self, offset: int, shape: tuple[int, ...], dtype: str) -> Tensor:
        """View part of shared memory as a tensor."""
        count, kind = prod(shape), TORCH_DTYPES[dtype]
        if not count:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(self.places.memory, dtype=kind, count=count, offset=offset).reshape(shape)

    def _in_slot(self, offset: int, parts: Sequence[TensorFile]) -> list[Tensor]:
        """Views of the outputs in the slot at this byte offset."""
        return [self._view(offset + part.offset, part.shape, part.dtype) for part in parts]

    def bind_windows(self, windows: Windows) -> None:
        self.results = []
        self.runs = [self.callee.bind(self._inputs(n), self.buffers_for(n)) for n in range(len(windows))]

    def _inputs(self, number: int) -> list[Tensor]:
        """Inputs of a call: windows of the pools."""
        placed = zip(self.pools, self.call.inputs, self.windows[number], strict=True)
        return [pool.as_strided(each.shape, each.strides("contiguous"), offset) for pool, each, offset in placed]

    def buffers_for(self, number: int) -> list[Tensor]:
        """Output tensors to pass to a call; empty if the function returns its outputs."""
        return self.output_views[number] if self.callee.terms.passes_outputs else []

    def make_calls(self, runs: Sequence[Run]) -> None:
        """Run some calls and keep every result, because the judge may read any of them."""
        self.results += [run() for run in runs]

    def copy_results(self) -> None:
        """Copy each result, and inputs changed in place, into the slots. Raises Refused if a result
        has a wrong shape or type."""
        with torch.inference_mode():
            for number, result in enumerate(self.results[self.repeated_calls :][: len(self.output_views)]):
                outputs = self.buffers_for(number) or self.callee.checked_outputs(result)
                for slot, tensor in zip(self.output_views[number], outputs, strict=True):
                    slot.copy_(tensor)
                for part, input_number in zip(self.call.parts, self.call.updates, strict=False):
                    if input_number >= 0:
                        (slot,) = self._in_slot(self.places.output_offsets[number], [part])
                        slot.copy_(self._inputs(number)[input_number])

    def close(self) -> None:
        self.results, self.runs, self.pools, self.output_views = [], [], [], []


class DeviceFunctionStage(FunctionStage):
    """Timed calls on GPU tensors: one CUDA graph if capture works, otherwise separate launches.
    Results stay on the device until `give`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        for n, (turn, pool) in enumerate(zip(self.places.rotations, self.pools, strict=True)):
            whole = pool.view(INTEGER_TYPES[pool.element_size()])  # As integers: `roll` lacks some types.
            self.pools[n] = whole.roll(turn // pool.element_size()).view(pool.dtype).to("cuda")
        self.origins = [torch.cat([pool, pool]) for pool in self.pools]
        self.graphs: dict[tuple[tuple[int, ...], ...], tuple[Any, list[Any]]] = {}
        """Windows to (graph, results); the graph is None if capture is impossible."""
        self.graph: Any = None
        self.on_device: list[list[Tensor]] = []
        """Device tensors of each call's passed outputs."""
        self.settled: list[Tensor] = []
        """Finished results on the device; for calls with a single output, one stacked tensor."""

    def prepare_calls(self, windows: Windows, rotations: Sequence[int]) -> None:
        """Rotate the inputs, and capture a graph for windows not seen before."""
        self.windows, key = windows, tuple(tuple(window) for window in windows)
        self.repeated_calls = max(1, round(self.slowdown * len(windows))) if self.slowdown else 0
        if self.graphs.get(key, (None,))[0] is None:
            self.bind_windows(windows)
            self.runs = [*self.runs[: self.repeated_calls], *self.runs]
        if key not in self.graphs:  # Capture on the old values: timed values must be new to every call.
            self.graphs[key] = self._capture()
        self.graph, self.results = self.graphs[key]
        self.is_captured = self.graph is not None
        for result in (*self.results, *self.on_device):
            overwrite_result(result)
        # Refill inputs last, because a result may be a view of one.
        for pool, origin, count in zip(self.pools, self.origins, rotations, strict=True):
            first = count // pool.element_size()
            pool.copy_(origin[first : first + len(pool)])
        synchronize()

    def _capture(self) -> tuple[Any, list[Any]]:
        """Capture all runs in one graph; returns (graph, results), graph None if impossible."""
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

    def run(self, count: int) -> int:
        """Make all calls `count` times; return nanoseconds by GPU events. Waits for all work."""
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

    def buffers_for(self, number: int) -> list[Tensor]:
        """Device tensors to pass as a call's outputs; empty if the function returns its outputs."""
        if not self.callee.terms.passes_outputs:
            return []
        while len(self.on_device) <= number:
            slots = self.output_views[len(self.on_device)]
            self.on_device.append([torch.empty_like(slot, device="cuda") for slot in slots])
        return self.on_device[number]

    def finish_results(self) -> None:
        """Copy each result on the device, which forces lazy results to be computed."""
        if self.callee.terms.passes_outputs:
            return
        outputs = [self.callee.checked_outputs(result) for result in self.results[self.repeated_calls :]]
        if self.call.parts:
            self.settled = [tensor.clone() for tensors in outputs for tensor in tensors]
        elif outputs:
            self.settled = [torch.stack([tensor for (tensor,) in outputs])]
        synchronize()

    def copy_results(self) -> None:
        if self.call.parts or self.callee.terms.passes_outputs:
            super().copy_results()
            return
        if not self.settled:
            self.finish_results()
        for host in [tensor.cpu() for tensor in self.settled]:  # One transfer to the host for all results.
            for (slot,), row in zip(self.output_views, host, strict=False):
                slot.copy_(row)

    def close(self) -> None:
        super().close()
        self.origins, self.graph, self.graphs, self.on_device, self.settled = [], None, {}, [], []
