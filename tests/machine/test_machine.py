"""What this machine reaches, who else is on its GPU, and what toolkit a driver runs."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.machine import machine
from loop.machine.machine import Release, explain_old_driver, requests_code_for
from loop.machine.nvml import UNEXPLAINED_BYTES, OtherUse, User, other_users
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


OURS, HERE = frozenset({10, 11}), frozenset({1, 2, 10, 11, 40})


def test_our_own_processes_are_no_strangers() -> None:
    """Nor are numbers from outside a container: as many as we have unseen, the smallest first."""
    assert () == other_users([User(10, None), User(11, None)], OURS, HERE)
    assert (User(40, None),) == other_users([User(10, None), User(40, None)], OURS, HERE)
    outside = [User(9001, 500), User(9002, 9000), User(9003, 600)]
    assert (User(9002, 9000),) == other_users(outside, OURS, HERE)
    assert () == other_users(outside[:2], OURS, HERE)
    assert (User(9002, 9000),) == other_users([User(10, None), User(11, None), User(9002, 9000)], OURS, HERE)


@pytest.mark.parametrize(
    ("company", "said"),
    [
        (OtherUse(others=(User(7, 10 * 2**30),)), "another process (pid 7) holds 10240 MiB of it"),
        (OtherUse(others=(User(7, None),)), "another process (pid 7) holds memory of it"),
        (OtherUse(others=(User(7, 2**20), User(8, 2**20))), "2 other processes hold 2 MiB of it (pid 7 first)"),
        (
            OtherUse(unexplained_bytes=UNEXPLAINED_BYTES + 2**20),
            "2049 MiB of it are taken, by nobody who can be seen from here",
        ),
        (OtherUse(busy_percent=97), "somebody computes on it, 97 % of the time before anything was timed"),
    ],
)
def test_company_is_told_in_words(company: OtherUse, said: str) -> None:
    """What was seen, what follows from it, and what to do."""
    found = company.warning("NVIDIA L4")
    assert f"NVIDIA L4 is not ours alone: {said}: numbers will be noisy; end it, or" in found
    assert "CUDA_VISIBLE_DEVICES" in found


def test_a_quiet_gpu_is_no_news() -> None:
    """Nobody else, memory that the driver reserves, a desktop's share of the time."""
    assert "" == OtherUse(unexplained_bytes=600 * 2**20, busy_percent=5).warning("NVIDIA L4")
    assert "" == OtherUse().warning("NVIDIA L4")


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
