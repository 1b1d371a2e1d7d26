"""The same gate verifies targets of format 2 and components of variants."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import LoopError
from loop.base.processes import run_to_end
from loop.gate import verify as verification
from loop.gate.model import PropertiesOutput
from loop.gate.properties import properties
from loop.gate.verify import Job, verify
from loop.model.measurement import VariantChecks
from loop.model.target import Generator, PythonFunction
from loop.model.workloads import expand_sets
from loop.steps.context import ResultLifetime
from loop.timing.samples import Limits
from loop.timing.schedule import measure
from loop.workers.bench import Bench
from tests.targets import compiled, make_builds, make_context, open_bench, write_target
from tests.tasks import EXAMPLES, write_task
from tests.two_stage import open_two_stage


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
    """Checks of an example's variants and of its baseline, by name."""
    bench = replace(shared, target=write_task(folder, name), _nursery=shared.nursery)
    workloads = expand_sets(bench.target, ["some"], "float32", 5)
    builds = make_builds(bench, *bench.target.variants)
    jobs = [Job(bench.make_side(key, builds.get(key)), workloads) for key in (*bench.target.variants, "baseline")]
    return {side.variant: side for side in run_to_end(verify(bench, jobs))}


QUICK = ("residual", "cache", "model", "gather")
"""Examples that are checked before each push; `make soak` checks the others."""


@pytest.mark.parametrize(
    "name", [pytest.param(key, marks=() if key in QUICK else pytest.mark.soak) for key in EXAMPLES]
)
@pytest.mark.slow
def test_what_is_right_passes_and_what_is_wrong_is_found(name: str, shared: Bench, folder: Path) -> None:
    """The reference in the call's own types passes too; each wrong variant is found for its own reason."""
    checks = checked(shared, folder, name)

    right, *wrong = checks
    assert checks[right].is_right, checks[right].checks[0].message
    assert checks["baseline"].is_right, checks["baseline"].first_failure
    causes = {key: checks[key].checks[0].cause for key in wrong if key not in ("baseline", "program")}
    assert EXAMPLES[name].others == causes, {key: checks[key].checks[0].message for key in wrong}


def test_a_slow_call_is_no_hang(shared: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a call follows from the judge's own time, because sizes of a generator do not tell it."""
    monkeypatch.setattr(verification, "CALL_LIMIT_S", 1e-6)
    monkeypatch.setattr(shared, "first_call_s", 1e-6)
    monkeypatch.setattr(verification, "PATIENCE", 1e4)
    assert checked(shared, folder, "residual")["baseline"].is_right


@pytest.mark.parametrize("name", ["cache", pytest.param("model", marks=pytest.mark.slow)])
def test_timed_outputs_are_judged(name: str, shared: Bench, folder: Path) -> None:
    """Outputs of timed calls are checked, whatever their number and type; a right variant has no wrong one."""
    bench = replace(shared, target=write_task(folder, name), _nursery=shared.nursery)
    right, *further = bench.target.variants
    chosen = [right, *(variant for variant in further if EXAMPLES[name].compiled.get(variant) == "")]
    builds = make_builds(bench, *chosen)
    sides = [bench.make_side(variant, builds.get(variant)) for variant in ("baseline", *chosen)]
    workloads = expand_sets(bench.target, ["some"], "float32", 5)
    timings = run_to_end(measure(bench, sides, workloads, Limits(1, 10.0, 5, least_rounds=1)))
    assert len(sides) <= timings.checked_outputs
    assert not timings.wrong_outputs, timings.wrong_outputs[0][1].message


BAD = {
    "a generator that raises": (
        "    draw = torch",
        "    raise KeyError('no seed')\n    draw = torch",
        "KeyError: 'no seed' (bad",
    ),
    "a generator without a seed": (
        "manual_seed(seed)",
        "manual_seed(random.SystemRandom().getrandbits(30))",
        "the generator is not deterministic: seed",
    ),
    "a generator of other shapes": ("(N,)", "(N + 1,)", "the generator: expected ids of shape [32], got [33]"),
    "a reference that raises": ("return table[ids]", "return table[ids + 1000]", "the reference on "),
    "a reference of its own types": (
        "return table[ids]",
        "assert table.dtype == torch.float32; return table[ids]",
        "",
    ),
    "what cannot be passed": ("draw), torch.randn", "draw), lambda: 0, torch.randn", "to another process"),
    "an unknown type": (
        "V, D, generator=draw)",
        "V, D, dtype=torch.complex64, generator=draw)",
        "torch.complex64, which is not supported",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_the_target_itself_is_said(name: str, shared: Bench, folder: Path) -> None:
    """The message quotes the error with file and line; a reference that fails in float64 gives a note."""
    old, new, expected = BAD[name]
    target = write_task(folder, "embedding")
    stem = f"bad_{list(BAD).index(name)}"
    code = (folder / "embedding.py").read_text()
    assert old in code
    (folder / f"{stem}.py").write_text("import random\n" + code.replace(old, new))
    function, generator = PythonFunction(python=f"{stem}:reference"), Generator(python=f"{stem}:make")
    bad = target.model_copy(update={"reference": function, "generator": generator})
    bench = replace(shared, target=bad, notes={}, _nursery=shared.nursery)
    (workload,) = expand_sets(bad, ["some"], "float32", 5)
    if expected:
        with pytest.raises(LoopError) as raised:
            run_to_end(bench.prepare_answer(workload, checks_determinism=True))
        assert expected in raised.value.message
    else:
        run_to_end(bench.prepare_answer(workload, checks_determinism=True))
        (note,) = bench.notes
        assert note.startswith("the reference in float64: it runs in its own types alone (AssertionError")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for the target in two stages."""
    with open_two_stage(tmp_path_factory.mktemp("two-stage"), build_cache) as opened:
        yield opened


def check_parts(bench: Bench, name: str, **changes: Any) -> VariantChecks:
    """Checks of a component, by the gate."""
    part = bench.target.components[name].model_copy(update=changes)
    side = bench.make_side(part.of, make_builds(bench, part.of)[part.of])
    alone = replace(side, terms=side.terms.replace(entry=part.entry))
    part_bench = bench.copy_for_component(part)
    workloads = expand_sets(part_bench.target, part_bench.target.workloads, "float32", 7)
    (checks,) = run_to_end(verify(part_bench, [Job(alone, workloads, layouts=False)]))
    assert isinstance(checks, VariantChecks)
    return checks


@pytest.mark.parametrize("name", ["sum_twice_reduce", "half_weights_partial"])
@pytest.mark.slow
def test_a_component_that_is_wrong_is_found(name: str, bench: Bench) -> None:
    """The component has its own error map."""
    first = check_parts(bench, name).first_failure
    assert first is not None
    assert ("wrong", True) == (first.status, first.wrong > 0)


def test_infinity_is_right_where_it_belongs(bench: Bench) -> None:
    """A range in which a row sees no key has a maximum of minus infinity, and passes as that."""
    part = bench.target.components["right_partial"]
    masked = {"P": 3, "B": 1, "Sq": 9, "Sk": 3, "D": 4, "W": 6, "causal": True}
    assert check_parts(bench, "right_partial", workloads=(masked,)).is_right
    assert part.signature.types == {"output": "float64"}


@pytest.mark.slow
def test_what_means_the_same_may_be_brought_into_one_form(bench: Bench) -> None:
    """With a `form` that divides sums by row sums, doubling both passes; without it, it fails."""
    form = PythonFunction(python="stages:mean_form")
    doubled = check_parts(bench, "right_partial", entry="right_doubled")
    assert [False] * 4 == [check.passed for check in doubled.checks]
    assert check_parts(bench, "right_partial", entry="right_doubled", form=form).is_right
    assert check_parts(bench, "right_partial", form=form).is_right
    assert not check_parts(bench, "half_weights_partial", form=form).is_right


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["half_twice"], "1 property holds in 3 checks"),
        (["of_three_rows"], "1 property holds in 1 check"),
        (["half_twice", "row_by_row"], "2 properties hold in 6 checks"),
    ],
)
def test_properties_that_hold_are_counted(
    names: list[str], expected: str, tmp_path: Path, build_cache: Path
) -> None:
    """Each property counts on every workload that it applies to."""
    named = [f"tiny_functions:{name}" for name in names]
    target = write_target(tmp_path, {"right": compiled()}, properties=named)
    with open_bench(tmp_path, target, build_cache) as bench:
        output = run_to_end(properties(make_context(bench, "right"), ResultLifetime())).output
    assert isinstance(output, PropertiesOutput)
    assert (True, expected) == (output.ok, output.message)
