"""What a processor cannot exceed: an upper bound, or nothing."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.machine import machine
from loop.machine.machine import flops_per_cycle, peak_flops_per_s, vector_lanes
from loop.model.dtypes import Dtype
from loop.timing.roof import measure_roof

AVX2 = frozenset({"sse2", "avx", "avx2", "fma"})
AVX512 = AVX2 | {"avx512f"}


@pytest.mark.parametrize(
    ("flags", "dtype", "expected"),
    [
        (AVX512, "float32", 96),
        (AVX512, "float64", 48),
        (AVX512, "float16", 96),
        (AVX512 | {"avx512_bf16"}, "bfloat16", 192),
        (AVX512 | {"amx_tile"}, "bfloat16", 96 + 1024),
        (AVX512 | {"amx_tile"}, "float32", 96),
        (AVX512 | {"amx_tile"}, "float64", 48),
        (AVX2, "float32", 48),
        (frozenset({"sse2", "avx"}), "float32", 32),
        (frozenset({"sse2"}), "float32", 16),
        (frozenset({"asimd"}), "float32", 64),
        (frozenset({"asimd", "bf16"}), "bfloat16", 256),
        (frozenset({"asimd", "sme"}), "float32", None),
        (frozenset(), "float32", None),
    ],
)
def test_a_core_cannot_do_more_in_a_cycle(flags: frozenset[str], dtype: Dtype, expected: float | None) -> None:
    """At least two multiply-adds a cycle on whole vectors, in the widest units that it has."""
    assert expected == flops_per_cycle(flags, dtype)


def test_an_unknown_processor_has_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is called impossible then."""
    monkeypatch.setattr(machine, "processor_flags", frozenset)
    assert peak_flops_per_s(4, "float32") is None
    assert 1 == vector_lanes()


@pytest.mark.parametrize(
    ("driver", "khz", "expected"),
    [("intel_pstate", "4000000", 4.4e9), ("acpi-cpufreq", "2600000", 6.5e9), (None, None, 6.5e9)],
)
def test_a_base_clock_is_no_bound(
    driver: str | None, khz: str | None, expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only drivers that name the turbo clock are believed; a virtual machine names none."""
    if driver and khz:
        folder = tmp_path / "cpu0" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_driver").write_text(f"{driver}\n")
        (folder / "cpuinfo_max_freq").write_text(f"{khz}\n")
    monkeypatch.setattr(machine, "CPUS", tmp_path)
    assert pytest.approx(expected) == machine.fastest_clock_hz()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_real_program_beats_the_bound(dtype: Dtype, build_cache: Path) -> None:
    """A loop of multiply-adds, written to reach as much as it can, stays below; it does read and multiply."""
    roof = finish(measure_roof(build_cache, dtype, 1, 1 << 16))
    peak = peak_flops_per_s(1, dtype)
    assert peak is None or roof.flops_per_s < peak
    assert roof.flops_per_s > 1e8
    assert roof.bytes_per_s > 1e8


def test_torch_is_told_without_importing_it() -> None:
    """A session without an environment step says which one it was held against all the same."""
    code = "import sys; from loop.machine.machine import machine; print(machine().torch, 'torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [importlib.metadata.version("torch"), "False"] == told


def test_files_that_a_control_group_holds_count_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that has read many files is full of them, and gives them up."""
    monkeypatch.setattr(machine, "GROUP", tmp_path)
    mib = 1 << 20
    (tmp_path / "memory.max").write_text(f"{64 * mib}\n")
    (tmp_path / "memory.current").write_text(f"{63 * mib}\n")
    assert machine.available_memory() > 0
    (tmp_path / "memory.stat").write_text(f"anon {3 * mib}\ninactive_file {40 * mib}\nactive_file {20 * mib}\n")
    assert 61 * mib == machine.available_memory()
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.available_memory() > 61 * mib
