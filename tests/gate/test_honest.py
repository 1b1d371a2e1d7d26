"""Honest but unusual candidates: whatever they do inside, the gate has to let them through."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.gate.verify import Job, verify
from loop.machine.machine import cores
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.timing.doubts import collect_doubts
from loop.timing.samples import Pair, Terms
from loop.timing.schedule import measure
from loop.workers.bench import Bench, Side
from tests.gate.honest_attention import COMPILED, PYTHON_NAMES, write_attention
from tests.noise import timed
from tests.session.mix import HONEST, PYTHON_HONEST, write_mix
from tests.targets import make_sides, open_bench

PYTHON = tuple(f"py_{name}" for name in PYTHON_HONEST)
SEEDS = 50 if os.environ.get("LOOP_FUZZ") else 1


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
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


def workloads(bench: Bench, *sets: str, seed: int = 0) -> tuple[Workload, ...]:
    """Workloads of these sets."""
    return expand_sets(bench.target, sets, "float32", seed)


def failures(bench: Bench, sides: Sequence[Side], seeds: int, name: str = "some") -> dict[str, str]:
    """Candidates that verification rejects or sees nothing of, and why."""
    chosen = [one for seed in range(seeds) for one in workloads(bench, name, seed=seed)]
    found = run_to_end(verify(bench, [Job(side, chosen) for side in sides]))
    said = {one.variant: one.first_failure.message for one in found if one.first_failure}
    return {**{one.variant: one.tally for one in found if not one.is_right}, **said}


def doubts(bench: Bench, sides: Sequence[Side], rounds: int) -> dict[str, str]:
    """Candidates whose timing is not trusted, and why."""
    timings = run_to_end(measure(bench, sides, workloads(bench, "timed"), Terms(rounds, 60.0, 1)))
    pairs = [Pair(side, side.name, side.name, "self") for side in sides]
    return {one.variant: one.reason for one in run_to_end(collect_doubts(bench, timings, (), pairs))}


@pytest.mark.slow
def test_honest_compiled_candidates_are_found_right(bench: Bench) -> None:
    """Other orders of summation, workspaces, threads, tables, padding, refused strides: on several seeds."""
    assert {} == failures(bench, make_sides(bench, *HONEST), SEEDS)


@pytest.mark.soak
def test_other_orders_and_other_ways_of_torch_are_found_right(attention: Bench) -> None:
    """Kahan, splits, naive loops, declared limits; rounded weights, chunks, a slow first call."""
    assert {} == failures(attention, make_sides(attention, *COMPILED), SEEDS, "small")
    sides = [attention.make_side(f"py_{name}") for name in PYTHON_NAMES]
    assert {} == failures(attention, sides, SEEDS, "small")


@pytest.mark.slow
@timed
def test_honest_compiled_candidates_are_trusted_when_timed(bench: Bench) -> None:
    """No memory, no wrong output, no stray thread is seen where there is none."""
    assert {} == doubts(bench, make_sides(bench, *HONEST), 3)


@timed
@pytest.mark.soak
def test_honest_python_candidates_are_found_right_and_trusted(bench: Bench) -> None:
    """Views, kept buffers, tensors of inference mode, threads that are joined, a slow first call."""
    assert {} == failures(bench, [bench.make_side(name) for name in PYTHON], SEEDS)
    assert {} == doubts(bench, [bench.make_side(f"py_{name}") for name in ("own_buffer", "borrows", "lazy")], 2)
