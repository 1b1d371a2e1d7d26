"""From launches to the profile of a call: kernels by their time, and the facts of the longest."""

import pytest

from loop.model.device_profile import DeviceProfile, KernelRun
from loop.profile.device_counters import device_profile, facts


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


def test_facts_are_those_of_the_longest() -> None:
    """Names as the decision tree reads them; unknown ones are there, and None."""
    found = made(run("a", 1.0, dram=0.9), run("b", 2.0, dram=0.2, sm=0.7))
    assert (0.2, 0.7, None, None) == tuple(
        facts(found)[name] for name in ("dram", "sm", "bank_conflicts", "stall")
    )
