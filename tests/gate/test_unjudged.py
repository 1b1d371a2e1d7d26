"""A check may be declined or not judged; the other checks are judged all the same."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import DefinitionError
from loop.base.processes import Tick, run_to_end
from loop.gate import kernel
from loop.gate.model import ShareOutput
from loop.gate.verify import Job, verify
from loop.library.definitions import find_project, read_file
from loop.library.targets import read_target as read_target
from loop.model.measurement import VariantChecks, Weaknesses
from loop.model.output import VerifyOutput
from loop.model.target import Target, Workload
from loop.model.workloads import expand_sets
from loop.workers.bench import Bench
from loop.workers.program import Unjudged
from tests.own_targets import write_own
from tests.targets import compiled, importable, make_context, make_sides, open_bench, write_target

WHY = "the right answer reaches 1e+40, float32 ends at 3.4e+38"


@pytest.fixture
def overflowing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the workloads that the judge of the bench cannot judge."""
    names, expect = set[str](), Bench.prepare_answer

    def expected(self_bench: Bench, workload: Workload, **options: Any) -> Generator[Tick, None, None]:
        if workload.name in names:
            raise Unjudged(f"{WHY} on {workload.name}")
        yield from expect(self_bench, workload, **options)

    monkeypatch.setattr(Bench, "prepare_answer", expected)
    return names


def verified(bench: Bench, *names: str) -> VerifyOutput:
    """The output of verifying these variants on the workloads of the tiny target."""
    chosen = expand_sets(bench.target, ["some"], "float32", 0)
    checked = make_sides(bench, *names, "right")
    jobs = [Job(side, chosen, layouts=False) for side in checked]
    *sides, control = run_to_end(verify(bench, jobs))
    share = ShareOutput(ok=True, message="", sides=sides, control=control)
    return kernel.conclude_verification(make_context(bench, *names), [share], checked[:-1], chosen, ())


def counts(checks: VariantChecks) -> dict[str, int]:
    return {status: n for status in ("right", "wrong", "not judged") if (n := checks.count(status))}


def test_the_other_workloads_are_judged(bench: Bench, overflowing: set[str]) -> None:
    """Other workloads keep their verdicts; the unjudged workload is named once with its reason."""
    overflowing.add("N5 M3 float32")
    output = verified(bench, "right", "epsilon")
    right, wrong = output.variants
    assert ({"right": 2, "not judged": 1}, {"wrong": 2, "not judged": 1}) == (counts(right), counts(wrong))
    assert (("right",), ("epsilon",)) == (output.right, output.wrong)
    assert [f"not judged: {WHY} on N5 M3 float32"] == [text for text in output.not_exercised if WHY in text]
    assert "right on 2, not judged on 1" == right.tally


def test_whichever_workload_is_unjudged_one_other_is_computed_twice(
    bench: Bench, overflowing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first workload that can be judged shows whether the reference repeats itself."""
    twice, expect = list[str](), Bench.prepare_answer

    def expected(self_bench: Bench, workload: Workload, **options: Any) -> Generator[Tick, None, None]:
        yield from expect(self_bench, workload, **options)
        twice.extend([workload.name] if options.get("checks_determinism") else [])

    monkeypatch.setattr(Bench, "prepare_answer", expected)
    for workload in expand_sets(bench.target, ["some"], "float32", 0):
        overflowing.clear()
        twice.clear()
        overflowing.add(workload.name)
        verified(bench, "right")
        assert (1, {*twice} - overflowing) == (len(twice), {*twice})


def test_where_nothing_can_be_judged_the_step_fails(bench: Bench, overflowing: set[str]) -> None:
    overflowing |= {workload.name for workload in expand_sets(bench.target, ["some"], "float32", 0)}
    with pytest.raises(Unjudged) as raised:
        verified(bench, "right")
    assert WHY in raised.value.message


def test_a_size_that_no_memory_holds_is_named(bench: Bench) -> None:
    first = expand_sets(bench.target, ["some"], "float32", 0)[0]
    with pytest.raises(Unjudged, match=f"^reference of {first.name}: ValueError: "):
        run_to_end(bench.prepare_answer(first.model_copy(update={"sizes": {"N": 10**20, "M": 3}})))


def test_what_a_wrong_kernel_could_do_is_a_sentence_each(bench: Bench, tmp_path: Any) -> None:
    """Each sentence names inputs and a wrong kernel that would pass, also for attributes that never vary."""
    target = read_file(write_own(tmp_path / "own", "rmsnorm") / "target.yaml", Target).value
    weaknesses: Weaknesses = {"fixed": ("x", "pos"), "nonnegative": ("w",), "narrow": ("ids",)}
    weaknesses |= {"ignored": ("mode",), "unmoved": ("z",), "untied": ("x",)}
    tried = expand_sets(target, target.workloads, "float32")
    texts = list(kernel.describe_blind_spots(weaknesses, target, (), tried))
    assert "inputs x, pos are the same under every seed: a kernel that never reads them would pass" == texts[0]
    assert "input w is never negative: a kernel that is wrong below zero would pass" == texts[1]
    assert "input ids is within 16 bits: a kernel that keeps 16 bits of it would pass" == texts[2]
    assert "output z is the same whatever the inputs are: a kernel that returns a constant would pass" == texts[3]
    fact = "attribute mode changes no output on the workloads tried"
    assert f"{fact}: a kernel that ignores it would pass" == texts[4]
    assert "every workload has eps=1e-06: a kernel that ignores it would pass" == texts[5]
    assert texts[-1].startswith("no workload tried has 0 of N, D, or N > ")
    weaknesses = {"from_zero": ("ends",), "untied": ("x",), "whole_outputs": ("index",)}
    texts = list(kernel.describe_blind_spots(weaknesses, target, (), tried))
    assert "input ends is in order from 0 on in every call: a kernel that expects a first 0 would pass" == texts[0]
    fact = "input x is without two equal greatest or least values in a row"
    assert f"{fact}: a kernel that names another of them would pass" == texts[1]


def test_the_largest_sizes_that_were_tried_are_named(tmp_path: Path) -> None:
    """A kernel that is wrong only beyond them passes."""
    fields: dict[str, Any] = {"signature": {"inputs": {"x": "N M"}, "outputs": {"output": "N"}}}
    fields["signature"]["attributes"] = {"k": {"kind": "number", "default": 8}}
    sets = {"some": [{"N": 0, "M": 9}, {"N": 3, "M": 70_000}, {"N": 5, "M": 9, "k": 9}]}
    target = write_target(tmp_path, {"right": compiled()}, workloads=sets, **fields)
    chosen = expand_sets(target, ["some"], "float32")
    for tried, limits in ((chosen, "0 of M, k, or N > 5, M > 70,000, k > 9"), (chosen[2:], "N > 5, M > 9, k > 9")):
        *_, text = kernel.describe_blind_spots({}, target, (), tried)
        assert f"{limits}, or more than {210_000 if tried is chosen else 45:,} elements in a tensor" in text


def test_an_attribute_without_effect_on_small_sizes_alone_is_no_blind_spot(tmp_path: Path) -> None:
    """It counts as ignored only if the largest workload does not show its effect."""
    for last, ignored in ((8, False), (2, True)):
        sets = {"quick": [{"N": [3, 4, 5], "D": [2, last]}]}
        folder = write_own(tmp_path / str(last), "rmsnorm", workloads=sets)
        formula = "x + eps * (torch.arange(x.shape[-1], dtype=x.dtype) // 2) * weight"
        code = f"import torch\n\n\ndef rmsnorm(x, weight, *, eps):\n    return {formula}\n"
        (folder / "functions.py").write_text(code)
        target = read_file(folder / "target.yaml", Target).value
        chosen = expand_sets(target, ["quick"], "float32", 0)
        with open_bench(folder, target, tmp_path) as bench:
            for workload in chosen:
                run_to_end(bench.prepare_answer(workload))
            weaknesses = run_to_end(kernel.find_blind_spots(bench, chosen))
        assert ignored == ("eps" in weaknesses["ignored"])


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
    """A constant is wrong though the mean of many values hardly varies; a narrower type is right."""
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
        chosen = [workload for seed in (0, 1) for workload in expand_sets(target, ["some"], "float32", seed)]
        jobs = [Job(side, chosen, layouts=False) for side in make_sides(bench, *variants)]
        by_variant = {side.variant: side for side in run_to_end(verify(bench, jobs))}
    checks = by_variant["constant"].checks
    assert [("right", ""), ("wrong", "one output")] == [(check.status, check.cause) for check in checks]
    assert "gave for other values the very output that it gave" in checks[1].message
    assert ["around", "narrow"] == [name for name, side in by_variant.items() if side.is_right]


EVEN = "N % 2 == 0"
VARIANTS: dict[str, dict[str, Any]] = {
    "right": compiled(),
    "refuses": compiled("refuses"),
    "small": compiled("refuses", takes="N <= 3 and itemsize == 4"),
    "too_modest": compiled("refuses", takes="N <= 5 and M == 3"),
    "fragile": importable("of_even_rows", takes=EVEN),
    **{name: importable(name) for name in ("declines_strides", "trips_on_strides", "declines", "raises")},
    "all": importable("double"),
    "none": importable("double", takes="N > 100"),
}


@pytest.fixture(scope="module")
def declining(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench with variants that decline, raise, or have a `takes`."""
    folder = tmp_path_factory.mktemp("states")
    with open_bench(folder, write_target(folder, VARIANTS), build_cache) as opened:
        yield opened


def workloads(declining: Bench) -> tuple[Workload, ...]:
    """N2 M3, N5 M3 and N3 M4."""
    return expand_sets(declining.target, ["some"], "float32")


def tallies(declining: Bench, *names: str) -> dict[str, str]:
    """Every state of each variant with its count."""
    jobs = [Job(side, workloads(declining)) for side in make_sides(declining, *names)]
    return {side.variant: side.tally for side in run_to_end(verify(declining, jobs))}


@pytest.mark.slow
def test_an_exception_is_a_crash_whatever_the_layout(declining: Bench) -> None:
    """Only `NotImplementedError` declines, but for broadcast inputs, and never contiguous ones."""
    assert {
        "declines_strides": "right on 4, not supported on 3 (strided x1, transposed x1, broadcast x1)",
        "trips_on_strides": "right on 4, not supported on 1 (broadcast x1), crashed on 2",
        "declines": "not supported on 4 (strided x1, misaligned x1, transposed x1, broadcast x1), refused on 3",
        "raises": "not supported on 1 (broadcast x1), crashed on 6",
    } == tallies(declining, "declines_strides", "trips_on_strides", "declines", "raises")


@pytest.mark.slow
def test_what_lies_outside_takes_is_counted_and_not_called(declining: Bench) -> None:
    """An error number inside it is a refusal; a function that must not be called is not."""
    assert {
        "refuses": "right on 3, not supported on 3 (strided x1, transposed x1, broadcast x1), refused on 1",
        "small": "right on 3, not supported on 4 (strided x1, transposed x1, broadcast x1, N=5 x1)",
        "too_modest": "right on 2, not supported on 4 "
        "(strided x1, transposed x1, broadcast x1, M=4 x1), refused on 1",
        "fragile": "right on 5, not supported on 2 (N=5 x1, N=3 x1)",
        "none": "not supported on 3 (N=2 x1, N=5 x1, N=3 x1)",
    } == tallies(declining, "refuses", "small", "too_modest", "fragile", "none")


def test_what_is_not_taken_is_named_beside_what_was_not_exercised(declining: Bench) -> None:
    """The text has the condition that leaves the workloads out."""
    (side,) = make_sides(declining, "fragile")
    sentence = f"2 workloads: not supported, N=5, N=3 (`takes: {EVEN}`)"
    assert (sentence,) == kernel.describe_untaken_workloads(side, workloads(declining))
    assert () == kernel.describe_untaken_workloads(make_sides(declining, "all")[0], workloads(declining))


@pytest.mark.parametrize(
    ("takes", "message"),
    [
        ("N % 8 = 0", "expected an expression, got 'N % 8 = 0'"),
        ("Q % 8 == 0", "expected a known name, got 'Q'"),
        ("N % 8", "expected true or false, got 2 on N2 M3 float32"),
        ("N % (M - 3) == 0", "expected a divisor other than zero, got zero on N2 M3 float32"),
    ],
)
def test_a_condition_that_has_no_answer_is_found_when_it_is_read(takes: str, message: str, tmp_path: Path) -> None:
    """The error has file, line and column, and comes before anything runs."""
    write_target(tmp_path, {"right": compiled(takes=takes)})
    with pytest.raises(DefinitionError) as raised:
        read_target(find_project(tmp_path, tmp_path))
    assert message in str(raised.value)
    assert "target.yaml:" in str(raised.value)
