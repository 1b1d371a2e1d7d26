"""The section on a GPU that need not be at hand: compact, trouble first, no claim on what was not looked at."""

from typing import Any

from loop.model.resources import KernelResources
from loop.profile.model import ResourcesOutput
from tests.makers import make_finished, make_kernel, make_library, make_placement
from tests.profile.test_section import make_filling
from tests.session.test_report_page import report, rows, section

TITLE = "What the kernels would do on NVIDIA L4"
MAIN = make_kernel(registers=160, shared_bytes=16384)
OTHER = make_kernel("void tiny::unused(float*)", registers=24)
SPILLS = make_kernel("void tiny::crowded(float*)", registers=255, spill_stores=144, spill_loads=288)


def make_resources(*kernels: KernelResources, **fields: Any) -> ResourcesOutput:
    """What was found of a library of these kernels, of which timed calls launch the first."""
    base: dict[str, Any] = {"ok": True, "message": "m", "device": "sm_89", "device_name": "NVIDIA L4"}
    found = kernels or (MAIN, OTHER)
    placements = (make_placement(found[0], resident=3, shared_bytes=16384),)
    filling = {"variant": "v", "kernel": found[0].short_name, "resident": 3}
    fillings = (make_filling(**filling, waves=0.02, share=0.02), make_filling(**filling, waves=2.5, share=1.0))
    seen = {"libraries": (make_library(*found),), "placements": placements, "fillings": fillings}
    return ResourcesOutput.model_validate({**base, **seen, **fields})


def shown(output: ResourcesOutput) -> str:
    """The section of a session with that step."""
    return section(report(finished=[make_finished("resources", output=output)]), TITLE)


def test_kernels_in_trouble_come_first() -> None:
    """Though nothing launches them."""
    output = make_resources(MAIN, SPILLS, OTHER)
    table = [[cell.strip() for cell in row] for row in rows(shown(output))]
    assert ["crowded", "255", "144 B", "0 KiB", "-"] == table[2]
    assert "at most 255 registers, 1 of them spills" in shown(output)
