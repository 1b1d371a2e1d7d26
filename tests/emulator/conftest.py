"""All fixtures of the emulator in one library, built once a run."""

from pathlib import Path

import pytest

from tests.emulator.fixtures import KERNELS, Fixtures, compiled


@pytest.fixture(scope="session")
def emulated(build_cache: Path) -> Fixtures:
    """The fixtures, built for the processor at hand."""
    return Fixtures(compiled(KERNELS / "everything.cu", build_cache, "-march=native"))
