"""From an error to the failure of the machine behind it, and what to do about it."""

import errno
import os
from pathlib import Path

import pytest

from loop.base.errors import CannotStart, MachineFailure, UsageError
from loop.base.locks import Held
from loop.base.machine_failures import Folders, behind


def oserror(number: int, path: Path | str | None = None) -> OSError:
    """What the system raises."""
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
    """Also where the error was put into other words meanwhile; exit 75."""
    error = raised(UsageError("it cannot be written"), oserror(number, tmp_path / "cache" / "a" / "b"))
    found = behind(error, Folders((tmp_path / "cache",)))
    assert found is not None
    assert (75, f"{tmp_path / 'cache'}: {os.strerror(number)}") == (found.exit_code, found.message)
    assert advice.format(tmp_path / "cache") in (found.hint or "")


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
    """With the limit that may be raised."""
    found = behind(error, Folders())
    assert found is not None
    assert advice in (found.hint or "")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        UsageError("a mistake"),
        oserror(errno.ENOENT, "/nowhere"),
        oserror(errno.EACCES, "/home/user/kernel.cu"),
        oserror(errno.EROFS, "/home/user/report.md"),
        raised(Held(Path("lock"), "process 7"), oserror(errno.EAGAIN)),
    ],
)
def test_everything_else_is_somebody_elses(error: BaseException) -> None:
    """A user's own file that may not be read, a lock that is held, a bug."""
    assert behind(error, Folders((Path("/cache"),))) is None


def test_a_failure_says_what_to_do_once_it_is_mended() -> None:
    """It stays itself on its way up."""
    failure = MachineFailure("full", "free space").then("go on with: loop run session --resume last")
    assert "free space; then go on with: loop run session --resume last" == failure.hint
    assert failure is behind(raised(UsageError("no"), failure), Folders())
