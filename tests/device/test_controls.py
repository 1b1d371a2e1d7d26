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
    made = FakeMachine(folder / "machine", fake_libraries)
    made.nvcc("13.0")
    with made.here(), fake_bench(made, folder / "target", "right") as on_it:
        yield on_it


@pytest.mark.slow
def test_what_verification_can_find_is_killed_for_its_own_reason(bench: Bench) -> None:
    """Every mistake by way of the host; what is honest passes on the same way."""
    (side,) = make_sides(bench, "right")
    proof: Proof = run_to_end(prove.prove(bench, side, expand_sets(bench.target, ["timed"], "float32", 5)))
    honest = {one.name: one.killed for one in proof.results if one.kind == "honest"}
    assert dict.fromkeys(("honest", table.HONEST_COPY.name), False) == honest
    wrong = [one for one in proof.results if one.kind != "honest" and not one.right_reason]
    assert [] == [(one.name, one.reason) for one in wrong]
    assert [] == proof.inapplicable


def on(fake: FakeMachine, program: str) -> str:
    """What a Python program prints in a process of its own on a machine: its driver stays out of ours."""
    environment = {**os.environ, **fake.environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout
