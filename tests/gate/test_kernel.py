"""`kernel.verify` as a step: all variants and the control, all sets, layouts and threads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import run_to_end
from loop.builds.build import BuildFailed
from loop.gate import verify as verification
from loop.gate.kernel import VerifyTerms, compile_all, describe_unverified_sets, verify, workloads
from loop.machine.machine import cores
from loop.model.output import VerifyOutput
from loop.model.target import Instances
from loop.workers.bench import Bench
from tests.targets import WORKLOADS, compiled, importable, make_context, open_bench, write_target

SMALL, LARGE, MIDDLE = "N2 M3 float32", "N5 M3 float32", "N3 M4 float32"
PYTHON = """
def tenth(x):
    return x * 0.1
"""
SETS: dict[str, Any] = {
    **WORKLOADS,
    "more": [{"N": 7, "M": 2}, {"N": 2, "M": 3}],
    "double": [{"N": 4, "M": 2, "dtype": "float64"}],
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench with a warm judge for this file."""
    folder = tmp_path_factory.mktemp("verifying")
    variants = {name: compiled(name) for name in ("right", "strides", "epsilon", "crashes", "hangs")}
    variants["no_build"] = compiled(sources=["nowhere.cpp"])
    variants["other_type"] = compiled("typed", dtypes=["float64"])
    with open_bench(folder, write_target(folder, variants, workloads=SETS), build_cache) as opened:
        yield opened


def verified(bench: Bench, *variants: str, seeds: int = 2, others_s: float = 5, **fields: Any) -> VerifyOutput:
    """The output of `kernel.verify` on these variants."""
    terms = VerifyTerms(seeds=seeds, others_s=others_s)
    result = run_to_end(verify(make_context(bench, *variants, **fields), terms))
    assert isinstance(result.output, VerifyOutput)
    return result.output


def test_the_variant_with_most_instances_is_compiled_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longest. Results keep the order of the variants."""
    begun = list[str]()

    def fail(name: str, *places: Any, **limits: Any) -> None:
        begun.append(name)
        raise BuildFailed("no", "", "")

    monkeypatch.setattr("loop.builds.build.build", fail)
    instances = Instances(symbol="f<{N}>", over={"N": (1, 2)}, file="f.cu", line="template f<{N}>;")
    few = bench.target.variants["right"]
    variants: Any = {"few": few, "many": few.model_copy(update={"instances": (instances,)})}
    _, failures = run_to_end(compile_all(make_context(bench, "right"), variants))
    assert (["many", "few"], ["few: no", "many: no"]) == (begun, [failure.message for failure in failures])


@pytest.mark.slow
def test_right_variants_are_counted_in_checks(bench: Bench) -> None:
    """Each workload, seed and layout counts as one check; declined layouts are counted separately."""
    output = verified(bench, "right", "strides")
    assert (True, ("right", "strides"), 0) == (output.ok, output.right, output.seed)
    count = len(output.variants[1].checks)
    expected = f"right right on {count - 4}, not supported on 4 (strided x1, transposed x1, broadcast x2), "
    expected += f"strides right in {count} checks"
    assert expected == output.message
    assert () == output.verdicts


@pytest.mark.slow
def test_a_wrong_variant_is_named_first(bench: Bench) -> None:
    """Each failed check has a verdict; right variants stay right; a variant without a build is named."""
    output = verified(bench, "right", "no_build", "epsilon", "crashes", seeds=1)
    assert "no_build: it has no build" == output.not_exercised[0]
    assert (False, ("right",)) == (output.ok, output.right)
    assert output.message.startswith(f"epsilon is incorrect: 1 of 6 elements wrong on {SMALL}; worst N=1 M=1: ")
    assert output.message.endswith("; so is crashes")
    assert f"mend epsilon, then `loop kernels verify epsilon --target {bench.folder}`" == output.hint
    verdicts = {(verdict.variant, verdict.verdict) for verdict in output.verdicts}
    assert {("epsilon", "incorrect"), ("crashes", "incorrect")} == verdicts


@pytest.mark.slow
def test_a_tolerance_that_nothing_meets_is_said_of_the_target(tmp_path: Path, build_cache: Path) -> None:
    """If the baseline fails, reference or tolerance is wrong: the message begins with that."""
    exact = {"float32": {"atol": 0.0, "rtol": 0.0}}
    function = {"python": "tenths:tenth"}
    fields: dict[str, Any] = {"reference": function, "baseline": function, "plain": None, "tolerance": exact}
    target = write_target(tmp_path, {"right": compiled()}, **fields)
    (tmp_path / "tenths.py").write_text(PYTHON)
    (tmp_path / "scale.h").write_text("#define SCALE 0.1\n")
    with open_bench(tmp_path, target, build_cache) as strict:
        output = verified(strict, "right", seeds=1)
    assert (False, False) == (output.ok, output.control is not None and output.control.is_right)
    expected = "the control failed: baseline, reference or tolerance is not to be trusted there: "
    assert output.message.startswith(expected)
    assert f"elements wrong on {SMALL}" in output.message


@pytest.mark.slow
def test_what_is_not_tried_after_two_hangs_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hang costs its whole limit: the variant fails, and the remaining calls count as not exercised."""
    monkeypatch.setattr(verification, "CALL_LIMIT_S", 0.3)
    monkeypatch.setattr("loop.workers.bench.FIRST_CALL_S", 0.3)
    monkeypatch.setattr(bench, "first_call_s", 0.3)
    output = verified(bench, "hangs", seeds=4)
    (checks,) = output.variants
    assert sum(check.status == "hung" for check in checks.checks) <= 3  # Two, and one on other threads.
    assert "hung" in {check.status for check in checks.checks}
    assert any(text.startswith("hangs on the workloads after its call number") for text in output.not_exercised)
    assert ("hangs",) == output.wrong


@pytest.mark.slow
def test_a_baseline_that_does_not_run_is_told_from_one_that_is_wrong(tmp_path: Path, build_cache: Path) -> None:
    """The message says that the baseline computes nothing, and does not blame the tolerance."""
    target = write_target(tmp_path, {"right": compiled()}, baseline={"python": "tiny_functions:raises"})
    with open_bench(tmp_path, target, build_cache) as broken:
        output = verified(broken, "right", seeds=1)
    start = "the control failed: the baseline computes nothing, so that nothing can be held against it: ValueError"
    assert output.message.startswith(start)
    assert "loop doctor" in str(output.hint)


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
TRIED_SETS: dict[str, Any] = {"some": [{"N": 4, "M": 4}], "edges": [{"N": [1, 3], "M": 5}]}


@pytest.fixture(scope="module")
def all_sets(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """Three kernels, each wrong only where a quick check does not look."""
    folder = tmp_path_factory.mktemp("coverage")
    variants = {name: importable(name, module="kernels") for name in ("races", "alone", "tail")}
    target = write_target(folder, variants, workloads=TRIED_SETS)
    (folder / "kernels.py").write_text(KERNELS)
    with open_bench(folder, target, build_cache) as opened:
        yield opened


@pytest.mark.skipif(cores() == 1, reason="one core has one number of threads")
@pytest.mark.parametrize(("variant", "wrong_on"), [("races", cores()), ("alone", 1)])
@pytest.mark.slow
def test_outputs_are_checked_on_several_numbers_of_threads(all_sets: Bench, variant: str, wrong_on: int) -> None:
    """A measurement takes its own number; a data race shows on every core, or on few."""
    if variant == "alone" and cores() > 3:
        pytest.skip("the other number is three here")
    output = verified(all_sets, variant)
    assert (variant,) == output.wrong
    assert wrong_on in {check.threads for check in output.variants[0].checks if not check.passed}


def test_sets_that_the_plan_does_not_name_are_verified_or_named(all_sets: Bench) -> None:
    """A plan that names `some` also verifies `edges`; without time for it, it is named with its command."""
    output = verified(all_sets, "tail")
    assert ("tail",) == output.wrong
    assert {"N1 M5 float32", "N3 M5 float32"} == {v.workload for v in output.verdicts}
    output = verified(all_sets, "tail", others_s=0)
    assert ("tail",) == output.right
    (line,) = [text for text in output.not_exercised if "edges" in text]
    assert "loop kernels verify tail" in line
    context = make_context(all_sets, "tail")
    (line,) = describe_unverified_sets(context, ["tail"], workloads(context, ["edges"])[:1])
    assert "workloads not verified)" in line
