"""Other users of the GPU are reported before and after a measurement. On a fake GPU."""

import pytest

from loop.base.processes import run_to_end
from loop.timing.readiness import describe_gpu_use, wait_for_idle_gpu
from loop.workers.bench import Bench
from tests.device.fakes import GIB, FakeMachine

NOISY = "numbers will be noisy; end it, or take another GPU: CUDA_VISIBLE_DEVICES names it"


@pytest.fixture(autouse=True)
def short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the GPU's rest from two seconds."""
    monkeypatch.setattr("loop.timing.readiness.IDLE_WAIT_S", 0.3)


@pytest.mark.slow
def test_another_process_is_named_with_its_memory(fake: FakeMachine, bench: Bench) -> None:
    """The first process of this system, say, holds 10 GiB; it is there before and after."""
    fake.load(f"0 1:{10 * GIB}")
    expected = f"NVIDIA H200 is not ours alone: another process (pid 1) holds 10240 MiB of it: {NOISY}"
    assert (expected, expected) == (run_to_end(wait_for_idle_gpu(bench)), describe_gpu_use(bench))


def test_a_gpu_that_computes_is_waited_for_then_told(fake: FakeMachine, bench: Bench) -> None:
    """One busy reading may be loop's own work, so it waits; only lasting load gives a warning."""
    fake.load("97")
    waiting = wait_for_idle_gpu(bench)
    assert "waiting for the GPU to rest, 97 % busy" == next(waiting).note
    fake.load("3")
    assert "" == run_to_end(waiting)
    fake.load("97")
    warning = run_to_end(wait_for_idle_gpu(bench))
    assert f"somebody computes on it, 97 % of the time before anything was timed: {NOISY}" in warning
    assert "" == describe_gpu_use(bench)
