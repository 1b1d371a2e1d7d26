"""Energy: joules from the counter that measurements read, of every attempt."""

from loop.model.measurement import DeviceReading, Segment
from loop.money.charging import energy
from loop.timing.energy import taken
from tests.makers import make_finished


def segment(before: tuple[float, float | None], after: tuple[float, float | None]) -> Segment:
    """A segment between two readings of (seconds, joules)."""
    readings = [DeviceReading(at_s=at, energy_j=joules) for at, joules in (before, after)]
    return Segment(side="cpu", workload="w", round=0, calls=1, seconds=(0.1,), sensors=(readings[0], readings[1]))


def test_the_board_s_counter_from_first_to_last() -> None:
    """What it took between the segments was used as well: 1,000 to 1,900 J in 12 s."""
    segments = [segment((103.0, 1300.0), (106.0, 1500.0)), segment((100.0, 1000.0), (102.0, 1200.0)),
                segment((110.0, 1800.0), (112.0, 1900.0))]  # fmt: skip
    assert (900.0, 12.0) == taken(segments)


def test_without_a_counter_there_is_no_figure() -> None:
    """Nor where it began anew, as after a driver was loaded again."""
    assert None is taken([segment((0.0, None), (1.0, None))])
    assert None is taken([segment((0.0, 500.0), (1.0, 20.0))])
    assert None is taken([])


def test_the_joules_of_all_measurements_add_up() -> None:
    """Those of a change too, and those of an attempt that was made again."""
    records = [
        make_finished("measure", output={"energy_j": 100.0, "energy_s": 4.0}),
        make_finished("measure", attempt=2, output={"energy_j": 50.0, "energy_s": 2.0}),
        make_finished("change", output={"found": {"energy_j": 25, "energy_s": 1}}),
        make_finished("verify", output={"found": None}),
    ]
    assert (175.0, 7.0) == energy(records)
    assert None is energy([make_finished("measure", output={"energy_j": None, "energy_s": 0.0})])
