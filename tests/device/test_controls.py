"""Controls of a compiled CUDA variant, on a fake GPU whose streams do their work as late as they may."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.model.workloads import expand_sets
from loop.proving import prove
from loop.proving import prove as table
from loop.proving.prove import Proof
from loop.workers.bench import Bench
from tests.conftest import ROOT
from tests.device.fakes import FakeMachine, fake_bench
from tests.targets import make_sides


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, fake_libraries: Path) -> Iterator[Bench]:
    """A bench on one fake GPU with a right kernel."""
    folder = tmp_path_factory.mktemp("controls")
    machine = FakeMachine(folder / "machine", fake_libraries)
    machine.nvcc("13.0")
    with machine.here(), fake_bench(machine, folder / "target", "right") as on_it:
        yield on_it


@pytest.mark.slow
def test_what_verification_can_find_is_killed_for_its_own_reason(bench: Bench) -> None:
    """All mistakes that verification can find are rejected; the honest control passes."""
    (side,) = make_sides(bench, "right")
    proof: Proof = run_to_end(prove.prove(bench, side, expand_sets(bench.target, ["timed"], "float32", 5)))
    honest = {result.name: result.killed for result in proof.results if result.kind == "honest"}
    assert dict.fromkeys(("honest", table.HONEST_COPY.name), False) == honest
    wrong = [result for result in proof.results if result.kind != "honest" and not result.right_reason]
    assert [] == [(result.name, result.reason) for result in wrong]
    assert [] == proof.inapplicable


def on(fake: FakeMachine, program: str) -> str:
    """Output of a Python program in a process of its own on this machine."""
    environment = {**os.environ, **fake.environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout
