"""What we ask of Linux for programs of ours."""

import subprocess
import sys

from loop.base.processes import python_path


def test_a_program_is_refused_memory_before_the_machine_is_short_of_it() -> None:
    """What it has when it begins does not count; an allocation beyond that fails, and nothing is killed."""
    code = "from loop.base.processes import bound_memory\nbound_memory()\nbytearray(10**7)\nbytearray(10**9)"
    environment = {"PYTHONPATH": python_path(), "LOOP_MEMORY": "100000000"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (1, "MemoryError") == (done.returncode, done.stderr.strip().splitlines()[-1])
    assert "line 4" in done.stderr
