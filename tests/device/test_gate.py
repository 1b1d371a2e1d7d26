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
from loop.timing.samples import Terms, Timings
from loop.workers.bench import Bench, Side
from tests.device.make_target import make_target
from tests.targets import make_sides

pytestmark = [pytest.mark.cuda, pytest.mark.nvcc]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("gpu")
    target = make_target(folder)
    with Bench(target, folder, folder / "builds", include_folder(), "cuda", 1) as made:
        yield made


def some(bench: Bench, name: str = "some") -> tuple[Workload, ...]:
    return expand_sets(bench.target, [name], "float32", 5)


def side(bench: Bench, name: str) -> Side:
    """A variant, built."""
    (made,) = make_sides(bench, name)
    return made


@pytest.mark.parametrize("name", ["right", "synchronises", "torch"])
def test_honest_variants_are_right(bench: Bench, name: str) -> None:
    """On every shape; strided inputs are handled or declined."""
    (found,) = run_to_end(verify(bench, [Job(side(bench, name), some(bench))]))
    assert [(None, True)] == [(found.first_failure, found.is_right)]


@pytest.mark.parametrize(
    ("name", "statuses"),
    [("side_stream", {"wrong", "refused"}), ("nothing", {"wrong"}), ("crashes", {"refused", "crashed"})],
)
def test_dishonest_variants_are_not(bench: Bench, name: str, statuses: set[str]) -> None:
    """Work on another stream, no work at all, and a crash."""
    (found,) = run_to_end(verify(bench, [Job(side(bench, name), some(bench), layouts=False, fail_fast=True)]))
    assert found.first_failure is not None
    print(name, found.first_failure.message)
    assert found.first_failure.status in statuses


FAULT = "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered; a kernel read or wrote memory"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("stumbles", f"the device was lost: cuStreamSynchronize: {FAULT}"),
        ("stumbles_aloud", f"the device was lost: error 700: cudaErrorIllegalAddress; {FAULT}"),
        ("torch_asserts", "device-side assert"),
    ],
)
def test_a_fault_is_named_where_it_happened_and_nowhere_else(bench: Bench, name: str, said: str) -> None:
    """What comes before it is right, the processes that come after it are healthy; so is the next variant."""
    jobs = [Job(side(bench, one), some(bench), layouts=False) for one in (name, "right")]
    found, right = run_to_end(verify(bench, jobs))
    for check in found.checks:
        print(name, check.status, check.message)
    assert ["right", "right", "crashed", "crashed"] == [check.status for check in found.checks]
    assert all(said in check.message for check in found.checks[2:])
    assert all("N64" in check.message for check in found.checks[2:])
    assert right.is_right


def test_a_slowdown_is_seen_and_none_is_invented(bench: Bench) -> None:
    """A variant against itself, and against itself with every twentieth call made twice: nothing false is said."""
    chosen, timed = side(bench, "right"), some(bench, "timed")
    contest = Contest(chosen, [null_rival(chosen, timed), slowed_rival(chosen, 0.05, timed)])
    terms = Terms(60, 60.0, 1)
    timings = run_to_end(schedule.measure(bench, contest.sides, timed, terms, contest.pending_sides))
    assert isinstance(timings, Timings)
    alike, slow = ([contest.decide_now(timings, w, rival).verdict for w in timed] for rival in contest.rivals)
    print(alike, slow, timings.rounds)
    assert not {"faster", "slower"} & set(alike)
    assert not {"faster", "same"} & set(slow)
    assert slow.count("slower") >= 6
