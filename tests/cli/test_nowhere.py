"""Commands that are called where no folder is any more."""

import subprocess
import sys
from pathlib import Path


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    """It is no bug: somebody has removed what a shell still stands in."""
    words = "mkdir gone && cd gone && rmdir ../gone && "
    words += f"{sys.executable} -c 'import sys; from loop.cli import main; sys.argv[1:] = ["kernels", "list"]; main()'"
    ended = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (2, True) == (ended.returncode, "the folder in which this was called is gone" in ended.stderr)
