"""A variant that gives one output for all values is wrong, however wide the tolerance is."""

from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.gate.verify import Job, verify
from loop.model.workloads import expand
from tests.targets import make_sides, open_bench, write_target

AROUND_FIVE = """
import torch


def around(x):
    return 5 + x.mean(dim=1)


def constant(x):
    return torch.full(x.shape[:1], 5.0)


def narrow(x):
    return around(x.half()).float()
"""


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", ["N", "..."])
def test_one_output_for_all_values_is_wrong_though_it_is_within_the_tolerance(
    dimensions: str, tmp_path: Path, build_cache: Path
) -> None:
    """A mean of so many values that it hardly varies: what follows it in a narrower type is right all the same."""
    variants = {
        name: {"kind": "python", "device": "cpu", "module": "means", "function": name}
        for name in ("around", "constant", "narrow")
    }
    fields = {key: {"python": "means:around"} for key in ("reference", "baseline")}
    target = write_target(
        tmp_path,
        variants,
        signature={"inputs": {"x": "N M"}, "outputs": {"output": dimensions}},
        **fields,
        plain=None,
        tolerance={"float32": {"atol": 2.0, "rtol": 0.0}},
        workloads={"some": [{"N": 3, "M": 4096}]},
    )
    (tmp_path / "means.py").write_text(AROUND_FIVE)
    with open_bench(tmp_path, target, build_cache) as bench:
        chosen = [one for seed in (0, 1) for one in expand(target, ["some"], "float32", seed)]
        jobs = [Job(side, chosen, layouts=False) for side in make_sides(bench, *variants)]
        found = {one.variant: one for one in finish(verify(bench, jobs))}
    checks = found["constant"].checks
    assert [("right", ""), ("wrong", "one output")] == [(one.status, one.cause) for one in checks]
    assert "gave for other values the very output that it gave" in checks[1].message
    assert ["around", "narrow"] == [name for name, one in found.items() if one.right]
