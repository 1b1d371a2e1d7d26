"""What a Python variant could still do, for it shares its process with our clock: shown, so that nobody forgets.

Each trick here passes the seal; ARCHITECTURE.md says what stands behind it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.actions.timed import Pair, every_doubt
from loop.bench.room import Bench
from loop.bench.timing import Terms, measure
from loop.bench.verify import Job, verify
from loop.model.target import Workload
from loop.processes import finish
from tests.conftest import ROOT
from tests.targets import importable, open_bench, write_target

SLOWED = """
import gc
import sys
import time

done = []

def slow_every_clock(by):
    # Finds the seal among all objects, and has it remember what it finds after the patch.
    real, real_ns = time.perf_counter, time.perf_counter_ns
    begin, begin_ns = real(), real_ns()
    def slow():
        return begin + (real() - begin) / by
    def slow_ns():
        return int(begin_ns + (real_ns() - begin_ns) / by)
    for module in list(sys.modules.values()):
        for name, fake in (("perf_counter", slow), ("perf_counter_ns", slow_ns)):
            if getattr(module, name, None) in (real, real_ns):
                setattr(module, name, fake)
    import loop.bench.child.seal as seal
    for one in gc.get_objects():
        if type(one).__name__ == "Seal":
            one._found = dict(seal._functions())

def cheat(by):
    def scale(x):
        if not done:
            done.append(slow_every_clock(by))
            with open(__file__ + ".done", "w") as file:
                file.write("patched")
        time.sleep(2e-3)
        return x * 2
    return scale

a_little, a_lot = cheat(1.1), cheat(4.0)

def double(x):
    return x * 2
"""
BIG = Workload.model_validate({"name": "big", "sizes": {"N": 64, "M": 64}, "dtype": "float32"})


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench whose Python variants go for the clock and for what guards it."""
    folder = tmp_path_factory.mktemp("sly")
    sly = {name: importable(name, module="sly") for name in ("a_little", "a_lot")}
    target = write_target(folder, sly)
    (folder / "sly.py").write_text(SLOWED)
    with open_bench(folder, target, build_cache) as made:
        yield made


def found(bench: Bench, name: str) -> tuple[bool, list[str]]:
    """Whether a variant is verified, and what timing it raises doubts about."""
    side = bench.side(name)
    (checks,) = finish(verify(bench, [Job(side, [BIG], layouts=False)]))
    timings = finish(measure(bench, [side], [BIG], Terms(1, 60.0, 1)))
    doubts = every_doubt(bench, timings, (), [Pair(side, name, name, "self")])
    assert (bench.folder / "sly.py.done").exists()
    return checks.right, [one.reason for one in doubts]


@pytest.mark.slow
def test_a_variant_that_finds_the_seal_can_slow_the_clock_a_little(bench: Bench) -> None:
    """A tenth stays below what the parent's clock can tell from the way there and back: nobody notices."""
    assert (True, []) == found(bench, "a_little")


@pytest.mark.slow
def test_the_parents_clock_sees_a_clock_that_was_slowed_a_lot(bench: Bench) -> None:
    """Whatever a variant does to its own process, requests take their time by ours."""
    right, doubts = found(bench, "a_lot")
    assert right
    assert [reason for reason in doubts if reason.startswith("its clock was changed: requests took ")]


def test_the_architecture_says_so() -> None:
    """The limits are written down where the gate is described."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("## What a Python variant could still do")[2].partition("\n## ")[0]
    for word in ("seal", "garbage collector", "parent's clock", "compiled"):
        assert word in section
