"""Verification with real processes: mistakes are found and named, also on other layouts."""

import dataclasses
import platform
import re
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest

from loop.base.errors import LoopError
from loop.base.processes import Tick, run_to_end
from loop.calls.call import Refused
from loop.gate import verify as verification
from loop.gate.verify import LAYOUTS, Job, describe_fault, verify
from loop.model.dtypes import Dtype, Layout
from loop.model.measurement import Check, Mismatch, VariantChecks
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.workers.bench import Bench, KeptWorker, Side
from loop.workers.judge_messages import Finding
from loop.workers.messages import Computed
from loop.workers.program import WorkerLost
from tests.targets import compiled, make_sides, open_bench, write_target

SMALL, LARGE, MIDDLE = "N2 M3 float32", "N5 M3 float32", "N3 M4 float32"
"""The workloads of the tiny target, in order."""


def workloads(bench: Bench, seed: int = 0) -> tuple[Workload, ...]:
    """All workloads of the tiny target."""
    return expand_sets(bench.target, ["some"], "float32", seed)


def checks_of(
    bench: Bench, sides: Sequence[Side], chosen: Sequence[Workload], *, layouts: bool = False
) -> list[VariantChecks]:
    """Checks of these sides."""
    return list(run_to_end(verify(bench, [Job(side, chosen, layouts=layouts) for side in sides])))


def check(bench: Bench, name: str) -> dict[str, Check]:
    """Checks of one variant with contiguous inputs, by workload; other layouts are checked in between."""
    (verified,) = checks_of(bench, make_sides(bench, name), workloads(bench), layouts=True)
    return {result.workload.name: result for result in verified.checks if result.inputs == "contiguous"}


def statuses(by_workload: dict[str, Check]) -> dict[str, str]:
    return {name: result.status for name, result in by_workload.items()}


def all_of(status: str) -> dict[str, str]:
    """Every workload with the same status."""
    return dict.fromkeys((SMALL, LARGE, MIDDLE), status)


@pytest.mark.parametrize(("times", "status"), [(1, "right"), (2, "refused")])
@pytest.mark.slow
def test_work_left_on_another_stream_has_to_be_seen_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, times: int, status: str
) -> None:
    """A delay of the machine can look like it once, so one reading is not enough."""
    raised, compute = [], verification.SideChecker._compute

    def late(
        checker: verification.SideChecker, workload: Workload, layout: Layout, *, once: bool = False
    ) -> Generator[Tick, None, Check]:
        if workload.name == SMALL and layout == "contiguous" and len(raised) < times:
            raised.append(workload.name)
            raise Refused("work went on for 33 ms on another stream", "left work")
        return (yield from compute(checker, workload, layout, once=once))

    monkeypatch.setattr(verification.SideChecker, "_compute", late)
    assert statuses(check(bench, "strides"))[SMALL] == status


def test_a_right_kernel_passes(bench: Bench) -> None:
    """On every workload and in every layout, with its largest error and its build."""
    (side,) = make_sides(bench, "strides")
    (verified,) = checks_of(bench, [side], workloads(bench), layouts=True)
    assert verified.is_right
    assert verified.first_failure is None
    assert (side.build_id, "strides", 7) == (verified.build_id, verified.variant, len(verified.checks))
    assert {"largest error 0.0e+00"} == {result.message for result in verified.checks}
    assert {(0, 0.0)} == {(result.wrong, result.max_error) for result in verified.checks}


def test_one_element_off_is_named_with_its_place_and_values(bench: Bench) -> None:
    """The message has workload, index by dimension, expected value and actual value."""
    by_workload = check(bench, "epsilon")
    assert all_of("wrong") == statuses(by_workload)
    middle = by_workload[MIDDLE]
    assert middle.worst is not None
    assert middle.message.startswith(f"1 of 12 elements wrong on {MIDDLE}; worst N=1 M=1: expected ")
    assert middle.message.endswith("(allowed error 1.0e-04)")
    assert {"N": 1, "M": 1} == middle.worst.index
    assert middle.worst.expected is not None
    assert pytest.approx(middle.worst.expected + 0.01, abs=1e-6) == middle.worst.got
    assert (1, 12, middle.worst) == (middle.wrong, middle.total, middle.first)


def test_within_tolerance_but_worse_than_the_plain_implementation_is_wrong(bench: Bench) -> None:
    """A tolerance that is wide for other reasons hides no loss of accuracy."""
    small = check(bench, "sloppy")[SMALL]
    assert ("wrong", 0) == (small.status, small.wrong)
    assert small.message.startswith("largest error 5e-05 against 0 of the plain implementation")


@pytest.mark.parametrize(
    ("name", "where"),
    [("outside", r"after its end, the first at element \+2"), ("before", "before its beginning, .* element -1")],
)
def test_a_write_outside_the_output_is_wrong(name: str, where: str, bench: Bench) -> None:
    """Also if every output element is right; the message has the count of bytes and the place."""
    by_workload = check(bench, name)
    assert all_of("wrong") == statuses(by_workload)
    assert re.fullmatch(rf"writes outside its output: [1-4] bytes? {where} on {SMALL}", by_workload[SMALL].message)


def test_an_error_the_kernel_returns_is_told_in_its_own_words(bench: Bench) -> None:
    """The number and the text of loop_error; other workloads are checked all the same."""
    by_workload = check(bench, "refuses")
    assert {SMALL: "right", LARGE: "refused", MIDDLE: "right"} == statuses(by_workload)
    assert f"error 3: no such shape on {LARGE}" == by_workload[LARGE].message


@pytest.mark.slow
def test_after_a_crash_the_remaining_workloads_are_checked(bench: Bench) -> None:
    """The process is replaced; the check names the signal and the workload."""
    by_workload = check(bench, "crashes")
    assert {SMALL: "right", LARGE: "crashed", MIDDLE: "right"} == statuses(by_workload)
    assert f"crashed with SIGSEGV on {LARGE}" == by_workload[LARGE].message


def test_a_hang_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that does not return is killed at its limit; other workloads are checked."""
    monkeypatch.setattr(verification, "CALL_LIMIT_S", 0.4)
    monkeypatch.setattr(verification, "PATIENCE", 0.0)
    monkeypatch.setattr(bench, "first_call_s", 0.4)
    by_workload = check(bench, "hangs")
    assert {SMALL: "right", LARGE: "hung", MIDDLE: "right"} == statuses(by_workload)
    assert " 0.4 s: killed" in by_workload[LARGE].message


def test_an_import_that_compiles_has_the_time_of_a_first_call_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, worker = Mock(side_effect=WorkerLost("hung", "", "")), KeptWorker(bench, bench.make_side("baseline"))
    monkeypatch.setattr("loop.workers.program.Worker.receive", receive)
    for _ in range(2):
        with pytest.raises(WorkerLost):
            run_to_end(worker.load())
    assert [120.0, 60.0] == [call.args[0] for call in receive.call_args_list]


@pytest.mark.slow
def test_outputs_that_differ_from_call_to_call_are_wrong(bench: Bench) -> None:
    """Even within the tolerance, unless the manifest says that they may. Python may differ by rounding."""
    for name in ("fickle", "races"):
        small = check(bench, name)[SMALL]
        assert ("wrong", 0, "two outputs") == (small.status, small.wrong, small.cause)
        assert f"the same inputs gave two different outputs on {SMALL}" == small.message
    assert all_of("right") == statuses(check(bench, "careless"))
    assert all_of("right") == statuses(check(bench, "wavers"))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels set a register of x86")
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("flushes", "subnormal numbers count as 0"),
        ("rounds_up", "results round another way"),
        ("traps", "a floating-point exception, such as underflow, ends the process"),
    ],
)
def test_a_floating_point_unit_that_is_left_changed_is_said(name: str, change: str, bench: Bench) -> None:
    """Its outputs are right: what it changes is what others compute afterwards in its process."""
    noting = replace(bench, notes={}, _nursery=bench.nursery)
    assert all_of("right") == statuses(check(noting, name))
    expected = f"calculations of others after {name}: it leaves the floating-point unit changed: {change}"
    assert [expected] == [*noting.notes]


def test_a_kernel_that_writes_to_its_inputs_does_not_pass(bench: Bench) -> None:
    """The message names the input."""
    by_workload = check(bench, "greedy")
    assert all_of("wrong") == statuses(by_workload)
    assert f"changed its input x on {SMALL}" == by_workload[SMALL].message


@pytest.mark.parametrize(
    ("name", "status", "wrong"), [("right", "right", 0), ("smears", "wrong", 8), ("heals", "wrong", 4)]
)
def test_a_nan_stays_where_it_belongs(name: str, status: str, wrong: int, bench: Bench) -> None:
    """One row of the input is NaN: so is that row of the output, and no other."""
    hole = Workload(name="hole", sizes={"N": 3, "M": 4}, dtype="float32", values="hole")
    (verified,) = checks_of(bench, make_sides(bench, name), [hole])
    assert [(status, wrong)] == [(result.status, result.wrong) for result in verified.checks]


def test_a_stale_binary_is_refused(bench: Bench) -> None:
    """Its build id has to be that of the sources on disk."""
    (side,) = make_sides(bench, "right")
    stale = dataclasses.replace(side, terms=side.terms.replace(build_id="0" * 32))
    (verified,) = checks_of(bench, [stale], workloads(bench)[:1])
    (result,) = verified.checks
    assert side.build_id is not None
    expected = f"stale binary: built from {side.build_id[:12]}, the sources are 000000000000 on {SMALL}"
    assert ("refused", expected) == (result.status, result.message)


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("wrong_shape", "refused", "wrong shape: expected [2, 3], got [6]"),
        ("raises", "crashed", "ValueError: cannot do this (tiny_functions.py:12)"),
        (
            "lost",
            "refused",
            "cannot import no_such_module:double: ModuleNotFoundError: No module named 'no_such_module'",
        ),
    ],
)
def test_what_a_python_variant_does_wrong_is_said(name: str, status: str, message: str, bench: Bench) -> None:
    """A wrong shape, an exception with its line, and a missing module are named."""
    (verified,) = checks_of(bench, make_sides(bench, name), workloads(bench)[:1])
    assert [(status, f"{message} on {SMALL}")] == [(result.status, result.message) for result in verified.checks]


def test_a_result_of_an_earlier_call_is_said_to_be_one(bench: Bench) -> None:
    """`loop` fills earlier results with NaN, and says so when one comes back."""
    (verified,) = checks_of(bench, make_sides(bench, "gives_back"), workloads(bench)[:1])
    assert verified.checks[0].message.endswith("; results of earlier calls are NaN by now: is it one of those?")


def test_a_program_is_verified_through_files(bench: Bench) -> None:
    """Its output files are compared with the reference; the error of a failing program is quoted."""
    sides = make_sides(bench, "program", "program_wrong", "program_fails")
    by_variant = {side.variant: side.checks[0] for side in checks_of(bench, sides, workloads(bench)[:1])}
    assert ["right", "wrong", "refused"] == [result.status for result in by_variant.values()]
    assert f"6 of 6 elements wrong on {SMALL}" in by_variant["program_wrong"].message
    assert f"exit 1: IndexError: list index out of range on {SMALL}" == by_variant["program_fails"].message


@pytest.mark.slow
def test_a_reference_that_fails_is_the_targets_fault(bench: Bench, tmp_path: Path) -> None:
    """An error of the judge is no verdict on a variant."""
    target = write_target(tmp_path, {"right": compiled()}, reference={"python": "tiny_functions:raises"})
    expected = pytest.raises(LoopError, match=r"ValueError: cannot do this \(tiny_functions.py:12\)")
    with open_bench(tmp_path, target, bench.cache.parent) as broken, expected:
        checks_of(broken, make_sides(broken, "right"), workloads(broken)[:1])


def typed(bench: Bench, *dtypes: Dtype) -> list[Workload]:
    """All workloads of the tiny target in these types."""
    return [workload for dtype in dtypes for workload in expand_sets(bench.target, ["some"], dtype)]


def check_layouts(bench: Bench, name: str, chosen: list[Workload]) -> VariantChecks:
    """Checks of one variant."""
    (verified,) = run_to_end(verify(bench, [Job(side, chosen) for side in make_sides(bench, name)]))
    assert isinstance(verified, VariantChecks)
    return verified


def laid_out(bench: Bench, name: str) -> dict[str, Check]:
    """The checks of the smallest workload by layout."""
    verified = check_layouts(bench, name, typed(bench, "float32")[:1])
    return {result.inputs: result for result in verified.checks}


@pytest.mark.parametrize(
    ("name", "strided", "misaligned", "further"),
    [
        ("strides", "right", "right", "right"),
        ("right", "unsupported", "right", "unsupported"),
        ("ignores_strides", "wrong", "right", "wrong"),
        ("wants_aligned", "right", "unsupported", "right"),
        ("rounds_down", "right", "wrong", "right"),
        ("aborts_on_strides", "crashed", "right", "crashed"),
    ],
)
@pytest.mark.slow
def test_other_layouts_are_handled_or_declined(
    name: str, strided: str, misaligned: str, further: str, bench: Bench
) -> None:
    """A variant may decline a layout with an error; wrong outputs and crashes fail."""
    by_layout = laid_out(bench, name)
    expected = {"contiguous": "right", "strided": strided, "misaligned": misaligned}
    assert {**expected, "transposed": further, "broadcast": further} == {
        layout: result.status for layout, result in by_layout.items()
    }


@pytest.mark.slow
def test_outputs_that_the_reference_alone_tells_leave_out_no_layout(bench: Bench) -> None:
    """Output types that only the reference knows are known before layouts are tried."""
    signature = bench.target.signature.model_copy(update={"outputs": {}})
    target = bench.target.model_copy(update={"signature": signature})
    by_layout = laid_out(replace(bench, target=target, notes={}, _nursery=bench.nursery), "right")
    assert set(LAYOUTS) == by_layout.keys()


def test_an_error_on_contiguous_inputs_is_no_declining(bench: Bench) -> None:
    """A variant may decline other layouts, but never contiguous inputs."""
    verified = check_layouts(bench, "refuses", typed(bench, "float32")[1:2])
    assert {"contiguous": "refused", **dict.fromkeys(LAYOUTS[1:], "unsupported")} == {
        result.inputs: result.status for result in verified.checks
    }
    assert not verified.is_right


@pytest.mark.parametrize(
    ("got", "depends", "cause"), [(313.0, True, "not written"), (313.0, False, "elements"), (None, True, "NaN")]
)
def test_a_whole_number_that_follows_the_memory_was_not_written(
    got: float | None, depends: bool, cause: str
) -> None:
    """Its memory is never NaN: without this, adding to it looks like a result that is one too small."""
    worst = Mismatch(index={"n": 2}, expected=314, got=got, allowed=0)
    finding = Finding.model_construct(worst=worst, wrong=23, total=25, output="", passes_only_as_stated=False)
    reply = Computed(changed_inputs=(), stray_writes=(), replaced_functions=(), depends_on_prefill=depends)
    side = SimpleNamespace(kind="c_abi", deterministic=True)
    assert cause == describe_fault(cast(Side, side), reply, finding, "n8")[0]
    for output, text in (("1", "23 of 25 elements wrong in output 1 on n8"), ("dx", "wrong in dx on n8")):
        named = finding.model_copy(update={"output": output})
        assert text in describe_fault(cast(Side, side), reply, named, "n8")[1]


def test_values_that_differ_do_not_look_alike() -> None:
    """In double six digits are too few; elsewhere they are enough."""
    near = Mismatch(index={"n": 2}, expected=4.01067, got=4.0106702, allowed=5e-9).text
    assert "expected 4.0106700000000002, got 4.0106701999999999" in near
    assert "expected 0.25, got 0.26 " in Mismatch(index={"n": 2}, expected=0.25, got=0.26, allowed=5e-9).text
