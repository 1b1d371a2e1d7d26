"""Targets of format 2: several outputs, whole numbers, state, modules, a checker; and what is wrong of each."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.gate.verify import Job, verify
from loop.model.measurement import VariantChecks
from loop.model.workloads import expand
from loop.workers.bench import Bench
from tests.targets import open_bench
from tests.tasks import EXAMPLES, write_task


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all examples: their Python files have names of their own."""
    return tmp_path_factory.mktemp("tasks")


@pytest.fixture(scope="module")
def shared(folder: Path, build_cache: Path) -> Iterator[Bench]:
    """A bench whose judge and nursery serve all examples."""
    with open_bench(folder, write_task(folder, "backward"), build_cache) as bench:
        yield bench


def checked(shared: Bench, folder: Path, name: str) -> dict[str, VariantChecks]:
    """What the gate says of an example's variants and of its baseline."""
    bench = replace(shared, target=write_task(folder, name), _nursery=shared.nursery)
    workloads = expand(bench.target, ["some"], "float32", 5)
    jobs = [Job(bench.side(one), workloads) for one in (*bench.target.variants, "baseline")]
    return {one.variant: one for one in finish(verify(bench, jobs))}


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_right_passes_and_what_is_wrong_is_found(name: str, shared: Bench, folder: Path) -> None:
    """The reference in the call's own types passes too; each wrong variant is found for its own reason."""
    found = checked(shared, folder, name)

    right, *wrong = found
    assert found[right].right, found[right].checks[0].message
    assert found["baseline"].right, found["baseline"].first_failure
    causes = {one: found[one].checks[0].cause for one in wrong if one != "baseline"}
    assert EXAMPLES[name].wrong == causes, {one: found[one].checks[0].message for one in wrong}
