"""A baseline under `torch.compile`: each shape is compiled by itself, and a failure is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.formats.table import write_as_target
from loop.model.measurement import BASELINE
from loop.model.workloads import expand_sets
from loop.steps.setting import read_setting
from loop.timing.samples import Terms, Timings
from loop.timing.schedule import measure
from loop.workers.bench import Bench
from tests.formats import tasks


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
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
def test_the_baseline_runs_under_compile(bench: Bench) -> None:
    """It is timed as any other side, by its own name."""
    sides = [bench.make_side(BASELINE), bench.make_side("mine")]
    workloads = expand_sets(bench.target, bench.target.workloads, "float32")
    found: Timings = run_to_end(measure(bench, sides, workloads, Terms(2, 60.0, 0)))
    assert ({BASELINE, "mine"}, []) == ({one.side for one in found.segments}, found.wrong_outputs)
    assert any((bench.cache / "inductor").rglob("*.py"))
