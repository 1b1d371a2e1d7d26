"""Components: part of a variant through the same gate, with types, inputs and a form of their own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import finish
from loop.gate.verify import Job, verify
from loop.model.measurement import VariantChecks
from loop.model.signature import PythonFunction
from loop.model.workloads import expand
from loop.workers.bench import Bench
from tests.targets import make_builds
from tests.two_stage import open_two_stage


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for the target in two stages."""
    with open_two_stage(tmp_path_factory.mktemp("two-stage"), build_cache) as made:
        yield made


def checked(bench: Bench, name: str, **changes: Any) -> VariantChecks:
    """What the gate says of a component."""
    part = bench.target.components[name].model_copy(update=changes)
    side = bench.side(part.of, make_builds(bench, part.of)[part.of])
    alone = replace(side, terms=side.terms.but(entry=part.entry))
    judged = bench.part(part)
    workloads = expand(judged.target, judged.target.workloads, "float32", 7)
    (found,) = finish(verify(judged, [Job(alone, workloads, layouts=False)]))
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
    assert checked(bench, "right_partial", workloads=(masked,)).right
    assert part.signature.types == {"output": "float64"}


@pytest.mark.slow
def test_what_means_the_same_may_be_brought_into_one_form(bench: Bench) -> None:
    """Sums over their row sum: sums and row sums that are both doubled pass in it, and only in it."""
    form = PythonFunction(python="stages:mean_form")
    doubled = checked(bench, "right_partial", entry="right_doubled")
    assert [False] * 4 == [one.passed for one in doubled.checks]
    assert checked(bench, "right_partial", entry="right_doubled", form=form).right
    assert checked(bench, "right_partial", form=form).right
    assert not checked(bench, "half_weights_partial", form=form).right
