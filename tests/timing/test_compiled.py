"""Answers against the task's own reference under `torch.compile`: compiled first, timed after, or told why not."""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from loop.base.processes import finish
from loop.formats.translated import as_target
from loop.model.output import MeasureOutput
from loop.model.workloads import expand
from loop.steps.setting import read_setting
from loop.timing.compiled import NAME, Compiled, time_compiled
from loop.timing.section import how_called
from loop.workers.bench import Bench
from tests.formats import tasks
from tests.makers import make_measurement


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[Callable[..., Compiled]]:
    """What becomes of an answer to a task."""
    opened: list[Bench] = []

    def found(left_s: float) -> Compiled:
        task, answer = tasks.kernelbench(tmp_path), tmp_path / "mine.py"
        answer.write_text(tasks.ANSWER)
        folder, names = as_target(task, [str(answer)])
        target = read_setting(folder).target
        opened.append(Bench(target, folder, tmp_path / "cache", Path(), "cpu", 1))
        sides = [opened[0].side(name) for name in names]
        return finish(time_compiled(opened[0], sides, expand(target, target.workloads, "float32"), left_s, 0))

    yield found
    for bench in opened:
        bench.__exit__()


@pytest.mark.slow
def test_an_answer_has_a_ratio_to_what_was_compiled(timed: Callable[..., Compiled]) -> None:
    """With an interval, from rounds of their own."""
    found = timed(100.0)
    ((one,), missing) = found.measured, found.missing
    assert ("mine", "torch_compile", ()) == (one.variant, one.against, missing)
    assert 0 < one.interval[0] <= one.ratio <= one.interval[1]
    assert {"mine", NAME} == {segment.side for segment in found.segments}


@pytest.mark.slow
def test_without_a_compiler_it_is_told(
    timed: Callable[..., Compiled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the words of torch; nothing is timed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    found = timed(100.0)
    assert ((), ()) == (found.measured, tuple(found.segments))
    assert "not available here" in found.missing[0]
    assert "No working C++ compiler" in found.missing[0]


def test_without_time_nothing_is_compiled(timed: Callable[..., Compiled]) -> None:
    """It is told, as everything that was not done."""
    assert (f"{NAME}: not available here: the step's time was too short",) == timed(1.0).missing


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_report_says_the_ratio() -> None:
    """With its interval, as any other."""
    one = make_measurement(ratio=2.0, variant="mine")
    (line,) = how_called(MeasureOutput(ok=True, message="", compiled=(one,)))
    assert line.startswith(f"mine on {one.workload.name}: 2.00x [")
