"""Controls are fair: what no input tells is no mistake to find, what other inputs tell is tried on those."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.library.definitions import read_file
from loop.model.target import Target
from loop.model.workloads import WorkloadError, expand, fills, scale_of, scaled, single
from loop.proving.negative_controls import Control
from loop.proving.prove import HONEST
from loop.proving.telling import SURE, TELLS, Question, candidates
from loop.workers.bench import Bench
from tests.own_targets import write_own
from tests.proving.test_controls import named, score
from tests.targets import compiled, make_sides, open_bench, write_target

ROWS = [{"N": 64, "D": [256, 1024]}]


def own_bench(folder: Path, cache: Path, name: str = "rmsnorm", **fields: object) -> Bench:
    """A bench for a target as a stranger would write it."""
    write_own(folder, name, **fields)
    return open_bench(folder, read_file(folder / "target.yaml", Target).value, cache)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for an RMSNorm with an epsilon of 1e-6."""
    with own_bench(tmp_path_factory.mktemp("rms"), build_cache, workloads={"quick": ROWS}) as made:
        yield made


@pytest.mark.slow
def test_a_wrong_epsilon_is_told_by_small_inputs(bench: Bench) -> None:
    """On the target's own workloads it changes nothing; the gate finds inputs on which it does, and kills it."""
    output = score(bench, "in_c")
    assert output.ok, output.message
    assert ((), ()) == (output.survivors, output.indistinguishable)
    wrong = named(output)["wrong eps"]
    assert (True, True, True) == (wrong.killed, wrong.right_reason, wrong.distinguishable)
    assert "values=normal*0.001" in wrong.told_by
    assert (f"in_c: wrong eps: {wrong.told_by}",) == output.told_by_others
    assert output.hint is not None
    assert wrong.told_by in output.hint
    others = [one for name, one in named(output).items() if name != "wrong eps"]
    assert {""} == {one.told_by for one in others}


@pytest.mark.slow
def test_what_nothing_tells_is_reported_and_fails_nothing(tmp_path: Path, build_cache: Path) -> None:
    """An attribute that only moves the result by less than a rounding."""
    body = "    return x * 2 + x * (nudge * 1e-12)\n"
    signature = {
        "inputs": {"x": "N M"},
        "output": "N M",
        "attributes": {"nudge": {"kind": "number", "default": 1.0}},
    }
    function = {"python": "nudged:nudged"}
    fields = {"signature": signature, **dict.fromkeys(("reference", "plain", "baseline"), function)}
    target = write_target(tmp_path, {"right": compiled()}, **fields)
    (tmp_path / "nudged.py").write_text(f"def nudged(x, *, nudge):\n{body}")
    with open_bench(tmp_path, target, build_cache) as made:
        output = score(made, "right")
    assert output.ok, output.message
    assert () == output.survivors
    left = [*output.indistinguishable, *output.not_applicable]
    assert any("wrong nudge" in text for text in left)
    assert "wrong nudge" not in {one.name for one in output.controls if one.killed}


@pytest.mark.slow
def test_the_judge_knows_by_how_much_a_mistake_is_off(bench: Bench) -> None:
    """Without asking a variant; answers to other values stand for a cheat that remembers."""
    (side,) = make_sides(bench, "in_c")
    workload = expand(bench.target, ["quick"], "float32")[0]
    terms = {"attribute": "eps"}
    questions = {
        "epsilon": Control("wrong eps", "wrong_number", terms=terms),
        "zeros": Control("zeros", "zeros"),
        "stale": Control("stale output", "stale", theme="cheat"),
        "nothing": Control("nothing written", "nothing"),
    }
    found = {name: finish(Question(bench, side, one).excess(workload)) for name, one in questions.items()}
    assert 0 < found["epsilon"] < SURE
    assert all(found[name] > 1000 for name in ("zeros", "stale", "nothing"))
    small = single(bench.target, {"N": 64, "D": 256, "values": scaled(1e-3)}, "float32")
    assert finish(Question(bench, side, questions["epsilon"]).excess(small)) > TELLS


def test_inputs_are_looked_for_within_what_a_variant_takes(bench: Bench) -> None:
    """Other kinds of values, scales and sizes, each once."""
    (side,) = make_sides(bench, "in_c")
    known = expand(bench.target, ["quick"], "float32")
    tried = list(candidates(bench, side, HONEST, known))
    assert {"wide", "constant", "normal*0.001", "normal*10000"} <= {one.values for one in tried}
    assert {2048, 32, 512, 8} <= {size for one in tried for size in one.sizes.values()}
    assert len({one.name for one in tried}) == len(tried)
    narrow = side.renamed("narrow", takes="D == 256")
    assert {256} == {one.sizes["D"] for one in candidates(bench, narrow, HONEST, known)}


def test_values_may_be_scaled_in_a_manifest(bench: Bench) -> None:
    """The kind of values that a report names can be written as it stands there."""
    small = single(bench.target, {"N": 2, "D": 3, "values": "normal*0.001"}, "float32")
    assert [0.001, 0.001] == [fill.scale for fill in fills(bench.target, small)]
    assert "N2 D3 float32 normal*0.001" == small.name
    assert (1e-3, 5.0, None, None) == tuple(map(scale_of, ("normal*1e-3", "normal*5", "normal*0", "normal*x")))
    with pytest.raises(WorkloadError):
        single(bench.target, {"N": 2, "D": 3, "values": "normal*-1"}, "float32")
