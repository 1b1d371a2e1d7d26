"""On a GPU no call is faster than an empty kernel, the memory or the arithmetic units: by a fake driver's word."""

import pytest

from loop.base.processes import run_to_end
from loop.model.measurement import Measurement
from loop.timing.doubts import explain_impossible_speed
from loop.workers.bench import Bench
from tests.makers import make_measurement, make_workload


def claim(us: float, rows: int = 1, flops_per_s: float | None = None) -> Measurement:
    """A call that gives 4 KiB for each of so many rows."""
    workload = make_workload("w", sizes={"N": rows, "M": 1024})
    return make_measurement(candidate_us=us, flops_per_s=flops_per_s).model_copy(update={"workload": workload})


@pytest.mark.slow
def test_an_empty_kernel_is_measured_in_a_graph(bench: Bench) -> None:
    """What is quicker is impossible, from C and from Python; what is as quick is not."""
    floors = run_to_end(bench.measure_floors())
    empty_us = floors.call_s_by_way["kernel"] * 1e6
    assert 0 < empty_us < 1e3
    for kind in ("c_abi", "python"):
        assert run_to_end(explain_impossible_speed(bench, claim(empty_us / 1e4, 0), kind)).startswith(
            "faster than an empty call: "
        )
        assert "" == run_to_end(explain_impossible_speed(bench, claim(empty_us + 1.0, 0), kind))


def test_bytes_and_operations_have_the_roof_of_the_gpu_at_hand(bench: Bench) -> None:
    """A gigabyte in a microsecond; ten times what four multiprocessors do; and what they do."""
    assert run_to_end(explain_impossible_speed(bench, claim(1.0, 1 << 18), "command")).startswith(
        "faster than memory: 1.07e+03 MB"
    )
    most = 2048 * 4 * 1.98e9
    said = run_to_end(explain_impossible_speed(bench, claim(10.0, 1, 10 * most), "command"))
    assert said.startswith("faster than the device: ")
    assert "4 multiprocessors of compute capability 9.0" in said
    assert "" == run_to_end(explain_impossible_speed(bench, claim(10.0, 1, most), "command"))
