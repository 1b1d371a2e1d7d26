"""What this machine reaches and how much memory is free."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.machine import machine
from loop.profile import roof


def test_a_roof_is_what_this_processor_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of multiply-adds and of bytes. That tests run beside it makes no difference here."""
    monkeypatch.setattr(roof, "UNDISTURBED_SHARE", 0.0)
    reach = run_to_end(roof.measure_roof(tmp_path, "float64", 1, 1 << 16))
    assert min(reach.flops_per_s, reach.bytes_per_s) > 1e8
    assert "measured here on 1 thread" in reach.source


def test_torch_is_told_without_importing_it() -> None:
    """A session without an environment step says which one it was held against all the same."""
    code = "import sys; from loop.machine.machine import machine; print(machine().torch, 'torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [importlib.metadata.version("torch"), "False"] == told


def test_files_that_a_control_group_holds_count_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that has read many files is full of them, and gives them up."""
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    mib = 1 << 20
    (tmp_path / "memory.max").write_text(f"{64 * mib}\n")
    (tmp_path / "memory.current").write_text(f"{63 * mib}\n")
    assert machine.available_memory() > 0
    (tmp_path / "memory.stat").write_text(f"anon {3 * mib}\ninactive_file {40 * mib}\nactive_file {20 * mib}\n")
    assert 61 * mib == machine.available_memory()
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.available_memory() > 61 * mib
