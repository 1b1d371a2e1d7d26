"""Mistakes at the edges of tensors, each rejected for its reason; see `corpus`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loop.workers.bench import Bench
from tests.gate.corpus import KERNELS, Kernel, outcomes, write_kernel
from tests.targets import open_bench


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench whose judge has torch already; a kernel's test gives it its target."""
    folder = tmp_path_factory.mktemp("corpus")
    with open_bench(folder, write_kernel(folder, KERNELS[0], ["C++", "PyTorch"]), build_cache) as opened:
        yield opened


def _cases(kernel: Kernel) -> object:
    """The first two are tried at every change, the others by `make soak` and `make bench-gate`."""
    return pytest.param(kernel, marks=pytest.mark.slow if kernel in KERNELS[:2] else pytest.mark.soak)


def with_kernel(warm: Bench, kernel: Kernel) -> Bench:
    """The bench with a kernel's target."""
    return replace(warm, target=write_kernel(warm.folder, kernel, ["C++", "PyTorch"]))


@pytest.mark.parametrize("kernel", [_cases(kernel) for kernel in KERNELS], ids=lambda kernel: kernel.function)
def test_compiled_kernels_are_rejected_for_the_mistake_at_their_edge(warm: Bench, kernel: Kernel) -> None:
    """Every mistake that this kernel can make, and the kernel without one."""
    results = outcomes(with_kernel(warm, kernel), kernel, "C++")
    assert [] == [(result.mistake, result.expected, result.check) for result in results if not result.as_expected]


@pytest.mark.soak
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.function)
def test_python_kernels_are_rejected_for_the_mistake_at_their_edge(warm: Bench, kernel: Kernel) -> None:
    """Each function of the corpus is tried."""
    results = outcomes(with_kernel(warm, kernel), kernel, "PyTorch")
    assert [] == [(result.mistake, result.expected, result.check) for result in results if not result.as_expected]
