"""The emulator's README: its example compiles, runs and prints what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

README = ROOT / "kernels" / "emulator" / "README.md"


def blocks(language: str) -> list[str]:
    """The README's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def without_chance(text: str) -> str:
    """The text without what differs from run to run: the seed, and the thread that came first."""
    return re.sub(r"thread \d+|block \(\d+|byte \d+|seed \d+", lambda found: found[0].rstrip("0123456789"), text)


@pytest.mark.slow
def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    """Right with its barrier, told without it."""
    (source,), (program,), (commands,), (printed,) = (blocks(name) for name in ("cpp", "python", "sh", "text"))
    (tmp_path / "reverse.cu").write_text(source)
    (tmp_path / "try.py").write_text(program)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr.decode())
    assert without_chance(printed) == without_chance(done.stdout.decode())
