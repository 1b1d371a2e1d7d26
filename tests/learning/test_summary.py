"""How a session ended, from its records alone."""

from loop.learning.learnings import explain_location, session_status, session_verdicts
from loop.model.change import DecisionOutput, JudgedOutput, TriedChange
from tests.makers import make_check, make_finished, make_measured, make_measurement, make_speed, make_verify


def test_failed_comes_before_aborted_and_paused() -> None:
    """A later status hides no failure; a resume's attempt replaces the earlier one."""
    failed = make_finished("verify", status="failed", message="no")
    aborted, paused = (
        make_finished("a", status="aborted", message="x"),
        make_finished("b", status="paused", message="y"),
    )
    assert ("failed", "baseline-first/verify: no") == session_status([aborted, paused, failed], ())
    assert ("aborted", "baseline-first/a: x") == session_status([paused, aborted], ())
    assert ("paused", "baseline-first/b: y") == session_status([paused], ())
    bad, good = make_verify(make_check(right=False)), make_verify()
    steps = [make_finished(status="failed", output=bad), make_finished(attempt=2, output=good)]
    assert () == session_verdicts(steps)
    assert "passed" == session_status(steps, session_verdicts(steps))[0]


def test_a_regression_fails_a_session_and_nothing_ended_is_no_pass() -> None:
    """Being slower than the baseline is no failure; being slower than the known good is."""
    slow = make_speed("w", "slower", 0.5)
    assert "passed" == session_status([make_finished()], [slow])[0]
    worse = make_speed("w", "slower", 0.5, against="known_good")
    assert ("failed", "cpu is slower than the known good on w") == session_status([make_finished()], [worse])
    assert ("aborted", "no step has ended") == session_status((), ())
    idle = [make_finished(reason, status="skipped", message=reason[0]) for reason in ("a1", "b", "a2")]
    assert ("skipped", "nothing to do: a; b") == session_status(idle, ())


def test_an_incorrect_variant_keeps_no_speed() -> None:
    """Other variants keep their speed."""
    measured = make_measured(make_measurement("w"), make_measurement("w", variant="eager"))
    steps = [
        make_finished(output=make_verify(make_check("v", right=False))),
        make_finished("measure", output=measured),
    ]
    verdicts = session_verdicts(steps)
    assert [("cpu", "incorrect"), ("eager", "faster")] == [(row.variant, row.verdict) for row in verdicts]


def test_a_kept_change_is_what_the_session_speaks_of() -> None:
    """The speed of a kept change replaces the original's; a reverted change replaces nothing."""
    original, kept, reverted = (make_measured(make_measurement("w", ratio)) for ratio in (0.5, 2.5, 0.1))
    decisions = {run: decision(run, kept=run == 2) for run in (2, 3)}
    steps = [make_finished("measure", output=original)]
    for run, output in ((2, kept), (3, reverted)):
        judged = JudgedOutput(ok=True, message="", good=True, found=output.model_dump(mode="json"))
        steps.append(make_finished("measure", run=run, action="change.measure", output=judged))
        steps.append(make_finished("decide", run=run, action="change.decide", output=decisions[run]))
    assert [2.5] == [verdict.ratio for verdict in session_verdicts(steps)]
    assert [0.5] == [verdict.ratio for verdict in session_verdicts(steps[:1])]


def decision(number: int, *, kept: bool) -> DecisionOutput:
    """The output of the decision on a change."""
    tried = TriedChange(number=number, variant="cpu", outcome="kept" if kept else "reverted", reason="r", gain=2.0)
    return DecisionOutput(ok=True, message="", kept=kept, tried=tried)


def test_where_to_look_is_said_with_the_file() -> None:
    """The text has file, message and first failing workload."""
    output = make_verify(make_check("b", right=False))
    finished = [make_finished(status="failed", output=output)]
    assert "Look in cpu.cpp: 3 of 4096 elements wrong on b" == explain_location(finished, "cpu", ["cpu.cpp"])
    assert "" == explain_location(finished, "other", [])
    assert "" == explain_location([make_finished(output=make_verify())], "cpu", [])
