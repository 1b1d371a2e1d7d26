"""A compiled variant as PyTorch calls its own: the very build, judged like any side, told beside its ratio."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.base.processes import finish
from loop.model.measurement import Build, Measurement
from loop.model.output import OperatorSpeed
from loop.timing.operators import both_ways, time_operators
from loop.timing.ways import as_operator
from loop.workers.bench import Bench
from tests.makers import make_build, make_measurement, make_workload
from tests.targets import compiled, make_builds, open_bench, write_target

WORKLOAD = make_workload("N8 M8 float32", sizes={"N": 8, "M": 8})
TIME = (120.0, 100.0)
"""Seconds of the step, and of what is left of it."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for a right variant, and one that errs from its three thousandth call on."""
    folder = tmp_path_factory.mktemp("operators")
    with open_bench(
        folder, write_target(folder, {n: compiled(n) for n in ("right", "tires")}), build_cache
    ) as made:
        yield made


def direct(variant: str, us: float = 2.0) -> Measurement:
    """A variant that is twice as fast as the baseline through C."""
    made = make_measurement(ratio=2.0, variant=variant, candidate_us=us, reference_us=2 * us)
    return made.model_copy(update={"workload": WORKLOAD})


def build_of(bench: Bench, name: str) -> Build:
    """Its build."""
    return make_builds(bench, name)[name]


@pytest.mark.slow
def test_a_short_call_is_timed_as_an_operator_too(bench: Bench) -> None:
    """In the same rounds as the call through C; its ratio is that of C by what the way of calling takes."""
    (found,) = finish(time_operators(bench, [build_of(bench, "right")], [direct("right")], *TIME, 1))
    (speed,) = found.speeds
    assert ("right", WORKLOAD.name, 2.0, 2) == (speed.variant, speed.workload, speed.direct_ratio, speed.rounds)
    assert (("right as an operator", "PyTorch operator, allocates its result"),) == found.ways
    assert {"right", "right as an operator"} == {one.side for one in found.segments}
    assert 0 < speed.ratio != speed.direct_ratio
    assert () == found.distrusted == found.missing


@pytest.mark.slow
def test_an_operator_is_judged_like_any_other_side(bench: Bench) -> None:
    """What is wrong while it is timed is a verdict on the variant, and says how it was called."""
    (found,) = finish(time_operators(bench, [build_of(bench, "tires")], [direct("tires")], *TIME, 1))
    assert ("tires", "incorrect") == (found.distrusted[0].variant, found.distrusted[0].verdict)
    assert found.distrusted[0].reason.startswith("as an operator: while it was timed: ")


@pytest.mark.slow
def test_another_build_than_the_one_that_was_verified_is_no_operator(bench: Bench) -> None:
    """The binary says what it was built from."""
    other = build_of(bench, "right").model_copy(update={"build_id": "0" * 64})
    (found,) = finish(time_operators(bench, [other], [direct("right")], *TIME, 1))
    assert () == found.speeds
    assert "stale binary" in found.missing[0]


@pytest.mark.parametrize(
    ("us", "time", "missing"),
    [
        (80.0, TIME, ()),
        (2.0, (10.0, 9.0), ("right as an operator of PyTorch: the step's time was too short",)),
        (2.0, (20.0, -1.0), ("right as an operator of PyTorch: the step's time was too short",)),
    ],
    ids=["long calls", "short step", "nothing left"],
)
def test_no_process_is_started_where_nothing_can_be_told(
    us: float, time: tuple[float, float], missing: tuple[str, ...], bench: Bench
) -> None:
    """Long calls have no need of it; a lack of time is said."""
    found = finish(time_operators(bench, [build_of(bench, "right")], [direct("right", us)], *time, 1))
    assert missing == tuple(text for one in found for text in one.missing)
    assert [] == [speed for one in found for speed in one.speeds]


def test_a_signature_that_no_operator_has_is_said(bench: Bench) -> None:
    """An operator makes its output: each size has to be an input's."""
    target = bench.target.model_copy(
        update={"signature": bench.target.signature.model_copy(update={"outputs": {"output": "N M K"}})}
    )
    with bench.at(bench.folder, target) as other, pytest.raises(LoopError, match="K is a dimension of the output"):
        as_operator(other, other.side("right", make_build(variant="right")), make_build(variant="right"))


def test_both_ratios_are_told_where_they_differ() -> None:
    """Geometric means over the same workloads; a difference below a tenth is none."""

    def speed(workload: str, direct_ratio: float, ratio: float, variant: str = "cpu") -> OperatorSpeed:
        return OperatorSpeed(
            variant=variant, workload=workload, us=6.0, ratio=ratio, direct_ratio=direct_ratio, rounds=2
        )

    speeds = [speed("a", 2.7, 1.3), speed("b", 2.7, 1.3), speed("a", 2.0, 1.9, "other")]
    assert {
        "cpu": "2.7x called through C, 1.3x as an operator of PyTorch on its 2 shortest workloads"
    } == both_ways(speeds)
