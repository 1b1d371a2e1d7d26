"""Claims that this machine cannot fulfil are told, and an honest kernel near its roof is never accused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.model.dtypes import Dtype
from loop.model.measurement import Measurement
from loop.timing.doubts import impossible
from loop.workers.bench import Bench
from tests.makers import make_measurement, make_workload
from tests.targets import compiled, open_bench, write_target


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for a small target on one thread, whose manifest counts bytes: x is read, the result written."""
    folder = tmp_path_factory.mktemp("roofs")
    target = write_target(folder, {"right": compiled("right")}, bytes="itemsize * 2 * N * M")
    with open_bench(folder, target, build_cache) as made:
        yield made


def claim(size: int, seconds: float, dtype: Dtype = "float32", **fields: float) -> Measurement:
    """A call on an input and an output of so many bytes each."""
    workload = make_workload("w", sizes={"N": size // 4096, "M": 1024}, dtype=dtype)
    return make_measurement(candidate_us=seconds * 1e6, **fields).model_copy(update={"workload": workload})


@pytest.mark.slow
def test_a_call_that_takes_less_than_an_empty_one_is_impossible(bench: Bench) -> None:
    """Measured again before it is said; a program's own figure has to allow for the call of a function alone."""
    short = claim(0, 1e-9)
    assert finish(impossible(bench, short, "c_abi")).startswith("faster than an empty call: 0.001 us")
    assert finish(impossible(bench, short, "python")).startswith("faster than an empty call: 0.001 us")
    assert finish(impossible(bench, short, "command")).startswith("faster than an empty call: 0.001 us")
    assert "" == finish(impossible(bench, claim(0, 3e-9), "command"))
