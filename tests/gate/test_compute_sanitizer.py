"""compute-sanitizer: reading its logs, the status of a variant's run, and `--sanitize`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.cli.runs import BenchRequest, bench_pattern
from loop.gate.sanitizing import Examination, examine
from loop.model.plan import Step
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.steps.setting import read_setting
from loop.workers.bench import Bench
from tests.fake_tools import FakeTool
from tests.recorded import CLEAN, sanitizer_log
from tests.targets import compiled, make_sides, open_bench, write_target

OUT_OF_BOUNDS, RACE = sanitizer_log("memcheck"), sanitizer_log("racecheck")
BARRIER, UNWRITTEN = sanitizer_log("synccheck"), sanitizer_log("initcheck")
HAZARD = sanitizer_log("racecheck-warning")
UNTRACKED = sanitizer_log("untracked")


@pytest.fixture
def bench(tmp_path: Path, build_cache: Path) -> Iterator[Bench]:
    """A bench with variants that a real worker runs behind the tool."""
    folder = tmp_path / "tiny"
    variants = {name: compiled(name) for name in ("right", "refuses", "crashes", "hangs")}
    with open_bench(folder, write_target(folder, variants), build_cache) as opened:
        yield opened


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTool:
    """A compute-sanitizer on the PATH."""
    return FakeTool("compute-sanitizer", tmp_path / "tools", monkeypatch)


@pytest.fixture
def shapes(bench: Bench) -> tuple[Workload, ...]:
    """Two, five and three rows, their inputs written."""
    workloads = expand_sets(bench.target, ["some"], "float32")
    for workload in workloads:
        run_to_end(bench.prepare_answer(workload))
    return workloads


def read_log(text: str) -> Examination:
    examination = Examination()
    examination.parse_log(text)
    return examination


def test_an_access_is_placed_and_a_race_is_counted() -> None:
    """By the kernel, not its inlined helper; 92 hazards by the summary, two of them printed."""
    log = read_log(OUT_OF_BOUNDS)
    first = log.reports[0]
    kernel = "attention::small_kernel<__half, attention::SmallShape<64, 16, 4>, 0>"
    assert ("invalid access", kernel) == (first.kind, first.kernel)
    assert ("loop_device.cuh:75", "small.cuh:99", "small.cuh:186") == first.places
    assert ("(64,0,0)", "(0,0,0)", "Invalid __global__ write of size 4 bytes") == (
        *(first.thread, first.block, first.words),
    )
    assert (2, None, []) == (len(log.reports), log.findings_count, log.remarks)
    log = read_log(RACE)
    first = log.reports[0]
    assert ("race", ("loop_device.cuh:82",), "error") == (first.kind, first.places, first.severity)
    assert first.words.startswith("Race reported between Write access at simt::cp_async_16(")
    assert (2, 92) == (len(log.reports), log.findings_count)


@pytest.mark.parametrize(
    ("text", "kind", "kernel", "places", "thread", "total"),
    [
        (BARRIER, "barrier", "myKernel", ("test.cu:42", "test.cu:60"), "(32,0,0)", 1),
        (UNWRITTEN, "uninitialised read", "vectorAdd", (), "(31,0,0)", 257),
        (HAZARD, "race", "sumKernel", ("warp_error.cu:44",), "", 1),
    ],
)
def test_every_tools_report_is_read(
    text: str, kind: str, kernel: str, places: tuple[str, ...], thread: str, total: int
) -> None:
    """Reports without line information have no place; hazards that are not printed count."""
    log = read_log(text)
    (report,) = log.reports
    assert (kind, kernel, places, thread) == (report.kind, report.kernel, report.places, report.thread)
    assert (total, []) == (log.findings_count, log.remarks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("", 0, "it wrote no summary"),
        (UNTRACKED, 0, "Internal Sanitizer Error: The Sanitizer encountered an error while launching k"),
        (CLEAN, 3, "exit 3"),
    ],
)
def test_nothing_passes_silently(
    bench: Bench, program: FakeTool, shapes: tuple[Workload, ...], text: str, code: int, expected: str
) -> None:
    """A log without a summary, unseen launches or an unknown exit status make a run unknown, not clean."""
    program.says(text, code, "initcheck")
    (side,) = make_sides(bench, "right")
    status, why = run_to_end(examine(bench, side, "initcheck", shapes, 20)).conclude()
    assert ("unknown", True) == (status, why.startswith(expected))


def steps(device: str, *, sanitize: bool) -> list[Step]:
    """Steps of `verify` for a compiled variant on that device."""
    on_gpu = device == "cuda"
    parameters = {"variants": on_gpu, "emulated": not on_gpu, "sanitized": sanitize and on_gpu}
    request = BenchRequest("verify", ("small",), sanitize=sanitize)
    return list(bench_pattern(request, read_setting(None).target, parameters).steps)


@pytest.mark.parametrize(
    ("device", "sanitize", "expected"),
    [
        ("cuda", True, ["build", "verify", "sanitize", "explain"]),
        ("cuda", False, ["build", "verify", "explain"]),
        ("cpu", True, ["build", "emulate", "explain"]),
        ("cpu", False, ["build", "emulate", "explain"]),
    ],
)
def test_a_gpu_has_tools_of_its_own(device: str, sanitize: bool, expected: list[str]) -> None:
    """Instead of them there is an emulated build on a CPU. Both plans explain wrong variants."""
    plan = steps(device, sanitize=sanitize)
    assert expected == [step.id for step in plan]
    assert ["continue"] == [step.on_fail for step in plan if step.id in ("verify", "emulate")]
