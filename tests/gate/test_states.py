"""What may come of a check: a variant may decline what it does not take, and nothing else counts as right."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import DefinitionError
from loop.base.places import project
from loop.base.processes import finish
from loop.gate.limits import LONGEST_S, CallLimit, operations, shrunk
from loop.gate.properties import relate
from loop.gate.verification import untaken
from loop.gate.verify import Job, verify
from loop.library.targets import target as read_target
from loop.model.target import Workload
from loop.model.workloads import accepts, expand, single, unsupported
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
    return expand(bench.target, ["some"], "float32")


def tallies(bench: Bench, *names: str) -> dict[str, str]:
    """Every state of each variant with its count."""
    jobs = [Job(side, workloads(bench)) for side in make_sides(bench, *names)]
    return {found.variant: found.tally for found in finish(verify(bench, jobs))}


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


def test_a_variant_that_computed_nothing_is_not_right(bench: Bench) -> None:
    """Nothing failed, and nothing was seen to be right."""
    (found,) = finish(verify(bench, [Job(make_sides(bench, "none")[0], workloads(bench))]))
    assert found.first_failure is None
    assert not found.right


def test_what_is_not_taken_is_named_beside_what_was_not_exercised(bench: Bench) -> None:
    """With the condition that leaves it out."""
    (side,) = make_sides(bench, "fragile")
    said = f"2 workloads: not supported, N=5, N=3 (`takes: {EVEN}`)"
    assert (said,) == untaken(side, workloads(bench))
    assert () == untaken(make_sides(bench, "all")[0], workloads(bench))


@pytest.mark.slow
def test_a_property_that_asks_for_a_call_outside_takes_does_not_apply(bench: Bench) -> None:
    """It asks for one row of two, which the variant must not be given."""
    (side,) = make_sides(bench, "fragile")
    (found,) = finish(relate(bench, side, ["tiny_functions:row_by_row"], workloads(bench)))
    assert ("inapplicable", "asks for N1 M3, which is not supported") == (found.status, found.message)


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
        read_target(project(tmp_path, tmp_path))
    assert said in str(raised.value)
    assert "target.yaml:" in str(raised.value)


def test_conditions_read_sizes_attributes_and_types(bench: Bench) -> None:
    """The first part that does not hold says why."""
    small, large, _ = workloads(bench)
    side = make_sides(bench, "small")[0]
    assert ("", "N=5") == (unsupported(side, small), unsupported(side, large))
    assert [True, False] == [accepts(side, one) for one in (small, large)]


def of_size(bench: Bench, rows: int, columns: int) -> Workload:
    """A workload of the tiny target."""
    return single(bench.target, {"N": rows, "M": columns}, "float32")


def test_the_limit_of_a_call_grows_with_its_work(bench: Bench) -> None:
    """From what a smaller one took; never below what any call may take, nor without end."""
    small, large = of_size(bench, 1000, 1000), of_size(bench, 2500, 1000)
    limit = CallLimit(bench.target, make_sides(bench, "right")[0], 20.0)
    assert 20.0 == limit.of(large)
    limit.learn(small, 2.0)
    assert 100.0 == pytest.approx(limit.of(large)), "two and a half times the work of what took 2 s, 20 times over"
    assert 20.0 == limit.of(of_size(bench, 10, 10)), "a small call that hangs costs little, whatever others took"
    limit.learn(large, 2.0)
    assert 40.0 == limit.of(large)
    assert LONGEST_S == limit.of(of_size(bench, 10**6, 10**6))


def test_before_a_large_call_smaller_ones_are_made(bench: Bench) -> None:
    """Two, of a 4096th and a 64th of its work, within what the variant takes; none where something tells."""
    side = make_sides(bench, "fragile")[0]
    huge = of_size(bench, 6 << 12, 1 << 12)
    limit = CallLimit(bench.target, side, 20.0)
    tried = [(one, limit.learn(one, 0.1)) for one in limit.smaller(huge)]
    shares = [operations(bench.target, huge) / operations(bench.target, one) for one, _ in tried]
    assert [True, True] == [4096 <= shares[0] <= 2 * 4096, 64 <= shares[1] <= 2 * 64]
    assert all(accepts(side, one) for one, _ in tried)
    assert [] == list(limit.smaller(huge))
    assert [] == list(CallLimit(bench.target, side, 20.0).smaller(workloads(bench)[0]))
    assert 6 == shrunk(bench.target, side, huge, 6.0).sizes["N"] * shrunk(bench.target, side, huge, 6.0).sizes["M"]
