"""Timing with real processes: sides in turns, fresh processes, and an error for each lost worker."""

import random
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loop.base.errors import LoopError
from loop.base.locks import locked
from loop.base.places import shared_locks
from loop.base.processes import run_to_end
from loop.calls.call import Call, TensorFile
from loop.calls.external import stated_seconds
from loop.calls.invocation import Delays
from loop.gate.verify import Job, verify
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.timing import readiness, schedule
from loop.timing.doubts import explain_cached_results
from loop.timing.readiness import hold_device
from loop.timing.samples import Limits, Pending, Timings
from loop.timing.schedule import batches, measure
from loop.timing.timed_call import InputWindows, launch_allowance_s, plan_replays
from loop.workers.bench import Bench, Side
from tests.targets import make_sides

BIG = {"N": 64, "M": 512}


def workloads(bench: Bench) -> tuple[Workload, ...]:
    """All workloads of the tiny target."""
    return expand_sets(bench.target, ["some"], "float32")


def big(bench: Bench, dtype: str = "float32") -> Workload:
    """A workload that takes long enough to be timed well."""
    return Workload.model_validate({"name": f"big {dtype}", "sizes": BIG, "dtype": dtype})


def time_sides(
    bench: Bench,
    sides: Sequence[Side],
    chosen: Sequence[Workload],
    *,
    pending: Pending | None = None,
    **limits: Any,
) -> Timings:
    """Timings of these sides, by default in two rounds."""
    all_limits = Limits(**{"rounds": 2, "limit_s": 60.0, "seed": 1, **limits})
    return run_to_end(measure(bench, sides, chosen, all_limits, pending))


def singles(*numbers: int) -> list[range]:
    """Rounds with processes of their own."""
    return [range(number, number + 1) for number in numbers]


def test_batches_cover_every_round_once_in_two_replicates_or_more() -> None:
    """Batches are in order and no larger than asked; rounds of kept processes are one replicate."""
    assert [singles(0, 1, 2), singles(3, 4, 5, 6), singles(7)] == batches(8, 4)
    assert [singles(0, 1)] == batches(2, 8)
    assert [singles(0), singles(1)] == batches(2, 1)
    assert [singles(0, 1, 2), singles(3, 4)] == batches(5, 3)
    assert [[range(4), range(4, 9)]] == batches(9, 2, rounds_per_set=5)
    assert [[range(1), range(1, 3)]] == batches(3, 8, rounds_per_set=5)
    assert [[range(4)], [range(4, 8)]] == batches(8, 1, rounds_per_set=5)
    for rounds in range(2, 40):
        sets = [rounds_set for batch in batches(rounds, 3, rounds_per_set=5) for rounds_set in batch]
        assert list(range(rounds)) == [number for rounds_set in sets for number in rounds_set]
        assert len(sets) >= 2
        assert max(map(len, sets)) <= 5


@pytest.mark.slow
def test_a_program_times_itself_and_is_marked(bench: Bench) -> None:
    """The program's own seconds count, and its side is marked as self-timed."""
    timings = time_sides(bench, make_sides(bench, "program", "right"), workloads(bench)[:1])
    assert {"program"} == timings.self_timed_sides
    assert {0.002} == {second for s in timings.segments if s.side == "program" for second in s.seconds}


@pytest.mark.slow
def test_a_kernel_that_is_right_until_it_is_timed_is_found(bench: Bench) -> None:
    """The first calls are as they should be, those that are timed are not: the side and the element are named."""
    sides = make_sides(bench, "right", "tires")
    jobs = [Job(side, workloads(bench)) for side in sides]
    assert [True, True] == [checks.is_right for checks in run_to_end(verify(bench, jobs))]
    timings = time_sides(bench, sides, workloads(bench)[:1])
    assert {("tires", "wrong")} == {(side, check.status) for side, check in timings.wrong_outputs}
    assert "1 of 6 elements wrong on N2 M3 float32; worst N=1 M=0" in timings.wrong_outputs[-1][1].message


@pytest.mark.slow
def test_every_round_has_values_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each measurement has new values, too, so that stored results do not help."""
    expect, seeds = Bench.prepare_answer, []

    def watch(self: Bench, workload: Workload, **fields: Any) -> Any:
        seeds.append(workload.seed)
        return expect(self, workload, **fields)

    monkeypatch.setattr(Bench, "prepare_answer", watch)
    chosen = workloads(bench)[:1]
    time_sides(bench, make_sides(bench, "right"), chosen, rounds=3)
    time_sides(bench, make_sides(bench, "right"), chosen, rounds=3, seed=2)
    assert 6 == len({*seeds, chosen[0].seed}) - 1


@pytest.mark.slow
def test_a_kernel_that_remembers_values_shows_it(bench: Bench) -> None:
    """Each process is probed: the call on the same values again is much quicker than on values it has not seen."""
    timings = time_sides(bench, make_sides(bench, "right", "by_value"), [big(bench)], rounds=3)
    assert "" == explain_cached_results(timings.memory_probes["right", "big float32"])
    probes = timings.memory_probes["by_value", "big float32"]
    assert 3 == len(probes)
    assert explain_cached_results(probes).startswith("it remembers results: ")
    assert [] == timings.wrong_outputs, "its outputs are right all the same"


@pytest.mark.slow
def test_a_kernel_on_a_processor_that_learns_its_branches_remembers_nothing(bench: Bench) -> None:
    """Changed last bits make no difference to it; only a kernel that stores results has to compute them."""
    timings = time_sides(bench, make_sides(bench, "right", "learns"), [big(bench)], rounds=3)
    assert 3 == len(timings.memory_probes["learns", "big float32"])
    assert "" == explain_cached_results(timings.memory_probes["learns", "big float32"])
    assert [] == timings.wrong_outputs


@pytest.mark.slow
def test_what_is_decided_is_not_timed_any_more(bench: Bench) -> None:
    """Pending sides are asked before every round; other sides are not started; timing ends if none is pending."""
    small, large, middle = (workload.name for workload in workloads(bench))

    def pending(timings: Timings) -> dict[str, list[str]]:
        if timings.rounds == 0:
            return {small: ["right", "strides"], middle: ["strides"]}
        return {small: ["right"]} if timings.rounds < 3 else {large: []}

    sides = make_sides(bench, "right", "crashes", "strides")
    timings = time_sides(bench, sides, workloads(bench), rounds=9, pending=pending)
    assert 3 == timings.rounds
    first = {(s.workload, s.side) for s in timings.segments if s.round == 0}
    assert {(small, "right"), (small, "strides"), (middle, "strides")} == first
    assert {(small, "right")} == {(s.workload, s.side) for s in timings.segments if s.round > 0}
    assert 2 * 3 + 2 * 2 == len(timings.segments)


@pytest.mark.slow
def test_a_side_that_becomes_pending_later_begins_with_the_next_processes(bench: Bench) -> None:
    """Sets of processes that have started lack it, as a null control is lacking until its candidate is faster."""
    small = workloads(bench)[0].name

    def pending(timings: Timings) -> dict[str, list[str]]:
        return {small: ["right", "strides"] if timings.rounds else ["right"]} if timings.rounds < 2 else {}

    sides = make_sides(bench, "right", "strides")
    timings = time_sides(bench, sides, workloads(bench)[:1], rounds=9, pending=pending)
    names_by_round: dict[int, set[str]] = {}
    for segment in timings.segments:
        names_by_round.setdefault(segment.round, set()).add(segment.side)
    assert [{"right"}, {"right", "strides"}] == [*names_by_round.values()]


@pytest.mark.slow
def test_kept_processes_serve_several_rounds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer processes start; each round has fresh values; its segments name the processes."""
    opened: list[str] = []
    monkeypatch.setattr(schedule, "ROUNDS_PER_SET_CPU", 2)
    open_side = Bench.start_worker

    def counted(self: Bench, side: Side) -> Any:
        opened.append(side.name)
        return open_side(self, side)

    monkeypatch.setattr(Bench, "start_worker", counted)
    timings = time_sides(bench, make_sides(bench, "right"), workloads(bench)[:1], rounds=4)
    assert (4, 2) == (timings.rounds, len(opened))
    assert [(0, 0), (1, 0), (2, 2), (3, 2)] == sorted({(s.round, s.processes) for s in timings.segments})
    assert (2, []) == (timings.checked_outputs, timings.wrong_outputs), (
        "one output of each set: values that come twice would tell"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("crashes", "crashes could not be timed on N5 M3 float32: crashed with SIGSEGV"),
        ("no_entry", "no_entry could not be timed on loading: the library exports no `nowhere`"),
    ],
)
@pytest.mark.slow
def test_a_loss_names_side_and_workload(name: str, message: str, bench: Bench) -> None:
    """A crash, a refusal or a library that does not load is an error, with the command that shows more."""
    with pytest.raises(LoopError) as caught:
        time_sides(bench, make_sides(bench, "right", name), workloads(bench))
    assert caught.value.message.startswith(message)
    assert f"`loop kernels verify {name}` runs it alone" == caught.value.hint


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('talk\n{"seconds": 0.5}\n', 0.5),
        ('{"seconds": 2}', 2.0),
        ("", None),
        ("0.5", None),
        ("{'a': 1}", None),
        ('{"a": {"seconds": 1}}', None),
        ('{"seconds": 0.5}\nmore talk', None),
    ],
)
def test_a_program_may_state_its_own_time(output: str, expected: float | None) -> None:
    """It prints `seconds` in a JSON object on its last line."""
    assert expected == stated_seconds(output, 2.0)


@pytest.mark.parametrize(
    ("delays", "shared", "added_s"),
    [
        ((0.0, 0.0, 2.0), True, 0.0),
        ((1.9, 0.0, 2.0), True, 0.0),
        ((1.9, 0.0, 2.0), False, 1.9),
        ((5.0, 0.0, 2.0), True, 3.0),
        ((1.9, 0.5, 2.0), True, 0.5),
    ],
)
def test_a_judge_that_sleeps_is_not_delayed_by_the_worker(
    delays: tuple[float, float, float], shared: bool, added_s: float
) -> None:
    """The judge's waits count if it has a core of its own, or if they outlast the call."""
    judge_wait_s, wait_s, run_s = delays
    assert added_s == pytest.approx(Delays(judge_wait_s, ((run_s, wait_s),)).added_wait_s(is_core_shared=shared))


def test_threads_of_one_kernel_that_share_a_core_are_no_other_programs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that run or wait by turns are counted, one that sleeps is not; the warning names the option."""
    assert 2 == Delays(0.0, ((0.2, 0.1), (0.1, 0.2), (0.0, 0.0))).busy_threads(0.01)
    monkeypatch.setattr(readiness, "cores", lambda: 2)
    (warning,) = readiness.disturbance_warnings(bench, "", Timings(crowding_threads={"mine": 2}))
    assert "mine ran 2 threads on 1 core, and they wait for each other: --threads 2 gives each a core" == warning


@pytest.mark.parametrize(
    ("once", "most", "expected"),
    [(1e-6, 200, (200, 3)), (1e-6, 20, (20, 10)), (30e-6, 200, (10, 2)), (5e-3, 200, (1, 1))],
)
def test_a_graph_holds_the_calls_of_a_sample(once: float, most: int, expected: tuple[int, int]) -> None:
    """As many as fill it, as far as there is memory for their outputs; few launches all the same."""
    assert expected == plan_replays(once, 0.5e-3, most)


def test_a_launch_is_allowed_for_each_graph_and_for_nodes_that_had_time_to_run() -> None:
    """A worker that claims more nodes than the device had microseconds for gets no more for them."""
    assert 0.0 == launch_allowance_s(7, 0, 1e-3)
    assert pytest.approx(2 * 5e-6 + 2 * 100 * 2e-6) == launch_allowance_s(100, 2, 1e-3)
    assert pytest.approx(5e-6 + 30 * 2e-6) == launch_allowance_s(10**6, 1, 30e-6)


def test_a_kernel_that_writes_to_its_inputs_while_it_is_timed_is_found(bench: Bench) -> None:
    """The input is named, as in verification."""
    timings = time_sides(bench, make_sides(bench, "greedy"), workloads(bench)[:1])
    assert {"changed its input x on N2 M3 float32"} == {check.message for _, check in timings.wrong_outputs}


STEP = {"x": 64, "ids": 32}  # Elements from one draw to the next.


def make_grid(known_draw: int) -> InputWindows:
    """Four draws of two inputs, and a scalar without elements to choose from; one draw's answer is known."""
    x = TensorFile("x", "", (5, 3), "float32", 4 * STEP["x"] - 15, known_draw * STEP["x"])
    ids = TensorFile("ids", "", (7,), "int64", 4 * STEP["ids"] - 7, known_draw * STEP["ids"])
    output = TensorFile("output", "", (5,), "float32")
    call = Call("w", "float32", (x, ids), output, {}, (), structure="s", input_sets=4)
    return InputWindows(call, "cpu", random.Random(3))


def test_all_inputs_of_a_call_are_of_the_same_draw() -> None:
    """Every draw occurs."""
    windows = make_grid(0).windows(200)
    assert {(64 * n, 32 * n) for n in range(4)} == set(windows)


def test_a_window_is_rotated_to_the_draw_whose_answer_is_known() -> None:
    """All inputs are rotated by as many draws, so that they still belong together."""
    grid = make_grid(known_draw=1)
    assert [0, 0] == grid.rotations((64, 32))
    assert [2 * 64, 2 * 32] == grid.rotations((3 * 64, 3 * 32))
    assert {(64 * n, 32 * n) for n in range(4)} == {tuple(grid.rotations(None)) for _ in range(100)}


HOLDS = "import sys, time; from pathlib import Path; from loop.base.locks import locked\n"
HOLDS += "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


def bench_of(cache: Path) -> Any:
    """The attributes of a bench that this test needs."""
    return SimpleNamespace(device="cpu", cache=cache, sensors=None)


def test_a_session_waits_for_another_one_with_another_cache(tmp_path: Path) -> None:
    """It names the process, continues when that process is killed, and says that it waited."""
    folder = shared_locks()
    assert folder is not None
    command = [sys.executable, "-c", HOLDS, str(folder / "cpu")]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert "held\n" == holder.stdout.readline()
    with ExitStack() as stack:
        waiting = hold_device(bench_of(tmp_path / "mine"), stack)
        tick = next(waiting)
        assert (True, True) == (str(holder.pid) in tick.note, tick.is_urgent)
        holder.kill()
        holder.communicate()
        assert f"process {holder.pid}" in run_to_end(waiting)


def test_what_a_process_holds_it_does_not_wait_for(tmp_path: Path) -> None:
    """It does not wait for its own lock or its children's, which would never end."""
    folder = shared_locks()
    assert folder is not None
    with locked(folder / "cpu"), ExitStack() as stack:
        assert "" == run_to_end(hold_device(bench_of(tmp_path / "mine"), stack))
