"""The calls of one check: outputs that follow their surroundings are told from flaky ones."""

import itertools
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from loop.calls.call import Call, TensorFile
from loop.calls.invocation import Prepared
from loop.calls.memory import NAN, Buffer, Guard
from loop.workers import worker_program
from loop.workers.messages import Compute as ComputeRequest
from loop.workers.messages import Kernel
from loop.workers.worker_program import CallCheck, LoadedCandidate

Compute = Callable[[Sequence[Guard], Guard | None], float]
"""The output's only number, from the guards of the tensors and the output's prefilled content."""


class RecordedCall(Prepared):
    """A prepared call that computes one number; changes of guards are only recorded."""

    around: Sequence[Guard] = ()

    def __init__(self, compute: Compute) -> None:
        super().__init__(Call("", "float32", (), TensorFile("output", "", (1,), "float32"), {}, ()))
        self.compute, self.calls = compute, 0
        self.prefill: Guard | None = None
        self.outputs = [Buffer(4), Buffer(4)]
        for memory, name in zip(self.outputs, ("its input x", "its output"), strict=True):
            memory.name = name

    def protect_zones(self, *, at_end: bool) -> bool:
        return False

    def write_inputs_and_guards(self, guards: Sequence[Guard]) -> None:
        self.around = guards

    def poison_outputs(self, guard: Guard | None = None) -> None:
        """Record the prefilled content of the output."""
        self.prefill = guard

    def bind(self, offsets: Sequence[int] | None = None) -> Callable[[], None]:
        return self._run

    def _run(self) -> None:
        self.calls += 1
        self.value = self.compute(self.around, self.prefill)

    def read_output(self) -> bytes:
        return struct.pack("f", self.value)


def check(compute: Compute, seed: int = 1) -> CallCheck:
    return CallCheck(RecordedCall(compute), random.Random(seed)).run()  # type: ignore[arg-type]


def seed_of(guard: Guard) -> float:
    """A number that follows a guard's bytes."""
    return float(guard.seed % 1000003)


def test_an_output_is_held_against_what_stood_in_its_memory() -> None:
    """With NaN there it may be right, for a maximum passes over it."""
    finding = check(lambda around, prefill: 2.0)
    assert (1, "", False) == (len(finding.outputs), finding.stray_reads, finding.depends_on_prefill)
    finding = check(lambda around, prefill: 2.0 if prefill is None else seed_of(prefill))
    assert (1, True) == (len(finding.outputs), finding.depends_on_prefill)
    wrong = RecordedCall(lambda around, prefill: (prefill and wrong.outputs[1].write(4, b"x")) or 2.0)
    assert CallCheck(wrong, random.Random(1)).run().stray_writes, "of the call after it, too"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("compute", "tensor"),
    [
        (lambda around, prefill: seed_of(around[0]), "its input x"),
        (lambda around, prefill: seed_of(around[1]), "its output"),
        (lambda around, prefill: seed_of(around[0]) + seed_of(around[1]), "its input x and its output"),
        (lambda around, prefill: float(around[0].kind == NAN), "its input x"),
        (lambda around, prefill: float(around[0].kind == around[1].kind == NAN), "its tensors"),
    ],
)
def test_an_output_that_follows_what_stands_around_a_tensor_reads_there(compute: Compute, tensor: str) -> None:
    """The tensor is named: the one whose surroundings alone change it."""
    expected = {tensor, "its input x and its output"} if tensor == "its tensors" else {tensor}
    assert check(compute).stray_reads in expected


@pytest.mark.parametrize("period", [2, 3, 4, 5, 7])
def test_an_output_that_follows_the_number_of_the_call_is_flaky(period: int) -> None:
    """It is flaky for any period, because the same surroundings give another output."""
    for seed in range(30):
        count = itertools.count()
        finding = check(lambda around, prefill, count=count: float(next(count) % period), seed)  # type: ignore[misc]
        assert (True, "") == (len(finding.outputs) > 1, finding.stray_reads), seed


def test_a_slow_call_is_made_once_where_it_was_checked_on_other_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick call is repeated as usual."""
    call_counts = {}
    for may_run_once, slow_s in itertools.product((False, True), (0.0, 10.0)):
        monkeypatch.setattr(worker_program, "SLOW_LIMIT_S", slow_s)
        call = RecordedCall(lambda around, prefill: 2.0)
        CallCheck(call, random.Random(1), may_run_once=may_run_once).run()  # type: ignore[arg-type]
        call_counts[may_run_once, slow_s] = call.calls
    assert (2, 1) == (call_counts[False, 0.0], call_counts[True, 0.0])
    assert call_counts[True, 10.0] > 2


@pytest.mark.parametrize("slow_s", [0.0, 10.0])
def test_a_variant_that_computes_every_other_call_is_found_by_its_first_check(
    monkeypatch: pytest.MonkeyPatch, slow_s: float
) -> None:
    """Its fourth call shows the values of the call in between, also if it is so slow that few calls are made."""
    monkeypatch.setattr(worker_program, "SLOW_LIMIT_S", slow_s)

    class EveryOther(RecordedCall):
        """Gives the value of its input, every second time the one of the call before."""

        given, kept = 1.0, 0.0

        def load_other_values(self, random_source: random.Random) -> None:
            self.given = 2.0

        def write_inputs_and_guards(self, guards: Sequence[Guard]) -> None:
            self.around, self.given = guards, 1.0

        def _run(self) -> None:
            self.calls += 1
            self.value = self.kept = self.kept if self.calls % 2 == 0 else self.given

    for seed in range(20):
        call = EveryOther(lambda around, prefill: 0.0)
        finding = CallCheck(call, random.Random(seed), interposes_call=True).run()  # type: ignore[arg-type]
        assert 2 == len(finding.outputs), seed


def test_a_program_has_no_memory_for_other_values() -> None:
    """Its inputs are files: a call in between is made on the same ones."""
    program = RecordedCall(lambda around, prefill: 2.0)
    program.input_bytes = [b"file"]
    program.load_other_values(random.Random(1))
    assert [] == program.inputs


@pytest.mark.parametrize(("structure", "first"), [("", [1, 2, 3, 0]), ("made", [0, 1, 2, 3])])
def test_offsets_of_a_generator_stay_in_order_in_a_call_between(
    tmp_path: Path, structure: str, first: list[int]
) -> None:
    """A kernel may rest on their order: the values in between are those of the call before."""
    recorded = RecordedCall(lambda around, prefill: 2.0)
    recorded.inputs = [Buffer(16, dtype="int32")]

    def seen(*values: int) -> list[int]:
        (tmp_path / "x").write_bytes(struct.pack("4i", *values))
        file = TensorFile("x", str(tmp_path / "x"), (4,), "int32")
        recorded.refill(recorded.call.replace(inputs=(file,), structure=structure))
        recorded.load_other_values(random.Random(1))
        return list(struct.unpack("4i", recorded.inputs[0].read_tensor()))

    assert first == seen(0, 1, 2, 3)
    assert (first if structure else [4 + place for place in first]) == seen(4, 5, 6, 7)


def test_the_first_call_of_other_sizes_is_checked() -> None:
    """A variant whose first call after a change of sizes is wrong never passes by an unchecked call before it."""

    class Remembering:
        """A variant that is wrong once, whenever it was prepared anew."""

        def prepare(self, call: Call, layout: str) -> RecordedCall:
            values = itertools.chain([1.0], itertools.repeat(2.0))
            prepared = RecordedCall(lambda around, prefill: next(values))
            prepared.inputs = []
            return prepared

    candidate = LoadedCandidate(Remembering())  # type: ignore[arg-type]
    for size in range(1, 20):
        call = Call("", "float32", (), TensorFile("output", "", (size,), "float32"), {}, ())
        assert 2 == len(candidate.check(ComputeRequest(call)).outputs)


EVENTS = [
    {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "ts": 1, "dur": 7.937},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 2, "dur": 1.0, "args": {"bytes": 64}},
    {"ph": "X", "cat": "kernel", "name": "void second<float>(float*)", "ts": 30.5, "dur": 2.5, "args": {}},
    {"ph": "X", "cat": "kernel", "name": "first", "ts": 9.25, "dur": 1.25, "args": {"registers per thread": 40}},
    {"ph": "M", "name": "process_name"},
]
"""Of a Chrome trace that torch writes."""


def test_a_trace_tells_kernels_in_their_order() -> None:
    """Kernels are in order, without copies and the profiler's own work."""
    expected = (Kernel("first", 1.25, 40), Kernel("void second<float>(float*)", 2.5, None))
    assert expected == worker_program.kernels_of_trace({"schemaVersion": 1, "traceEvents": EVENTS})
    assert not worker_program.kernels_of_trace({})
