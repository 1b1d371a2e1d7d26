"""A slice of the named kill points."""

from pathlib import Path

import pytest

from tests.faults import kill_points
from tests.faults.slices import broken


def test_there_are_at_least_forty_points_and_each_is_another_one() -> None:
    """Each with five faults."""
    points = [point for named in kill_points.POINTS.values() for point in named.values()]
    assert len(points) >= 40
    assert len(set(points)) == len(points)
    assert len(list(kill_points.cases(1))) == 5 * len(points)


@pytest.mark.slow
@pytest.mark.parametrize("number", [50, 107, 204])
def test_a_fault_at_a_named_point_loses_nothing(tmp_path: Path, number: int) -> None:
    """A kill, an interrupt and a disk that fails, in journal and record."""
    assert "" == broken(kill_points, number, tmp_path)
