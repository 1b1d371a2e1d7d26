"""A step's device and sizes, reused results, the audit of a session's promises."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loop.base.errors import LoopError
from loop.base.processes import run_to_end
from loop.model.index import SessionRow
from loop.model.record import Finished
from loop.model.target import Target
from loop.proving.prove import GateOutput
from loop.steps import setting
from loop.steps.actions import AuditOutput, Cadence, audit
from loop.steps.context import Context, ResultLifetime, Task, dependency_hash, reuse_result
from loop.store.sessions import session_row
from loop.workers.bench import Bench
from tests.makers import make_finished, make_machine, make_session_head
from tests.projects import make_project
from tests.targets import compiled, make_context, open_bench, write_target

NOW = datetime.datetime.now(datetime.UTC)
EARLIER = "2026-11-22-101500-quick"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a target with one variant."""
    target = tmp_path / "target"
    target.mkdir()
    return target


def context(folder: Path, *variants: str, device: str = "cpu", **fields: Any) -> Context:
    """A step of a session whose harness is known."""
    target = write_target(folder, {"right": compiled()})
    bench = open_bench(folder, target, folder / "cache")
    bench.device = device
    return make_context(bench, *(variants or ("right",)), **{"uncompiled_hash": "h", **fields})


def ground(folder: Path, *parts: str, **fields: Any) -> str:
    """The dependency hash of a step in such a session."""
    (folder / "scratch").rmdir() if (folder / "scratch").exists() else None
    return dependency_hash(context(folder, **fields), "kernel.prove_gate", *parts)


def reused(
    folder: Path, hours: float, lasts_h: float = 24, later: Sequence[SessionRow] = (), **output: Any
) -> GateOutput | None:
    """The result that a step reuses from a session `hours` ago with the same dependencies."""
    fields = {"ok": True, "message": "killed 3 of 3", "killed": 3, "total": 3, "rests_on": "g", **output}
    steps = (make_finished("controls", action="kernel.prove_gate", output=fields),)
    head = make_session_head(id=EARLIER, started=NOW - datetime.timedelta(hours=hours))
    earlier = session_row(head, None, []).model_copy(update={"lasting": {"g": True}})
    present = context(
        folder, sessions=(earlier, *later), read_steps=lambda session: steps if session == EARLIER else ()
    )
    return reuse_result(present, GateOutput, "g", ResultLifetime(lasts_h=lasts_h))


def test_what_an_earlier_session_found_is_taken_over_with_its_name(folder: Path) -> None:
    """All fields are taken over, with the session that they are from."""
    output = reused(folder, hours=3)
    assert output is not None
    assert (EARLIER, 3) == (output.taken_from, output.killed)
    assert f"killed 3 of 3; taken from {EARLIER}: the gate, the target and the builds have" in output.message


def test_a_later_session_that_found_it_wrong_stands(folder: Path) -> None:
    """After a later failure with the same dependencies, the result is not reused."""
    head = make_session_head(id="2026-11-22-111500-debug", started=NOW - datetime.timedelta(hours=2))
    wrong = session_row(head, None, []).model_copy(update={"lasting": {"g": False}})
    assert reused(folder, hours=3, later=[wrong]) is None


@pytest.mark.parametrize(
    "change",
    [
        {"uncompiled_hash": "another"},
        {"machine": make_machine(torch="9.9")},
        {"machine": make_machine(compiler="another")},
        {"device": "cuda"},
        {"emulated": ("right",)},
        {"checks": ("some",)},
    ],
    ids=str,
)
def test_it_rests_on_harness_machine_and_choice(folder: Path, change: dict[str, Any]) -> None:
    """Each of them changes it."""
    assert ground(folder) != ground(folder, **change)


def make_target(**devices: str) -> Target:
    """A target with a Python variant for each device."""
    variants = {
        name: {"kind": "python", "device": device, "module": "m", "function": "f"}
        for name, device in devices.items()
    }
    signature = {"inputs": {"x": "N"}, "outputs": {"output": "N"}}
    fields = {"reference": {"python": "m:f"}, "baseline": {"python": "m:f"}, "tolerance": {}, "dtypes": {}}
    named = {"format": 2, "name": "t", "function": "f", "signature": signature, "workloads": {"w": ({"N": 1},)}}
    return Target.model_validate({**named, **fields, "variants": variants})


BOTH = make_target(ours="cpu", fast="cuda", eager="any")
WITHOUT_CUDA = make_target(ours="cpu", eager="any")


@pytest.mark.parametrize(
    ("gpus", "target", "variants", "expected"),
    [
        ((), BOTH, (), "cpu"),
        (("H200",), BOTH, (), "cuda"),
        (("H200",), BOTH, ("ours",), "cpu"),
        (("H200",), BOTH, ("fast",), "cuda"),
        (("H200",), WITHOUT_CUDA, (), "cpu"),
    ],
)
def test_auto_goes_where_the_variants_are_made_for(
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[str, ...],
    target: Target,
    variants: tuple[str, ...],
    expected: str,
) -> None:
    """A GPU counts only when something was written for it; a named variant decides."""
    monkeypatch.setattr(setting, "machine", lambda: SimpleNamespace(gpus=gpus))
    assert expected == setting.choose_device("auto", target, variants)


def test_what_a_gpu_is_missing_for_is_emulated_where_it_can_be() -> None:
    """By default all variants that can be; among named ones, those that cannot run; on a GPU none."""
    base = make_target(ours="cpu", only="cuda").model_dump()
    build = {"compiler": "nvcc"}
    both = {"kind": "c_abi", "device": "cuda", "sources": ("k.cu",), "entry": "k", "build": build, "emulation": {}}
    target = Target.model_validate({**base, "variants": {**base["variants"], "both": both}})
    assert ("both",) == setting.choose_emulated((), target, "cpu")
    assert () == setting.choose_emulated(("ours",), target, "cpu")
    assert ("both",) == setting.choose_emulated(("ours", "both"), target, "cpu")
    assert () == setting.choose_emulated((), target, "cuda")
    assert ("ours",) == setting.choose_variants(("ours", "both"), target, "cpu")
    with pytest.raises(LoopError, match="only does not run on cpu"):
        setting.choose_variants(("only",), target, "cpu")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("N=3 M=four", "M: expected a size of 0 or more, got 'four'"),
        ("N=3, K=4", "K: expected one of N, M, factor, dtype, values, weight, got an unknown name"),
        ("N=3", "M: expected a size, got nothing"),
        ("N=3 M=4 dtype=float64", "dtype: expected one of float32, got 'float64'"),
        ("N=3 M", "M: expected M=VALUE, got 'M'"),
    ],
)
def test_what_does_not_fit_is_named(text: str, message: str, tmp_path: Path) -> None:
    """The hint has a workload that fits."""
    with pytest.raises(LoopError) as caught:
        setting.with_stated_workloads(setting.read_setting(make_project(tmp_path)), [text])
    assert f"--workloads {text!r}: {message}" == caught.value.message
    assert "as in --workloads 'N=3 M=5 dtype=float32'" == caught.value.hint


def audited(*records: Finished) -> AuditOutput:
    """The audit of these steps."""
    context = Context(cast(Bench, None), cast(Task, None), finished=records)
    return run_to_end(audit(context, Cadence())).output


def test_the_longest_silence_of_any_step_counts() -> None:
    """Neither the sum counts, nor the last."""
    output = audited(
        *(make_finished(step, longest_silence_s=s) for step, s in (("a", 3.0), ("b", 12.0), ("c", 1.0)))
    )
    assert (12.0, True) == (output.longest_silence_s, output.ok)
    assert not audited(make_finished("a", longest_silence_s=61.0)).ok
