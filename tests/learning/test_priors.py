"""What is predicted where nothing was run yet."""

import json

import pytest

from loop.learning import durations
from loop.learning.durations import BIAS, ELSEWHERE, FILE, HERE, prior
from tests.makers import make_pattern

ONE = make_pattern("one", estimate={"minutes": 1.0})


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, with nvcc and without it."""
    row = {"pattern": "one", "bundled": True, "cores": 2}
    found = ({**row, "nvcc": True, "seconds": 40.0}, {**row, "nvcc": False, "seconds": 10.0})
    monkeypatch.setattr(durations, "measured", lambda: found)


@pytest.mark.parametrize(
    ("bundled", "cores", "nvcc", "seconds", "spread"),
    [
        (True, 2, True, 40.0, HERE),
        (True, 2, False, 10.0, HERE),
        (True, 8, True, 25.0, ELSEWHERE),
        (True, 1, False, 15.0, ELSEWHERE),
        (False, 2, True, 60.0, BIAS),
    ],
)
def test_the_machine_most_like_this_one_is_asked(
    bundled: bool, cores: int, nvcc: bool, seconds: float, spread: float
) -> None:
    """Half of the time shrinks with more cores; for a pattern that nobody measured its author is believed."""
    found = prior(ONE, bundled=bundled, cores=cores, nvcc=nvcc)
    assert (pytest.approx(seconds), spread) == found


def test_the_shipped_file_can_be_read() -> None:
    """It has the patterns of the default plan, with nvcc and without."""
    known = {(one["pattern"], one["nvcc"]) for one in json.loads(FILE.read_text())}
    assert {("baseline-first", True), ("baseline-first", False)} <= known
