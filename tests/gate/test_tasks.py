"""Targets of format 2: several outputs, whole numbers, state, modules, a checker; and what is wrong of each."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.base.processes import run_to_end
from loop.gate import verify as verification
from loop.gate.verify import Job, verify
from loop.model.measurement import VariantChecks
from loop.model.signature import Generator, PythonFunction
from loop.model.workloads import expand_sets
from loop.timing.samples import Terms
from loop.timing.schedule import measure
from loop.workers.bench import Bench
from tests.targets import make_builds, open_bench
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
    workloads = expand_sets(bench.target, ["some"], "float32", 5)
    builds = make_builds(bench, *bench.target.variants)
    jobs = [Job(bench.make_side(one, builds.get(one)), workloads) for one in (*bench.target.variants, "baseline")]
    return {one.variant: one for one in run_to_end(verify(bench, jobs))}


QUICK = ("residual", "cache", "model", "gather")
"""Examples that are checked before each push; `make soak` checks the others."""


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.soak) for one in EXAMPLES]
)
@pytest.mark.slow
def test_what_is_right_passes_and_what_is_wrong_is_found(name: str, shared: Bench, folder: Path) -> None:
    """The reference in the call's own types passes too; each wrong variant is found for its own reason."""
    found = checked(shared, folder, name)

    right, *wrong = found
    assert found[right].is_right, found[right].checks[0].message
    assert found["baseline"].is_right, found["baseline"].first_failure
    causes = {one: found[one].checks[0].cause for one in wrong if one not in ("baseline", "program")}
    assert EXAMPLES[name].others == causes, {one: found[one].checks[0].message for one in wrong}


def test_a_slow_call_is_no_hang(shared: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes do not tell what a generator's call takes: what the judge took for its own tells."""
    monkeypatch.setattr(verification, "CALL_LIMIT_S", 1e-6)
    monkeypatch.setattr(shared, "first_call_s", 1e-6)
    monkeypatch.setattr(verification, "PATIENCE", 1e4)
    assert checked(shared, folder, "residual")["baseline"].is_right


@pytest.mark.parametrize("name", ["cache", pytest.param("model", marks=pytest.mark.slow)])
def test_timed_outputs_are_judged(name: str, shared: Bench, folder: Path) -> None:
    """Those of calls that are timed, whatever their number and type: of the right variant all are right."""
    bench = replace(shared, target=write_task(folder, name), _nursery=shared.nursery)
    right, *others = bench.target.variants
    chosen = [right, *(one for one in others if EXAMPLES[name].compiled.get(one) == "")]
    builds = make_builds(bench, *chosen)
    sides = [bench.make_side(one, builds.get(one)) for one in ("baseline", *chosen)]
    workloads = expand_sets(bench.target, ["some"], "float32", 5)
    timings = run_to_end(measure(bench, sides, workloads, Terms(1, 10.0, 5, least_rounds=1)))
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
    """In the words of whoever raised it, with file and line; a reference without float64 is not exercised."""
    old, new, expected = BAD[name]
    target = write_task(folder, "embedding")
    stem = f"bad_{list(BAD).index(name)}"
    code = (folder / "embedding.py").read_text()
    assert old in code
    (folder / f"{stem}.py").write_text("import random\n" + code.replace(old, new))
    made, reference = PythonFunction(python=f"{stem}:reference"), Generator(python=f"{stem}:make")
    bad = target.model_copy(update={"reference": made, "generator": reference})
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
