"""The gauge of a step: what was short while it ran, and whether that explains how it ended."""

import errno
from pathlib import Path

import pytest

from loop.base.machine_failures import LEAST_BYTES, Folders, Gauge

CACHE, TMP = Path("/cache"), Path("/tmp")
FULL = "ld: final link failed: No space left on device"


class Disks:
    """What the system says of two folders."""

    def __init__(self) -> None:
        self.said: dict[Path, int] = {}
        self.room = {CACHE: 1 << 40, TMP: 1 << 40}

    def glance(self, folder: Path) -> int:
        """As the real one."""
        return self.said.get(folder, errno.ENOSPC if self.room[folder] < LEAST_BYTES else 0)

    def write(self, folder: Path, bytes_: int) -> int:
        """As the real one."""
        return self.said.get(folder, errno.ENOSPC if self.room[folder] < bytes_ else 0)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Disks:
    """Two folders with room."""
    disks = Disks()
    monkeypatch.setattr("loop.base.machine_failures.glance", disks.glance)
    monkeypatch.setattr("loop.base.machine_failures.write", disks.write)
    return disks


def failure(gauge: Gauge, said: str = "wrong", *, bad: bool = True) -> str:
    """What the gauge says; empty where it finds nothing."""
    found = gauge.failure(bad=bad, text=said)
    return found.message if found else ""


@pytest.fixture
def gauge(disks: Disks) -> Gauge:
    """At the beginning of a step."""
    return Gauge(Folders((CACHE, TMP)))


def test_a_wrong_kernel_on_a_sound_machine_is_wrong(gauge: Gauge) -> None:
    """Whatever it prints."""
    assert ["", ""] == [failure(gauge), failure(gauge, FULL)]


def test_a_disk_that_fills_takes_the_outcome_with_it(gauge: Gauge, disks: Disks) -> None:
    """Also a good one, and also where there is room again at the end."""
    disks.room[TMP] = 0
    gauge.look()
    disks.room[TMP] = 1 << 40
    assert "/tmp: No space left on device" == failure(gauge, bad=False)


def test_a_disk_that_was_full_before_explains_a_bad_outcome_only(disks: Disks) -> None:
    """What needs no room goes on."""
    disks.room[CACHE] = 0
    gauge = Gauge(Folders((CACHE, TMP)))
    assert ["", "/cache: No space left on device"] == [failure(gauge, bad=False), failure(gauge)]


def test_of_two_full_folders_the_one_that_is_named_is_to_blame(disks: Disks) -> None:
    """A disk that only a compiler's text calls full fails the step."""
    disks.room = {CACHE: 9 << 20, TMP: 9 << 20}
    assert "" == failure(Gauge(Folders((CACHE, TMP))), FULL)
    disks.room = {CACHE: 0, TMP: 0}
    assert "/tmp: No space left on device" == failure(Gauge(Folders((CACHE, TMP))), f"/tmp/ccX.s: {FULL}")


def test_a_folder_that_nobody_needed_explains_nothing(disks: Disks) -> None:
    """One that was read-only from the first, unless the step speaks of it."""
    disks.said[CACHE] = errno.EROFS
    gauge = Gauge(Folders((CACHE, TMP)))
    assert "" == failure(gauge)
    assert "/cache: Read-only file system" == failure(gauge, "cannot write /cache/x")
    assert "" == failure(gauge, "open: Read-only file system")


def test_a_folder_that_became_read_only_explains_what_follows(disks: Disks) -> None:
    """In the step, and in every later one."""
    first = Gauge(Folders((CACHE, TMP)))
    disks.said[TMP] = errno.EROFS
    assert "/tmp: Read-only file system" == failure(first, bad=False)
    assert "/tmp: Read-only file system" == failure(Gauge(Folders((CACHE, TMP)), frozenset()))


def test_a_folder_that_is_mounted_noexec_is_named(gauge: Gauge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cannot be mapped, and a program in it that may not run. Other files' refusals are not."""
    mapped, run = "kernel.so: failed to map segment from shared object", "/cache/a.out: Permission denied"
    assert ["", ""] == [failure(gauge, mapped), failure(gauge, run)]
    monkeypatch.setattr("loop.base.machine_failures.is_noexec", lambda folder: folder == CACHE)
    assert "/cache is mounted noexec" in failure(gauge, mapped)
    assert "/cache is mounted noexec" in failure(gauge, run)
    assert ["", ""] == [failure(gauge, "/opt/a.out: Permission denied"), failure(gauge, mapped, bad=False)]
