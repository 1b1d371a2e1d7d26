"""What cannot be judged is one workload: it is counted and named, and the others are judged."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import Tick, run_to_end
from loop.gate import kernel, verification
from loop.gate.verify import Job, verify
from loop.library.definitions import read_file
from loop.model.measurement import InputWeaknesses, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.target import Target, Workload
from loop.model.workloads import expand_sets
from loop.workers.bench import Bench
from loop.workers.judge_process import Unjudged
from tests.own_targets import write_own
from tests.targets import make_context, make_sides, open_bench, write_target

WHY = "the right answer reaches 1e+40, float32 ends at 3.4e+38"


@pytest.fixture
def overflowing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the workloads that the judge of the bench cannot judge."""
    names, expect = set[str](), Bench.prepare_answer

    def expected(own: Bench, workload: Workload, **more: Any) -> Generator[Tick, None, None]:
        if workload.name in names:
            raise Unjudged(f"{WHY} on {workload.name}")
        yield from expect(own, workload, **more)

    monkeypatch.setattr(Bench, "prepare_answer", expected)
    return names


def verified(bench: Bench, *names: str) -> VerifyOutput:
    """What a step says of these variants on the workloads of the tiny target."""
    chosen = expand_sets(bench.target, ["some"], "float32", 0)
    jobs = [Job(side, chosen, layouts=False) for side in make_sides(bench, *names, "right")]
    *found, control = run_to_end(verify(bench, jobs))
    return verification.verification_output(
        make_context(bench, *names), found, control, names, failures=(), not_exercised=(), untaken={}
    )


def counts(checks: VariantChecks) -> dict[str, int]:
    return {status: n for status in ("right", "wrong", "not judged") if (n := checks.count(status))}


def test_the_other_workloads_are_judged(bench: Bench, overflowing: set[str]) -> None:
    """Right stays right and wrong is found; the workload is named with its reason, once."""
    overflowing.add("N5 M3 float32")
    found = verified(bench, "right", "epsilon")
    right, wrong = found.variants
    assert ({"right": 2, "not judged": 1}, {"wrong": 2, "not judged": 1}) == (counts(right), counts(wrong))
    assert (("right",), ("epsilon",)) == (found.right, found.wrong)
    assert (f"not judged: {WHY} on N5 M3 float32",) == found.not_exercised
    assert "right on 2, not judged on 1" == right.tally


def test_where_nothing_can_be_judged_the_step_fails(bench: Bench, overflowing: set[str]) -> None:
    overflowing |= {one.name for one in expand_sets(bench.target, ["some"], "float32", 0)}
    with pytest.raises(Unjudged) as raised:
        verified(bench, "right")
    assert WHY in raised.value.message


def test_what_a_wrong_kernel_could_do_is_a_sentence_each(bench: Bench, tmp_path: Any) -> None:
    """With the names, and what would pass; attributes that no workload changes are among it."""
    target = read_file(write_own(tmp_path / "own", "rmsnorm") / "target.yaml", Target).value
    shown = {"x": ("fixed",), "pos": ("fixed",), "w": ("varies", "moves")}
    told = InputWeaknesses(shown=shown, ignored=("mode",), unmoved=("z",))
    said = list(kernel.describe_blind_spots(told, target, ()))
    assert "inputs x, pos are the same under every seed: a kernel that never reads them would pass" == said[0]
    assert "input w is never negative: a kernel that is wrong below zero would pass" == said[1]
    assert "output z is the same whatever the inputs are: a constant would pass" == said[2]
    assert "attribute mode changes no output: a kernel that ignores it would pass" == said[3]
    assert "every workload has eps=1e-06: a kernel that ignores it would pass" == said[4]


def test_an_attribute_without_effect_on_small_sizes_alone_is_no_blind_spot(tmp_path: Path) -> None:
    """The largest workload shows it; where none does, it is told."""
    for last, ignored in ((8, False), (2, True)):
        folder = write_own(
            tmp_path / str(last), "rmsnorm", workloads={"quick": [{"N": [3, 4, 5], "D": [2, last]}]}
        )
        formula = "x + eps * (torch.arange(x.shape[-1], dtype=x.dtype) // 2) * weight"
        (folder / "functions.py").write_text(
            f"import torch\n\n\ndef rmsnorm(x, weight, *, eps):\n    return {formula}\n"
        )
        target = read_file(folder / "target.yaml", Target).value
        chosen = expand_sets(target, ["quick"], "float32", 0)
        with open_bench(folder, target, tmp_path) as bench:
            for workload in chosen:
                run_to_end(bench.prepare_answer(workload))
            told = run_to_end(kernel.find_blind_spots(bench, chosen))
        assert ignored == ("eps" in told.ignored)


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
        chosen = [one for seed in (0, 1) for one in expand_sets(target, ["some"], "float32", seed)]
        jobs = [Job(side, chosen, layouts=False) for side in make_sides(bench, *variants)]
        found = {one.variant: one for one in run_to_end(verify(bench, jobs))}
    checks = found["constant"].checks
    assert [("right", ""), ("wrong", "one output")] == [(one.status, one.cause) for one in checks]
    assert "gave for other values the very output that it gave" in checks[1].message
    assert ["around", "narrow"] == [name for name, one in found.items() if one.is_right]
