"""Components of the bundled kernels: all are right as they are, and the first that is wrong names the fault."""

import shutil
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.debug.explaining import check_components
from loop.library.definitions import read_file
from loop.model.target import Target
from tests.conftest import ROOT
from tests.targets import make_context, open_bench

pytestmark = pytest.mark.slow
PARTS = ("scores", "row_maximum", "weights", "row_sum", "weighted_values")
SOFTMAX, SMALL = "cpu/softmax.h", "cuda/small.cuh"


def check_edited(folder: Path, cache: Path, variant: str, *edit: str) -> tuple[list[str], list[str], list[str]]:
    """Right and wrong components of an edited variant, and what was not checked."""
    target = shutil.copytree(ROOT / "kernels" / "attention", folder / "attention")
    if edit:
        file, old, new = edit
        text = (target / file).read_text()
        assert 1 == text.count(old), f"{file}: {old!r}"
        (target / file).write_text(text.replace(old, new))
    with open_bench(target, read_file(target / "target.yaml", Target).value, cache) as bench:
        emulated = (variant,) if variant != "cpu" else ()
        context = make_context(bench, variant, emulated=emulated)
        checked, missing = run_to_end(check_components(context, bench.make_side(variant, emulated=bool(emulated))))
    right = [component.component for component in checked if not component.checks.first_failure]
    return right, [component.component for component in checked if component.checks.first_failure], missing


@pytest.mark.parametrize("variant", ["cpu", pytest.param("small", marks=pytest.mark.soak)])
def test_the_components_of_a_right_kernel_are_right(variant: str, tmp_path: Path, build_cache: Path) -> None:
    """All components are right on masked, split, reversed and wide tiles."""
    assert (list(PARTS), [], []) == check_edited(tmp_path, build_cache, variant)


@pytest.mark.parametrize(
    ("variant", "file", "old", "new", "expected"),
    [
        ("cpu", SOFTMAX, "load(running_sum) * decay[0] + sum", "load(running_sum) + sum", "row_sum"),
        ("small", SMALL, "visible_keys(problem, first_row) /", "problem.keys /", "scores"),
    ],
)
def test_the_first_wrong_component_names_the_fault(
    variant: str, file: str, old: str, new: str, expected: str, tmp_path: Path, build_cache: Path
) -> None:
    """Those before it are right; those after it, which it makes wrong, are not looked at."""
    before = list(PARTS[: PARTS.index(expected)])
    assert (before, [expected], []) == check_edited(tmp_path, build_cache, variant, file, old, new)
