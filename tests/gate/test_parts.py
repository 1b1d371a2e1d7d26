"""Components: part of a variant through the same gate, with types, inputs and a form of their own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import run_to_end
from loop.gate.model import PropertiesOutput
from loop.gate.properties import properties
from loop.gate.verify import Job, verify
from loop.model.measurement import VariantChecks
from loop.model.signature import PythonFunction
from loop.model.workloads import expand_sets
from loop.steps.reused_results import ResultLifetime
from loop.workers.bench import Bench
from tests.targets import compiled, make_builds, make_context, open_bench, write_target
from tests.two_stage import open_two_stage


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for the target in two stages."""
    with open_two_stage(tmp_path_factory.mktemp("two-stage"), build_cache) as made:
        yield made


def checked(bench: Bench, name: str, **changes: Any) -> VariantChecks:
    """What the gate says of a component."""
    part = bench.target.components[name].model_copy(update=changes)
    side = bench.make_side(part.of, make_builds(bench, part.of)[part.of])
    alone = replace(side, terms=side.terms.replace(entry=part.entry))
    judged = bench.copy_for_component(part)
    workloads = expand_sets(judged.target, judged.target.workloads, "float32", 7)
    (found,) = run_to_end(verify(judged, [Job(alone, workloads, layouts=False)]))
    assert isinstance(found, VariantChecks)
    return found


@pytest.mark.parametrize("name", ["sum_twice_reduce", "half_weights_partial"])
@pytest.mark.slow
def test_a_component_that_is_wrong_is_found(name: str, bench: Bench) -> None:
    """With its own error map."""
    first = checked(bench, name).first_failure
    assert first is not None
    assert ("wrong", True) == (first.status, first.wrong > 0)


def test_infinity_is_right_where_it_belongs(bench: Bench) -> None:
    """A range in which a row sees no key has a maximum of minus infinity, and passes as that."""
    part = bench.target.components["right_partial"]
    masked = {"P": 3, "B": 1, "Sq": 9, "Sk": 3, "D": 4, "W": 6, "causal": True}
    assert checked(bench, "right_partial", workloads=(masked,)).is_right
    assert part.signature.types == {"output": "float64"}


@pytest.mark.slow
def test_what_means_the_same_may_be_brought_into_one_form(bench: Bench) -> None:
    """Sums over their row sum: sums and row sums that are both doubled pass in it, and only in it."""
    form = PythonFunction(python="stages:mean_form")
    doubled = checked(bench, "right_partial", entry="right_doubled")
    assert [False] * 4 == [one.passed for one in doubled.checks]
    assert checked(bench, "right_partial", entry="right_doubled", form=form).is_right
    assert checked(bench, "right_partial", form=form).is_right
    assert not checked(bench, "half_weights_partial", form=form).is_right


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["half_twice"], "1 property holds in 3 checks"),
        (["of_three_rows"], "1 property holds in 1 check"),
        (["half_twice", "row_by_row"], "2 properties hold in 6 checks"),
    ],
)
def test_properties_that_hold_are_counted(
    names: list[str], expected: str, tmp_path: Path, build_cache: Path
) -> None:
    """Each on every workload that it applies to."""
    named = [f"tiny_functions:{name}" for name in names]
    target = write_target(tmp_path, {"right": compiled()}, properties=named)
    with open_bench(tmp_path, target, build_cache) as bench:
        output = run_to_end(properties(make_context(bench, "right"), ResultLifetime())).output
    assert isinstance(output, PropertiesOutput)
    assert (True, expected) == (output.ok, output.message)
