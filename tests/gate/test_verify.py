"""Verification with real processes, also of odd layouts: what is wrong is found and named."""

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
    """What verifying these sides finds."""
    return list(run_to_end(verify(bench, [Job(side, chosen, layouts=layouts) for side in sides])))


def check(bench: Bench, name: str) -> dict[str, Check]:
    """What verifying one variant finds with contiguous inputs, by workload; other layouts are tried in between."""
    (found,) = checks_of(bench, make_sides(bench, name), workloads(bench), layouts=True)
    return {one.workload.name: one for one in found.checks if one.inputs == "contiguous"}


def statuses(found: dict[str, Check]) -> dict[str, str]:
    return {name: one.status for name, one in found.items()}


def all_of(status: str) -> dict[str, str]:
    """Every workload with the same status."""
    return dict.fromkeys((SMALL, LARGE, MIDDLE), status)


@pytest.mark.parametrize(("times", "status"), [(1, "right"), (2, "refused")])
@pytest.mark.slow
def test_work_left_on_another_stream_has_to_be_seen_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, times: int, status: str
) -> None:
    """A clock tells it, and a machine that was held up between two readings looks alike once."""
    said, compute = [], verification.SideChecker._compute

    def late(
        checker: verification.SideChecker, workload: Workload, layout: Layout, *, once: bool = False
    ) -> Generator[Tick, None, Check]:
        if workload.name == SMALL and layout == "contiguous" and len(said) < times:
            said.append(workload.name)
            raise Refused("work went on for 33 ms on another stream", "left work")
        return (yield from compute(checker, workload, layout, once=once))

    monkeypatch.setattr(verification.SideChecker, "_compute", late)
    assert statuses(check(bench, "strides"))[SMALL] == status


def test_a_right_kernel_passes(bench: Bench) -> None:
    """On every workload and in every layout, with its largest error and its build."""
    (side,) = make_sides(bench, "strides")
    (found,) = checks_of(bench, [side], workloads(bench), layouts=True)
    assert found.is_right
    assert found.first_failure is None
    assert (side.build_id, "strides", 7) == (found.build_id, found.variant, len(found.checks))
    assert {"largest error 0.0e+00"} == {one.message for one in found.checks}
    assert {(0, 0.0)} == {(one.wrong, one.max_error) for one in found.checks}


def test_one_element_off_is_named_with_its_place_and_values(bench: Bench) -> None:
    """Workload, index by dimension, what was expected and what came."""
    found = check(bench, "epsilon")
    assert all_of("wrong") == statuses(found)
    one = found[MIDDLE]
    assert one.worst is not None
    assert one.message.startswith(f"1 of 12 elements wrong on {MIDDLE}; worst N=1 M=1: expected ")
    assert one.message.endswith("(allowed error 1.0e-04)")
    assert {"N": 1, "M": 1} == one.worst.index
    assert one.worst.expected is not None
    assert pytest.approx(one.worst.expected + 0.01, abs=1e-6) == one.worst.got
    assert (1, 12, one.worst) == (one.wrong, one.total, one.first)


def test_within_tolerance_but_worse_than_the_plain_implementation_is_wrong(bench: Bench) -> None:
    """A tolerance that is wide for other reasons hides no loss of accuracy."""
    one = check(bench, "sloppy")[SMALL]
    assert ("wrong", 0) == (one.status, one.wrong)
    assert one.message.startswith("largest error 5e-05 against 0 of the plain implementation")


@pytest.mark.parametrize(
    ("name", "where"),
    [("outside", r"after its end, the first at element \+2"), ("before", "before its beginning, .* element -1")],
)
def test_a_write_outside_the_output_is_wrong(name: str, where: str, bench: Bench) -> None:
    """Also where every element of the output is right; it says how many bytes, and where."""
    found = check(bench, name)
    assert all_of("wrong") == statuses(found)
    assert re.fullmatch(rf"writes outside its output: [1-4] bytes? {where} on {SMALL}", found[SMALL].message)


def test_an_error_the_kernel_returns_is_told_in_its_own_words(bench: Bench) -> None:
    """The number and the text of loop_error; other workloads are checked all the same."""
    found = check(bench, "refuses")
    assert {SMALL: "right", LARGE: "refused", MIDDLE: "right"} == statuses(found)
    assert f"error 3: no such shape on {LARGE}" == found[LARGE].message


@pytest.mark.slow
def test_after_a_crash_the_remaining_workloads_are_checked(bench: Bench) -> None:
    """The process is replaced; the check names the signal and the workload."""
    found = check(bench, "crashes")
    assert {SMALL: "right", LARGE: "crashed", MIDDLE: "right"} == statuses(found)
    assert f"crashed with SIGSEGV on {LARGE}" == found[LARGE].message


def test_a_hang_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that does not come back costs its limit, not the session."""
    monkeypatch.setattr(verification, "CALL_LIMIT_S", 0.4)
    monkeypatch.setattr(verification, "PATIENCE", 0.0)
    monkeypatch.setattr(bench, "first_call_s", 0.4)
    found = check(bench, "hangs")
    assert {SMALL: "right", LARGE: "hung", MIDDLE: "right"} == statuses(found)
    assert " 0.4 s: killed" in found[LARGE].message


def test_an_import_that_compiles_has_the_time_of_a_first_call_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, worker = Mock(side_effect=WorkerLost("hung", "", "")), KeptWorker(bench, bench.make_side("baseline"))
    monkeypatch.setattr("loop.workers.program.Worker.receive", receive)
    for _ in range(2):
        with pytest.raises(WorkerLost, match="loading took longer than"):
            run_to_end(worker.load())
    assert [120.0, 60.0] == [call.args[0] for call in receive.call_args_list]


@pytest.mark.slow
def test_outputs_that_differ_from_call_to_call_are_wrong(bench: Bench) -> None:
    """Even within the tolerance, unless the manifest says that they may. Python may differ by rounding."""
    for name in ("fickle", "races"):
        one = check(bench, name)[SMALL]
        assert ("wrong", 0, "two outputs") == (one.status, one.wrong, one.cause)
        assert f"the same inputs gave two different outputs on {SMALL}" == one.message
    assert all_of("right") == statuses(check(bench, "careless"))
    assert all_of("right") == statuses(check(bench, "wavers"))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels set a register of x86")
@pytest.mark.parametrize(
    ("name", "change"), [("flushes", "subnormal numbers count as 0"), ("rounds_up", "results round another way")]
)
def test_a_floating_point_unit_that_is_left_changed_is_said(name: str, change: str, bench: Bench) -> None:
    """Its outputs are right: what it changes is what others compute afterwards in its process."""
    noting = replace(bench, notes={}, _nursery=bench.nursery)
    assert all_of("right") == statuses(check(noting, name))
    expected = f"calculations of others after {name}: it leaves the floating-point unit changed: {change}"
    assert [expected] == [*noting.notes]


def test_a_kernel_that_writes_to_its_inputs_does_not_pass(bench: Bench) -> None:
    """The input is named, whatever its second call made of it."""
    found = check(bench, "greedy")
    assert all_of("wrong") == statuses(found)
    assert f"changed its input x on {SMALL}" == found[SMALL].message


@pytest.mark.parametrize(
    ("name", "status", "wrong"), [("right", "right", 0), ("smears", "wrong", 8), ("heals", "wrong", 4)]
)
def test_a_nan_stays_where_it_belongs(name: str, status: str, wrong: int, bench: Bench) -> None:
    """One row of the input is NaN: so is that row of the output, and no other."""
    hole = Workload(name="hole", sizes={"N": 3, "M": 4}, dtype="float32", values="hole")
    (found,) = checks_of(bench, make_sides(bench, name), [hole])
    assert [(status, wrong)] == [(one.status, one.wrong) for one in found.checks]


def test_a_stale_binary_is_refused(bench: Bench) -> None:
    """Its build id has to be that of the sources on disk."""
    (side,) = make_sides(bench, "right")
    stale = dataclasses.replace(side, terms=side.terms.replace(build_id="0" * 32))
    (found,) = checks_of(bench, [stale], workloads(bench)[:1])
    (one,) = found.checks
    assert side.build_id is not None
    expected = f"stale binary: built from {side.build_id[:12]}, the sources are 000000000000 on {SMALL}"
    assert ("refused", expected) == (one.status, one.message)


@pytest.mark.parametrize(
    ("name", "status", "said"),
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
def test_what_a_python_variant_does_wrong_is_said(name: str, status: str, said: str, bench: Bench) -> None:
    """Shape, an exception with its line, a module that is not there."""
    (found,) = checks_of(bench, make_sides(bench, name), workloads(bench)[:1])
    assert [(status, f"{said} on {SMALL}")] == [(one.status, one.message) for one in found.checks]


def test_a_result_of_an_earlier_call_is_said_to_be_one(bench: Bench) -> None:
    """Whoever gives it back finds it NaN: `loop` made it so."""
    (found,) = checks_of(bench, make_sides(bench, "gives_back"), workloads(bench)[:1])
    assert found.checks[0].message.endswith("; results of earlier calls are NaN by now: is it one of those?")


def test_a_program_is_verified_through_files(bench: Bench) -> None:
    """What it wrote is held against the reference; one that fails is quoted."""
    sides = make_sides(bench, "program", "program_wrong", "program_fails")
    found = {one.variant: one.checks[0] for one in checks_of(bench, sides, workloads(bench)[:1])}
    assert ["right", "wrong", "refused"] == [one.status for one in found.values()]
    assert f"6 of 6 elements wrong on {SMALL}" in found["program_wrong"].message
    assert f"exit 1: IndexError: list index out of range on {SMALL}" == found["program_fails"].message


@pytest.mark.slow
def test_a_reference_that_fails_is_the_targets_fault(bench: Bench, tmp_path: Path) -> None:
    """An error of the judge is no verdict on a variant."""
    target = write_target(tmp_path, {"right": compiled()}, reference={"python": "tiny_functions:raises"})
    said = pytest.raises(LoopError, match=r"ValueError: cannot do this \(tiny_functions.py:12\)")
    with open_bench(tmp_path, target, bench.cache.parent) as broken, said:
        checks_of(broken, make_sides(broken, "right"), workloads(broken)[:1])


def typed(bench: Bench, *dtypes: Dtype) -> list[Workload]:
    """All workloads of the tiny target in these types."""
    return [workload for dtype in dtypes for workload in expand_sets(bench.target, ["some"], dtype)]


def check_layouts(bench: Bench, name: str, chosen: list[Workload]) -> VariantChecks:
    """What verifying one variant finds."""
    (found,) = run_to_end(verify(bench, [Job(side, chosen) for side in make_sides(bench, name)]))
    assert isinstance(found, VariantChecks)
    return found


def laid_out(bench: Bench, name: str) -> dict[str, Check]:
    """The checks of the smallest workload by layout."""
    found = check_layouts(bench, name, typed(bench, "float32")[:1])
    return {one.inputs: one for one in found.checks}


@pytest.mark.parametrize(
    ("name", "strided", "misaligned", "others"),
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
    name: str, strided: str, misaligned: str, others: str, bench: Bench
) -> None:
    """An error is a right answer; reading on as if nothing were the matter, or crashing, is not."""
    found = laid_out(bench, name)
    expected = {"contiguous": "right", "strided": strided, "misaligned": misaligned}
    assert {**expected, "transposed": others, "broadcast": others} == {
        layout: one.status for layout, one in found.items()
    }


@pytest.mark.slow
def test_outputs_that_the_reference_alone_tells_leave_out_no_layout(bench: Bench) -> None:
    """Their types are known once it was asked."""
    signature = bench.target.signature.model_copy(update={"outputs": {}})
    target = bench.target.model_copy(update={"signature": signature})
    found = laid_out(replace(bench, target=target, notes={}, _nursery=bench.nursery), "right")
    assert set(LAYOUTS) == found.keys()


def test_an_error_on_contiguous_inputs_is_no_declining(bench: Bench) -> None:
    """That is what they were promised."""
    found = check_layouts(bench, "refuses", typed(bench, "float32")[1:2])
    assert {"contiguous": "refused", **dict.fromkeys(LAYOUTS[1:], "unsupported")} == {
        one.inputs: one.status for one in found.checks
    }
    assert not found.is_right


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


def test_values_that_differ_do_not_look_alike() -> None:
    """In double six digits are too few; elsewhere they are enough."""
    near = Mismatch(index={"n": 2}, expected=4.01067, got=4.0106702, allowed=5e-9).text
    assert "expected 4.0106700000000002, got 4.0106701999999999" in near
    assert "expected 0.25, got 0.26 " in Mismatch(index={"n": 2}, expected=0.25, got=0.26, allowed=5e-9).text
