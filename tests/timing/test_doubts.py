"""Doubts: findings beside the samples, and times that no device allows."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from loop.base.processes import run_to_end
from loop.model.dtypes import Dtype
from loop.model.measurement import BASELINE, Measurement
from loop.timing import doubts
from loop.timing.doubts import (
    _doubts_of_sides,
    explain_beyond_gpu_memory,
    explain_cached_results,
    explain_impossible_speed,
    explain_wrong_clock,
    highest_flops_per_s,
)
from loop.timing.samples import MemoryProbe, Timings
from loop.workers.bench import Bench, VariantKind
from tests.makers import make_check, make_device, make_measurement, make_workload
from tests.targets import compiled, open_bench, write_target

US = 1e-6


@pytest.mark.parametrize(
    "probes",
    [
        [],
        [(20 * US, 19 * US)],
        [(20 * US, 10.1 * US)],
        [(5 * US, 2.1 * US)],
        [(2 * US, 0.1 * US)],
        [(900 * US, 20 * US), (20 * US, 19 * US)],
        [(19 * US, 20 * US)],
    ],
    ids=["nothing", "alike", "not twice", "below the clock", "too short", "one of two", "slower"],
)
def test_what_the_cache_and_noise_explain_is_no_memory(probes: list[tuple[float, float]]) -> None:
    """A repeated call has to be twice as quick, by microseconds, in most processes; else there is no doubt."""
    assert "" == explain_cached_results([MemoryProbe(*times) for times in probes])


def test_a_variant_that_is_quicker_on_what_it_has_seen_remembers() -> None:
    """The smaller of two differences is reported; a workload on which the baseline shows it too is left out."""
    message = explain_cached_results([MemoryProbe(900 * US, 20 * US), MemoryProbe(50 * US, 10 * US)])
    assert "it remembers results: 50.0 us on values it had not seen, 10.0 us on the same again" == message
    quick = [MemoryProbe(900 * US, 20 * US)] * 3
    timings = Timings(memory_probes={(BASELINE, "w"): quick, ("new", "w"): quick, ("new", "other"): quick})
    doubted = doubts._doubts_of_sides(timings, "baseline", ["new"], {})
    assert [("new", "other")] == [(doubt.variant, doubt.workload) for doubt in doubted]


@pytest.mark.parametrize(
    "further", [[], [MemoryProbe(20 * US, 19 * US, is_undisturbed=False)]], ids=["alone", "one as quick"]
)
def test_processes_that_waited_accuse_only_together(further: list[MemoryProbe]) -> None:
    """If all processes waited for a core, each of them has to show it."""
    waited = [MemoryProbe(1880 * US, 624 * US, is_undisturbed=False)] * 2
    assert bool(further) != bool(explain_cached_results([*waited, *further]))


def test_on_a_shared_gpu_every_sample_has_to_show_a_wrong_clock() -> None:
    """Other programs' kernels delay most samples there. A changed clock shows in all."""
    delayed, honest = [(0.21e-3, 0.07e-3)] * 5, [(0.08e-3, 0.07e-3)]
    assert "its clock was changed" in explain_wrong_clock([*delayed, *honest])
    assert "" == explain_wrong_clock([*delayed, *honest], is_shared=True)
    assert "its clock was changed" in explain_wrong_clock(delayed, is_shared=True)


def test_a_timed_output_that_is_wrong_is_a_verdict_on_its_side() -> None:
    """The verdict has the side's name; a tampered output is invalid."""
    wrong_outputs = [
        ("cpu again", make_check("w", right=False, cause="NaN")),
        ("other", make_check("v", status="tampered", message="replaced time.time")),
    ]
    verdicts = list(_doubts_of_sides(Timings(wrong_outputs=wrong_outputs), "known_good", (), {}))
    assert [("cpu again", "w", "incorrect"), ("other", "v", "invalid")] == [
        (verdict.variant, verdict.workload, verdict.verdict) for verdict in verdicts
    ]
    assert {"known_good"} == {verdict.against for verdict in verdicts}
    assert ("NaN", "while it was timed: 3 of 4096 elements wrong on w") == (verdicts[0].cause, verdicts[0].reason)


H200 = make_device(sms=132, clock_hz=1.98e9, bytes_per_s=4.815e12, l2_bytes=60 << 20)  # As its driver says.
REACHED = (
    (1.35, 1.048576),
    (5.72, 2 * 16.777216),
    (8.68, 33.554432),
    (127.70, 2 * 268.435456),
    (504.50, 2 * 1073.741824),
)
"""Microseconds and megabytes of torch's fills and sums of tensors, replayed in a CUDA graph on an H200."""


def test_a_gpu_reads_no_faster_than_its_memory_beyond_what_l2_holds() -> None:
    """42 TB/s of a memory that gives 4.8; the same bytes in the time that memory needs are possible."""
    assert "beyond 60 MiB in its L2" in explain_beyond_gpu_memory(24 * US, 1007e6, "", H200)
    assert "" == explain_beyond_gpu_memory(210 * US, 1007e6, "", H200)


@pytest.mark.parametrize(("us", "megabytes"), REACHED)
def test_what_an_h200_was_seen_to_do_is_possible(us: float, megabytes: float) -> None:
    """Measured rates of cache and memory are possible; twice the memory's rate is not."""
    assert "" == explain_beyond_gpu_memory(us * US, megabytes * 1e6, "", H200)
    assert megabytes < 200 or explain_beyond_gpu_memory(us * US / 2, megabytes * 1e6, "", H200)


@pytest.mark.parametrize(
    ("capability", "sms", "clock_hz", "dtype", "datasheet"),
    [
        ("7.0", 80, 1.53e9, "float16", 125e12),
        ("8.0", 108, 1.41e9, "float16", 312e12),
        ("8.0", 108, 1.41e9, "float64", 19.5e12),
        ("8.6", 84, 1.74e9, "bfloat16", 149.7e12),
        ("8.9", 58, 2.04e9, "float16", 121e12),
        ("9.0", 132, 1.83e9, "bfloat16", 989e12),
        ("9.0", 132, 1.98e9, "float64", 67e12),
        ("10.0", 148, 1.85e9, "float16", 2250e12),
        ("12.0", 170, 2.41e9, "float16", 419e12),
    ],
)
def test_a_gpu_without_facts_has_the_roof_of_its_generation(
    capability: str, sms: int, clock_hz: float, dtype: Dtype, datasheet: float
) -> None:
    """Never below the datasheet, dense or sparse, and within a few times of it."""
    highest = highest_flops_per_s(capability, make_device(sms=sms, clock_hz=clock_hz), dtype)
    assert highest is not None
    assert 1.9 * datasheet < highest < 20 * datasheet


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for a small target on one thread, whose manifest counts bytes: x is read, the result written."""
    folder = tmp_path_factory.mktemp("roofs")
    target = write_target(folder, {"right": compiled("right")}, bytes="itemsize * 2 * N * M")
    with open_bench(folder, target, build_cache) as opened:
        yield opened


def claim(size: int, seconds: float, dtype: Dtype = "float32", **fields: float) -> Measurement:
    """A call on an input and an output of this many bytes each."""
    workload = make_workload("w", sizes={"N": size // 4096, "M": 1024}, dtype=dtype)
    return make_measurement(candidate_us=seconds * 1e6, **fields).model_copy(update={"workload": workload})


@pytest.mark.slow
def test_a_call_that_takes_less_than_an_empty_one_is_impossible(bench: Bench) -> None:
    """The time is measured again first; a program's own time may be that of a function call."""
    short = claim(0, 1e-9)
    for kind in get_args(VariantKind):
        reason = run_to_end(explain_impossible_speed(bench, short, kind))
        assert reason.startswith("faster than an empty call: 0.001 us")
    assert "" == run_to_end(explain_impossible_speed(bench, claim(0, 3e-9), "command"))
