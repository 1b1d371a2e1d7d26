"""A verification that is cut into jobs: all variants on a share of the workloads each, with one result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import WorkFailed
from loop.base.processes import run_to_end
from loop.gate.kernel import VerifyTerms, common_weaknesses, merge_shares, verify
from loop.gate.model import ShareOutput
from loop.jobs.local import split_cores
from loop.model.campaign import Campaign
from loop.model.measurement import Check, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from tests.targets import WORKLOADS, compiled, make_context, open_bench, write_target

A, B, C = (Workload(name=name, sizes={}, dtype="float32") for name in "abc")


def checks(*workloads: Workload, status: str = "right", name: str = "v", **fields: Any) -> VariantChecks:
    """Checks of one side."""
    every = [{"workload": workload, "status": status, "message": status, **fields} for workload in workloads]
    return VariantChecks(variant=name, build_id=None, checks=tuple(map(Check.model_validate, every)))


def share(*sides: VariantChecks) -> ShareOutput:
    """Output of one job."""
    return ShareOutput(ok=True, message="", sides=sides, control=sides[0])


def test_merged_checks_stand_in_the_order_of_one_job() -> None:
    """Checks on other thread counts come last; a share without checks changes nothing."""
    first, second = share(checks(C), checks(C, threads=1)), share(checks(A, B), checks(A, B, threads=1))
    (every,), control = merge_shares([first, second], [A, B, C])
    assert [(None, "a"), (None, "b"), (None, "c"), (1, "a"), (1, "b"), (1, "c")] == [
        (check.threads, check.workload.name) for check in every.checks
    ]
    assert ["a", "b", "c"] == [check.workload.name for check in control.checks]
    lost = share(checks(A, status="not judged"))
    (every,), _ = merge_shares([lost, share(checks(B))], [A, B])
    assert (1, True) == (every.count("not judged"), every.is_right)
    with pytest.raises(WorkFailed, match="not judged"):
        merge_shares([lost, lost], [A, B])


def test_what_one_share_shows_is_no_blind_spot_of_all() -> None:
    """An attribute that matters on one share's workloads is exercised; a share without a probe says nothing."""
    without = {"fixed": ("x",), "finite": ("x", "y"), "ignored": ("eps", "mode")}
    with_mode = {"fixed": ("x", "y"), "finite": ("x", "y"), "ignored": ("eps",)}
    both = {"fixed": ("x",), "finite": ("x", "y"), "ignored": ("eps",)}
    assert both == common_weaknesses(without, with_mode) == common_weaknesses(with_mode, without)
    unprobed = {"fixed": ("x",), "finite": ()}
    assert {**without, "finite": ()} == common_weaknesses(unprobed, without)
    assert {**without, "finite": ()} == common_weaknesses(without, unprobed)


def test_each_gpu_has_cores_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts have one size. With too few cores, all GPUs share all."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(900, 909)))  # No CPU has so many.
    assert [[900, 901, 902, 903], [904, 905, 906, 907]] == split_cores(2)
    assert [[]] * 9 == split_cores(9)


@pytest.mark.slow
def test_the_answer_is_that_of_one_piece(
    tmp_path: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks, verdicts and unexercised parts are those of one job, for right, wrong and stateful variants."""
    monkeypatch.setenv("LOOP_CACHE", str(build_cache))
    names = ("right", "epsilon", "by_address", "crashes")
    target = write_target(tmp_path / "t", {name: compiled(name) for name in names}, workloads=dict(WORKLOADS))
    with open_bench(tmp_path / "t", target, build_cache) as bench:

        def found(**fields: Any) -> VerifyOutput:
            context = make_context(bench, *names, **fields)
            return run_to_end(verify(context, VerifyTerms(seeds=2))).output  # type: ignore[no-any-return]

        whole = found()
        apart = found(campaign=Campaign(executor="local", width=2))
    assert ["done", "done"] == [job.state for job in apart.jobs]
    assert (("right",), ("epsilon", "by_address", "crashes")) == (apart.right, apart.wrong)
    assert comparable(whole.variants) == comparable(apart.variants)
    first, second = (output.message.rpartition(" wrong on ")[0] for output in (whole, apart))
    assert first.startswith("epsilon is incorrect: ")
    assert first == second
    assert {*whole.not_exercised} == {*apart.not_exercised}


def comparable(variants: Sequence[VariantChecks]) -> list[tuple[Any, ...]]:
    """The comparable parts of checks, without state, which depends on order."""
    most = max(check.threads or 0 for every in variants for check in every.checks)
    return [
        (every.variant, check.workload.name, check.workload.seed, check.inputs, check.threads, check.status)
        for every in variants
        for check in every.checks
        if check.threads == most and every.variant != "by_address"
    ]
