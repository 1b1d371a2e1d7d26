"""A search for the smallest workload stays within what the variant takes: elsewhere the reference may fail."""

from pathlib import Path

import pytest

from tests.projects import FUNCTIONS, KERNEL, TARGET, loop, make_project

RIGHT, WRONG = "x[i] * (float)attributes[0]", "x[i] * (float)attributes[0] + (in[0].sizes[0] > 1)"
REFUSES = 'def scale(x, *, factor):\n    if x.shape[1] % x.shape[0]:\n        raise ValueError("no such shape")\n'


@pytest.mark.slow
def test_sizes_that_a_variant_does_not_take_are_not_asked_of_the_reference(tmp_path: Path) -> None:
    """It is wrong from two rows on, for columns that are a multiple of them."""
    folder = make_project(tmp_path / "p", KERNEL.replace(RIGHT, WRONG))
    manifest = TARGET.replace("{N: 3, M: [5, 17]}", "{N: 4, M: 12}").replace(
        "entry: scale,", 'entry: scale, takes: "M % N == 0",'
    )
    (folder / "target.yaml").write_text(manifest)
    (folder / "functions.py").write_text(FUNCTIONS.replace("def scale(x, *, factor):\n", REFUSES))
    assert 0 == loop("trust", str(folder)).returncode
    done = loop("run", "pattern", "defensive-debugging", "--target", str(folder))
    assert "ours fails on N2 M2 float32" in done.stdout + done.stderr
    assert "no such shape" not in done.stdout + done.stderr
