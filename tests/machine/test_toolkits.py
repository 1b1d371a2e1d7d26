"""Which toolkit's code runs under which driver, and what flags ask for."""

import pytest

from loop.machine.machine import Release, explain_old_driver, requests_code_for


@pytest.mark.parametrize(
    ("toolkit", "cuda", "driver", "conflict"),
    [
        ("13.0", (12, 8), "570.124.06", True),
        ("12.4", (13, 0), "580.65.06", False),
        ("12.0", (11, 4), "470.256.02", True),
        # The compatibility package lets a new toolkit run over an older kernel module, and the driver says so.
        ("13.0", (13, 0), "535.129.03", False),
        # An older libcuda found before the driver's own.
        ("13.0", (12, 4), "580.65.06", True),
        ("13.0", None, None, False),
    ],
)
def test_code_runs_under_drivers_of_its_own_major_release_and_newer(
    toolkit: str, cuda: Release | None, driver: str | None, conflict: bool
) -> None:
    """Within a major release any minor one will do, for code that is compiled for the GPU itself."""
    assert conflict == bool(explain_old_driver("code from nvcc", toolkit, cuda, driver))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("-arch=sm_90",), True),
        (("-arch=sm_90a",), True),
        (("-arch=native",), True),
        (("-arch=sm_80",), False),
        (("-Xcompiler", "-march=native"), False),
        (("-arch=sm_900",), False),
    ],
)
def test_flags_say_whether_code_is_for_a_gpu(flags: tuple[str, ...], expected: bool) -> None:
    """By its name, or as the one that is there; a processor's flags say nothing of GPUs."""
    assert expected == requests_code_for(flags, "sm_90")
