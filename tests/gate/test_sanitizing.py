"""The sanitizer gate: real workers behind a compute-sanitizer that writes recorded logs."""

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
    """A bench that claims to be on a GPU; its variants run on the processor."""
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
    with open_bench(tmp_path / "tiny", target, build_cache) as opened:
        opened.device = "cuda"
        yield opened


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTool:
    """A compute-sanitizer that reports nothing, unless a test changes that."""
    fake = FakeTool("compute-sanitizer", tmp_path / "tools", monkeypatch)
    for tool in TOOLS:
        fake.says(CLEAN, tool=tool)
    return fake


def sanitized(
    bench: Bench,
    *variants: str,
    finished: Sequence[Finished] = (),
    terms: dict[str, Any] | None = None,
    **fields: Any,
) -> SanitizeOutput:
    """The output of `kernel.sanitize` on these variants."""
    fields = {"checks": ("edges",), "budget_s": 60.0, **fields}
    context = make_context(bench, *variants, finished=finished, **fields)
    arguments = SanitizeTerms.model_validate(terms or {})
    output = run_to_end(ACTIONS["kernel.sanitize"].run(context, arguments)).output
    assert isinstance(output, SanitizeOutput)
    return output


@pytest.mark.slow
def test_a_clean_variant_passes_under_every_tool(bench: Bench, program: FakeTool) -> None:
    """It runs on the small workloads of the check sets only, because the tools are slow."""
    output = sanitized(bench, "right", "strides")
    assert (True, ("right", "strides"), ()) == (output.ok, output.clean, output.not_exercised)
    assert [*TOOLS] == [run.tool for run in output.runs if run.variant == "right"]
    assert {("N1 M3 float32", "N4 M3 float32", "N9 M3 float32")} == {run.workloads for run in output.runs}
    expected = "memcheck, racecheck, synccheck and initcheck: right clean in 3 calls, strides clean in 3 calls"
    assert expected == output.message


@pytest.mark.slow
def test_a_finding_fails_the_step(bench: Bench, program: FakeTool) -> None:
    """The message has tool, kernel, place and workload; further findings are counted; the hint repeats the run."""
    program.says(sanitizer_log("racecheck"), FOUND_EXIT, "racecheck")
    output = sanitized(bench, "right", seed=7)
    assert (False, ("right",), ()) == (output.ok, output.found, output.clean)
    assert output.message.startswith(
        "racecheck of right finds something: right has a race in simt::cp_async_16 at loop_device.cuh:82, "
        "on N1 M3 float32: Race reported between Write access at simt::cp_async_16("
    )
    assert output.message.endswith("(91 more)")
    words = "verify right --sanitize --device cuda --workloads 'N=1 M=3 dtype=float32' --seed 7"
    assert f"again: loop kernels {words} --target {bench.folder}" == output.hint
    (verdict,) = output.verdicts
    assert ("incorrect", "right", "N1 M3 float32") == (verdict.verdict, verdict.variant, verdict.workload)
    assert {make_builds(bench, "right")["right"].build_id} == {run.build_id for run in output.runs}


def test_without_the_tool_nothing_is_claimed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step passes, and says what it did not do and which tool is missing."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    output = sanitized(bench, "right", "strides")
    assert (True, ()) == (output.ok, output.clean)
    assert "there is no compute-sanitizer on the PATH" in output.message
    (missing,) = output.not_exercised
    tools = "memcheck, racecheck, synccheck and initcheck"
    assert missing.startswith(f"{tools} of right, strides: there is no compute-")
    assert "put its folder on the PATH" in missing


@pytest.mark.slow
def test_a_variant_that_was_found_wrong_is_left_out(bench: Bench, program: FakeTool) -> None:
    """Only if that build was wrong, and unless `wrong` asks for it: a tool may say why it is wrong."""
    build = make_builds(bench, "right")["right"]
    checks = make_verify(make_check(right=False), variant="right")
    side = checks.variants[0].model_copy(update={"build_id": build.build_id})
    wrong = make_finished("verify", output=checks.model_copy(update={"variants": (side,)}))
    output = sanitized(bench, "right", "strides", finished=[wrong])
    assert (("strides",), ("sanitizers on right: it was not found right",)) == (output.clean, output.not_exercised)
    output = sanitized(bench, "right", "strides", finished=[wrong], terms={"wrong": True})
    assert ("right", "strides") == output.clean
    edited = side.model_copy(update={"build_id": "another build"})
    stale = make_finished("verify", output=checks.model_copy(update={"variants": (edited,)}))
    assert ("right",) == sanitized(bench, "right", finished=[stale]).clean


@pytest.mark.slow
def test_a_step_that_runs_out_of_time_says_what_it_left(bench: Bench, program: FakeTool) -> None:
    """No run begins after the budget; a variant without a run is not clean."""
    output = sanitized(bench, "right", budget_s=0.001)
    assert (True, (), {"unknown"}) == (output.ok, output.clean, {run.status for run in output.runs})
    expected = "memcheck, racecheck, synccheck and initcheck of right: the step's 0.001 s were over"
    assert (expected,) == output.not_exercised


def workload(name: str, size: int = 4, **attributes: Any) -> Workload:
    dtype = attributes.pop("dtype", "float16")
    values = attributes.pop("values", "normal")
    return Workload(name=name, sizes={"N": size}, attributes=attributes, dtype=dtype, values=values)


def names(*candidates: Workload, most: float = 1000, count: int = 3) -> list[str]:
    """Names of the chosen workloads; the work of a workload is its size."""
    work = {candidate.name: float(candidate.sizes["N"]) for candidate in candidates}
    return [candidate.name for candidate in choose_small_workloads(candidates, work, most, count)]


def test_every_flag_choice_and_type_is_there() -> None:
    """The only workload of a kind is chosen before further large ones."""
    large = [workload(f"large{n}", 900 + n, causal=False, side="left") for n in range(3)]
    small = [
        workload("causal", 3, causal=True, side="left"),
        workload("right", 2, causal=False, side="right"),
        workload("bfloat16", 1, causal=False, side="left", dtype="bfloat16"),
    ]
    assert ["bfloat16", "right", "causal", "large2"] == names(*large, *small, count=4)
