"""A verification tries every set of the target and several numbers of threads, or says what it left out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import run_to_end
from loop.gate.kernel import VerifyTerms, verify
from loop.machine.machine import cores
from loop.model.output import VerifyOutput
from loop.workers.bench import Bench
from tests.targets import make_context, open_bench, write_target

KERNELS = """
import torch


def races(x):
    return x * 2 + (torch.get_num_threads() > 1)


def alone(x):
    return x * 2 + (torch.get_num_threads() == 1)


def tail(x):
    y = (x * 2).contiguous()
    y.view(-1)[x.numel() // 4 * 4 :] = 0
    return y
"""
SETS: dict[str, Any] = {"some": [{"N": 4, "M": 4}], "edges": [{"N": [1, 3], "M": 5}]}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """Three kernels, each wrong only where a quick look does not go."""
    folder = tmp_path_factory.mktemp("coverage")
    variants = {
        n: {"kind": "python", "device": "cpu", "module": "kernels", "function": n}
        for n in ("races", "alone", "tail")
    }
    target = write_target(folder, variants, workloads=SETS)
    (folder / "kernels.py").write_text(KERNELS)
    with open_bench(folder, target, build_cache) as made:
        yield made


def verified(bench: Bench, variant: str, **terms: Any) -> VerifyOutput:
    """What a session that times one thread on the set `some` finds."""
    found = run_to_end(verify(make_context(bench, variant), VerifyTerms(**terms)))
    assert isinstance(found.output, VerifyOutput)
    return found.output


@pytest.mark.skipif(cores() == 1, reason="one core has one number of threads")
@pytest.mark.parametrize(("variant", "wrong_on"), [("races", cores()), ("alone", 1)])
@pytest.mark.slow
def test_outputs_are_checked_on_several_numbers_of_threads(bench: Bench, variant: str, wrong_on: int) -> None:
    """A measurement takes its own number; a data race shows on every core, or on few."""
    if variant == "alone" and cores() > 3:
        pytest.skip("the other number is three here")
    found = verified(bench, variant)
    assert (variant,) == found.wrong
    assert wrong_on in {check.threads for check in found.variants[0].checks if not check.passed}


def test_sets_that_the_plan_does_not_name_are_verified_or_named(bench: Bench) -> None:
    """It times `some`, where nothing is wrong; a set without time is named with its command."""
    found = verified(bench, "tail")
    assert ("tail",) == found.wrong
    assert {"N1 M5 float32", "N3 M5 float32"} == {v.workload for v in found.verdicts}
    found = verified(bench, "tail", others_s=0)
    assert ("tail",) == found.right
    (line,) = [text for text in found.not_exercised if "edges" in text]
    assert "loop kernels verify tail" in line
