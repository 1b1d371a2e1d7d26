"""Before anything is timed: one `loop` a device, and a baseline compiled for each shape."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loop.base.locks import locked
from loop.base.places import shared_locks
from loop.base.processes import run_to_end
from loop.formats.table import write_as_target
from loop.model.measurement import BASELINE
from loop.model.workloads import expand_sets
from loop.steps.setting import read_setting
from loop.timing.readiness import hold_device
from loop.timing.samples import Terms, Timings
from loop.timing.schedule import measure
from loop.workers.bench import Bench
from tests.formats import tasks

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


@pytest.fixture
def compiled_bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench for an answer to a task whose baseline is compiled."""
    task, answer = tasks.kernelbench(tmp_path), tmp_path / "mine.py"
    answer.write_text(tasks.ANSWER)
    folder, _ = write_as_target(task, [str(answer)])
    target = read_setting(folder).target
    baseline = target.baseline.model_copy(update={"compiled": True})
    target = target.model_copy(update={"baseline": baseline})
    with Bench(target, folder, tmp_path / "cache", Path(), "cpu", 1) as made:
        yield made


@pytest.mark.slow
def test_the_baseline_runs_under_compile(compiled_bench: Bench) -> None:
    """It is timed as any other side, by its own name."""
    sides = [compiled_bench.make_side(BASELINE), compiled_bench.make_side("mine")]
    workloads = expand_sets(compiled_bench.target, compiled_bench.target.workloads, "float32")
    found: Timings = run_to_end(measure(compiled_bench, sides, workloads, Terms(2, 60.0, 0)))
    assert ({BASELINE, "mine"}, []) == ({one.side for one in found.segments}, found.wrong_outputs)
    assert any((compiled_bench.cache / "inductor").rglob("*.py"))
