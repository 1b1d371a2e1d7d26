"""Whatever a Python variant does to its own process, its time is the judge's, and what it leaves is counted."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from loop.actions.timed import Pair, every_doubt
from loop.bench.room import Bench
from loop.bench.timing import Terms, Timings, measure
from loop.model.target import Workload
from loop.processes import finish
from tests.targets import importable, open_bench, write_target

WORK_S = 3e-3
SLY = """
import ctypes, gc, mmap, os, random, signal, sys, threading, time
import torch
from torch.overrides import TorchFunctionMode

WORK_S = 3e-3
real = time.perf_counter

def work():
    end = real() + WORK_S
    while real() < end:
        pass

def honest(x):
    work()
    return x * 2

def slow_every_clock(x):
    # Finds every reference to a clock, those of the seal too, and has them run at a fifth less than their speed.
    if not hasattr(slow_every_clock, "done"):
        slow_every_clock.done = True
        begin, real_ns = real(), time.perf_counter_ns
        begin_ns = real_ns()
        fakes = {
            "perf_counter": lambda: begin + (real() - begin) / 5,
            "perf_counter_ns": lambda: begin_ns + (real_ns() - begin_ns) // 5,
        }
        for module in list(sys.modules.values()):
            for name, fake in fakes.items():
                if callable(getattr(module, name, None)):
                    setattr(module, name, fake)
        for one in gc.get_objects():
            if type(one).__name__ == "Seal":
                one._found = {}
    work()
    return x * 2

def method_of_its_own(x):
    # A plain tensor that computes in the methods by which results are usually read.
    result = torch.empty_like(x)
    def late(*_, **__):
        work()
        torch.mul(x, 2, out=result)
        return result
    for name in ("cpu", "contiguous", "detach", "numpy", "to", "clone", "reshape", "view", "copy_"):
        setattr(result, name, late)
    return result

class Later(TorchFunctionMode):
    waiting = []
    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function is torch.Tensor.copy_ and Later.waiting:
            for x, result in Later.waiting:
                work()
                torch.mul(x, 2, out=result)
            Later.waiting.clear()
        return function(*arguments, **(keywords or {}))

def global_mode(x):
    # A mode of torch notices when a result is copied, and computes then.
    if not hasattr(global_mode, "mode"):
        global_mode.mode = Later()
        global_mode.mode.__enter__()
    Later.waiting.clear() if len(Later.waiting) > 300 else None
    result = torch.empty_like(x)
    Later.waiting.append((x, result))
    return result

def by_a_thread(x):
    # A thread computes after the call has returned.
    result = torch.empty_like(x)
    def later():
        work()
        torch.mul(x, 2, out=result)
    threading.Thread(target=later, daemon=True).start()
    return result

kept = []
def one_result_again_and_again(x):
    # Computes the first one, and gives that out from then on.
    if not kept:
        kept.append(x * 2)
    return kept[0]

def seeded_draws(x):
    # Tries to foresee what the judge draws.
    random.seed(0)
    work()
    return x * 2
"""
BIG = Workload.model_validate({"name": "big", "sizes": {"N": 64, "M": 64}, "dtype": "float32"})
NAMES = (
    *("honest", "slow_every_clock", "method_of_its_own", "global_mode", "by_a_thread"),
    *("one_result_again_and_again", "seeded_draws"),
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench whose Python variants try to be quicker than they are."""
    folder = tmp_path_factory.mktemp("sly")
    target = write_target(folder, {name: importable(name, module="sly") for name in NAMES})
    (folder / "sly.py").write_text(SLY)
    with open_bench(folder, target, build_cache) as made:
        yield made


def timed(bench: Bench, *names: str) -> tuple[Timings, dict[str, str]]:
    """Timings of these variants, and what is doubted of each."""
    sides = [bench.side(name) for name in names]
    timings = finish(measure(bench, sides, [BIG], Terms(1, 60.0, 1, least=1)))
    doubts = every_doubt(bench, timings, (), [Pair(side, side.name, side.name, "self") for side in sides])
    return timings, {one.variant: one.reason for one in doubts}


def call_s(timings: Timings, name: str) -> float:
    """Seconds of one call, by the judge's clock."""
    return median(second for one in timings.segments if one.side == name for second in one.seconds)


def test_clocks_and_draws_of_its_own_process_change_nothing(bench: Bench) -> None:
    """The time is the judge's: a clock at a fifth of its speed gains nothing."""
    timings, doubts = timed(bench, "honest", "slow_every_clock", "seeded_draws")
    assert "honest" not in doubts
    assert all(call_s(timings, name) > 0.9 * WORK_S for name in ("honest", "slow_every_clock", "seeded_draws"))


@pytest.mark.parametrize("name", ["method_of_its_own", "global_mode", "by_a_thread"])
def test_what_is_computed_when_the_result_is_looked_at_is_counted(bench: Bench, name: str) -> None:
    """It is there when the result is handed over, or it is wrong; either way it has no speed of its own."""
    timings, _ = timed(bench, "honest", name)
    wrong = {side for side, _ in timings.wrong}
    assert name in wrong or call_s(timings, name) > 0.9 * WORK_S


def test_a_result_that_is_handed_out_again_is_wrong(bench: Bench) -> None:
    """It was right for other values."""
    timings, _ = timed(bench, "honest", "one_result_again_and_again")
    assert {"one_result_again_and_again"} == {side for side, _ in timings.wrong}
