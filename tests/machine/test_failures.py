"""The machine: its peak rates, other users, its failures and their remedies."""

import errno
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loop.base.errors import CannotStart, UsageError
from loop.base.locks import LockHeld
from loop.base.processes import run_to_end
from loop.machine import machine
from loop.machine.failures import MIN_FREE_BYTES, Folders, FolderWatch, find_machine_failure, write_error_of
from loop.machine.machine import Release, explain_old_driver, requests_code_for
from loop.machine.nvml import UNEXPLAINED_BYTES, User, other_users, warn_of_others
from loop.profile import profile as profiler

ROOM = SimpleNamespace(f_blocks=1 << 20, f_bfree=1 << 19, f_bavail=1 << 19, f_frsize=4096, f_flag=0)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, 0),
        ({"f_bavail": MIN_FREE_BYTES // 4096 - 1, "f_bfree": MIN_FREE_BYTES // 4096 - 1}, errno.ENOSPC),
        ({"f_bavail": MIN_FREE_BYTES // 4096, "f_bfree": MIN_FREE_BYTES // 4096}, 0),
        ({"f_blocks": 0, "f_bavail": 0, "f_bfree": 0}, 0),
    ],
)
def test_little_room_is_a_full_disk(
    state: dict[str, int], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not tell its size is not full."""
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**{**vars(ROOM), **state}))
    assert expected == write_error_of(tmp_path)


def test_only_our_own_folders_have_to_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout may be read-only; it may not be full."""
    error_by_folder = {tmp_path / "own": errno.EROFS, tmp_path / "checkout": errno.EROFS}
    monkeypatch.setattr("loop.machine.failures.write_error_of", error_by_folder.get)
    folders = Folders((tmp_path / "own",), (tmp_path / "checkout",))
    assert {tmp_path / "own": errno.EROFS} == folders.write_errors()
    error_by_folder[tmp_path / "checkout"] = errno.ENOSPC
    assert errno.ENOSPC == folders.write_errors()[tmp_path / "checkout"]


CACHE, TMP = Path("/cache"), Path("/tmp")
FULL = "ld: final link failed: No space left on device"


class Disks:
    """Free bytes and write errors of two folders, in place of the system's."""

    def __init__(self) -> None:
        self.said: dict[Path, int] = {}
        self.room = {CACHE: 1 << 40, TMP: 1 << 40}

    def glance(self, folder: Path) -> int:
        """The error number that writing to the folder gives; 0 without one."""
        return self.said.get(folder, errno.ENOSPC if self.room[folder] < MIN_FREE_BYTES else 0)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Disks:
    """Two folders with room."""
    disks = Disks()
    monkeypatch.setattr("loop.machine.failures.write_error_of", disks.glance)
    return disks


def failure(gauge: FolderWatch, message: str = "wrong", *, has_failed: bool = True) -> str:
    """Message of the failure that the gauge finds; "" if it finds none."""
    machine_failure = gauge.failure(has_failed=has_failed, messages=message)
    return machine_failure.message if machine_failure else ""


@pytest.fixture
def gauge(disks: Disks) -> FolderWatch:
    """At the beginning of a step."""
    return FolderWatch(Folders((CACHE, TMP)))


def test_a_wrong_kernel_on_a_sound_machine_is_wrong(gauge: FolderWatch) -> None:
    """The text that a kernel prints does not matter."""
    assert ["", ""] == [failure(gauge), failure(gauge, FULL)]


def test_a_disk_that_fills_takes_the_outcome_with_it(gauge: FolderWatch, disks: Disks) -> None:
    """A good outcome is lost too, even if the disk has room again at the end."""
    disks.room[TMP] = 0
    gauge.measure()
    disks.room[TMP] = 1 << 40
    assert "/tmp: No space left on device" == failure(gauge, has_failed=False)


def test_of_two_full_folders_the_one_that_is_named_is_to_blame(disks: Disks) -> None:
    """A disk that only a compiler's text calls full fails the step."""
    disks.room = {CACHE: 9 << 20, TMP: 9 << 20}
    assert "" == failure(FolderWatch(Folders((CACHE, TMP))), FULL)
    disks.room = {CACHE: 0, TMP: 0}
    assert "/tmp: No space left on device" == failure(FolderWatch(Folders((CACHE, TMP))), f"/tmp/ccX.s: {FULL}")


def test_a_folder_that_became_read_only_explains_what_follows(disks: Disks) -> None:
    """It explains a failure in its step, and in a later step that names the folder."""
    first = FolderWatch(Folders((CACHE, TMP)))
    disks.said[TMP] = errno.EROFS
    assert "/tmp: Read-only file system" == failure(first, has_failed=False)
    later = FolderWatch(Folders((CACHE, TMP)))
    assert ["", "/tmp: Read-only file system"] == [failure(later), failure(later, "cannot write /tmp/x")]


def test_a_folder_that_is_mounted_noexec_is_named(gauge: FolderWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cannot be mapped, and a program in it that may not run. Other files' refusals are not."""
    mapped, run = "kernel.so: failed to map segment from shared object", "/cache/a.out: Permission denied"
    assert ["", ""] == [failure(gauge, mapped), failure(gauge, run)]
    monkeypatch.setattr("loop.machine.failures.is_noexec", lambda folder: folder == CACHE)
    assert "/cache is mounted noexec" in failure(gauge, mapped)
    assert "/cache is mounted noexec" in failure(gauge, run)
    assert ["", ""] == [failure(gauge, "/opt/a.out: Permission denied"), failure(gauge, mapped, has_failed=False)]


def oserror(number: int, path: Path | str | None = None) -> OSError:
    """An OSError as the system raises it."""
    return OSError(number, os.strerror(number), *([str(path)] if path else []))


def raised(error: BaseException, cause: BaseException) -> BaseException:
    """An error that was raised from another."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free space on {}"),
        (errno.EDQUOT, "free space on {}"),
        (errno.EROFS, "make {} writable again"),
        (errno.EACCES, "permission to write in {}"),
        (errno.EIO, "look after the disk of {}"),
    ],
)
def test_a_folder_that_failed_is_named(number: int, advice: str, tmp_path: Path) -> None:
    """The cause is found through wrapping errors; exit 75."""
    error = raised(UsageError("it cannot be written"), oserror(number, tmp_path / "cache" / "a" / "b"))
    cause = find_machine_failure(error, Folders((tmp_path / "cache",)))
    assert cause is not None
    assert (75, f"{tmp_path / 'cache'}: {os.strerror(number)}") == (cause.exit_code, cause.message)
    assert advice.format(tmp_path / "cache") in (cause.hint or "")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (MemoryError(), "free memory"),
        (oserror(errno.ENOMEM), "free memory"),
        (oserror(errno.EMFILE, "/somewhere"), "ulimit -n"),
        (oserror(errno.EFBIG), "ulimit -f"),
        (oserror(errno.EAGAIN), "ulimit -u"),
        (raised(CannotStart("cannot start g++"), oserror(errno.EAGAIN)), "ulimit -u"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
)
def test_what_the_machine_ran_out_of_is_named(error: BaseException, advice: str) -> None:
    """The hint names the limit that may be raised."""
    cause = find_machine_failure(error, Folders())
    assert cause is not None
    assert advice in (cause.hint or "")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        UsageError("a mistake"),
        oserror(errno.ENOENT, "/nowhere"),
        oserror(errno.EACCES, "/home/user/kernel.cu"),
        oserror(errno.EROFS, "/home/user/report.md"),
        raised(LockHeld(Path("lock"), "process 7"), oserror(errno.EAGAIN)),
    ],
)
def test_everything_else_is_somebody_elses(error: BaseException) -> None:
    """A user's unreadable file, a held lock and a bug are no failures of the machine."""
    assert find_machine_failure(error, Folders((Path("/cache"),))) is None


def test_a_roof_is_what_this_processor_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of multiply-adds and of bytes. That tests run beside it makes no difference here."""
    monkeypatch.setattr(profiler, "UNDISTURBED_SHARE", 0.0)
    reach = run_to_end(profiler.measure_roof(tmp_path, "float64", 1, 1 << 16))
    assert min(reach.flops_per_s, reach.bytes_per_s) > 1e8
    assert "measured here on 1 thread" in reach.source


def test_torch_is_told_without_importing_it() -> None:
    """Its version is recorded also in sessions without an environment step."""
    code = "import sys; from loop.machine.machine import machine; print(machine().torch, 'torch' in sys.modules)"
    words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [importlib.metadata.version("torch"), "False"] == words


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
    """Process numbers from outside a container count as ours: as many as we have unseen, smallest first."""
    assert () == other_users([User(10, None), User(11, None)], OURS, HERE)
    assert (User(40, None),) == other_users([User(10, None), User(40, None)], OURS, HERE)
    outside = [User(9001, 500), User(9002, 9000), User(9003, 600)]
    assert (User(9002, 9000),) == other_users(outside, OURS, HERE)
    assert () == other_users(outside[:2], OURS, HERE)
    assert (User(9002, 9000),) == other_users([User(10, None), User(11, None), User(9002, 9000)], OURS, HERE)


@pytest.mark.parametrize(
    ("company", "sentence"),
    [
        ({"others": [User(7, 10 * 2**30)]}, "another process (pid 7) holds 10240 MiB of it"),
        ({"others": [User(7, None)]}, "another process (pid 7) holds memory of it"),
        ({"others": [User(7, 2**20), User(8, 2**20)]}, "2 other processes hold 2 MiB of it (pid 7 first)"),
        (
            {"unknown_bytes": UNEXPLAINED_BYTES + 2**20},
            "2049 MiB of it are taken, by nobody who can be seen from here",
        ),
        ({"busy_percent": 97}, "somebody computes on it, 97 % of the time before anything was timed"),
    ],
)
def test_company_is_told_in_words(company: dict[str, Any], sentence: str) -> None:
    """The warning has the users, the consequence and the remedy."""
    warning = warn_of_others("NVIDIA L4", **company)
    assert f"NVIDIA L4 is not ours alone: {sentence}: numbers will be noisy; end it, or" in warning
    assert "CUDA_VISIBLE_DEVICES" in warning


def test_a_quiet_gpu_is_no_news() -> None:
    """Other users, reserved memory and a desktop's small load give no warning."""
    assert "" == warn_of_others("NVIDIA L4", unknown_bytes=600 * 2**20, busy_percent=5)
    assert "" == warn_of_others("NVIDIA L4")


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
    assert conflict == bool(explain_old_driver("code from nvcc", toolkit, cuda, driver)[0])


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
    """Flags name a GPU or `native`; flags for a processor name none."""
    assert expected == requests_code_for(flags, "sm_90")
