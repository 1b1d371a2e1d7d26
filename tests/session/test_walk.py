"""The walk: steps in order, outcomes answered, and limits kept."""

import errno
import re
from dataclasses import replace
from pathlib import Path

import psutil

from loop.base.errors import UsageError
from loop.base.processes import Tick
from loop.model.output import CommandOutput
from loop.model.plan import Pattern
from loop.session.walk import PatternBegan, PatternEnded, StepBegan, StepEnded, Ticked
from loop.steps.context import Context, RunningAction
from tests.makers import make_session_head
from tests.session.walks import Behaviour, Clock, Walked, at_once, found, make_step, pattern, walk, walking


def failing(error: BaseException) -> Behaviour:
    """Raise."""

    def act(context: Context) -> RunningAction[CommandOutput]:
        yield Tick("at it")
        raise error

    return act


def test_steps_come_in_order_pattern_by_pattern(context: Context) -> None:
    """Each step begins after the previous one has ended, and its event holds its place."""
    first = pattern("first", make_step("a"), make_step("b"))
    walked = walk(context, first, pattern("second", make_step("c")))
    assert ["a passed", "b passed", "c passed"] == walked.steps
    assert ["a 1", "b 1", "c 1"] == walked.done
    places = [(e.index, e.of, e.name) for e in walked.events if isinstance(e, PatternBegan)]
    assert [(1, 2, "first"), (2, 2, "second")] == places
    kinds = [type(event) for event in walked.events if not isinstance(event, Ticked)]
    step = [StepBegan, StepEnded]
    assert [PatternBegan, *step, *step, PatternEnded, PatternBegan, *step, PatternEnded] == kinds


def test_a_failed_step_stops_the_chain(context: Context) -> None:
    """No later step runs, in this pattern or the next; the reason names the failed step."""
    stopping = pattern("one", make_step("a", "echo no; exit 3"), make_step("b"))
    walked = walk(context, stopping, pattern("two", make_step("c")))
    assert ["a failed"] == walked.steps
    assert "one/a: exit 3: no" == walked.walk.stop_reason


def test_a_step_is_skipped_when_its_condition_is_false(context: Context) -> None:
    """The message says why; later steps see a missing output."""
    steps = (
        make_step("a"),
        make_step("b", when="a.code != 0"),
        make_step("c", when="b.code == 0"),
        make_step("d", when="device == 'cpu' and target == 'tiny' and session.usd == 3 and passed"),
    )
    walked = walk(context, pattern("one", *steps))
    assert ["a passed", "b skipped", "c skipped", "d passed"] == walked.steps
    assert "only when a.code != 0" == walked.ended[1].message
    assert "step b did not run" == walked.ended[2].message


def test_a_false_gate_fails_a_step_that_went_well(context: Context) -> None:
    """The gate is quoted, the cure named."""
    step = make_step("a", "echo fine", gate="a.seconds > 100", mend="wait longer")
    record = walk(context, pattern("one", step)).record
    assert ("failed", "gate `a.seconds > 100` is false: fine") == (record.status, record.message)
    assert "wait longer" == record.hint


def test_an_answer_comes_next(context: Context) -> None:
    """The answer runs before the listed patterns, and a stopped chain continues after it."""
    answered = pattern("one", make_step("a", "false"), answers=[{"when": "failed", "pattern": "cure"}])
    patterns = (answered, pattern("two", make_step("b")), pattern("cure", make_step("c")))
    walked = walk(context, *patterns, listed=("one", "two"))
    assert ["one", "cure", "two"] == walked.chain
    assert ["cure", None, None] == [e.answered_by for e in walked.events if isinstance(e, PatternEnded)]
    assert walked.walk.stop_reason is None


def test_a_chain_that_returns_to_itself_ends(context: Context) -> None:
    """An answer runs at most `visits` times."""
    looping = pattern("one", make_step("a"), answers=[{"when": "passed", "pattern": "one", "visits": 3}])
    walked = walk(context, looping)
    assert ["one"] * 4 == walked.chain
    assert [1, 2, 3, 4] == [record.run for record in walked.ended]


def test_a_step_over_its_limit_is_killed_with_its_children(context: Context, tmp_path: Path) -> None:
    """The step fails, whatever its gate says."""
    script = f"sleep 60 & echo $! > {tmp_path}/pid; wait"
    step = make_step("a", script, budget_s=0.1, limit_s=0.3, mend="be quicker")
    record = walk(context, pattern("one", step)).record
    assert ("failed", "be quicker") == (record.status, record.hint)
    assert re.match(r"killed after \d+\.\d s: ", record.message)
    assert 0.3 <= record.seconds < 5
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_step_without_work_is_skipped_with_its_reason(context: Context, behave: dict[str, Behaviour]) -> None:
    """Its output stays for later steps; one that does not pass its gate fails even so."""
    behave["idle"] = at_once(replace(found(), idle=True))
    behave["bad"] = at_once(replace(found(ok=False), idle=True))
    steps = (make_step("a", "idle"), make_step("b", "idle", when="a.ok"), make_step("c", "bad"))
    walked = walk(context, pattern("one", *steps))
    assert ["a skipped", "b skipped", "c failed"] == walked.steps
    assert ("done", "done") == (walked.ended[0].skipped_because, walked.ended[0].message)


def test_any_other_error_is_a_bug_and_ends_nothing_else(context: Context, behave: dict[str, Behaviour]) -> None:
    """Its traceback is in the record, and the walk knows."""
    behave |= {"x": failing(ZeroDivisionError("by zero")), "y": at_once(found())}
    steps = (make_step("a", "x", on_fail="continue"), make_step("b", "y"))
    walked = walk(context, pattern("one", *steps))
    assert ["a failed", "b passed"] == walked.steps
    record = walked.ended[0]
    assert "bug in loop: ZeroDivisionError: by zero" == record.message
    assert "Traceback" in record.output["traceback"]
    assert walked.walk.has_bug


def test_a_heartbeat_comes_after_thirty_silent_seconds(context: Context, behave: dict[str, Behaviour]) -> None:
    """Heartbeats repeat every thirty seconds; ticks between them are no heartbeats."""
    clock = Clock()

    def work(now: Context) -> RunningAction[CommandOutput]:
        for _ in range(7):
            clock.now += 10.0
            yield Tick("working")
        return found()

    behave["x"] = work
    walked = walk(context, pattern("one", make_step("a", "x", limit_s=500.0)), clock=clock)
    beats = [(event.seconds, event.heartbeat) for event in walked.events if isinstance(event, Ticked)]
    assert [30.0, 60.0] == [seconds for seconds, heartbeat in beats if heartbeat]
    assert 7 == len(beats)
    assert (70.0, 30.0) == (walked.record.seconds, walked.record.longest_silence_s)


def test_a_step_that_met_a_full_disk_is_paused_not_failed(
    context: Context, behave: dict[str, Behaviour], tmp_path: Path
) -> None:
    """No answer and no later step runs, it is no bug, and the hint says what to do."""
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "x"))
    wrapped = UsageError("cannot be written", hint="choose another folder")
    wrapped.__cause__ = full
    for error in (full, wrapped, MemoryError()):
        behave["x"] = failing(error)
        answer = {"when": "failed", "pattern": "two"}
        first = pattern("one", make_step("a", "x"), make_step("b", "x"), answers=[answer])
        walked = walk(context, first, pattern("two", make_step("c", "x")), listed=["one"])
        assert ["a paused"] == walked.steps
        assert (True, False) == (walked.walk.is_paused, walked.walk.has_bug)
        assert walked.walk.failure is not None
        assert f"{walked.walk.failure.hint}; then run the same command again" == walked.record.hint


def test_stop_if_ends_the_walk_after_the_step_that_makes_it_true(context: Context) -> None:
    """No further step runs, and no outcome is answered; finished steps keep their status."""
    loud = pattern("loud", make_step("a"), make_step("b"), answers=[{"when": "passed", "pattern": "quiet"}])
    walked = aimed(context, loud, pattern("quiet", make_step("c")), stop_if="session.minutes >= 0")
    assert ["a passed"] == walked.steps
    assert (True, None) == (walked.walk.is_stop_reached, walked.walk.stop_reason)


def test_a_pattern_answers_a_missed_objective_once_at_the_end(context: Context) -> None:
    """It is run after the listed ones, and not where the objective is reached."""
    both = pattern("first", make_step("a")), pattern("other", make_step("b"))
    missed = aimed(context, *both, success="best.ratio >= 1", otherwise="other")
    assert ["a passed", "b passed"] == missed.steps
    assert ["a passed"] == aimed(context, *both, success="wrong == []", otherwise="other").steps


def aimed(context: Context, *patterns: Pattern, **aims: str) -> Walked:
    """A walk over the first pattern of a plan with these fields of an objective."""
    walked = walking(context, *patterns, listed=[patterns[0].name])
    plan = walked.walk.resolved.plan.model_copy(update=aims)
    walked.walk.resolved = walked.walk.resolved.model_copy(update={"plan": plan})
    walked.walk.head = make_session_head(plan=walked.walk.resolved, variants=("cpu",))
    return walked.to_its_end()


def test_a_gate_that_has_no_answer_fails(context: Context) -> None:
    """A gate on a missing value fails its step."""
    record = walk(context, pattern("one", make_step("a", gate="a.output > 1"))).record
    assert "failed" == record.status
    assert record.message.startswith("gate `a.output > 1`: ")
