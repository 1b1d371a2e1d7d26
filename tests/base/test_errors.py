"""The one error family."""

import subprocess
import sys

from loop.base.errors import ExitCode


def test_exit_codes_are_the_documented_ones() -> None:
    """Scripts depend on them."""
    assert [0, 1, 2, 3, 75, 124, 125, 130] == [int(code) for code in ExitCode]


def test_errors_cost_nothing_to_import() -> None:
    """Neither pydantic nor YAML nor Jinja2 comes with them."""
    code = "import sys, loop.base.errors; print([m for m in ('pydantic', 'yaml', 'jinja2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
