"""Properties, and references that cannot be trusted and so judge nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from loop.base.errors import LoopError
from loop.base.processes import run_to_end
from loop.gate import properties as relating
from loop.gate.properties import try_properties
from loop.gate.verify import Job, verify
from loop.model.dtypes import Dtype
from loop.model.measurement import PropertyCheck, VariantChecks
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.workers import bench as room
from loop.workers.bench import Bench
from loop.workers.stated import StatedTask, audit_task, judge_answer
from tests.targets import compiled, make_sides, open_bench, write_target

SMALL, LARGE, MIDDLE = "N2 M3 float32", "N5 M3 float32", "N3 M4 float32"
"""The workloads of the tiny target, in order."""


def workloads(bench: Bench, dtype: Dtype = "float32") -> tuple[Workload, ...]:
    """All workloads of the tiny target."""
    return expand_sets(bench.target, ["some"], dtype)


def results_of(bench: Bench, variant: str, *properties: str, dtype: Dtype = "float32") -> list[PropertyCheck]:
    """Results of the tiny target's properties on one variant."""
    (side,) = make_sides(bench, variant)
    names = [f"tiny_functions:{name}" for name in properties]
    return list(run_to_end(try_properties(bench, side, names, workloads(bench, dtype))))


def statuses(results: list[PropertyCheck]) -> dict[str, str]:
    return {result.workload: result.status for result in results}


def test_a_wrong_kernel_breaks_a_property_without_any_reference(bench: Bench) -> None:
    """A constant in one element is not half as large on half the input."""
    results = results_of(bench, "epsilon", "half_twice")
    assert dict.fromkeys((SMALL, LARGE, MIDDLE), "failed") == statuses(results)
    assert f"tiny_functions:half_twice does not hold on {MIDDLE}: 1 of 12 elements" in results[2].message


def test_a_mistake_in_a_property_is_the_targets_fault(bench: Bench) -> None:
    """No verdict on the variant: the error names the line; so does a property that is not there."""
    with pytest.raises(LoopError, match=r"ValueError: lost the thread \(tiny_functions.py:\d+\)"):
        results_of(bench, "right", "stumbles")
    with pytest.raises(LoopError, match="no_such_property"):
        results_of(bench, "right", "no_such_property")
    assert "holds" == results_of(bench, "right", "half_twice")[0].status, "the judge goes on"


def test_a_hang_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as its limit."""
    monkeypatch.setattr(relating, "CALL_LIMIT_S", 0.3)
    results = results_of(bench, "hangs", "half_twice")
    assert {SMALL: "holds", LARGE: "failed", MIDDLE: "holds"} == statuses(results)
    assert f"no answer for 0.3 s: killed on {LARGE}" == results[1].message


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A target whose reference is another each time for seven rows, and wrong for nine."""
    folder = tmp_path_factory.mktemp("doubtful")
    terms = {"reference": {"python": "tiny_functions:moody"}, "memory": "1000 * N * M"}
    with open_bench(folder, write_target(folder, {"strides": compiled("strides")}, **terms), build_cache) as bench:
        yield bench


def rows(number: int) -> Workload:
    """A workload with this many rows."""
    sizes = {"N": number, "M": 4}
    return Workload.model_validate({"name": f"{number} rows", "sizes": sizes, "dtype": "float32", "seed": number})


def checks_of(bench: Bench, *chosen: Workload) -> VariantChecks:
    """Checks of these workloads."""
    (verified,) = run_to_end(verify(bench, [Job(side, chosen) for side in make_sides(bench, "strides")]))
    assert isinstance(verified, VariantChecks)
    return verified


def test_a_reference_that_gives_two_answers_judges_nothing(doubtful: Bench) -> None:
    """The judge calls it twice on the first workload."""
    with pytest.raises(LoopError, match="the reference is not deterministic: two answers to 7 rows") as caught:
        checks_of(doubtful, rows(7))
    assert 1 == caught.value.exit_code


def test_a_reference_that_the_plain_implementation_contradicts_judges_nothing(doubtful: Bench) -> None:
    """One of the two is wrong: neither may call a kernel so."""
    text = "reference and plain implementation differ by .* where values reach .*: one of them is wrong on 9 rows"
    with pytest.raises(LoopError, match=text) as caught:
        checks_of(doubtful, rows(5), rows(9))
    assert "`reference` and `plain` in target.yaml compute one function in different types" == caught.value.hint


def test_a_workload_that_does_not_fit_is_refused_before_it_is_tried(
    doubtful: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest's formula is compared with the free memory."""
    monkeypatch.setattr(room, "available_memory", lambda: 1000 * 8 * 4 - 1)
    with pytest.raises(LoopError, match=r"8 rows needs about 0\.0 GiB for its float64 reference") as caught:
        checks_of(doubtful, rows(8))
    assert "leave its workload set out" in (caught.value.hint or "")
    assert not list(doubtful.scratch.glob("8_rows*")), "no input was made"
    monkeypatch.setattr(room, "available_memory", lambda: 1000 * 8 * 4)
    assert checks_of(doubtful, rows(8)).is_right


def inputs() -> list[torch.Tensor]:
    """Inputs that follow from the seed."""
    return [torch.randn(4, 3)]


def doubling_in_place(x: torch.Tensor) -> torch.Tensor:
    """A reference that changes its input."""
    return x.mul_(2) + 1


def test_float64_agrees_with_a_reference_that_changes_its_inputs_in_place() -> None:
    names: dict[str, Any] = {"generator": f"{__name__}:inputs", "reference": f"{__name__}:doubling_in_place"}
    terms = {**names, "arguments": None, "checker": None, "is_class": False, "passes": "positional"}
    rule = {"atol": 1e-4, "rtol": 1e-4, "either": False, "nan": False, "device": "cpu"}
    audit = audit_task(StatedTask({**terms, **rule, "cases": [{"name": "one", "given": {}}]}))
    assert audit["outputs"] == [[4, 3]]
    assert audit["findings"] == []


def short_of_memory(x: torch.Tensor) -> torch.Tensor:
    """An answer that meets a full GPU."""
    raise torch.OutOfMemoryError("CUDA out of memory")


def raising(x: torch.Tensor) -> torch.Tensor:
    """An answer with a bug."""
    raise ValueError("no such axis")


@pytest.mark.parametrize(("answer", "status"), [("short_of_memory", "failed"), ("raising", "wrong")])
def test_a_machine_without_memory_makes_no_answer_wrong(answer: str, status: str) -> None:
    names: dict[str, Any] = {"generator": f"{__name__}:inputs", "reference": f"{__name__}:doubling_in_place"}
    terms = {**names, "arguments": None, "checker": None, "is_class": False, "passes": "positional"}
    task = StatedTask({**terms, "device": "cpu", "trials": 1, "cases": [{"name": "one", "given": {}}]})
    assert status == judge_answer(task, f"{__name__}:{answer}")["status"]
