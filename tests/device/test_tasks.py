"""Targets of format 2 on a GPU: several outputs, whole numbers, state, modules; verified, and timed by graphs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.gate.verify import Job, verify
from loop.model.workloads import expand_sets
from loop.timing.samples import Limits
from loop.timing.schedule import measure
from loop.workers.bench import Bench
from tests.tasks import EXAMPLES, write_task

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all examples."""
    return tmp_path_factory.mktemp("tasks")


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Bench]:
    """A bench on the GPU."""
    target = write_task(folder, "backward")
    with Bench(target, folder, folder / "builds", include_folder(), "cuda", 1) as bench:
        yield bench


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_right_passes_on_a_gpu_and_what_is_wrong_is_found(name: str, shared: Bench, folder: Path) -> None:
    """As on a processor: the right variant passes, each wrong one does not; timed outputs are right."""
    bench = replace(shared, target=write_task(folder, name), _nursery=shared.nursery)
    workloads = expand_sets(bench.target, ["some"], "float32", 5)
    right, *wrong = bench.target.variants_on("cuda")
    verified = {
        side.variant: side
        for side in run_to_end(verify(bench, [Job(bench.make_side(v), workloads) for v in (right, *wrong)]))
    }
    assert verified[right].is_right, verified[right].checks[0].message
    assert not [key for key in wrong if verified[key].is_right]
    sides = [bench.make_side("baseline"), bench.make_side(right)]
    timings = run_to_end(measure(bench, sides, workloads, Limits(2, 10.0, 5)))
    assert timings.checked_outputs
    assert not timings.wrong_outputs, timings.wrong_outputs[0][1].message


@pytest.mark.parametrize("knows", ["any device", "the CPU alone"])
def test_the_right_answer_is_worked_out_on_the_gpu_or_else_on_the_cpu(
    knows: str, shared: Bench, folder: Path
) -> None:
    """A reference that cannot be called on a GPU judges all the same."""
    target = write_task(folder, "residual")
    module, _, function = target.reference.python.partition(":")
    file, places = folder / f"{knows.replace(' ', '_')}.py", folder / f"{knows}.txt"
    file.write_text(
        f"from {module.removesuffix('.py')} import {function} as known\n\n"
        "def reference(*given, **more):\n"
        "    on = (*given, *more.values())[0].device.type\n"
        f"    assert on == 'cpu' or {knows == 'any device'}\n"
        f"    open({str(places)!r}, 'a').write(on + ' ')\n"
        "    return known(*given, **more)\n"
    )
    called = target.reference.model_copy(update={"python": f"{file.name}:reference"})
    bench = replace(shared, target=target.model_copy(update={"reference": called}), _nursery=shared.nursery)
    right = next(iter(bench.target.variants_on("cuda")))
    (verified,) = run_to_end(
        verify(bench, [Job(bench.make_side(right), expand_sets(bench.target, ["some"], "float32", 5))])
    )
    assert verified.is_right, verified.checks[0].message
    assert set(places.read_text().split()) == {"cuda" if knows == "any device" else "cpu"}
