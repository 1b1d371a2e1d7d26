"""The sections on bottlenecks and on a GPU that need not be at hand: nothing claimed unseen."""

import re
from typing import Any

from loop.builds.resources import KernelResources
from loop.model.profile import FACTS, DeviceProfile, KernelRun, Profile
from loop.model.record import Finished
from loop.profile.actions import ProfileOutput
from loop.profile.launch_limits import Occupancy, ParallelismOutput, ResourcesOutput
from tests.makers import make_finished, make_kernel, make_library, make_placement
from tests.session.test_report_page import HOSTILE, report, rows, section


def make_profile(**fields: Any) -> Profile:
    """A profile with a bottleneck."""
    facts = {**dict.fromkeys(FACTS), "ratio": 0.8, "time_us": 12.3, "flops_share": 0.8123, "work_items": 4}
    leaf = {"bottleneck": "compute", "when": "flops_share > 0.7", "fix": "compute less", "gain": "20 %"}
    base = {"variant": "cpu", "workload": "w0", "facts": facts, "severity": "high", "tool": "counters", **leaf}
    notes = {"sources": {"flops_share": "measured"}, "unknown": {"sm": "no counters", "dram": "no counters"}}
    return Profile.model_validate({**base, **notes, "undecided": ("stalls: ipc unknown",), **fields})


def make_filling(**fields: Any) -> Occupancy:
    """Two blocks on a GPU that is not here."""
    base = {"variant": "split", "workload": "w0", "on": "NVIDIA L4", "at_hand": False, "items": 2, "units": 58}
    figures = {"resident": 1, "limited_by": "threads", "share": 2 / 58, "waves": 2 / 58, "used": 2 / 58}
    return Occupancy.model_validate({**base, **figures, **fields})


def profiled(*profiles: Profile) -> Finished:
    return make_finished("profile", output=ProfileOutput(ok=True, message="p", profiles=profiles))


def filled(*fillings: Occupancy) -> Finished:
    """The finished step that compares launches with devices."""
    return make_finished("parallelism", output=ParallelismOutput(ok=True, message="p", fillings=fillings))


def section_lines(*finished: Finished) -> str:
    """The section of a session with these steps."""
    return section(report(finished=finished), "Bottleneck")


def make_watched(*names: str, **fields: Any) -> DeviceProfile:
    """A call of these kernels under ncu."""
    shares = {"dram": 0.0027, "sm": 0.61, "warps_active": 0.25, "registers": 105, "stalls": {"loads": 0.241}}
    runs = tuple(KernelRun(kernel=name, launches=1, us=3.52, **shares) for name in names)
    return DeviceProfile.model_validate(
        {"by": "ncu", "kernels": runs, "launches": len(runs), "us": 7.04, **fields}
    )


def test_what_a_profiler_saw_stands_in_a_table() -> None:
    """One row for each kernel; a counter that no kernel has gets no column; the call is in a sentence."""
    text = section_lines(profiled(make_profile(watched=make_watched("first", "second"))))
    heads, _, first, second = (row for row in rows(text) if len(row) == 9)
    assert ["Variant", "Kernel", "Launches", "Time", "DRAM"] == [cell.strip() for cell in heads[:5]]
    expected = ["cpu", "first", "1", "3.52 µs", "0.27 %", "61 %", "25 %", "105", "loads 24 %"]
    assert (expected, "second") == ([cell.strip() for cell in first], second[1].strip())
    assert "- cpu, by ncu: 2 launches of 2 kernels in one call, 7.04 µs together\n" in text


def test_no_text_breaks_out_of_its_place() -> None:
    """Names and sentences come from foreign files."""
    hostile = make_profile(variant=HOSTILE, workload=HOSTILE, fix=HOSTILE, gain=HOSTILE, undecided=(HOSTILE,))
    hostile = hostile.model_copy(update={"watched": make_watched(HOSTILE)})
    text = section_lines(profiled(hostile), filled(make_filling(variant=HOSTILE, limited_by=HOSTILE)))
    outside_code = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<img" not in outside_code
    assert "[f](" not in outside_code
    assert {3, 8, 9} == {len(row) for row in rows(text)}


TITLE = "What the kernels would do on NVIDIA L4"
MAIN = make_kernel(registers=160, shared_bytes=16384)
OTHER = make_kernel("void tiny::unused(float*)", registers=24)
SPILLS = make_kernel("void tiny::crowded(float*)", registers=255, spill_stores=144, spill_loads=288)


def make_resources(*kernels: KernelResources, **fields: Any) -> ResourcesOutput:
    """Resources of a library of these kernels; timed calls launch the first."""
    base: dict[str, Any] = {"ok": True, "message": "m", "device": "sm_89", "device_name": "NVIDIA L4"}
    chosen = kernels or (MAIN, OTHER)
    placements = (make_placement(chosen[0], resident=3, shared_bytes=16384),)
    filling = {"variant": "v", "kernel": chosen[0].short_name, "resident": 3}
    fillings = (make_filling(**filling, waves=0.02, share=0.02), make_filling(**filling, waves=2.5, share=1.0))
    parts = {"libraries": (make_library(*chosen),), "placements": placements, "fillings": fillings}
    return ResourcesOutput.model_validate({**base, **parts, **fields})


def shown_resources(output: ResourcesOutput) -> str:
    """The section of a session with that step."""
    return section(report(finished=[make_finished("resources", output=output)]), TITLE)


def test_kernels_in_trouble_come_first() -> None:
    """Kernels with complaints come first, even if no call launches them."""
    output = make_resources(MAIN, SPILLS, OTHER)
    table = [[cell.strip() for cell in row] for row in rows(shown_resources(output))]
    assert ["tiny::crowded", "255", "144 B", "0 KiB", "-"] == table[2]
    assert "at most 255 registers, spills in 1 function" in shown_resources(output)
