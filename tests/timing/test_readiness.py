"""Before anything is timed: one `loop` a device."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from loop.base.locks import locked
from loop.base.places import shared_locks
from loop.base.processes import run_to_end
from loop.timing.readiness import hold_device

HOLDS = "import sys, time; from pathlib import Path; from loop.base.locks import locked\n"
HOLDS += "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


def bench(cache: Path) -> Any:
    """As much of one as is asked here."""
    return SimpleNamespace(device="cpu", cache=cache, sensors=None)


def test_a_session_waits_for_another_one_with_another_cache(tmp_path: Path) -> None:
    """It says for which process; when that is killed, it goes on and says that it has waited."""
    folder = shared_locks()
    assert folder is not None
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder / "cpu")], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert "held\n" == holder.stdout.readline()
    with ExitStack() as stack:
        waiting = hold_device(bench(tmp_path / "mine"), stack)
        tick = next(waiting)
        assert (True, True) == (str(holder.pid) in tick.note, tick.is_urgent)
        holder.kill()
        holder.communicate()
        assert f"process {holder.pid}" in run_to_end(waiting)


def test_what_a_process_holds_it_does_not_wait_for(tmp_path: Path) -> None:
    """Nor does one that it started: it would wait for ever."""
    folder = shared_locks()
    assert folder is not None
    with locked(folder / "cpu"), ExitStack() as stack:
        assert "" == run_to_end(hold_device(bench(tmp_path / "mine"), stack))
