"""A kernel that writes to every descriptor, or stops whom it finds, gets a verdict of its own and hangs nobody."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loop.base import linux
from tests.projects import LOOP
from tests.targets import compiled, write_target

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals and /proc of Linux")
SOURCE = Path(__file__).with_name("hostile.cpp")
HARMLESS = ("good", "floods_its_parent", "floods_all", "stops_its_parent", "stops_who_watches", "stops_the_judge")
"""What they do reaches nobody, or is undone."""
LIMIT_S = 200
"""Far more than it takes; hanging takes for ever."""


def keeps_signals_in() -> bool:
    """Whether this kernel has what keeps a process from signalling others."""
    libc = linux._LIBC
    call = (linux.LANDLOCK_CREATE, None, 0, linux.LANDLOCK_VERSION)
    return libc is not None and bool(libc.syscall(*call) >= linux.SIGNALS_SINCE)


def verify(folder: Path, *names: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Verify these variants by a command of their own."""
    write_target(folder, {name: compiled(name, sources=["hostile.cpp"]) for name in names})
    (folder / "hostile.cpp").write_text(SOURCE.read_text())
    env = {**os.environ, **environment}
    subprocess.run([*LOOP, "trust", str(folder)], env=env, check=True, capture_output=True)
    command = [*LOOP, "kernels", "verify", "--target", str(folder)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.slow
def test_each_gets_a_verdict_of_its_own(tmp_path: Path) -> None:
    """Only the one that spoils its own replies is tampered; of the others nothing shows, on the screen neither."""
    names = [*HARMLESS, "floods_its_own", *(["stops_all"] if keeps_signals_in() else [])]
    done = verify(tmp_path / "tiny", *names)
    said = done.stdout + done.stderr
    assert 1 == done.returncode, said
    assert "floods_its_own: tampered: something else than its worker wrote to the worker's replies" in said
    for name in set(names) - {"floods_its_own"}:
        assert f"{name}: " not in said, said
    for word in ("bug in loop", "judging process", "the judge is a fool", "start_judge"):
        assert word not in said


@pytest.mark.soak
def test_without_the_kernels_help_who_was_stopped_goes_on(tmp_path: Path) -> None:
    """An older kernel lets every signal through."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "sitecustomize.py").write_text(
        "from loop.base import linux\nlinux.SIGNALS_SINCE = 1 << 30\n"
    )
    path = os.pathsep.join([str(tmp_path / "old"), os.environ.get("PYTHONPATH", "")])
    done = verify(tmp_path / "tiny", "stops_who_watches", "stops_the_judge", PYTHONPATH=path)
    assert (0, True) == (done.returncode, "right on" in done.stderr), done.stdout + done.stderr
