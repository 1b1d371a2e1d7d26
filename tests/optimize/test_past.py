"""Facts from earlier sessions: tried, kept and reverted changes."""

import datetime
from pathlib import Path
from typing import Any

from loop.model.change import DecisionOutput, TriedChange
from loop.model.record import Event, Finished
from loop.optimize.model import BriefOutput
from loop.optimize.session_changes import reverted_changes
from loop.store.sessions import verified_builds
from tests.makers import NOON, make_check, make_finished, make_machine, make_session_head, make_verify
from tests.store.folders import make_session

NOW = make_session_head(id="2026-11-21-120000-optimize")
BEFORE = NOON - datetime.timedelta(days=1)


def change(outcome: str = "reverted", digest: str = "d1", run: int = 1, **fields: Any) -> list[Finished]:
    """The steps of a change that was handed back and judged."""
    tried = {
        "number": 1,
        "variant": "cpu",
        "outcome": outcome,
        "reason": "slower",
        "gain": 0.93,
        "files": ("k.c",),
    }
    decision = DecisionOutput(ok=True, message="m", tried=TriedChange.model_validate({**tried, **fields}))
    brief = BriefOutput(ok=True, message="m", edited=True, digest=digest)
    return [
        make_finished("brief", run=run, action="change.brief", output=brief),
        make_finished("decide", run=run, action="change.decide", output=decision),
    ]


def test_a_change_that_was_taken_back_is_a_lost_idea(tmp_path: Path) -> None:
    """It has its gain and its patch; a kept change is not listed."""
    make_session(tmp_path, "2026-11-20-090000-a", *change(), *change("kept", "d2", run=2), started=BEFORE)
    (reverted,) = reverted_changes(tmp_path, NOW)
    assert ("2026-11-20-090000-a", "cpu", 0.93, ("k.c",), "d1") == (
        reverted.session, reverted.variant, reverted.gain, reverted.files, reverted.digest,
    )  # fmt: skip


def test_another_environment_says_nothing(tmp_path: Path) -> None:
    """Another processor, compiler, number of threads, device or target; damaged sessions neither."""
    environments: list[dict[str, Any]] = [
        {"machine": make_machine(processor="Another")},
        {"machine": make_machine(compiler="g++ 14")},
        {"threads": 2},
        {"device": "cuda"},
        {"target": "another"},
    ]
    for index, fields in enumerate(environments):
        make_session(tmp_path, f"2026-11-2{index}-090000-a", *change(), **{"started": BEFORE, **fields})
    broken = make_session(tmp_path, "2026-11-10-090000-a", *change(), started=BEFORE)
    (broken.path / "journal.jsonl").write_text("{\n")
    assert () == reverted_changes(tmp_path, NOW)


DEBUGGED = make_session_head(id="2026-11-21-120000-debug")


def verified(right: bool, **fields: Any) -> Event:
    """The end of a verification."""
    return make_finished(output=make_verify(make_check(right=right)), **fields)


def test_each_variant_of_each_session_is_a_try(tmp_path: Path) -> None:
    """Each try has its build, hypothesis and outcome; failed sessions count as well."""
    make_session(tmp_path, "2026-11-19-090000-a", verified(False), status="failed", hypothesis="sums", ground="g")
    make_session(tmp_path, "2026-11-20-090000-a", verified(True))
    first, second = verified_builds(tmp_path, DEBUGGED)
    assert ("2026-11-19-090000-a", "cpu", "abcdef0123456789") == (first.session, first.variant, first.build_id)
    assert ("sums", "g", False) == (first.hypothesis, first.ground, first.right)
    assert first.message.startswith("3 of 4096 elements wrong")
    assert (True, "", "") == (second.right, second.message, second.hypothesis)
