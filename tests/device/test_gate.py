"""The gate on a GPU: compiled CUDA variants and torch functions, verified and timed for real."""

import shutil
from collections.abc import Iterator

import pytest

from loop.actions.contest import Contest, itself, slowed
from loop.bench import timing
from loop.bench.child.cuda import Device, NoDevice
from loop.bench.room import BASELINE, Bench, Side
from loop.bench.timing import Terms, Timings
from loop.bench.verify import Job, verify
from loop.model.target import Workload
from loop.model.workloads import expand
from loop.places import include_folder
from loop.processes import finish
from tests.device.make_target import make_target
from tests.targets import make_sides


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A bench on the GPU; skips without one."""
    try:
        Device()
    except NoDevice as error:
        pytest.skip(f"no GPU: {error}")
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc to compile the variants with")
    folder = tmp_path_factory.mktemp("gpu")
    target = make_target(folder)
    with Bench(target, folder, folder / "builds", include_folder(), "cuda", 1) as made:
        yield made


def some(bench: Bench, name: str = "some") -> tuple[Workload, ...]:
    """Workloads of a set."""
    return expand(bench.target, [name], "float32", 5)


def side(bench: Bench, name: str) -> Side:
    """A variant, built."""
    (made,) = make_sides(bench, name)
    return made


@pytest.mark.parametrize("name", ["right", "synchronises", "torch"])
def test_honest_variants_are_right(bench: Bench, name: str) -> None:
    """On every shape; strided inputs are handled or declined."""
    (found,) = finish(verify(bench, [Job(side(bench, name), some(bench))]))
    assert [(None, True)] == [(found.first_failure, found.right)]


@pytest.mark.parametrize(
    ("name", "statuses"),
    [("side_stream", {"wrong", "refused"}), ("nothing", {"wrong"}), ("crashes", {"refused", "crashed"})],
)
def test_dishonest_variants_are_not(bench: Bench, name: str, statuses: set[str]) -> None:
    """Work on another stream, no work at all, and a crash."""
    (found,) = finish(verify(bench, [Job(side(bench, name), some(bench), layouts=False, enough=True)]))
    assert found.first_failure is not None
    print(name, found.first_failure.message)
    assert found.first_failure.status in statuses


def test_the_library_and_a_variant_are_timed_with_sensors(bench: Bench) -> None:
    """Three rounds; outputs of timed calls right; sensors beside each segment."""
    sides = [bench.side(BASELINE), side(bench, "right")]
    timings = finish(timing.measure(bench, sides, some(bench, "timed"), Terms(3, 60.0, 1)))
    assert isinstance(timings, Timings)
    assert [] == timings.wrong
    for segment in timings.segments[:8]:
        print(segment.side, segment.workload, segment.calls, sorted(segment.seconds)[0], segment.sensors)
    assert all(segment.sensors is not None for segment in timings.segments)


def test_a_slowdown_is_seen_and_none_is_invented(bench: Bench) -> None:
    """A variant against itself, and against itself with every twentieth call made twice."""
    chosen, timed = side(bench, "right"), some(bench, "timed")
    contest = Contest(chosen, [itself(chosen, timed), slowed(chosen, 0.05, timed)])
    terms = Terms(60, 60.0, 1, timing.SHORT_SEGMENT_S)
    timings = finish(timing.measure(bench, contest.sides, timed, terms, contest.pending))
    assert isinstance(timings, Timings)
    words = [[contest.decision(timings, w, rival).verdict for w in timed] for rival in contest.rivals]
    print(words, timings.rounds)
    assert "faster" not in words[0] + words[1]
    assert "slower" not in words[0]
    assert {"slower"} == set(words[1])
