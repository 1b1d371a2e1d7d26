"""The gate on a GPU: compiled CUDA variants and torch functions, verified and timed for real."""

from collections.abc import Iterator

import pytest

from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.gate.verify import Job, verify
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.timing import schedule
from loop.timing.against_known_good import Contest, null_rival, slowed_rival
from loop.timing.samples import Limits, Timings
from loop.workers.bench import Bench, Side
from tests.device.make_target import make_target
from tests.targets import make_sides

pytestmark = [pytest.mark.cuda, pytest.mark.nvcc]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("gpu")
    target = make_target(folder)
    with Bench(target, folder, folder / "builds", include_folder(), "cuda", 1) as opened:
        yield opened


def shapes(bench: Bench, name: str = "some") -> tuple[Workload, ...]:
    return expand_sets(bench.target, [name], "float32", 5)


def side(bench: Bench, name: str) -> Side:
    """A variant, built."""
    (built,) = make_sides(bench, name)
    return built


@pytest.mark.parametrize("name", ["right", "synchronises", "torch"])
def test_honest_variants_are_right(bench: Bench, name: str) -> None:
    """They are right on every shape; strided inputs are handled or declined."""
    (verified,) = run_to_end(verify(bench, [Job(side(bench, name), shapes(bench))]))
    assert [(None, True)] == [(verified.first_failure, verified.is_right)]


@pytest.mark.parametrize(
    ("name", "statuses"),
    [("side_stream", {"wrong", "refused"}), ("nothing", {"wrong"}), ("crashes", {"refused", "crashed"})],
)
def test_dishonest_variants_are_not(bench: Bench, name: str, statuses: set[str]) -> None:
    """Work on another stream, no work at all, and a crash."""
    (verified,) = run_to_end(verify(bench, [Job(side(bench, name), shapes(bench), layouts=False, fail_fast=True)]))
    assert verified.first_failure is not None
    print(name, verified.first_failure.message)
    assert verified.first_failure.status in statuses


FAULT = "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered; a kernel read or wrote memory"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stumbles", f"the device was lost: cuStreamSynchronize: {FAULT}"),
        ("stumbles_aloud", f"the device was lost: error 700: cudaErrorIllegalAddress; {FAULT}"),
        ("torch_asserts", "device-side assert"),
    ],
)
def test_a_fault_is_named_where_it_happened_and_nowhere_else(bench: Bench, name: str, message: str) -> None:
    """Earlier checks are right; later processes and the next variant find a healthy GPU."""
    jobs = [Job(side(bench, variant), shapes(bench), layouts=False) for variant in (name, "right")]
    verified, right = run_to_end(verify(bench, jobs))
    for check in verified.checks:
        print(name, check.status, check.message)
    assert ["right", "right", "crashed", "crashed"] == [check.status for check in verified.checks]
    assert all(message in check.message for check in verified.checks[2:])
    assert all("N64" in check.message for check in verified.checks[2:])
    assert right.is_right


def test_a_slowdown_is_seen_and_none_is_invented(bench: Bench) -> None:
    """A variant against itself is the same; with every twentieth call made twice it is slower."""
    chosen, timed = side(bench, "right"), shapes(bench, "timed")
    contest = Contest(chosen, [null_rival(chosen, timed), slowed_rival(chosen, 0.05, timed)])
    limits = Limits(60, 60.0, 1)
    timings = run_to_end(schedule.measure(bench, contest.sides, timed, limits, contest.pending_sides))
    assert isinstance(timings, Timings)
    alike, slow = ([contest.decide_now(timings, w, rival).verdict for w in timed] for rival in contest.rivals)
    print(alike, slow, timings.rounds)
    assert not {"faster", "slower"} & set(alike)
    assert not {"faster", "same"} & set(slow)
    assert slow.count("slower") >= 6
