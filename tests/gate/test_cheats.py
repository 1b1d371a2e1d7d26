"""Variants that cheat gain nothing, and honest but unusual ones pass, whatever they do inside."""

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
from loop.timing.samples import Pair, Terms, Timings
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
    with open_cheats(tmp_path_factory.mktemp("cheats") / "target", build_cache) as made:
        yield made


@pytest.fixture(scope="module")
def timings(bench: Bench) -> Timings:
    """All those that do nothing to others, timed in one round."""
    sides = make_sides(bench, "honest", "c_honest", "quick", "c_quick", *LATER, *BEFORE, *SELECTED, *CLOCKS)
    found: Timings = run_to_end(measure(bench, sides, [BIG], Terms(1, 120.0, 1, least_rounds=1)))
    return found


def doubted(bench: Bench, timings: Timings) -> set[str]:
    """Sides of which timing says that they are wrong or cannot be believed."""
    names = dict.fromkeys(one.side for one in timings.segments)
    sides = make_sides(bench, *names)
    doubts = run_to_end(find_doubts(bench, timings, (), [Pair(side, side.name, "self") for side in sides]))
    return {one.variant for one in doubts}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["honest", "c_honest", *CLOCKS])
def test_no_clock_or_draw_of_its_own_changes_a_time(timings: Timings, name: str) -> None:
    """The judge's clock is in another process, and no word of the control page stands for it."""
    assert seconds(timings, name) > 0.9 * WORK_S
    assert name not in {side for side, _ in timings.wrong_outputs}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LATER, *BEFORE, *SELECTED])
def test_what_was_not_computed_in_its_time_is_wrong_or_paid_for(bench: Bench, timings: Timings, name: str) -> None:
    """Neither before, nor later, nor only where somebody looks. Rounds that others disturbed are made again."""
    honest = honest_like(name)

    def told(found: Timings) -> bool:
        return name in doubted(bench, found) or seconds(found, name) > 0.9 * seconds(found, honest)

    def again() -> Timings:
        found: Timings = run_to_end(measure(bench, make_sides(bench, name, honest), [BIG], Terms(2, 60.0, 2)))
        return found

    assert told(timings) or told(again())


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGED)
def test_replies_that_a_variant_writes_are_told_from_its_workers(bench: Bench, name: str) -> None:
    """No error of ours: a status of the check."""
    job = Job(make_sides(bench, name)[0], expand_sets(bench.target, ["some"], "float32"), fail_fast=True)
    (checks,) = run_to_end(verify(bench, [job]))
    assert checks.first_failure is not None
    assert "tampered" == checks.first_failure.status


@pytest.mark.soak
@pytest.mark.parametrize("name", REMAINS)
def test_what_remains_possible(bench: Bench, name: str) -> None:
    """It is right, no doubt is raised, and it gains: as docs/promises.md says."""
    found = outcome(bench, name)
    assert "GAINS" == found.word, found.reason


@pytest.mark.soak
@pytest.mark.parametrize("name", [*PYTHON_CHEATS, *(f"c_{name}" for name in C_CHEATS)])
def test_every_cheat_gains_nothing(bench: Bench, name: str) -> None:
    """The whole table."""
    found = outcome(bench, name)
    assert found.caught, found.reason


PYTHON = tuple(f"py_{name}" for name in PYTHON_HONEST)
SEEDS = 50 if os.environ.get("LOOP_FUZZ") else 1


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench with every honest candidate; two threads where there are cores for them."""
    folder = tmp_path_factory.mktemp("mix")
    with open_bench(folder, write_mix(folder, HONEST, PYTHON_HONEST), build_cache) as made:
        made.threads = min(2, cores())
        yield made


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench with attention in many ways."""
    folder = tmp_path_factory.mktemp("attention")
    with open_bench(folder, write_attention(folder), build_cache) as made:
        yield made


def workloads(honest: Bench, *sets: str, seed: int = 0) -> tuple[Workload, ...]:
    return expand_sets(honest.target, sets, "float32", seed)


def failures(honest: Bench, sides: Sequence[Side], seeds: int, name: str = "some") -> dict[str, str]:
    """Candidates that verification rejects or sees nothing of, and why."""
    chosen = [one for seed in range(seeds) for one in workloads(honest, name, seed=seed)]
    found = run_to_end(verify(honest, [Job(side, chosen) for side in sides]))
    said = {one.variant: one.first_failure.message for one in found if one.first_failure}
    return {**{one.variant: one.tally for one in found if not one.is_right}, **said}


def doubts(honest: Bench, sides: Sequence[Side], rounds: int) -> dict[str, str]:
    """Candidates whose timing is not trusted, and why."""
    timings = run_to_end(measure(honest, sides, workloads(honest, "timed"), Terms(rounds, 60.0, 1)))
    pairs = [Pair(side, side.name, "self") for side in sides]
    return {one.variant: one.reason for one in run_to_end(find_doubts(honest, timings, (), pairs))}


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
    """No memory, no wrong output, no stray thread is seen where there is none."""
    assert {} == doubts(honest, make_sides(honest, *HONEST), 3)


@timed
@pytest.mark.soak
def test_honest_python_candidates_are_found_right_and_trusted(honest: Bench) -> None:
    """Views, kept buffers, tensors of inference mode, threads that are joined, a slow first call."""
    assert {} == failures(honest, [honest.make_side(name) for name in PYTHON], SEEDS)
    assert {} == doubts(honest, [honest.make_side(f"py_{name}") for name in ("own_buffer", "borrows", "lazy")], 2)
