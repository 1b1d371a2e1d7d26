"""From launches to the profile of a call: kernels by their time, and the facts of the longest."""

import pytest

from loop.model.device_profile import DeviceProfile, KernelRun
from loop.profile.device_counters import device_profile, facts, source


def made(*runs: KernelRun, cut: bool = False) -> DeviceProfile:
    """The profile of a call with these launches."""
    found = device_profile(runs, "ncu", cut=cut)
    assert found is not None
    return found


def run(kernel: str = "a", us: float | None = 1.0, **fields: object) -> KernelRun:
    """A launch."""
    return KernelRun.model_validate({"kernel": kernel, "us": us, **fields})


def test_the_kernel_that_takes_longest_comes_first() -> None:
    """By the time of all its launches, not of one."""
    found = made(run("short", 3.0), run("often", 2.0), run("often", 2.0))
    assert ["often", "short"] == [one.kernel for one in found.kernels]
    assert (3, 7.0, "often") == (found.launches, found.us, found.longest.kernel)


def test_shares_of_several_launches_are_weighed_by_time() -> None:
    """A launch of 3 us counts three times as much as one of 1 us."""
    found = made(run(us=1.0, dram=0.1, registers=32), run(us=3.0, dram=0.5, registers=40))
    assert pytest.approx(0.4) == found.longest.dram
    assert 40 == found.longest.registers


def test_unknown_in_one_launch_is_unknown_of_all() -> None:
    """A mean over some would say more than is known."""
    found = made(run(dram=0.1), run(us=None, dram=None))
    assert (None, None, None) == (found.longest.dram, found.longest.us, found.us)


def test_three_reasons_of_waiting_are_kept() -> None:
    """Those that take most of a warp's time, most first."""
    found = made(run(stalls={"a": 0.1, "b": 0.4, "c": 0.2, "d": 0.15, "e": 0.0}))
    assert ["b", "c", "d"] == list(found.longest.stalls)
    assert "b" == facts(found)["stall"]


def test_facts_are_those_of_the_longest() -> None:
    """Names as the decision tree reads them; unknown ones are there, and None."""
    found = made(run("a", 1.0, dram=0.9), run("b", 2.0, dram=0.2, sm=0.7))
    assert (0.2, 0.7, None, None) == tuple(
        facts(found)[name] for name in ("dram", "sm", "bank_conflicts", "stall")
    )


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([run("a")], "ncu, of a"),
        ([run("a"), run("a")], "ncu, of a"),
        ([run("a", 3.0), run("b", 1.0)], "ncu, of a, 75% of the time of 2 kernels"),
        ([run("a", None), run("b", None)], "ncu, of a, the first of 2 kernels"),
    ],
)
def test_it_is_said_whose_facts_they_are(runs: list[KernelRun], expected: str) -> None:
    """One kernel speaks for the call; how much of it that is stands beside it."""
    assert expected == source(made(*runs))


def test_no_launch_is_no_profile() -> None:
    """Nothing was seen."""
    assert device_profile([], "ncu") is None
