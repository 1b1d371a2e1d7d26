"""A timed call: in the judge's memory, by the judge's clock, on values that no process has seen.

The worker holds the variant only. The judge writes inputs to shared memory, sends an order, and
stops its clock when the worker writes "done". A variant may change clocks, random numbers or pipes
of its process without effect. Deferred work is missing from the output, or is charged to the call.
"""

import math
import random
import time
from array import array
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from loop.base.processes import Waiting
from loop.calls import arena
from loop.calls.call import STEP_BYTES, Call, LibraryTerms
from loop.calls.invocation import DelayReader
from loop.model.dtypes import ITEM_SIZES, Device, is_floating
from loop.timing.samples import CLEAN_WAIT_SHARE, MemoryProbe, is_disturbed
from loop.workers.bench import Side
from loop.workers.messages import StageCall
from loop.workers.program import Orders

SEGMENT_S, GPU_SEGMENT_S = 4e-3, 1.5e-3
"""Length of a segment. On a CPU, 10 ms narrow intervals by a tenth, and take 1.4 times as long."""
GPU_SAMPLE_S, GPU_PROBED_S = 0.5e-3, 0.1e-3
"""Length of a GPU sample (events count in half microseconds); of one that tests for caching."""
GRAPH_CALLS, MOST_REPLAYS = (200, 100, 50, 20, 10, 5, 2), 10  # Calls in a graph; most replays.
LAUNCH_S, NODE_LAUNCH_S = 5e-6, 2e-6
"""Seconds to launch a graph, and at most for each of its nodes: kernels, copies and fills (on an
H200: 1.1 us). Without this allowance, clocks of calls of 3 us seemed changed."""
WARM_UP_S, GPU_WARM_UP_S = 0.5e-3, 1e-3
"""Length of a warm-up. On idle cores only the first sample of 16 was longer: by 0.1 to 0.4 %."""
WARM_UP_CALLS, WARM_UP_MOST_S = 5, 0.1
"""Undisturbed calls that a process's first warm-up needs; longest warm-up in seconds."""
MIN_SAMPLES, MAX_SAMPLES = 3, 1000
SLOW_CALL_S = 0.25  # A slower call is timed once a segment, not tested for cached results.
WARM_UP_PREPARING_S = 0.2  # A warm-up on a CPU ends after this much time for preparing calls.
MOST_PREPARING = 100  # A segment ends when preparing calls took this many times its length.
MOST_DISTURBED = 10  # A segment may take this many times its length to get enough clean samples.
SECRET = random.SystemRandom()  # Draws what is judged: a variant could predict a known seed.
SAMPLE_S, SLEPT_SAMPLE_S = 250e-6, 2e-3
"""A sample has as many calls as fill this: an order costs 1 us, or some 50 if the judge sleeps."""
PROBES, PROBE_SAMPLES = 3, 3
"""Draws of values that test for cached results, and samples on each: fresh values, the same again,
all but the same. An odd number, so that an effect on every other call shows in both."""
GLIMPSED_BYTES, COMPARED_BYTES = 16, 4096
"""Bytes of an output that are read when its call reports "done", and to tell two outputs apart."""
RETURN_ONE_IN = 4  # One in this many GPU results is copied to the host, besides the verified one.
SETTLING_S = 20e-6  # Jitter of a GPU's copy of results between samples: no work of a call.


def plan_replays(call_s: float, sample_s: float, most_calls: int) -> tuple[int, int]:
    """Calls in a CUDA graph, and its replays in a sample, to fill `sample_s` (of `call_s` each)."""
    fitting = (n for n in GRAPH_CALLS if n * call_s <= sample_s and n <= most_calls)
    calls = next(fitting, 1)
    return calls, max(1, min(math.ceil(sample_s / (calls * call_s)), MOST_REPLAYS))


def launch_allowance_s(graph_nodes: int, passes: int, device_s: float) -> float:
    """Most seconds of launching `passes` replays, all before the device's clock starts. A worker
    may lie about its `graph_nodes`, but each takes a microsecond of `device_s` at least."""
    nodes = min(passes * graph_nodes, device_s / 1e-6)
    return LAUNCH_S * passes + NODE_LAUNCH_S * nodes


@dataclass
class SegmentSamples:
    """The samples of one segment, and what was observed of the variant."""

    calls: int = 1  # Calls in a sample.
    seconds: list[float] = field(default_factory=list)  # Seconds of one call, sample by sample.
    waited_s: list[float] = field(default_factory=list)
    """Seconds a call that worker or judge waited for a core; empty if the system reports none."""
    return_s: list[float] = field(default_factory=list)  # Seconds of returning one result.
    clock_pairs: list[tuple[float, float]] = field(default_factory=list)
    """On a GPU: seconds of a sample by the judge's clock, without launches, and by the device's."""
    is_self_timed: bool = False  # Whether the variant reported its own times.
    output: bytes | None = None  # The output of the call whose answer the judge knows.
    judged_index: int = 0  # Index of the sample with that call.
    changed_inputs: list[str] = field(default_factory=list)  # Inputs that the variant overwrote.
    replaced_names: list[str] = field(default_factory=list)  # What it replaced in its process.
    is_unwritten: bool = False  # Whether a call of the same sample did not write its output.
    stray_writes: list[str] = field(default_factory=list)  # Writes outside, or after "done".


Windows = list[tuple[int, ...]]
"""For each call, where its inputs start in shared memory: one offset an input, in elements."""


class InputWindows:
    """Draws where a call's inputs start in shared memory, which holds more values than one call
    needs: each call reads other values without a copy. If the target's own generator made the
    inputs, memory holds several of its draws, and a call reads all inputs from one draw."""

    def __init__(self, call: Call, device: Device, rng: random.Random) -> None:
        self.call, self.rng = call, rng
        self.offsets: list[range] = []  # Possible offsets of each input, in elements.
        for tensor in call.inputs:
            step = STEP_BYTES[device] // tensor.itemsize
            if call.input_sets > 1:
                step = max(1, (tensor.elements + tensor.extra_elements) // call.input_sets)
            self.offsets.append(range(0, tensor.extra_elements + 1, step))
        self.has_few_draws = bool(call.structure) and device == "cpu"
        """Whether values repeat: a generator gives few draws. A GPU's graph fixes windows."""
        self._fixed_draw: int | None = None  # The draw of all calls, at one address; None: any.

    def windows(self, calls: int) -> Windows:
        """For each of this many calls, where each of its inputs starts: at random, so that no two
        calls need read the same values. All inputs of a call are of one draw of a generator."""
        if self._fixed_draw is not None:  # All read the first place; `rotations` moves it there.
            return [self._window_of_draw(0)] * calls
        if self.call.structure:
            draws = self.rng.choices(range(self.call.input_sets), k=calls)
            return [self._window_of_draw(number) for number in draws]
        offsets_by_input = [self.rng.choices(offsets, k=calls) for offsets in self.offsets]
        return list(zip(*offsets_by_input, strict=True)) if offsets_by_input else [()] * calls

    def _window_of_draw(self, number: int) -> tuple[int, ...]:
        """Where the inputs of a generator's draw start; an input that never changes starts at 0."""
        return tuple(offsets[number] if len(offsets) > number else 0 for offsets in self.offsets)

    def fix_draw(self, number: int | None) -> None:
        """From now on all calls read draw `number` (modulo draws), if values repeat; None: any."""
        is_fixed = number is not None and self.has_few_draws
        self._fixed_draw = (number or 0) % self.call.input_sets if is_fixed else None

    def rotations(self, window: Sequence[int] | None) -> list[int]:
        """Elements to rotate each input by, so that `window` holds the values of known answer.
        None: random, from the same distribution, so a variant sees no difference. Rotations go by
        elements, windows by steps: values seldom repeat. A generator's draws move as a whole."""
        if self.call.structure and window is None:
            draw = self.rng.randrange(self.call.input_sets)
            draw = draw if self._fixed_draw is None else self._fixed_draw
            return list(self._window_of_draw(draw))
        rotations = []
        for number, tensor in enumerate(self.call.inputs):
            size = tensor.elements + tensor.extra_elements
            source = tensor.offset if window else self.rng.randrange(tensor.extra_elements + 1)
            destination = window[number] if window else self.rng.choice(self.offsets[number])
            rotations.append((source - destination) % size if size else 0)
        return rotations


class TimedCall:
    """One side's call of one workload, in a worker process that has loaded the side."""

    def __init__(
        self, call: Call, side: Side, device: Device, orders: Orders, empty_order_s: float
    ) -> None:
        """The worker's arena is laid out for `call`. `empty_order_s`: of an order without calls."""
        self.call, self.orders, self.empty_order_s = call, orders, empty_order_s
        self.worker, self.arena = orders.worker, orders.worker.arena
        """The arena is memory that judge and worker share: orders, inputs, outputs of each call."""
        self.rng = random.Random()  # Picks input values, never what is judged (see `SECRET`).
        self.input_windows = InputWindows(call, device, self.rng)
        self.is_program = side.kind == "command"
        self.copies_results = side.kind == "python" or bool(call.updated_inputs)
        """Whether the worker has to copy results to shared memory; other variants write there."""
        side_device = side.terms.device if isinstance(side.terms, LibraryTerms) else device
        self.is_on_gpu = side_device == "cuda" and not self.is_program
        """Then a CUDA graph may replay the calls, and the device's clock times samples, too."""
        self.returns_same_buffer: bool | None = None  # Then one call is a sample. None: unknown.
        self._output_positions: list[int] = []  # Bytes of the last output to compare later.
        self._output_when_done = b""  # Those bytes, read when the worker reported "done".
        self._graph_windows: dict[int, Windows] = {}  # Calls of a graph to its windows.
        self._replays, self._call_s = 1, 0.0
        """Replays of a graph in a sample; seconds of a call, as last seen (0: unknown)."""
        self._prepared_calls, self._staging_start = 0, 0.0
        self.crowding_threads = 0  # Most busy threads in a sample, if more than its cores; else 0.

    def begin_staging(self) -> None:
        """Have the worker map the call's memory, and make the call once, on values not judged."""
        self.input_windows.fix_draw(0)
        (window,) = self._windows(1)
        self.input_windows.fix_draw(None)
        call = self.call if self.is_program else self.call.at_first_windows().replace(key="")
        self._staging_start = time.monotonic()
        self.worker.send(StageCall(call, len(self.arena.output_offsets), window))

    def finish_staging(self, limit_s: float, *, is_alone: bool) -> Waiting[None]:
        """Wait until the worker has done what `begin_staging` asked. `is_alone`: nothing else was.
        Then a slow first call counts as the call's own time, unless the worker copies results."""
        yield from self.worker.receive(limit_s, self.orders.note)
        took_s = time.monotonic() - self._staging_start
        if is_alone and took_s > 2 * SLOW_CALL_S and not self.copies_results:
            self._call_s = took_s

    def take_segment(self, *, is_judged: bool) -> Waiting[SegmentSamples]:
        """The samples of one segment: at least three, or one of a slow call. If `is_judged`, a
        random one holds the call whose answer is known: no variant can rely on early or late calls,
        and a process never meets values twice. Of a program each last output is judged."""
        samples = SegmentSamples()
        with closing(DelayReader(self.worker.child.process.pid)) as waits:
            self.orders.enter()
            with self.orders.keep_off_worker_cores():  # This process keeps off the worker's cores.
                if self.is_program:  # Timed by its own clock if it has one, else by its whole run.
                    self.arena.poison_outputs(calls=1)
                    for _ in range(MIN_SAMPLES):
                        run_s, _ = yield from self._time_calls(waits, 1)
                        own_s = self.arena.control_words[arena.WORKER_NS] / 1e9
                        samples.seconds.append(own_s or run_s)
                        samples.is_self_timed |= own_s > 0
                    # To shared memory, by the worker.
                    yield from self.orders.give_order(arena.COPY_RESULTS)
                    samples.output = self.arena.read_output(0)
                else:
                    warm_up_s = GPU_WARM_UP_S if self.is_on_gpu else WARM_UP_S
                    call_s = yield from self._warm_up(waits, warm_up_s)
                    yield from self._detect_shared_buffer(waits, self._calls_in_sample(call_s))
                    samples.calls = self._calls_in_sample(call_s)
                    yield from self._take_samples(samples, waits, call_s, is_judged=is_judged)
        samples.replaced_names = list((yield from self.orders.leave()))
        return samples

    def _take_samples(
        self, samples: SegmentSamples, waits: DelayReader, call_s: float, *, is_judged: bool
    ) -> Waiting[None]:
        """Take samples until undisturbed ones fill a segment, and one is judged if `is_judged`: one
        of those that a quiet machine needs, drawn. A *late* segment took far longer than planned:
        it takes no more samples than it must, and judges one soon. `call_s`: as expected."""
        seconds = GPU_SEGMENT_S if self.is_on_gpu else SEGMENT_S
        least_samples = 1 if call_s > SLOW_CALL_S else MIN_SAMPLES
        needed_samples = int(seconds / (samples.calls * self._replays * call_s))
        judged_index = SECRET.randrange(max(least_samples, min(needed_samples, MAX_SAMPLES)))
        undisturbed_s = spent_s = preparing_s = 0.0
        is_late = False
        while True:
            index, lacks_judged = len(samples.seconds), is_judged and samples.output is None
            is_filled = is_late or undisturbed_s >= seconds or index >= MAX_SAMPLES
            if index >= least_samples and is_filled and not lacks_judged:
                return
            is_drawn = index == judged_index or (is_late and SECRET.randrange(RETURN_ONE_IN) == 0)
            judged_call = SECRET.randrange(samples.calls) if lacks_judged and is_drawn else None
            preparing_s += yield from self._prepare_sample(samples.calls, judged_call)
            sample_s, waited_s = yield from self._time_calls(waits, samples.calls)
            spent_s += sample_s
            undisturbed_s += 0.0 if is_disturbed(sample_s, waited_s) else sample_s
            calls, counted_s = samples.calls * self._passes(), sample_s
            if self.is_on_gpu:  # By the device's clock, if that is shorter.
                device_s = self.arena.control_words[arena.WORKER_NS] / 1e9
                nodes = self.arena.control_words[arena.GRAPH_NODES]
                launch_s = launch_allowance_s(nodes, self._passes(), device_s)
                if not is_disturbed(sample_s, waited_s):
                    # Our clock without the launch, to check the device's later.
                    samples.clock_pairs.append((max(sample_s - launch_s, device_s), device_s))
                counted_s = min(device_s, sample_s) or sample_s  # It may give 0: no time.
            samples.seconds.append(counted_s / calls)
            samples.waited_s += [] if waited_s is None else [waited_s / calls]
            # Without a copy by the worker, a GPU's results are brought for the judged call only.
            is_returned = not is_late and (self.copies_results or not self.is_on_gpu)
            if judged_call is not None or is_returned:
                spent_s += yield from self._return_results(samples, judged_call)
            is_late = spent_s >= MOST_DISTURBED * seconds or preparing_s >= MOST_PREPARING * seconds

    def _prepare_sample(self, calls: int, judged_call: int | None = None) -> Waiting[float]:
        """Prepare calls on fresh values; its seconds. `judged_call`: its answer is known."""
        windows = self._windows(calls)
        judged_window = None if judged_call is None else windows[judged_call]
        rotations = self.input_windows.rotations(judged_window)
        return (yield from self._prepare_calls(windows, rotations))

    def _time_calls(self, waits: DelayReader, calls: int) -> Waiting[tuple[float, float | None]]:
        """Order this many prepared calls; seconds by the judge's clock, and seconds of waiting for
        a core: None if the system reports none, 0 if the worker's own threads crowd its cores. The
        cost of the order is subtracted, at most nine tenths. Keeps bytes of the last output."""
        self.arena.control_words[arena.CALL_COUNT] = self._passes() if self.is_on_gpu else calls
        waits_at_start = waits.read()
        self.arena.restore_elements()  # See `_prepare_calls`.
        sample_s = yield from self.orders.give_order(arena.RUN)
        if self._output_positions:
            self._output_when_done = self.arena.read_output_bytes(calls - 1, self._output_positions)
        delays, waited_s = waits.delays_since(waits_at_start), None
        if delays:
            waited_s = delays.added_wait_s(is_core_shared=bool(self.worker.bells))
            threads = delays.busy_threads(CLEAN_WAIT_SHARE * sample_s)
            if threads > self.worker.cores.count(",") + 1:
                self.crowding_threads, waited_s = max(self.crowding_threads, threads), 0.0
        return max(sample_s - self.empty_order_s, sample_s / 10), waited_s

    def _detect_shared_buffer(self, waits: DelayReader, calls: int) -> Waiting[None]:
        """Check once whether the variant returns the same buffer for every call of a sample. If so,
        a sample becomes one call, since later calls overwrite earlier results. The test: calls on
        other inputs return the first call's bytes; another sample returns others."""
        if self.returns_same_buffer is not None or not self.copies_results or calls == 1:
            return
        first_results = []
        for _ in range(2):
            windows = self._windows(calls)
            yield from self._prepare_calls(windows, self.input_windows.rotations(None))
            yield from self._time_calls(waits, calls)
            yield from self.orders.give_order(arena.COPY_RESULTS)
            results = [self.arena.read_output(number)[:COMPARED_BYTES] for number in range(calls)]
            first_results.append(results[0])
        other_inputs = [number for number, window in enumerate(windows) if window != windows[0]]
        is_repeated = any(results[number] == results[0] for number in other_inputs)
        self.returns_same_buffer = is_repeated and first_results[0] != first_results[1]

    def _passes(self) -> int:
        """How often one order makes the calls. On a CPU once: a repeat would see known values."""
        return self._replays if self.arena.control_words[arena.GRAPH_NODES] else 1

    def _return_results(self, samples: SegmentSamples, judged_call: int | None) -> Waiting[float]:
        """Have the worker finish (on a GPU) and copy results to shared memory, if the variant does
        not write there; seconds. `judged_call`: the call to verify; its output, changed inputs and
        late writes are noted while the worker is stopped. Some GPU results go to the host."""
        calls, return_s = samples.calls, 0.0
        to_host = judged_call is not None or SECRET.randrange(RETURN_ONE_IN) == 0
        if self.is_on_gpu and to_host:
            self.arena.poison_outputs(calls)
        if self.copies_results:
            order = arena.FINISH if self.is_on_gpu else arena.COPY_RESULTS
            return_s = yield from self.orders.give_order(order)
            usual_s = self.empty_order_s + (SETTLING_S if self.is_on_gpu else 0.0)
            samples.return_s.append(max(0.0, return_s - usual_s) / calls)
        if self.is_on_gpu and to_host:  # Our own copy to the host: not charged.
            return_s += yield from self.orders.give_order(arena.COPY_RESULTS)
        if judged_call is None:
            return return_s
        self.worker.pause()
        samples.output = self.arena.read_output(judged_call)
        samples.judged_index = len(samples.seconds) - 1
        samples.changed_inputs = self.arena.changed_inputs()
        is_float = is_floating(self.call.output.dtype)
        samples.is_unwritten = is_float and self.arena.has_unwritten_output(calls)
        positions, when_done = self._output_positions, self._output_when_done
        if positions and self.arena.read_output_bytes(calls - 1, positions) != when_done:
            samples.stray_writes.append("writes its output after it said that it was done")
        self.worker.resume()
        return return_s

    def _warm_up(self, waits: DelayReader, seconds: float) -> Waiting[float]:
        """Make calls for this many seconds; returns seconds of one, the shortest undisturbed. Makes
        none if one is known to be slow. On a CPU values are always fresh, so that caching does not
        help, and samples grow meanwhile, because an order outweighs one short call. A GPU has its
        own clock: at first, a few single calls suffice; later, it replays the prepared graph."""
        if self._call_s > SLOW_CALL_S:
            return self._call_s
        is_first, self._replays = not self._call_s, 1
        can_replay = self.is_on_gpu and not is_first and not self.call.updated_inputs
        is_prepared = can_replay and self._prepared_calls > 0
        calls, least_undisturbed = 1, WARM_UP_CALLS
        if not is_first:
            calls = self._prepared_calls if is_prepared else self._calls_in_sample(self._call_s)
            least_undisturbed = 1
        elif self.is_on_gpu:
            seconds = 0.0
        spent_s, preparing_s, undisturbed = 0.0, 0.0, 0
        fastest_s = fastest_undisturbed_s = math.inf
        is_warm = False
        while not is_warm:
            if not is_prepared:
                took_s = yield from self._prepare_sample(calls)
                preparing_s += 0.0 if self.is_on_gpu else took_s
            sample_s, waited_s = yield from self._time_calls(waits, calls)
            call_s = self._device_s(sample_s) / (calls * self._passes())
            fastest_s, spent_s = min(fastest_s, call_s), spent_s + sample_s
            if not is_disturbed(sample_s, waited_s):
                fastest_undisturbed_s = min(fastest_undisturbed_s, call_s)
                undisturbed += 1
                if not self.is_on_gpu:
                    calls = self._calls_in_sample(fastest_undisturbed_s)
            most_s = WARM_UP_MOST_S if undisturbed else 5 * WARM_UP_MOST_S
            is_clear = undisturbed >= least_undisturbed or spent_s >= most_s
            is_warm = (spent_s >= seconds and is_clear) or preparing_s > WARM_UP_PREPARING_S
        shortest_s = fastest_undisturbed_s if undisturbed else fastest_s
        self._call_s = max(shortest_s, 1e-8)  # A clock may give 0 s.
        return self._call_s

    def _calls_in_sample(self, call_s: float, gpu_span_s: float = GPU_SAMPLE_S) -> int:
        """Calls in a sample, if one takes `call_s`: as many as the clock needs; sets replays."""
        most_calls = len(self.arena.output_offsets)
        # Updated inputs need a rewrite.
        if self.returns_same_buffer or self.call.updated_inputs:
            self._replays = 1
            return 1
        if self.is_on_gpu:
            calls, self._replays = plan_replays(call_s, gpu_span_s, most_calls)
            return calls
        sample_s = SLEPT_SAMPLE_S if self.worker.bells else SAMPLE_S  # Bells: no core to poll from.
        return max(1, min(math.ceil(sample_s / call_s), most_calls))

    def probe_memory(self) -> Waiting[MemoryProbe | None]:
        """Fastest call on new values, and on repeated ones, on which a variant that caches results
        is faster; None for a program or a slow call. Only the values differ: both find inputs just
        written, an output just poisoned and the same addresses. The first draw is a warm-up. Draws
        in which a call waited for a core are left out, if there are others."""
        if self.is_program:
            return None
        probes = list[MemoryProbe]()
        with closing(DelayReader(self.worker.child.process.pid)) as waits:
            self.orders.enter()
            with self.orders.keep_off_worker_cores():
                self.input_windows.fix_draw(0)
                call_s = yield from self._warm_up(waits, WARM_UP_S / 2)
                calls = self._calls_in_sample(call_s, GPU_PROBED_S)
                calls = 1 if self.input_windows.has_few_draws else calls
                self._replays = 1  # A second pass would see known values.
                # A draw's values are new in the first sample and repeated in the second. A CPU that
                # learned the branches is faster on the old values, and on the third sample's, which
                # differ in the last bit: no cache of results has seen these.
                floats = [tensor for tensor in self.call.inputs if is_floating(tensor.dtype)]
                can_alter = bool(floats) and not self.is_on_gpu
                for number in range(0 if call_s > SLOW_CALL_S else 1 + PROBES):
                    self.input_windows.fix_draw(number)
                    windows, rotations = self._windows(calls), self.input_windows.rotations(None)
                    times_s, is_undisturbed = list[float](), not self.crowding_threads
                    for sample in range(PROBE_SAMPLES):
                        alters = can_alter and sample == 2
                        yield from self._prepare_calls(windows, rotations, alters=alters)
                        sample_s, waited_s = yield from self._time_calls(waits, calls)
                        if not self.is_on_gpu and is_disturbed(sample_s, waited_s):
                            is_undisturbed = False
                        without_wait_s = sample_s - min(waited_s or 0.0, 0.99 * sample_s)
                        times_s.append(self._device_s(without_wait_s) / calls)
                    new_values_s = min(times_s[0], times_s[2]) if can_alter else times_s[0]
                    probes.append(MemoryProbe(new_values_s, times_s[1], is_undisturbed))
                self.input_windows.fix_draw(None)
        yield from self.orders.leave()
        probes = [probe for probe in probes[1:] if probe.is_undisturbed] or probes[1:]
        return MemoryProbe(*map(min, zip(*probes, strict=True))) if probes else None

    def _device_s(self, sample_s: float) -> float:
        """Seconds of the latest sample by the device's clock; `sample_s` if there is none."""
        device_ns = self.arena.control_words[arena.WORKER_NS] if self.is_on_gpu else 0
        return device_ns / 1e9 or sample_s

    def _windows(self, calls: int) -> Windows:
        """Offsets for this many calls; redrawn on a CPU, fixed for a graph."""
        if not self.is_on_gpu:
            return self.input_windows.windows(calls)
        if calls not in self._graph_windows:
            self._graph_windows[calls] = self.input_windows.windows(calls)
        return self._graph_windows[calls]

    def _prepare_calls(
        self, windows: Windows, rotations: Sequence[int], *, alters: bool = False
    ) -> Waiting[float]:
        """Write inputs, rotated by so many elements, overwrite outputs (poison), have the worker
        prepare its calls; its seconds. On a CPU one element of each call's inputs is withheld until
        the order, so that none is computed earlier: it is NaN, which no result hides, or has the
        other sign, which looks innocent. `alters`: the last bit of each float differs."""
        words = self.arena.control_words
        for number, (pool, elements) in enumerate(zip(self.arena.pools, rotations, strict=True)):
            rotated_bytes = elements * ITEM_SIZES[pool.tensor.dtype]
            words[arena.ROTATIONS + number] = rotated_bytes
            pool.write_rotated(self.arena.memory, rotated_bytes)
        if alters:
            self.arena.flip_last_bits()
        if not self.is_on_gpu:  # The worker poisons a GPU's outputs.
            self.arena.poison_outputs(len(windows))
        offsets = array("Q", [offset for window in windows for offset in window])
        words[arena.WINDOW_OFFSETS : arena.WINDOW_OFFSETS + len(offsets)] = memoryview(offsets)
        words[arena.CALL_COUNT] = self._prepared_calls = len(windows)
        if not self.is_on_gpu:
            chance = self.rng.random
            # Not of integers: a wrong index could crash the worker.
            numbered = enumerate(self.call.inputs)
            candidates = [(n, t) for n, t in numbered if t.elements and is_floating(t.dtype)]
            for window in windows if candidates else ():
                number, tensor = candidates[int(chance() * len(candidates))]
                element = window[number] + int(chance() * tensor.elements)
                sign_bit = 1 << 8 * ITEM_SIZES[tensor.dtype] - 1
                flipped_bits = sign_bit if chance() < 0.5 else 0  # 0: NaN.
                self.arena.change_element(number, element, flipped_bits)
            # Results that the worker copies arrive after "done": they cannot be compared with it.
            size = 0 if self.copies_results else self.arena.output_bytes
            count = GLIMPSED_BYTES if size else 0
            self._output_positions = [self.rng.randrange(size) for _ in range(count)]
        return (yield from self.orders.give_order(arena.PREPARE))
