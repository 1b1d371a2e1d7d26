"""The known good: each variant as it was when all gates last passed, on the same ground."""

from pathlib import Path
from typing import Any

import pytest

from loop.gate.known_good import known_good
from loop.learning.unresolved import sessions_needed
from loop.model.measurement import VariantChecks
from loop.model.output import VerifyOutput
from loop.model.record import Event, KnownGood
from tests.makers import make_check, make_finished, make_machine, make_session_head
from tests.store.folders import make_session

NOW = "2026-11-21-120000-baseline"
COMMIT = "0123456789abcdef"
"""That of the maker's head."""


def verified(right: bool = True, **builds: str) -> Event:
    """The end of a verification of these variants with these builds."""
    checks = (make_check(right=right),)
    made = tuple(
        VariantChecks(variant=name, build_id=build_id or None, checks=checks) for name, build_id in builds.items()
    )
    return make_finished(output=VerifyOutput(ok=right, message="verified", variants=made, right=tuple(builds)))


def found(root: Path, id: str = NOW, **head: Any) -> dict[str, KnownGood]:
    """What is known good to a session that begins now."""
    return known_good(root, make_session_head(id=id, **head))


def build_of(root: Path, variant: str = "cpu", **head: Any) -> str | None:
    """The build of a variant that is known good."""
    good = found(root, **head).get(variant)
    return good.build_id if good else None


def test_the_last_session_that_passed_counts(tmp_path: Path) -> None:
    """With its build, its revision and its name."""
    make_session(tmp_path, "2026-11-19-090000-a", verified(cpu="first"))
    make_session(tmp_path, "2026-11-20-090000-a", verified(cpu="second"))
    expected = KnownGood(session="2026-11-20-090000-a", build_id="second", commit=COMMIT, branch="main")
    assert {"cpu": expected} == found(tmp_path)


@pytest.mark.parametrize("status", ["failed", "aborted", "paused", ""])
def test_a_session_that_did_not_pass_is_passed_over(status: str, tmp_path: Path) -> None:
    """Also one that is still open."""
    make_session(tmp_path, "2026-11-19-090000-a", verified(cpu="first"))
    make_session(tmp_path, "2026-11-20-090000-a", verified(cpu="second"), status=status)
    assert "first" == build_of(tmp_path)


@pytest.mark.parametrize(
    "head",
    [{"target": "other"}, {"device": "cuda"}, {"machine": make_machine(processor="Another CPU")}],
    ids=lambda head: next(iter(head)),
)
def test_another_ground_has_another_known_good(head: dict[str, Any], tmp_path: Path) -> None:
    """Target, device and processor have to be the same."""
    make_session(tmp_path, "2026-11-20-090000-a", verified(cpu="there"), **head)
    assert None is build_of(tmp_path)
    assert "there" == build_of(tmp_path, **head)


def test_a_build_that_any_session_found_wrong_is_not_good(tmp_path: Path) -> None:
    """Whichever came first, and however many passed it; one that a failure stands against is kept."""
    wrong = verified(right=False, cpu="second")
    make_session(tmp_path, "2026-11-18-090000-a", verified(cpu="first"))
    make_session(tmp_path, "2026-11-19-090000-edges", wrong, status="failed")
    make_session(tmp_path, "2026-11-20-090000-quick", verified(cpu="second"))
    assert "first" == build_of(tmp_path)
    assert {"2026-11-19-090000-edges", "2026-11-18-090000-a"} <= sessions_needed(tmp_path)
