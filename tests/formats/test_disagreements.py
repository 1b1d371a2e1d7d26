"""Two verdicts that differ are explained by what the format says of its own rule; equal ones need nothing."""

import pytest

from loop.formats.model import ForeignTask
from loop.formats.theirs import Verdict, explain_disagreement, verdicts_agree
from loop.model.output import GateVerdict
from tests.formats.test_mistakes import task_of


def task(**changes: object) -> ForeignTask:
    """A task whose rule differs from ours in every way that is known."""
    timing = {"method": "m", "cold_cache": False, "fresh_inputs": False, "checked": False, "score": "s"}
    judging = {"either": True, "atol": 0.01, "rtol": 0.01, "checker": "reference.check"}
    return task_of(timing=timing, judging=judging, **changes)


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("right", "right", True),
        ("wrong", "wrong", True),
        ("right", "wrong", False),
        ("right", "not available", None),
        ("right", "tampered", None),
        ("not judged", "right", None),
    ],
)
def test_two_verdicts_agree_only_where_there_are_two(ours: str, theirs: str, same: bool | None) -> None:
    """A verdict that is not there is neither the same nor another."""
    assert same is verdicts_agree(ours, Verdict.model_validate({"status": theirs}))


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (GateVerdict("wrong", cause="elements"), ("own checker", "same addresses", "fixed seeds", "task.yml:9")),
        (
            GateVerdict("wrong", cause="elements", timed=True),
            ("timed calls; we check", "same inputs", "clear the cache"),
        ),
        (GateVerdict("wrong", cause="changed input"), ("changes its inputs",)),
        (GateVerdict("wrong", cause="NaN"), ("NaN or infinity",)),
    ],
)
def test_what_they_let_pass_is_explained(ours: GateVerdict, words: tuple[str, ...]) -> None:
    """By what we found, then by each rule that is looser than ours and by what is odd about the task."""
    found = explain_disagreement(task(hints=("task.yml:9: an odd value",)), ours, Verdict(status="right"))
    assert len(found) >= len(words)
    for word, cause in zip(words, found, strict=False):
        assert word in cause


def test_what_only_they_reject_is_explained() -> None:
    """By their reference's own type, casts before the call, and a rule that is narrower than ours."""
    found = explain_disagreement(task(dtypes=("int64",)), GateVerdict("right"), Verdict(status="wrong"))
    assert any("its own type" in cause for cause in found)
    assert any("cast whole numbers" in cause for cause in found)
    assert any("the larger of atol and rtol" in cause for cause in found)
