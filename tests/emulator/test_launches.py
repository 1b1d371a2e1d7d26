"""Launches: limits, seeds, threads, no state left for the next one; the README's example."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from tests.conftest import ROOT
from tests.emulator.fixtures import Fixtures, aligned, each_seed, seed_of

IMPOSSIBLE = {
    ((0, 1, 1), (32, 1, 1), 0): "launched with an empty grid or block",
    ((1, 1, 1), (1025, 1, 1), 0): "launched with blocks of 1025 x 1 x 1 threads, a GPU takes 1024",
    ((1, 65536, 1), (32, 1, 1), 0): "more than 65535 blocks along y or z",
    ((1 << 31, 4, 1), (32, 1, 1), 0): "more blocks than the emulator can count",
    ((1, 1, 1), (32, 1, 1), 232449): "asks for 232449 bytes of shared memory a block",
}
FAULTS = ("no_barrier", "unwritten", "half_a_warp_shuffles", "two_different_barriers", "shared_beyond_its_end")


def shape_fault(emulated: Fixtures, grid: tuple[int, ...], block: tuple[int, ...], shared: int = 0) -> str:
    """Launch an idle kernel of this shape; return the fault."""
    return emulated.fault("idle", numpy.array(grid, numpy.uint32), numpy.array(block, numpy.uint32), shared)


@pytest.mark.parametrize(("grid", "block", "shared"), IMPOSSIBLE)
def test_what_no_gpu_would_launch_is_refused(
    emulated: Fixtures, grid: tuple[int, ...], block: tuple[int, ...], shared: int
) -> None:
    """The message names the limit that the launch exceeds."""
    assert IMPOSSIBLE[grid, block, shared] in shape_fault(emulated, grid, block, shared)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_its_launch_and_nothing_else(emulated: Fixtures, name: str) -> None:
    """The next launch, on the same stacks and the same memory, is as if it were the first."""
    for _ in range(20):
        assert "" != emulated.fault(name)
        assert "" == emulated.fault("barrier")
        assert "" == emulated.fault("pipeline")


def test_the_seed_that_is_told_replays_the_fault(emulated: Fixtures, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is the same word for word, though schedules differ."""
    faults = {emulated.fault("no_barrier_before_refill") for _ in range(30)}
    assert 1 < len(faults)
    for fault in faults:
        monkeypatch.setenv("LOOP_EMULATOR_SEED", seed_of(fault))
        assert fault == emulated.fault("no_barrier_before_refill")


def test_results_do_not_depend_on_schedule_or_cpu_threads(
    emulated: Fixtures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right kernel computes the same bits in every order of its threads."""
    rows = numpy.random.RandomState(0).standard_normal((6, 64)).astype(numpy.float32)
    outputs = set()
    for seed in each_seed(monkeypatch, 20):
        monkeypatch.setenv("LOOP_THREADS", str(seed % 3 + 1))
        output = numpy.zeros(6, numpy.float32)
        assert "" == emulated.fault("sum", aligned(rows), output, 6)
        outputs.add(output.tobytes())
    assert 1 == len(outputs)
    numpy.testing.assert_allclose(2 * rows.sum(1), numpy.frombuffer(outputs.pop(), numpy.float32), rtol=1e-4)


def test_launches_are_written_down(emulated: Fixtures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of JSON each: the kernel by its mangled name, grid, block, shared memory."""
    log = tmp_path / "launches"
    monkeypatch.setenv("LOOP_EMULATOR_LAUNCHES", str(log))
    assert "" == shape_fault(emulated, (2, 3, 4), (8, 2, 1), 100)
    assert "" == emulated.fault("barrier")
    idle, barrier = (json.loads(line) for line in log.read_text().splitlines())
    expected = {"kernel": "_Z11idle_kernelv", "grid": [2, 3, 4], "block": [8, 2, 1], "shared": 100}
    assert expected.items() <= idle.items()
    assert ("_Z14barrier_kernelv", 256) == (barrier["kernel"], barrier["shared"])


def test_a_dry_launch_runs_nothing(emulated: Fixtures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded, or refused if impossible; no memory is touched."""
    log = tmp_path / "launches"
    monkeypatch.setenv("LOOP_EMULATOR_LAUNCHES", str(log))
    monkeypatch.setenv("LOOP_EMULATOR_DRY", "1")
    assert "" == emulated.fault("no_barrier")
    assert "" == emulated.fault("sum", 0, 0, 5)
    assert "empty grid" in emulated.fault("sum", 0, 0, 0)
    launches = [json.loads(line) for line in log.read_text().splitlines()]
    assert [1, 5, 0] == [launch["grid"][0] for launch in launches]


@pytest.mark.parametrize("name", ["recursion", "large_frame"])
def test_a_stack_that_overflows_ends_its_process(emulated: Fixtures, name: str) -> None:
    """A signal ends the process at once, before another thread's stack is overwritten."""
    code = f"import ctypes; ctypes.CDLL({str(emulated.path)!r}).{name}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert -11 == done.returncode


README = ROOT / "kernels" / "emulator" / "README.md"


def blocks(language: str) -> list[str]:
    """The README's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def without_chance(text: str) -> str:
    """Text in which seeds and thread numbers, which differ between runs, are removed."""
    return re.sub(r"thread \d+|block \(\d+|byte \d+|seed \d+", lambda match: match[0].rstrip("0123456789"), text)


@pytest.mark.slow
def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    """It passes with its barrier, and reports a fault without it."""
    (source,), (program,), (commands,), (printed,) = (blocks(name) for name in ("cpp", "python", "sh", "text"))
    (tmp_path / "reverse.cu").write_text(source)
    (tmp_path / "try.py").write_text(program)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr.decode())
    assert without_chance(printed) == without_chance(done.stdout.decode())
