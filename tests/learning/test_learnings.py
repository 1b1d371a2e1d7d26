"""Concrete sentences from records, and a next step with a command that can be pasted."""

from loop.learning.learnings import explain_location, learned_sentences
from tests.makers import make_check, make_finished, make_measured, make_measurement, make_verify


def test_a_ratio_made_by_noise_is_nobodys_best() -> None:
    """Only judged workloads are compared, and a scatter beyond all use is called so."""
    wild, good = make_measurement("wild", 4.0, interval=(0.1, 90.0)), make_measurement("good", 1.5)
    found = learned_sentences([make_finished("measure", output=make_measured(wild, good, block_sd=3.3))])
    assert "cpu could not be judged on 1 of 2 workloads." in found
    assert "cpu runs at 1.50x [1.45, 1.55] of the baseline's speed on good." in found
    assert any(sentence.startswith("The machine was too disturbed to judge") for sentence in found)


def test_where_to_look_is_said_with_the_file() -> None:
    """File, message, first failing workload."""
    output = make_verify(make_check("b", right=False))
    finished = [make_finished(status="failed", output=output)]
    assert "Look in cpu.cpp: 3 of 4096 elements wrong on b" == explain_location(finished, "cpu", ["cpu.cpp"])
    assert "" == explain_location(finished, "other", [])
    assert "" == explain_location([make_finished(output=make_verify())], "cpu", [])
