"""Commands that are called where no folder is any more."""

import subprocess
import sys
from pathlib import Path

CALL = "import sys; from loop.cli import main; sys.argv[1:] = sys.argv[2:]; main()"


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    """It is no bug: somebody has removed what a shell still stands in."""
    words = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -c "$@"'
    called = ["sh", "-c", words, sys.executable, CALL, "loop", "kernels", "list"]
    ended = subprocess.run(called, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the folder in which this was called is gone" in ended.stderr
    assert 2 == ended.returncode
