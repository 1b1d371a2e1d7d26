"""A baseline under `torch.compile`: each shape is compiled by itself, and a failure is told."""

import importlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from loop.base.processes import finish
from loop.formats.translated import as_target
from loop.gate.verify import Job, verify
from loop.model.measurement import BASELINE
from loop.model.workloads import expand
from loop.steps.setting import read_setting
from loop.timing.samples import Timings
from loop.timing.schedule import measure
from loop.timing.terms import Terms
from loop.workers.bench import Bench
from tests.formats import tasks


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench for an answer to a task whose baseline is compiled."""
    task, answer = tasks.kernelbench(tmp_path), tmp_path / "mine.py"
    answer.write_text(tasks.ANSWER)
    folder, _ = as_target(task, [str(answer)])
    target = read_setting(folder).target
    baseline = target.baseline.model_copy(update={"compiled": True})
    target = target.model_copy(update={"baseline": baseline})
    with Bench(target, folder, tmp_path / "cache", Path(), "cpu", 1) as made:
        yield made


@pytest.mark.slow
def test_the_baseline_runs_under_compile(bench: Bench) -> None:
    """It is timed as any other side, by its own name."""
    sides = [bench.side(BASELINE), bench.side("mine")]
    workloads = expand(bench.target, bench.target.workloads, "float32")
    found: Timings = finish(measure(bench, sides, workloads, Terms(2, 60.0, 0)))
    assert ({BASELINE, "mine"}, []) == ({one.side for one in found.segments}, found.wrong)
    assert any((bench.cache / "inductor").rglob("*.py"))


@pytest.mark.soak
def test_without_a_compiler_it_is_told(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of torch, as of any baseline that cannot be called."""
    monkeypatch.setenv("PATH", str(tmp_path))
    workloads = expand(bench.target, bench.target.workloads, "float32")
    (checks,) = finish(verify(bench, [Job(bench.side(BASELINE), workloads, enough=True)]))
    assert checks.first_failure
    assert "No working C++ compiler" in checks.first_failure.message


@pytest.mark.soak
def test_a_class_under_compile_has_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its forward is compiled; what it holds is what the task's own holds. A function is compiled as it is."""
    seen: list[Any] = []
    monkeypatch.setenv("LOOP_COMPILES", f"{tasks.kernelbench(tmp_path)}:Model")
    monkeypatch.setattr(torch, "compile", lambda function, **_: seen.append(function) or function)
    made = importlib.reload(importlib.import_module("loop.workers.compiled"))
    one = made.baseline(16)
    x = torch.rand(2, 16) - 0.5
    assert torch.equal(torch.relu(x), one(x))
    assert (1, ["weight"]) == (len(seen), list(one.state_dict()))
    assert torch.relu is made.under_compile(torch.relu)


@pytest.mark.soak
def test_each_shape_is_compiled_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the tenth, where torch gives up by itself: none shares code that is made for any shape."""
    seen: list[list[Any]] = []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        seen.append(inputs)
        return graph.forward

    monkeypatch.setenv("LOOP_COMPILES", f"{tasks.kernelbench(tmp_path)}:Model")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    made = importlib.reload(importlib.import_module("loop.workers.compiled"))
    doubled = made.under_compile(lambda x: 2 * x)
    for size in range(2, 12):
        assert torch.equal(torch.full((size,), 2.0), doubled(torch.ones(size)))
    assert [[(size,)] for size in range(2, 12)] == [[tuple(one.shape) for one in inputs] for inputs in seen]
