"""A machine with fake GPUs, for the tests that have none."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.workers.bench import Bench
from tests.device.fakes import FakeMachine, fake_bench, libraries


@pytest.fixture(scope="session")
def fake_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake driver and the fake NVML."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile a driver with")
    return libraries(tmp_path_factory.mktemp("fake") / "built")


@pytest.fixture
def fake(tmp_path: Path, fake_libraries: Path) -> Iterator[FakeMachine]:
    """A machine with one H200, driver 580 and nvcc 13.0, and this process is on it."""
    machine = FakeMachine(tmp_path / "machine", fake_libraries)
    machine.nvcc("13.0")
    with machine.here():
        yield machine


@pytest.fixture
def bench(fake: FakeMachine, tmp_path: Path) -> Iterator[Bench]:
    """A bench on that GPU with kernels that are right, crash or hang."""
    with fake_bench(fake, tmp_path / "target", "right", "crashes", "hangs") as opened:
        yield opened
