"""Concrete sentences from records, and a next step with a command that can be pasted."""

from loop.learning.learnings import explain_location
from tests.makers import make_check, make_finished, make_verify


def test_where_to_look_is_said_with_the_file() -> None:
    """File, message, first failing workload."""
    output = make_verify(make_check("b", right=False))
    finished = [make_finished(status="failed", output=output)]
    assert "Look in cpu.cpp: 3 of 4096 elements wrong on b" == explain_location(finished, "cpu", ["cpu.cpp"])
    assert "" == explain_location(finished, "other", [])
    assert "" == explain_location([make_finished(output=make_verify())], "cpu", [])
