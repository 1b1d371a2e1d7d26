"""One call that is watched: what a trace of torch's profiler tells, and calls made once for a tool."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.model.target import Workload
from loop.model.workloads import expand
from loop.workers import checking
from loop.workers.bench import Bench
from loop.workers.messages import Kernel, Observe, Observed
from loop.workers.program import START_LIMIT_S
from tests.targets import compiled, importable, make_sides, open_bench, write_target

TRACE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "ts": 1, "dur": 7.937},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 2, "dur": 1.0, "args": {"bytes": 64}},
        {"ph": "X", "cat": "kernel", "name": "void second<float>(float*)", "ts": 30.5, "dur": 2.5, "args": {}},
        {
            "ph": "X",
            "cat": "kernel",
            "name": "first",
            "ts": 9.25,
            "dur": 1.25,
            "args": {"registers per thread": 40},
        },
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 8, "dur": 3.0},
        {"ph": "M", "name": "process_name"},
    ],
}
"""The form of a Chrome trace that torch writes."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench with a compiled and a Python variant."""
    folder, variants = (
        tmp_path_factory.mktemp("tiny"),
        {"right": compiled("right"), "python": importable("double")},
    )
    with open_bench(folder, write_target(folder, variants), build_cache) as made:
        yield made


@pytest.fixture
def five_rows(bench: Bench) -> Workload:
    """A workload whose inputs are written."""
    workload = expand(bench.target, ["some"], "float32")[1]
    finish(bench.expect(workload))
    return workload


def test_a_trace_tells_kernels_in_their_order() -> None:
    """Copies, and what the profiler itself did, are none."""
    assert [Kernel("first", 1.25, 40), Kernel("void second<float>(float*)", 2.5, None)] == list(
        checking.kernels_in(TRACE)
    )
    assert not checking.kernels_in({})


def once(bench: Bench, name: str, workload: Workload) -> Observed:
    """Have one call made, which nothing stands beside."""
    (side,) = make_sides(bench, name)
    with bench.open(side) as worker:
        finish(worker.receive(START_LIMIT_S, "loading"))
        return finish(worker.ask(Observe(bench.call(workload, name), "once"), limit_s=20.0, note="watching"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["right", "python"])
def test_a_call_is_made_once(bench: Bench, five_rows: Workload, name: str) -> None:
    """Of whatever kind the variant is; its output is nobody's business here."""
    assert checking.NOTHING == once(bench, name, five_rows)
