"""What is said of other programs before a measurement: who, how much, and what it costs."""

from loop.machine.busy import BusyProgram, Crowd, warning

REMEDY = "end what else runs, or allow more time"


def test_a_quiet_machine_is_not_mentioned() -> None:
    """Many small ones that together take little of sixteen cores neither."""
    assert "" == warning(2, Crowd(()))
    assert "" == warning(2, Crowd((BusyProgram("editor", 0.1), BusyProgram("shell", 0.0))))
    assert "" == warning(16, Crowd((BusyProgram("browser", 0.5), BusyProgram("mail", 0.5))))


def test_a_busy_machine_is_said_with_its_cost() -> None:
    """Two programs on two cores: each verdict waits for them and sees their noise."""
    found = warning(2, Crowd((BusyProgram("python", 1.0), BusyProgram("make", 0.95), BusyProgram("editor", 0.01))))
    assert (
        f"2 other programs keep 1.9 of 2 cores busy (python, make): verdicts take about 3 times as long; {REMEDY}"
        == (found)
    )


def test_cost_grows_with_the_programs_per_core() -> None:
    """One of four cores costs little, four programs on two cores more than two."""
    assert warning(4, Crowd((BusyProgram("a", 1.0),))).startswith(
        "1 other program keeps 1.0 of 4 cores busy (a): verdicts take"
    )
    assert "about 2 times" in warning(2, Crowd((BusyProgram("a", 1.0),)))
    assert "about 5 times" in warning(2, Crowd(tuple([BusyProgram("a", 0.5)] * 4)))
    assert "verdicts take longer" in warning(16, Crowd(tuple([BusyProgram("a", 1.0)] * 2)))


def test_a_host_that_takes_cores_away_is_said_too() -> None:
    """Steal is seen from inside a virtual machine only as time that is gone."""
    assert f"the host takes 1.0 of 2 cores: verdicts take about 2 times as long; {REMEDY}" == warning(
        2, Crowd((), 1.0)
    )
