"""Commands that are called where no folder is any more, or nothing can be written."""

import subprocess
import sys
from pathlib import Path

import pytest

CALL = "import sys; from loop.cli import main; sys.argv[1:] = sys.argv[2:]; main()"


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    """It is no bug: somebody has removed what a shell still stands in."""
    words = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -c "$@"'
    called = ["sh", "-c", words, sys.executable, CALL, "loop", "kernels", "list"]
    ended = subprocess.run(called, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the folder in which this was called is gone" in ended.stderr
    assert 2 == ended.returncode


@pytest.mark.parametrize(
    ("where", "code"), [(">&-", 2), (">/dev/full", 75), ("2>&- <&-", 0), ("2>/dev/full", 0), (">&- 2>&- <&-", 2)]
)
def test_a_stream_that_cannot_be_written_is_no_bug(where: str, code: int) -> None:
    """What cannot be given is one line and an exit code; talk that nobody can read is left out."""
    words = f'exec "$0" -c "$@" {where}'
    called = ["sh", "-c", words, sys.executable, CALL, "loop", "kernels", "header", "--json"]
    ended = subprocess.run(called, capture_output=True, text=True, check=False)
    assert code == ended.returncode, ended.stderr
    assert "bug" not in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr
