"""What an earlier session found counts again only where all that it rests on is the same, and not for long."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loop.model.index import SessionRow
from loop.proving.prove import GateOutput
from loop.steps.context import Context
from loop.steps.reused_results import ResultLifetime, dependency_hash, reuse_result
from loop.store.rows import session_row
from tests.makers import make_finished, make_machine, make_session_head
from tests.targets import compiled, make_context, open_bench, write_target

NOW = datetime.datetime.now(datetime.UTC)
EARLIER = "2026-11-22-101500-quick"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a target with one variant."""
    made = tmp_path / "target"
    made.mkdir()
    return made


def context(folder: Path, *variants: str, device: str = "cpu", **fields: Any) -> Context:
    """A step of a session whose harness is known."""
    target = write_target(folder, {"right": compiled()})
    bench = open_bench(folder, target, folder / "cache")
    bench.device = device
    return make_context(bench, *(variants or ("right",)), **{"uncompiled_hash": "h", **fields})


def ground(folder: Path, *more: str, **fields: Any) -> str:
    """What a step of such a session rests on."""
    (folder / "scratch").rmdir() if (folder / "scratch").exists() else None
    return dependency_hash(context(folder, **fields), "kernel.prove_gate", *more)


def found(
    folder: Path, hours: float, lasts_h: float = 24, later: Sequence[SessionRow] = (), **output: Any
) -> GateOutput | None:
    """What a step takes over of a session of so many hours ago that rests on the same."""
    said = {"ok": True, "message": "killed 3 of 3", "killed": 3, "total": 3, "rests_on": "g", **output}
    steps = (make_finished("controls", action="kernel.prove_gate", output=said),)
    head = make_session_head(id=EARLIER, started=NOW - datetime.timedelta(hours=hours))
    earlier = session_row(head, None, []).model_copy(update={"lasting": {"g": True}})
    now = context(
        folder, sessions=(earlier, *later), read_steps=lambda session: steps if session == EARLIER else ()
    )
    return reuse_result(now, GateOutput, "g", ResultLifetime(lasts_h=lasts_h))


def test_what_an_earlier_session_found_is_taken_over_with_its_name(folder: Path) -> None:
    """All of its fields, and where they are from."""
    output = found(folder, hours=3)
    assert output is not None
    assert (EARLIER, 3) == (output.taken_from, output.killed)
    assert f"killed 3 of 3; as in {EARLIER}, nothing that it rests on has changed" == output.message


def test_a_later_session_that_found_it_wrong_stands(folder: Path) -> None:
    """What failed once on the same ground has to be found anew."""
    head = make_session_head(id="2026-11-22-111500-debug", started=NOW - datetime.timedelta(hours=2))
    wrong = session_row(head, None, []).model_copy(update={"lasting": {"g": False}})
    assert found(folder, hours=3, later=[wrong]) is None


@pytest.mark.parametrize(
    "other",
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
def test_it_rests_on_harness_machine_and_choice(folder: Path, other: dict[str, Any]) -> None:
    """Each of them changes it."""
    assert ground(folder) != ground(folder, **other)
