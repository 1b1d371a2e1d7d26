"""What host code launches, asked of it in a dry run: real g++, a real child."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.model.resources import WorkloadLaunches
from loop.model.workloads import expand_sets
from loop.profile.inspection import ask_for_launches
from loop.workers.bench import Bench
from tests.targets import build_one, open_bench
from tests.tiny_cuda import cuda, write_cuda_target

ROWS, TAIL = "_ZN4tiny4rowsIfLi128EEEvPKT_PS1_j", "_Z4tailPf"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for variants that keep the protocol, and some that do not."""
    folder = tmp_path_factory.mktemp("telling")
    variants = {name: cuda(name) for name in ("plain", "floats", "reads", "silent", "garbles", "nowhere")}
    with open_bench(folder, write_cuda_target(folder, variants), build_cache) as made:
        yield made


def told(bench: Bench, name: str, *sets: str, dtype: str = "float32") -> tuple[WorkloadLaunches, ...]:
    """What a variant launches on the workloads of these sets."""
    made = build_one(bench.folder, bench.emulated_variants([name])[name], bench.cache, name)
    workloads = expand_sets(bench.target, sets or ("some",), dtype)  # type: ignore[arg-type]
    found: tuple[WorkloadLaunches, ...] = run_to_end(ask_for_launches(bench, made, workloads))
    return found


def test_each_call_tells_its_own_launches(bench: Bench) -> None:
    """Kernel, grid, block and dynamic shared memory, in order; what else the emulator knows is left out."""
    small, larger, empty = told(bench, "plain")
    (one,) = small.launches
    assert (ROWS, (5, 1, 1), (128, 1, 1), 2048) == (one.kernel, one.grid, one.block, one.shared)
    assert [(ROWS, 12), (TAIL, 1)] == [(one.kernel, one.blocks) for one in larger.launches]
    assert ("told", ()) == (empty.status, empty.launches)
    assert "N5 M300 float32" == larger.workload.name


def test_host_code_that_touches_a_tensor_is_found_out(bench: Bench) -> None:
    """On a GPU it would read device memory: it crashes here, and is asked no more."""
    (one,) = told(bench, "reads")
    assert ("lost", "crashed with SIGSEGV") == (one.status, one.why)
