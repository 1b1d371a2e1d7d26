"""The sanitizer gate: real workers behind a compute-sanitizer with recorded logs; what is said, what is not."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from loop.actions import ACTIONS
from loop.base.processes import run_to_end
from loop.gate.sanitizing import FOUND_EXIT, TOOLS, SanitizeTerms, choose_small_workloads
from loop.model.output import SanitizeOutput
from loop.model.record import Finished
from loop.model.target import Workload
from loop.workers.bench import Bench
from tests.fake_tools import FakeTool
from tests.makers import make_check, make_finished, make_verify
from tests.recorded import CLEAN, sanitizer_log
from tests.targets import compiled, importable, make_builds, make_context, open_bench, write_target

WORKLOADS: dict[str, Any] = {
    "some": [{"N": 2, "M": 3}],
    "edges": [{"N": [1, 4, 9], "M": 3}, {"N": 5000, "M": 5000}],
}


@pytest.fixture
def bench(tmp_path: Path, build_cache: Path) -> Iterator[Bench]:
    """A bench that takes itself for one on a GPU; that variants run on the processor no tool minds in a test."""
    variants = {
        **{name: compiled(name) for name in ("right", "strides", "refuses", "crashes")},
        "unbuildable": compiled("right", sources=["nowhere.cpp"]),
        "doubles": compiled("right", dtypes=["float64"]),
        "python": importable("double"),
    }
    target = write_target(
        tmp_path / "tiny",
        variants,
        workloads=WORKLOADS,
        flops="N * M",
        dtypes={"cpu": "float32", "cuda": "float32"},
    )
    with open_bench(tmp_path / "tiny", target, build_cache) as made:
        made.device = "cuda"
        yield made


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTool:
    """A compute-sanitizer that finds nothing, until a test says otherwise."""
    made = FakeTool("compute-sanitizer", tmp_path / "tools", monkeypatch)
    for tool in TOOLS:
        made.says(CLEAN, tool=tool)
    return made


def sanitized(
    bench: Bench,
    *variants: str,
    finished: Sequence[Finished] = (),
    terms: dict[str, Any] | None = None,
    **fields: Any,
) -> SanitizeOutput:
    """What the step finds of these variants."""
    context = make_context(
        bench, *variants, finished=finished, **{"checks": ("edges",), "budget_s": 60.0, **fields}
    )
    arguments = SanitizeTerms.model_validate(terms or {})
    found = run_to_end(ACTIONS["kernel.sanitize"].run(context, arguments)).output
    assert isinstance(found, SanitizeOutput)
    return found


@pytest.mark.slow
def test_a_clean_variant_passes_under_every_tool(bench: Bench, program: FakeTool) -> None:
    """On the small workloads of the check sets: what a tool would need minutes for is left to others."""
    found = sanitized(bench, "right", "strides")
    assert (True, ("right", "strides"), ()) == (found.ok, found.clean, found.not_exercised)
    assert [("right", tool) for tool in TOOLS] == [
        (one.variant, one.tool) for one in found.runs if one.variant == "right"
    ]
    assert {("N1 M3 float32", "N4 M3 float32", "N9 M3 float32")} == {one.workloads for one in found.runs}
    expected = "memcheck, racecheck, synccheck and initcheck: right clean in 3 calls, strides clean in 3 calls"
    assert expected == found.message


@pytest.mark.slow
def test_a_finding_fails_the_step(bench: Bench, program: FakeTool) -> None:
    """With tool, kind, kernel, place, workload and words; the rest is counted, and the command shows it again."""
    program.says(sanitizer_log("racecheck"), FOUND_EXIT, "racecheck")
    found = sanitized(bench, "right", seed=7)
    assert (False, ("right",), ()) == (found.ok, found.found, found.clean)
    assert found.message.startswith(
        "racecheck of right finds something: right has a race in simt::cp_async_16 at loop_device.cuh:82, "
        "on N1 M3 float32: Race reported between Write access at simt::cp_async_16("
    )
    assert found.message.endswith("(91 more)")
    words = "verify right --sanitize --device cuda --workloads 'N=1 M=3 dtype=float32' --seed 7"
    assert f"again: loop kernels {words} --target {bench.folder}" == found.hint
    (verdict,) = found.verdicts
    assert ("incorrect", "right", "N1 M3 float32") == (verdict.verdict, verdict.variant, verdict.workload)
    assert {make_builds(bench, "right")["right"].build_id} == {one.build_id for one in found.runs}


def test_without_the_tool_nothing_is_claimed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step passes, says what it did not do, and how it would."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    found = sanitized(bench, "right", "strides")
    assert (True, ()) == (found.ok, found.clean)
    assert "there is no compute-sanitizer on the PATH" in found.message
    (missing,) = found.not_exercised
    assert missing.startswith(
        "memcheck, racecheck, synccheck and initcheck of right, strides: there is no compute-"
    )
    assert "put its folder on the PATH" in missing


@pytest.mark.slow
def test_a_variant_that_was_found_wrong_is_left_out(bench: Bench, program: FakeTool) -> None:
    """Its very build; unless it is asked for, for a tool may say why it is wrong."""
    build = make_builds(bench, "right")["right"]
    checks = make_verify(make_check(right=False), variant="right")
    one = checks.variants[0].model_copy(update={"build_id": build.build_id})
    wrong = make_finished("verify", output=checks.model_copy(update={"variants": (one,)}))
    found = sanitized(bench, "right", "strides", finished=[wrong])
    assert (("strides",), ("sanitizers on right: it was not found right",)) == (found.clean, found.not_exercised)
    assert ("right", "strides") == sanitized(
        bench, "right", "strides", finished=[wrong], terms={"wrong": True}
    ).clean
    edited = one.model_copy(update={"build_id": "another build"})
    stale = make_finished("verify", output=checks.model_copy(update={"variants": (edited,)}))
    assert ("right",) == sanitized(bench, "right", finished=[stale]).clean


@pytest.mark.slow
def test_a_step_that_runs_out_of_time_says_what_it_left(bench: Bench, program: FakeTool) -> None:
    """Nothing is begun after its budget; what was not looked at is not clean."""
    found = sanitized(bench, "right", budget_s=0.001)
    assert (True, (), {"unknown"}) == (found.ok, found.clean, {run.status for run in found.runs})
    expected = "memcheck, racecheck, synccheck and initcheck of right: the step's 0.001 s were over"
    assert (expected,) == found.not_exercised


def workload(name: str, size: int = 4, **attributes: Any) -> Workload:
    dtype = attributes.pop("dtype", "float16")
    values = attributes.pop("values", "normal")
    return Workload(name=name, sizes={"N": size}, attributes=attributes, dtype=dtype, values=values)


def names(*candidates: Workload, most: float = 1000, count: int = 3) -> list[str]:
    """Names of those that are chosen; the work of a workload is its size."""
    work = {one.name: float(one.sizes["N"]) for one in candidates}
    return [one.name for one in choose_small_workloads(candidates, work, most, count)]


def test_every_flag_choice_and_type_is_there() -> None:
    """Before those with most work: three large ones do not push out the only small one of its kind."""
    large = [workload(f"large{n}", 900 + n, causal=False, side="left") for n in range(3)]
    others = [
        workload("causal", 3, causal=True, side="left"),
        workload("right", 2, causal=False, side="right"),
        workload("bfloat16", 1, causal=False, side="left", dtype="bfloat16"),
    ]
    assert ["bfloat16", "right", "causal", "large2"] == names(*large, *others, count=4)
