"""Controls of a compiled CUDA variant, on a fake GPU whose streams do their work as late as they may."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.mistakes.device import STREAMS
from loop.model.signature import Signature
from loop.model.workloads import expand
from loop.proving import negative_controls as table
from loop.proving import prove
from loop.proving.prove import Proof, erring
from loop.timing.round import Untimed
from loop.timing.schedule import measure
from loop.timing.terms import Terms
from loop.workers.bench import Bench
from tests.conftest import ROOT
from tests.device.fakes import CPU_TORCH, FakeMachine, fake_bench
from tests.session.mix import SIGNATURE
from tests.targets import make_sides

NAN = "NaN"
ON_A_GPU = {
    "works on a stream of its own": NAN,
    "works on the default stream": NAN,
    "computes only while captured": NAN,
}
"""Controls that only a GPU has, and what the fake one's gate finds of each: its streams are late where those
of a real one may be in time."""
WHILE_TIMED = {"does nothing while captured": "launched nothing|NaN"}
"""Controls that verification cannot find: what a replayed graph computes."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, fake_libraries: Path) -> Iterator[Bench]:
    """A bench on one fake GPU with a right kernel."""
    folder = tmp_path_factory.mktemp("controls")
    made = FakeMachine(folder / "machine", fake_libraries)
    made.nvcc("13.0")
    with made.here(), fake_bench(made, folder / "target", "right") as on_it:
        yield on_it


@pytest.fixture(scope="module")
def proof(bench: Bench) -> Proof:
    """What verification finds of every control."""
    (side,) = make_sides(bench, "right")
    found: Proof = finish(prove.prove(bench, side, expand(bench.target, ["timed"], "float32", 5)))
    return found


def test_every_mistake_of_a_device_is_among_the_controls() -> None:
    """None that nobody makes, none that is made and unknown."""
    made = {one.make for one in table.controls(Signature.model_validate(SIGNATURE), "cuda")}
    assert set(STREAMS) - {table.DEVICE_WAY.make} <= made


@pytest.mark.slow
def test_what_verification_can_find_is_killed_for_its_own_reason(proof: Proof) -> None:
    """Mistakes in values by way of the host, all others as work on the device's streams."""
    honest = {one.name: one.killed for one in proof.results if one.kind == "honest"}
    assert dict.fromkeys(("honest", table.WAY.name, table.DEVICE_WAY.name), False) == honest
    wrong = [one for one in proof.results if one.kind != "honest" and not one.right_reason]
    assert [] == [(one.name, one.reason) for one in wrong]
    assert [] == proof.left_out
    assert set(WHILE_TIMED) <= {one.name for one in proof.timed}


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_cheat_of_a_gpu_is_found_by_what_it_leaves_out(proof: Proof, name: str) -> None:
    """Each has its own."""
    (one,) = [one for one in proof.results if one.name == name]
    assert one.cause in ON_A_GPU[name].split("|"), one.reason


@pytest.mark.slow
def test_what_only_a_replay_shows_is_found_there(bench: Bench) -> None:
    """By a wrong output of a timed call, or by a graph that is empty."""
    (side,) = make_sides(bench, "right")
    known = {one.name: one for one in table.controls(bench.target.signature, "cuda")}
    sides = [erring(bench, side, known[name], "float32") for name in WHILE_TIMED]
    workload = expand(bench.target, ["timed"], "float32", 5)[-1]
    for side, causes in zip(sides, WHILE_TIMED.values(), strict=True):
        try:
            timings = finish(measure(bench, [side], [workload], Terms(2, 60.0, 1)))
            said = [check.cause for _, check in timings.wrong]
        except Untimed as error:
            said = [error.cause]
        assert any(cause in causes.split("|") for cause in said), (side.name, said)


THROUGH_TORCH = """
import torch
from loop.mistakes.functions import through_stream
from loop.calls.cuda.call import the_device

for dtype in (torch.float16, torch.bfloat16, torch.float32):
    one = torch.arange(24, dtype=dtype).reshape(4, 6)
    for make, right in (("on_stream", True), ("side_stream", True), ("only_captured", False)):
        result = through_stream(lambda x: 2 * x, make)(one)
        the_device().synchronise_all()
        assert torch.equal(2 * one, result) if right else 24 == result.isnan().sum()
print("all of them")
"""


@pytest.mark.slow
@CPU_TORCH
def test_a_python_variant_errs_in_the_same_ways(fake: FakeMachine) -> None:
    """The same mistakes, on tensors of torch: here in a process whose driver is the fake one."""
    assert "all of them\n" == on(fake, THROUGH_TORCH)


def on(fake: FakeMachine, program: str) -> str:
    """What a Python program prints in a process of its own on a machine: its driver stays out of ours."""
    environment = {**os.environ, **fake.environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout


WINDOW = """
import ctypes
from loop.calls.cuda import driver as cuda

driver = cuda.the_driver()
stream = cuda.Stream(driver)
assert 0 == cuda.take_back_l2(driver, stream.handle)
window = cuda.AccessPolicyWindow(4096, 512, 1.0, 2, 0)
driver.call("cuStreamSetAttribute", stream.handle, cuda.ACCESS_POLICY_WINDOW, ctypes.byref(window))
print([cuda.take_back_l2(driver, stream.handle) for _ in range(2)])
"""


@pytest.mark.slow
def test_a_window_of_l2_is_taken_away_where_it_is_found(fake: FakeMachine) -> None:
    """What comes next on the stream starts without it."""
    assert "[512, 0]\n" == on(fake, WINDOW)
