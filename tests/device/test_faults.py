"""A fault fails its own check only; a workload without memory is left out by name. A fake GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.base.processes import run_to_end
from loop.gate import kernel, verify
from loop.gate.verify import Job
from loop.model.measurement import BASELINE, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.timing import schedule
from loop.timing.samples import Limits
from loop.timing.schedule import ProcessSet
from loop.workers.bench import CONTEXT_BYTES, Bench, Side, fit_workloads
from loop.workers.program import Worker
from tests.device.fakes import GIB, FakeGpu, FakeMachine, fake_bench
from tests.targets import make_context, make_sides

FAULT = "the device was lost: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was "
HINT = "encountered; a kernel read or wrote memory that it was not given; `compute-sanitizer` names the line"
SMALL, LARGE, MIDDLE = "N2 M3 float32", "N5 M3 float32", "N3 M4 float32"


def workloads(bench: Bench, name: str = "some") -> tuple[Workload, ...]:
    return expand_sets(bench.target, [name], "float32", 5)


def checked(bench: Bench, sides: Sequence[Side], **terms: float) -> tuple[VariantChecks, ...]:
    """All of them in one verification."""
    jobs = [Job(side, workloads(bench), layouts=False, **terms) for side in sides]  # type: ignore[arg-type]
    return run_to_end(verify.verify(bench, jobs))


@pytest.mark.slow
def test_a_fault_a_hang_and_a_right_kernel_in_one_verification(bench: Bench) -> None:
    """Each failure is named where it happened; later checks, also of other variants, are right."""
    crashes, hangs, right = checked(bench, make_sides(bench, "crashes", "hangs", "right"), call_limit_s=1.0)
    assert [(SMALL, "right"), (LARGE, "crashed"), (MIDDLE, "right")] == [
        (check.workload.name, check.status) for check in crashes.checks
    ]
    assert f"{FAULT}{HINT} on {LARGE}" == crashes.checks[1].message
    assert ["right", "hung", "right"] == [check.status for check in hangs.checks]
    assert f"no answer for 1 s: killed on {LARGE}" == hangs.checks[1].message
    assert right.is_right
    assert checked(bench, make_sides(bench, "right"))[0].is_right


@pytest.mark.slow
def test_what_crashes_while_it_is_timed_is_named(bench: Bench) -> None:
    """With the driver's words, and a command that runs it alone; the next measurement is fine."""
    right, crashes = make_sides(bench, "right", "crashes")
    with pytest.raises(LoopError, match="crashes could not be timed on N16 M64 float32: the device was lost") as e:
        run_to_end(schedule.measure(bench, [right, crashes], workloads(bench, "timed"), Limits(2, 60.0, 1)))
    assert "`loop kernels verify crashes` runs it alone" == e.value.hint
    again = [right, replace(right, name="again")]
    assert 2 == run_to_end(schedule.measure(bench, again, workloads(bench, "timed"), Limits(2, 60.0, 1))).rounds


@pytest.mark.slow
def test_the_processes_of_a_round_end_with_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU each holds memory from its first call on. One set serves two of the three rounds."""
    living: list[int] = []
    one_round = ProcessSet.time_workloads

    def counted(self: ProcessSet, *arguments: object) -> object:
        living.append(sum(worker.child.code is None for worker in opened))
        return one_round(self, *arguments)  # type: ignore[arg-type]

    opened: list[Worker] = []
    start = Bench.start_worker
    monkeypatch.setattr(Bench, "start_worker", lambda *words: opened.append(worker := start(*words)) or worker)
    monkeypatch.setattr(ProcessSet, "time_workloads", counted)
    (right,) = make_sides(bench, "right")
    sides = [right, replace(right, name="again")]
    run_to_end(schedule.measure(bench, sides, workloads(bench, "timed"), Limits(3, 60.0, 1)))
    assert [4, 2] == living


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("pokes", "writes outside its output: 4 bytes after its end, the first at element +1 on N2 M3 float32"),
        ("peeks", "reads outside its input x: other bytes there change the output on N2 M3 float32"),
    ],
)
def test_an_access_outside_of_device_memory_is_wrong(
    entry: str, message: str, fake: FakeMachine, tmp_path: Path
) -> None:
    """A write is found by changed guard bytes, a read by an output that follows them."""
    with fake_bench(fake, tmp_path / "target", entry) as bench:
        workloads = expand_sets(bench.target, ["some"], "float32", 5)[:1]
        (side,) = run_to_end(verify.verify(bench, [Job(make_sides(bench, entry)[0], workloads, layouts=False)]))
    assert "wrong" == side.checks[0].status
    assert side.checks[0].message.replace("3 bytes", "4 bytes").startswith(message)


SMALL_ROOM, HUGE = "N2 M3 float32", "N1000 M1000 float32"
HUGE_BYTES = 4 * 1000 * 1000  # Of its input, and of its output.


@pytest.fixture
def roomy(fake: FakeMachine, tmp_path: Path) -> Iterator[Bench]:
    """A bench for a target with a workload of 4 MB a tensor: with three GiB it has room for a lot."""
    workloads = {"some": [{"N": 2, "M": 3}, {"N": 1000, "M": 1000}]}
    fake.has(FakeGpu(bytes=3 * GIB))
    with fake.here(), fake_bench(fake, tmp_path / "target", "right", workloads=workloads) as opened:
        yield opened


def leave(fake: FakeMachine, free: int) -> None:
    """Let this many bytes of the GPU be free, the others in use."""
    fake.has(FakeGpu(bytes=3 * GIB, taken=3 * GIB - free))


def pair(roomy: Bench) -> tuple[Workload, ...]:
    """The small and the huge one."""
    return expand_sets(roomy.target, ["some"], "float32")


@pytest.mark.slow
def test_a_workload_without_room_is_named_with_its_bytes(fake: FakeMachine, roomy: Bench) -> None:
    """The message has needed and free bytes; without sensors, no workload is left out."""
    (right,) = make_sides(roomy, "right")
    sides = [right, roomy.make_side(BASELINE)]
    assert (pair(roomy), ()) == ((room := fit_workloads(roomy, pair(roomy), sides)).workloads, room.exclusions)
    free = 2 * CONTEXT_BYTES + HUGE_BYTES
    leave(fake, free)
    room = fit_workloads(roomy, pair(roomy), sides)
    assert [SMALL_ROOM] == [workload.name for workload in room.workloads]
    size = 8 * HUGE_BYTES + 2 * CONTEXT_BYTES
    (exclusion,) = room.exclusions
    assert f"{HUGE}: inputs and outputs of right, baseline take {size / GIB:.3f} GiB of " in exclusion
    assert f"{free / GIB:.3f} GiB of NVIDIA H200 are free" in exclusion
    assert f"fine; left out: {exclusion}" == room.extend_message("fine")
    roomy.sensors = None
    assert pair(roomy) == fit_workloads(roomy, pair(roomy), sides).workloads


@pytest.mark.slow
def test_verification_goes_on_with_the_others(fake: FakeMachine, roomy: Bench) -> None:
    """The huge workload is left out with a note; sides run in turns, so room for one is enough."""
    leave(fake, CONTEXT_BYTES + HUGE_BYTES)
    output = run_to_end(kernel.verify(make_context(roomy, "right"), kernel.VerifyTerms())).output
    assert isinstance(output, VerifyOutput)
    assert {SMALL_ROOM} == {check.workload.name for check in output.variants[0].checks}
    assert output.variants[0].is_right
    assert any(line.startswith(f"{HUGE}: ") for line in output.not_exercised)
    assert f"; left out: {HUGE}: inputs and outputs of right, baseline take" in output.message
