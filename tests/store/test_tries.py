"""What earlier sessions tried: read from their journals, the last verification of each."""

from pathlib import Path
from typing import Any

from loop.model.debugging import Smallest, SmallestOutput
from loop.model.record import Event
from loop.store.past_changes import tries
from tests.makers import make_check, make_finished, make_session_head, make_verify
from tests.store.folders import make_session

NOW = make_session_head(id="2026-11-21-120000-debug")


def verified(right: bool, **fields: Any) -> Event:
    """The end of a verification."""
    return make_finished(output=make_verify(make_check(right=right)), **fields)


def test_each_variant_of_each_session_is_a_try(tmp_path: Path) -> None:
    """With its build, what was thought, and what came of it; sessions that failed count as well."""
    make_session(tmp_path, "2026-11-19-090000-a", verified(False), status="failed", hypothesis="sums", ground="g")
    make_session(tmp_path, "2026-11-20-090000-a", verified(True))
    first, second = tries(tmp_path, NOW)
    assert ("2026-11-19-090000-a", "cpu", "abcdef0123456789") == (first.session, first.variant, first.build_id)
    assert ("sums", "g", False) == (first.hypothesis, first.ground, first.right)
    assert first.message.startswith("3 of 4096 elements wrong")
    assert (True, "", "") == (second.right, second.message, second.hypothesis)


def test_the_smallest_failing_workload_is_kept(tmp_path: Path) -> None:
    """Where it was looked for."""
    check = make_check("B1 H1 S1 D1 float32", right=False)
    small = Smallest(variant="cpu", check=check, began="w", words="B=1", seed=0, probes=3, minimal=True)
    output = SmallestOutput(ok=True, message="found", smallest=(small,))
    looked = make_finished("smallest", action="debug.smallest", output=output)
    make_session(tmp_path, "2026-11-19-090000-a", verified(False), looked)
    assert ["B1 H1 S1 D1 float32"] == [one.smallest for one in tries(tmp_path, NOW)]


def test_other_targets_devices_and_later_sessions_do_not_count(tmp_path: Path) -> None:
    """Nor does one that verified nothing, or one whose files are damaged."""
    make_session(tmp_path, "2026-11-18-090000-a", verified(False), target="another")
    make_session(tmp_path, "2026-11-18-100000-a", verified(False), device="cuda")
    make_session(tmp_path, "2026-11-18-110000-a", make_finished("build"))
    broken = make_session(tmp_path, "2026-11-18-120000-a", verified(False))
    (broken.path / "session.json").write_text("{")
    make_session(tmp_path, NOW.id)
    make_session(tmp_path, "2026-11-22-090000-a", verified(False))
    assert () == tries(tmp_path, NOW)
