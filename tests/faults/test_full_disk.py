"""A slice of the full disks, and what a child of a session meets on one: real file systems, real compilers.

Where no file system can be mounted the faults of `cases` are injected; what needs a child to meet them is skipped.
"""

import itertools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.faults.full_disk import cases, mounts
from tests.projects import add_commands, loop, make_project

MOMENT, A_MOMENT = 9, 8
"""Which twentieth of a session is tried, and how many cases there are of each."""
SLICE = list(itertools.islice(cases(1), MOMENT * A_MOMENT, (MOMENT + 1) * A_MOMENT))
TRIED = ("full sessions", "full cache", "full tmp", "read-only cache")
SMALL = """
import os, sys
from pathlib import Path
from tests.faults.moments import mount
for name in ("TMPDIR", "LOOP_CACHE", "LOOP_SESSIONS", "LOOP_STATE"):
    Path(os.environ[name]).mkdir(exist_ok=True)
    size = sys.argv[1] if name == os.environ["SMALLEST"] else "64m"
    mount("none", Path(os.environ[name]), "tmpfs", options=f"size={size}")
os.environ["LOOP_CACHE"] += "/builds"
from loop.cli import main
sys.argv = ["loop", "trust", sys.argv[2]], ["loop", *sys.argv[3:]]
if os.fork() == 0:
    sys.argv = sys.argv[0]
    main()
    os._exit(0)
os.wait()
sys.argv = sys.argv[1]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), [one for one in SLICE if one[0].partition(" at")[0] in TRIED])
def test_a_session_outlives_a_full_disk(name: str, case: object, tmp_path: Path) -> None:
    """It pauses, names the folder, and goes on to the same result."""
    (tmp_path / "case").mkdir()
    assert callable(case)
    assert "" == case(tmp_path / "case")


def session(tmp_path: Path, size: str, folder: Path, smallest: str = "TMPDIR") -> tuple[int, str]:
    """A session of the plan `try`, with one file system of that size: exit code, and what was said."""
    if not mounts():
        pytest.skip("no file system can be mounted here")
    places = {"TMPDIR": "tmp", "LOOP_CACHE": "cache", "LOOP_SESSIONS": "s", "LOOP_STATE": "st"}
    env = {
        **os.environ,
        **{name: str(tmp_path / place) for name, place in places.items()},
        "PYTHONPATH": str(ROOT),
        "SMALLEST": smallest,
    }
    words = [size, str(folder), "run", "session", "try", "--target", str(folder)]
    command = ["unshare", "-rm", sys.executable, "-c", SMALL, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=env)
    return done.returncode, done.stderr


def steps(folder: Path, *actions: str) -> None:
    """A plan `try` of actions without arguments."""
    add_commands(folder, "try", ["true"])
    pattern = folder / "patterns" / "try.yaml"
    lines = "\n".join(f"  - {{id: s{i}, title: do, action: {one}, budget_s: 60}}" for i, one in enumerate(actions))
    pattern.write_text(pattern.read_text().partition("steps:")[0] + f"steps:\n{lines}\n")


@pytest.mark.slow
def test_a_command_that_fills_the_disk_pauses_the_session(tmp_path: Path) -> None:
    """It leaves what it wrote, and prints nothing of it."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "try", ["head -c 9000000 /dev/zero > $TMPDIR/all 2> /dev/null; echo no; exit 3"])
    code, said = session(tmp_path, "3m", folder)
    assert (75, True) == (code, f"free space on {tmp_path / 'tmp'}" in said), said


@pytest.mark.slow
def test_a_judge_without_room_for_its_tensors_judges_nobody(tmp_path: Path) -> None:
    """No verdict, no grade; the right kernel is not called wrong."""
    folder = make_project(tmp_path / "project")
    manifest = folder / "target.yaml"
    manifest.write_text(manifest.read_text().replace("{N: 3, M: [5, 17]}", "{N: 3000, M: [500]}"))
    steps(folder, "kernel.build", "kernel.verify")
    code, said = session(tmp_path, "5m", folder)
    assert (75, True) == (code, f"free space on {tmp_path / 'tmp'}" in said), said
    assert "Grade -: " in said


@pytest.mark.slow
def test_a_limit_of_the_shell_pauses_the_session(tmp_path: Path) -> None:
    """Of open files, which loop itself meets. Raised, the session goes on and passes."""
    folder = make_project(tmp_path / "project")
    steps(folder, "kernel.build", "kernel.load")
    kind, soft, advice = resource.RLIMIT_NOFILE, 14, "ulimit -n"
    assert 0 == loop("trust", str(folder)).returncode
    words = ["run", "session", "try", "--target", str(folder)]
    limit = f"setrlimit({int(kind)}, ({soft}, getrlimit({int(kind)})[1]))"
    code = f"from resource import *; {limit}; from loop.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert (75, True) == (done.returncode, advice in done.stderr), done.stderr
    again = loop("run", "session", "--resume", "last", "--target", str(folder))
    assert 0 == again.returncode, again.stderr
    (made,) = (tmp_path / "sessions").glob("*-try")
    assert "passed" == json.loads((made / "record.json").read_text())["status"]
    assert not (made / ".reserve").exists()
