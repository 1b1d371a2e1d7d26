"""Variants that cheat gain nothing; honest but unusual ones pass."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.gate.verify import Job, verify
from loop.machine.machine import cores
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.timing.doubts import find_doubts
from loop.timing.samples import Limits, Pair, Timings
from loop.timing.schedule import measure
from loop.workers.bench import Bench, Side
from tests.bench.cheats import outcome, seconds
from tests.gate.cheats import BIG, C_CHEATS, PYTHON_CHEATS, REMAINS, WORK_S, honest_like, open_cheats
from tests.gate.honest_attention import COMPILED, PYTHON_NAMES, write_attention
from tests.noise import timed
from tests.session.mix import HONEST, PYTHON_HONEST, write_mix
from tests.targets import make_sides, open_bench

LATER = ("c_private_pages", "function_mode")
BEFORE = ("c_thread_ahead", "c_one_result", "precomputes")
SELECTED = ("c_when_checked", "c_half", "last_of_sample")
CLOCKS = ("c_own_time", "slow_clocks")
FORGED = ("garbage_checked", "forged_deep")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench whose variants cheat."""
    with open_cheats(tmp_path_factory.mktemp("cheats") / "target", build_cache) as opened:
        yield opened


@pytest.fixture(scope="module")
def timings(bench: Bench) -> Timings:
    """Timings of one round of the cheats that do not disturb other variants."""
    sides = make_sides(bench, "honest", "c_honest", "quick", "c_quick", *LATER, *BEFORE, *SELECTED, *CLOCKS)
    return run_to_end(measure(bench, sides, [BIG], Limits(1, 120.0, 1, least_rounds=1)))


def doubted(bench: Bench, timings: Timings) -> set[str]:
    """Sides about which timing raises a doubt."""
    names = dict.fromkeys(segment.side for segment in timings.segments)
    sides = make_sides(bench, *names)
    doubts = run_to_end(find_doubts(bench, timings, (), [Pair(side, side.name, "self") for side in sides]))
    return {doubt.variant for doubt in doubts}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["honest", "c_honest", *CLOCKS])
def test_no_clock_or_draw_of_its_own_changes_a_time(timings: Timings, name: str) -> None:
    """The judge's clock is in another process, and no word of the control page replaces it."""
    assert seconds(timings, name) > 0.9 * WORK_S
    assert name not in {side for side, _ in timings.wrong_outputs}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LATER, *BEFORE, *SELECTED])
def test_what_was_not_computed_in_its_time_is_wrong_or_paid_for(bench: Bench, timings: Timings, name: str) -> None:
    """A cheat that computes early, late or only checked outputs is doubted, or is as slow as an honest variant."""
    honest = honest_like(name)

    def is_caught(timed: Timings) -> bool:
        return name in doubted(bench, timed) or seconds(timed, name) > 0.9 * seconds(timed, honest)

    def again() -> Timings:
        return run_to_end(measure(bench, make_sides(bench, name, honest), [BIG], Limits(2, 60.0, 2)))

    assert is_caught(timings) or is_caught(again())


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGED)
def test_replies_that_a_variant_writes_are_told_from_its_workers(bench: Bench, name: str) -> None:
    """A forged reply is a status of the check, not an error of loop."""
    job = Job(make_sides(bench, name)[0], expand_sets(bench.target, ["some"], "float32"), fail_fast=True)
    (checks,) = run_to_end(verify(bench, [job]))
    assert checks.first_failure is not None
    assert "tampered" == checks.first_failure.status


@pytest.mark.soak
@pytest.mark.parametrize("name", REMAINS)
def test_a_known_gap_still_gains(bench: Bench, name: str) -> None:
    """It is right, no doubt is raised, and it gains: as docs/promises.md says."""
    result = outcome(bench, name)
    assert "GAINS" == result.word, result.reason


@pytest.mark.soak
@pytest.mark.parametrize("name", [*PYTHON_CHEATS, *(f"c_{name}" for name in C_CHEATS)])
def test_every_cheat_gains_nothing(bench: Bench, name: str) -> None:
    """All cheats are timed, the slow ones too."""
    result = outcome(bench, name)
    assert result.caught, result.reason


PYTHON = tuple(f"py_{name}" for name in PYTHON_HONEST)
SEEDS = 50 if os.environ.get("LOOP_FUZZ") else 1


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench with every honest candidate; two threads where there are cores for them."""
    folder = tmp_path_factory.mktemp("mix")
    with open_bench(folder, write_mix(folder, HONEST, PYTHON_HONEST), build_cache) as opened:
        opened.threads = min(2, cores())
        yield opened


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench with attention in many ways."""
    folder = tmp_path_factory.mktemp("attention")
    with open_bench(folder, write_attention(folder), build_cache) as opened:
        yield opened


def workloads(honest: Bench, *sets: str, seed: int = 0) -> tuple[Workload, ...]:
    return expand_sets(honest.target, sets, "float32", seed)


def failures(honest: Bench, sides: Sequence[Side], seeds: int, name: str = "some") -> dict[str, str]:
    """Candidate to the reason for which verification did not find it right."""
    chosen = [workload for seed in range(seeds) for workload in workloads(honest, name, seed=seed)]
    results = run_to_end(verify(honest, [Job(side, chosen) for side in sides]))
    messages = {side.variant: side.first_failure.message for side in results if side.first_failure}
    return {**{side.variant: side.tally for side in results if not side.is_right}, **messages}


def doubts(honest: Bench, sides: Sequence[Side], rounds: int) -> dict[str, str]:
    """Candidate to the doubt about its timing."""
    timings = run_to_end(measure(honest, sides, workloads(honest, "timed"), Limits(rounds, 60.0, 1)))
    pairs = [Pair(side, side.name, "self") for side in sides]
    return {doubt.variant: doubt.reason for doubt in run_to_end(find_doubts(honest, timings, (), pairs))}


@pytest.mark.slow
def test_honest_compiled_candidates_are_found_right(honest: Bench) -> None:
    """Other orders of summation, workspaces, threads, tables, padding, refused strides: on several seeds."""
    assert {} == failures(honest, make_sides(honest, *HONEST), SEEDS)


@pytest.mark.soak
def test_other_orders_and_other_ways_of_torch_are_found_right(attention: Bench) -> None:
    """Kahan, splits, naive loops, declared limits; rounded weights, chunks, a slow first call."""
    assert {} == failures(attention, make_sides(attention, *COMPILED), SEEDS, "small")
    sides = [attention.make_side(f"py_{name}") for name in PYTHON_NAMES]
    assert {} == failures(attention, sides, SEEDS, "small")


@pytest.mark.slow
@timed
def test_honest_compiled_candidates_are_trusted_when_timed(honest: Bench) -> None:
    """Timing raises no doubt about honest compiled candidates."""
    assert {} == doubts(honest, make_sides(honest, *HONEST), 3)


@timed
@pytest.mark.soak
def test_honest_python_candidates_are_found_right_and_trusted(honest: Bench) -> None:
    """Views, kept buffers, inference tensors, joined threads and a slow first call raise no doubt."""
    assert {} == failures(honest, [honest.make_side(name) for name in PYTHON], SEEDS)
    assert {} == doubts(honest, [honest.make_side(f"py_{name}") for name in ("own_buffer", "borrows", "lazy")], 2)
