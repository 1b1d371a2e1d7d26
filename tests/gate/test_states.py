"""What may come of a check: a variant may decline what it does not take, and nothing else counts as right."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import DefinitionError
from loop.base.places import find_project
from loop.base.processes import run_to_end
from loop.gate.verification import describe_untaken_workloads
from loop.gate.verify import Job, verify
from loop.library.targets import read_target as read_target
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.workers.bench import Bench
from tests.targets import compiled, importable, make_sides, open_bench, write_target

EVEN = "N % 2 == 0"
VARIANTS: dict[str, dict[str, Any]] = {
    "right": compiled(),
    "refuses": compiled("refuses"),
    "small": compiled("refuses", takes="N <= 3 and itemsize == 4"),
    "too_modest": compiled("refuses", takes="N <= 5 and M == 3"),
    "fragile": importable("of_even_rows", takes=EVEN),
    **{name: importable(name) for name in ("declines_strides", "trips_on_strides", "declines", "raises")},
    "all": importable("double"),
    "none": importable("double", takes="N > 100"),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench with variants that decline, raise, and say what they take."""
    folder = tmp_path_factory.mktemp("states")
    with open_bench(folder, write_target(folder, VARIANTS), build_cache) as made:
        yield made


def workloads(bench: Bench) -> tuple[Workload, ...]:
    """N2 M3, N5 M3 and N3 M4."""
    return expand_sets(bench.target, ["some"], "float32")


def tallies(bench: Bench, *names: str) -> dict[str, str]:
    """Every state of each variant with its count."""
    jobs = [Job(side, workloads(bench)) for side in make_sides(bench, *names)]
    return {found.variant: found.tally for found in run_to_end(verify(bench, jobs))}


@pytest.mark.slow
def test_an_exception_is_a_crash_whatever_the_layout(bench: Bench) -> None:
    """Only `NotImplementedError` declines, but for broadcast inputs, and never contiguous ones."""
    assert {
        "declines_strides": "right on 4, not supported on 3 (strided x1, transposed x1, broadcast x1)",
        "trips_on_strides": "right on 4, not supported on 1 (broadcast x1), crashed on 2",
        "declines": "not supported on 4 (strided x1, misaligned x1, transposed x1, broadcast x1), refused on 3",
        "raises": "not supported on 1 (broadcast x1), crashed on 6",
    } == tallies(bench, "declines_strides", "trips_on_strides", "declines", "raises")


@pytest.mark.slow
def test_what_lies_outside_takes_is_counted_and_not_called(bench: Bench) -> None:
    """An error number inside it is a refusal; a function that must not be called is not."""
    assert {
        "refuses": "right on 3, not supported on 3 (strided x1, transposed x1, broadcast x1), refused on 1",
        "small": "right on 3, not supported on 4 (strided x1, transposed x1, broadcast x1, N=5 x1)",
        "too_modest": "right on 2, not supported on 4 "
        "(strided x1, transposed x1, broadcast x1, M=4 x1), refused on 1",
        "fragile": "right on 5, not supported on 2 (N=5 x1, N=3 x1)",
        "none": "not supported on 3 (N=2 x1, N=5 x1, N=3 x1)",
    } == tallies(bench, "refuses", "small", "too_modest", "fragile", "none")


def test_what_is_not_taken_is_named_beside_what_was_not_exercised(bench: Bench) -> None:
    """With the condition that leaves it out."""
    (side,) = make_sides(bench, "fragile")
    said = f"2 workloads: not supported, N=5, N=3 (`takes: {EVEN}`)"
    assert (said,) == describe_untaken_workloads(side, workloads(bench))
    assert () == describe_untaken_workloads(make_sides(bench, "all")[0], workloads(bench))


@pytest.mark.parametrize(
    ("takes", "said"),
    [
        ("N % 8 = 0", "expected an expression, got 'N % 8 = 0'"),
        ("Q % 8 == 0", "expected a known name, got 'Q'"),
        ("N % 8", "expected true or false, got 2 on N2 M3 float32"),
        ("N % (M - 3) == 0", "expected a divisor other than zero, got zero on N2 M3 float32"),
    ],
)
def test_a_condition_that_has_no_answer_is_found_when_it_is_read(takes: str, said: str, tmp_path: Path) -> None:
    """With file, line and column, before anything runs."""
    write_target(tmp_path, {"right": compiled(takes=takes)})
    with pytest.raises(DefinitionError) as raised:
        read_target(find_project(tmp_path, tmp_path))
    assert said in str(raised.value)
    assert "target.yaml:" in str(raised.value)
