"""A workload without room on the GPU is left out by name before it is tried; the others go on. On a fake GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.gate import kernel
from loop.model.measurement import BASELINE
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.workers.bench import CONTEXT_BYTES, Bench, fit_workloads
from tests.device.fakes import GIB, FakeGpu, FakeMachine, fake_bench
from tests.targets import make_context, make_sides

SMALL, HUGE = "N2 M3 float32", "N1000 M1000 float32"
HUGE_BYTES = 4 * 1000 * 1000
"""Of its input, and of its output."""


@pytest.fixture
def bench(fake: FakeMachine, tmp_path: Path) -> Iterator[Bench]:
    """A bench for a target with a workload of 4 MB a tensor: with three GiB it has room for a lot."""
    workloads = {"some": [{"N": 2, "M": 3}, {"N": 1000, "M": 1000}]}
    fake.has(FakeGpu(bytes=3 * GIB))
    with fake.here(), fake_bench(fake, tmp_path / "target", "right", workloads=workloads) as made:
        yield made


def leave(fake: FakeMachine, free: int) -> None:
    """So many bytes of the GPU are free, the others somebody else's."""
    fake.has(FakeGpu(bytes=3 * GIB, taken=3 * GIB - free))


def both(bench: Bench) -> tuple[Workload, ...]:
    """The small and the huge one."""
    return expand_sets(bench.target, ["some"], "float32")


@pytest.mark.slow
def test_a_workload_without_room_is_named_with_its_bytes(fake: FakeMachine, bench: Bench) -> None:
    """And what is free; where there is room, or nobody tells, nothing is left out."""
    (right,) = make_sides(bench, "right")
    sides = [right, bench.make_side(BASELINE)]
    assert (both(bench), ()) == ((room := fit_workloads(bench, both(bench), sides)).workloads, room.exclusions)
    free = 2 * CONTEXT_BYTES + HUGE_BYTES
    leave(fake, free)
    room = fit_workloads(bench, both(bench), sides)
    assert [SMALL] == [one.name for one in room.workloads]
    size = 8 * HUGE_BYTES + 2 * CONTEXT_BYTES
    (said,) = room.exclusions
    assert f"{HUGE}: inputs and outputs of right, baseline take {size / GIB:.1f} GiB ({size} bytes) of " in said
    assert f"1.0 GiB ({free} bytes) of NVIDIA H200 are free" in said
    assert f"fine; left out: {said}" == room.extend_message("fine")
    bench.sensors = None
    assert both(bench) == fit_workloads(bench, both(bench), sides).workloads


@pytest.mark.slow
def test_verification_goes_on_with_the_others(fake: FakeMachine, bench: Bench) -> None:
    """The huge one is not tried, and that is said in the line and among what was not exercised.

    One side after the other has its tensors: room for one is enough.
    """
    leave(fake, CONTEXT_BYTES + HUGE_BYTES)
    output = run_to_end(kernel.verify(make_context(bench, "right"), kernel.VerifyTerms())).output
    assert isinstance(output, VerifyOutput)
    assert {SMALL} == {check.workload.name for check in output.variants[0].checks}
    assert output.variants[0].is_right
    assert any(line.startswith(f"{HUGE}: ") for line in output.not_exercised)
    assert f"; left out: {HUGE}: inputs and outputs of right, baseline take" in output.message
