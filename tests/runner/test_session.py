"""The walk: steps in order, outcomes answered, limits kept, and a resume that repeats no more than it must."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from loop.actions import ACTIONS, Context, Result
from loop.errors import LoopError, Stopped
from loop.model.output import CommandOutput
from loop.model.pattern import Pattern
from loop.model.plan import ResolvedPlan
from loop.model.record import Finished, Started
from loop.processes import Tick
from loop.runner.events import Happening, PatternBegan, PatternEnded, StepBegan, StepEnded, Ticked
from loop.runner.session import StepTimer, Walk
from tests.makers import make_finished, make_machine, make_pattern, make_plan
from tests.targets import compiled, open_bench, write_target

Behaviour = Callable[[Context], Generator[Tick, None, Result]]


def make_step(name: str, run: str = "true", **fields: Any) -> dict[str, Any]:
    """A step that runs a command."""
    base = {"id": name, "title": name, "action": "command.run", "with": {"run": run}, "budget_s": 5.0}
    return {**base, **fields}


def pattern(name: str, *steps: dict[str, Any], answers: Sequence[dict[str, Any]] = ()) -> Pattern:
    """A pattern of these steps and answers."""
    return Pattern.model_validate({**make_pattern(name).model_dump(), "steps": steps, "next": tuple(answers)})


def plan_of(*patterns: Pattern, listed: Sequence[str] = ()) -> ResolvedPlan:
    """A resolved plan that lists these patterns, or only those named."""
    made = make_plan(*patterns)
    names = tuple(listed) or made.plan.patterns
    return made.model_copy(update={"plan": made.plan.model_copy(update={"patterns": names})})


@dataclass
class Clock:
    """A clock that only moves when it is told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Walked:
    """A walk and everything it told."""

    walk: Walk
    events: list[Happening] = field(default_factory=list)

    def to_its_end(self) -> "Walked":
        """Walk until nothing is left."""
        self.events += self.walk.events()
        return self

    def until(self, step: str) -> "Walked":
        """Walk until a step has begun, and be killed there."""
        walking = self.walk.events()
        for event in walking:
            self.events.append(event)
            if isinstance(event, StepBegan) and event.started.step == step:
                walking.close()
                return self
        raise AssertionError(f"{step} never began")

    @property
    def ended(self) -> list[Finished]:
        """Records of the steps that ended now or before."""
        return [event.finished for event in self.events if isinstance(event, StepEnded)]

    @property
    def record(self) -> Finished:
        """The only one."""
        (record,) = self.ended
        return record

    @property
    def steps(self) -> list[str]:
        """Each step with how it ended."""
        return [f"{record.step} {record.status}" for record in self.ended]

    @property
    def chain(self) -> list[str]:
        """The patterns in the order in which they were walked."""
        return [event.name for event in self.events if isinstance(event, PatternBegan)]

    @property
    def done(self) -> list[str]:
        """The steps that were really done, with their attempt."""
        return [f"{e.started.step} {e.started.attempt}" for e in self.events if isinstance(e, StepBegan)]

    def resumed(self, context: Context | None = None) -> "Walked":
        """A walk that goes on from what the journal holds after this one."""
        walk = self.walk
        written = [event.finished for event in self.events if isinstance(event, StepEnded) and not event.replayed]
        begun = [event.started for event in self.events if isinstance(event, StepBegan)]
        return Walked(
            replace(
                walk,
                context=context or walk.context,
                earlier=[*walk.earlier, *written],
                begun=[*walk.begun, *begun],
                finished=[],
                stopped=None,
            )
        )


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """A session on the tiny target; nothing of it is built."""
    target = write_target(tmp_path / "tiny", {"right": compiled(), "other": compiled()})
    with open_bench(tmp_path / "tiny", target, tmp_path) as bench:
        plan, machine = make_plan().plan, make_machine()
        yield Context(bench, plan, ("right", "other"), machine, seed=1, folder=tmp_path / "tiny", session="s-1")


@pytest.fixture
def behave(monkeypatch: pytest.MonkeyPatch) -> dict[str, Behaviour]:
    """Commands by name that do what a test gives them to do, in place of the shell."""
    behaviours: dict[str, Behaviour] = {}

    def run(context: Context, arguments: Any) -> Generator[Tick, None, Result]:
        return (yield from behaviours[arguments.run](context))

    monkeypatch.setitem(ACTIONS, "command.run", replace(ACTIONS["command.run"], run=run))
    return behaviours


def walking(context: Context, *patterns: Pattern, listed: Sequence[str] = (), **fields: Any) -> Walked:
    """A walk over these patterns."""
    facts = {"minutes": 1.0, "usd": 0.5, "speedup": None, "regressed": False}
    plan = plan_of(*patterns, listed=listed)
    return Walked(Walk(plan, context, lambda finished: {**facts, "usd": float(len(finished))}, **fields))


def walk(context: Context, *patterns: Pattern, listed: Sequence[str] = (), **fields: Any) -> Walked:
    """The same, walked to its end."""
    return walking(context, *patterns, listed=listed, **fields).to_its_end()


def found(ok: bool = True, **fields: Any) -> Result:
    """What a command found."""
    return Result(CommandOutput(ok=ok, message="done", **fields))


def at_once(result: Result) -> Behaviour:
    """Find something without waiting."""

    def act(context: Context) -> Generator[Tick, None, Result]:
        yield Tick("at it")
        return result

    return act


def failing(error: BaseException) -> Behaviour:
    """Raise."""

    def act(context: Context) -> Generator[Tick, None, Result]:
        yield Tick("at it")
        raise error

    return act


def test_steps_come_in_order_pattern_by_pattern(context: Context) -> None:
    """Each begins after the one before has ended, and tells its place."""
    first = pattern("first", make_step("a"), make_step("b"))
    walked = walk(context, first, pattern("second", make_step("c")))
    assert ["a passed", "b passed", "c passed"] == walked.steps
    assert ["a 1", "b 1", "c 1"] == walked.done
    places = [(e.index, e.of, e.name) for e in walked.events if isinstance(e, PatternBegan)]
    assert [(1, 2, "first"), (2, 2, "second")] == places
    kinds = [type(event) for event in walked.events if not isinstance(event, Ticked)]
    step = [StepBegan, StepEnded]
    assert [PatternBegan, *step, *step, PatternEnded, PatternBegan, *step, PatternEnded] == kinds


def test_a_command_sees_the_session(context: Context) -> None:
    """In the target's folder, by its environment."""
    script = 'echo "$LOOP_SESSION $LOOP_DEVICE $LOOP_VARIANTS $MINE"; test "$LOOP_TARGET" = "$PWD"'
    step = {**make_step("a"), "with": {"run": script, "environment": {"MINE": "7"}}}
    assert "s-1 cpu right other 7" == walk(context, pattern("one", step)).record.message


def test_a_failed_step_stops_the_chain(context: Context) -> None:
    """Nothing after it is done, in this pattern or the next; the reason names it."""
    one = pattern("one", make_step("a", "echo no; exit 3"), make_step("b"))
    walked = walk(context, one, pattern("two", make_step("c")))
    assert ["a failed"] == walked.steps
    assert "one/a: exit 3: no" == walked.walk.stopped


def test_a_failed_step_may_be_passed_over(context: Context) -> None:
    """`continue` goes on with the next step; the pattern has failed all the same."""
    one = pattern("one", make_step("a", "false", on_fail="continue"), make_step("b"))
    walked = walk(context, one, pattern("two", make_step("c")))
    assert ["a failed", "b passed", "c passed"] == walked.steps
    assert ["failed", "passed"] == [e.status for e in walked.events if isinstance(e, PatternEnded)]
    assert walked.walk.stopped is None


def test_a_failed_step_may_end_its_pattern_only(context: Context) -> None:
    """`skip_pattern` leaves it and goes on with the next."""
    one = pattern("one", make_step("a", "false", on_fail="skip_pattern"), make_step("b"))
    assert ["a failed", "c passed"] == walk(context, one, pattern("two", make_step("c"))).steps


def test_a_step_is_skipped_when_its_condition_is_false(context: Context) -> None:
    """The condition is quoted; later steps see that there is no output."""
    steps = (
        make_step("a"),
        make_step("b", when="a.code != 0"),
        make_step("c", when="b.code == 0"),
        make_step("d", when="device == 'cpu' and target == 'tiny' and session.usd == 3 and passed"),
    )
    walked = walk(context, pattern("one", *steps))
    assert ["a passed", "b skipped", "c skipped", "d passed"] == walked.steps
    assert "skipped: not a.code != 0" == walked.ended[1].message
    assert walked.ended[2].message.startswith("skipped: `b.code == 0`: ")


def test_a_false_gate_fails_a_step_that_went_well(context: Context) -> None:
    """The gate is quoted, the cure named."""
    step = make_step("a", "echo fine", gate="a.seconds > 100", mend="wait longer")
    record = walk(context, pattern("one", step)).record
    assert ("failed", "gate `a.seconds > 100` is false: fine") == (record.status, record.message)
    assert "wait longer" == record.hint


def test_a_true_gate_passes_a_step_that_found_something(context: Context) -> None:
    """The gate decides where there is one."""
    assert "passed" == walk(context, pattern("one", make_step("a", "exit 3", gate="a.code == 3"))).record.status


def test_a_gate_that_has_no_answer_fails(context: Context) -> None:
    """It is never guessed."""
    record = walk(context, pattern("one", make_step("a", gate="a.output > 1"))).record
    assert "failed" == record.status
    assert record.message.startswith("gate `a.output > 1`: ")


def test_an_answer_comes_next(context: Context) -> None:
    """Before what was listed, and a stopped chain goes on after it."""
    one = pattern("one", make_step("a", "false"), answers=[{"when": "failed", "pattern": "cure"}])
    patterns = (one, pattern("two", make_step("b")), pattern("cure", make_step("c")))
    walked = walk(context, *patterns, listed=("one", "two"))
    assert ["one", "cure", "two"] == walked.chain
    assert ["cure", None, None] == [e.answered_by for e in walked.events if isinstance(e, PatternEnded)]
    assert walked.walk.stopped is None


def test_a_listed_answer_is_brought_forward(context: Context) -> None:
    """It is walked once, not again in its old place."""
    one = pattern("one", make_step("a"), answers=[{"when": "a.ok", "pattern": "three"}])
    patterns = (one, pattern("two", make_step("b")), pattern("three", make_step("c")))
    assert ["one", "three", "two"] == walk(context, *patterns).chain


def test_the_first_answer_whose_condition_holds_is_taken(context: Context) -> None:
    """One that asks about a step that never ran does not hold."""
    answers = [
        {"when": "b.ok", "pattern": "two"},
        {"when": "passed", "pattern": "two"},
        {"when": "failed and a.code == 3", "pattern": "three"},
        {"when": "failed", "pattern": "two"},
    ]
    one = pattern("one", make_step("a", "exit 3"), make_step("b"), answers=answers)
    patterns = (one, pattern("two", make_step("c")), pattern("three", make_step("d")))
    assert ["one", "three"] == walk(context, *patterns, listed=("one",)).chain


def test_a_chain_that_returns_to_itself_ends(context: Context) -> None:
    """Each answer is given as often as it may be, and no more."""
    one = pattern("one", make_step("a"), answers=[{"when": "passed", "pattern": "one", "visits": 3}])
    walked = walk(context, one)
    assert ["one"] * 4 == walked.chain
    assert [1, 2, 3, 4] == [record.run for record in walked.ended]


def test_two_patterns_that_answer_each_other_end(context: Context) -> None:
    """The limit is by answer, not by pattern."""
    one = pattern("one", make_step("a"), answers=[{"when": "passed", "pattern": "two"}])
    two = pattern("two", make_step("b"), answers=[{"when": "passed", "pattern": "one"}])
    assert ["one", "two", "one"] == walk(context, one, two, listed=("one",)).chain


def test_a_step_over_its_limit_is_killed_with_its_children(context: Context, tmp_path: Path) -> None:
    """It fails, whatever its gate says of what it never found."""
    script = f"sleep 60 & echo $! > {tmp_path}/pid; wait"
    step = make_step("a", script, budget_s=0.1, limit_s=0.3, mend="be quicker")
    record = walk(context, pattern("one", step)).record
    assert ("failed", "be quicker") == (record.status, record.hint)
    assert record.message.startswith("killed after 0.3 s")
    assert 0.3 <= record.seconds < 5
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_limit_is_ten_budgets_and_at_least_a_minute() -> None:
    """Unless the pattern says otherwise."""
    steps = [make_step("a", budget_s=1.0), make_step("b", budget_s=20.0), make_step("c", limit_s=3.0)]
    assert [60.0, 200.0, 3.0] == [step.kill_after_s for step in pattern("one", *steps).steps]


def test_what_a_user_can_mend_is_a_failed_step(context: Context, behave: dict[str, Behaviour]) -> None:
    """With the hint of the error, unless the pattern knows better; the session goes on."""
    behave["x"] = failing(LoopError("no disk", hint="buy one"))
    steps = (make_step("a", "x", on_fail="continue"), make_step("b", "x", mend="lend one"))
    walked = walk(context, pattern("one", *steps))
    assert [("failed", "no disk", "buy one"), ("failed", "no disk", "lend one")] == [
        (record.status, record.message, record.hint) for record in walked.ended
    ]
    assert not walked.walk.bug


def test_any_other_error_is_a_bug_and_ends_nothing_else(context: Context, behave: dict[str, Behaviour]) -> None:
    """Its traceback is in the record, and the walk knows."""
    behave |= {"x": failing(ZeroDivisionError("by zero")), "y": at_once(found())}
    steps = (make_step("a", "x", on_fail="continue"), make_step("b", "y"))
    walked = walk(context, pattern("one", *steps))
    assert ["a failed", "b passed"] == walked.steps
    record = walked.ended[0]
    assert "bug in loop: ZeroDivisionError: by zero" == record.message
    assert "Traceback" in record.output["traceback"]
    assert walked.walk.bug


def test_an_interruption_is_caught_by_no_step(context: Context, behave: dict[str, Behaviour]) -> None:
    """It goes to whoever drives the walk."""
    behave["x"] = failing(Stopped("interrupted by SIGINT", 130))
    with pytest.raises(Stopped, match="interrupted by SIGINT"):
        walk(context, pattern("one", make_step("a", "x", on_fail="continue")))


def test_leaving_the_walk_ends_what_runs(context: Context, tmp_path: Path) -> None:
    """Whoever stops asking for events leaves no process behind."""
    walking_on = walking(
        context, pattern("one", make_step("a", f"echo $$ > {tmp_path}/pid; sleep 60"))
    ).walk.events()
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        next(walking_on)
    walking_on.close()
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_an_action_knows_its_budget_and_what_has_ended(context: Context, behave: dict[str, Behaviour]) -> None:
    """The context it is given is that of the moment."""
    seen: list[tuple[float, float, list[str], int]] = []

    def look(now: Context) -> Generator[Tick, None, Result]:
        yield Tick("looking")
        latest = now.latest("command.run")
        seen.append(
            (now.budget_s, now.kill_after_s, [r.step for r in now.finished], latest["code"] if latest else -1)
        )
        return found(code=len(seen))

    behave["x"] = look
    walk(context, pattern("one", make_step("a", "x", budget_s=7.0), make_step("b", "x", limit_s=9.0)))
    assert [(7.0, 70.0, [], -1), (5.0, 9.0, ["a"], 1)] == seen


def test_a_heartbeat_comes_after_thirty_silent_seconds(context: Context, behave: dict[str, Behaviour]) -> None:
    """Then again after thirty more; ticks between them are no heartbeats."""
    clock = Clock()

    def work(now: Context) -> Generator[Tick, None, Result]:
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


def test_the_longest_silence_is_in_the_record() -> None:
    """Between two signs of life, the last of which is the end."""
    clock = Clock()
    timer = StepTimer(clock)
    for step in (5.0, 26.0, 45.0):
        clock.now += step
        timer.tick()
    clock.now += 12.0
    assert {"seconds": 88.0, "longest_silence_s": 45.0} == timer.end()


def test_an_action_that_never_ticks_is_silent_all_along(context: Context, behave: dict[str, Behaviour]) -> None:
    """The audit will say so."""
    clock = Clock()

    def sulk(now: Context) -> Generator[Tick, None, Result]:
        clock.now += 50.0
        yield from ()
        return found()

    behave["x"] = sulk
    assert 50.0 == walk(context, pattern("one", make_step("a", "x")), clock=clock).record.longest_silence_s


def three_steps(context: Context) -> Walked:
    """A walk over a, b and c in two patterns."""
    return walking(
        context, pattern("one", make_step("a", "a"), make_step("b", "b")), pattern("two", make_step("c", "c"))
    )


@pytest.fixture
def steady(behave: dict[str, Behaviour]) -> dict[str, Behaviour]:
    """Steps a, b and c that pass and stand on nothing."""
    behave |= {name: at_once(found()) for name in "abc"}
    return behave


@pytest.mark.parametrize("step", ["a", "b", "c"])
def test_a_resume_repeats_the_open_step_and_nothing_before_it(
    step: str, context: Context, steady: dict[str, Behaviour]
) -> None:
    """What had ended is replayed, the open step is attempt two, the rest is new."""
    killed = three_steps(context).until(step)
    resumed = killed.resumed().to_its_end()
    expected = [f"{name} {2 if name == step else 1}" for name in "abc" if name >= step]
    assert expected == resumed.done
    assert ["a passed", "b passed", "c passed"] == resumed.steps
    replayed = [e.finished.step for e in resumed.events if isinstance(e, StepEnded) and e.replayed]
    assert [name for name in "abc" if name < step] == replayed


def test_a_walk_that_is_killed_again_and_again_gets_there(context: Context, steady: dict[str, Behaviour]) -> None:
    """Each attempt is counted."""
    walked = three_steps(context).until("b")
    for _ in range(3):
        walked = walked.resumed().until("b")
    assert ["b 5", "c 1"] == walked.resumed().to_its_end().done


def test_an_aborted_step_is_repeated(context: Context, steady: dict[str, Behaviour]) -> None:
    """Its record says that it never came to an end."""
    killed = three_steps(context).until("b")
    resumed = killed.resumed()
    fields = {"run": 1, "pattern": "one", "action": "command.run", "status": "aborted"}
    resumed.walk = replace(resumed.walk, earlier=[*resumed.walk.earlier, make_finished("b", **fields)])
    assert ["b 2", "c 1"] == resumed.to_its_end().done


def test_a_step_that_failed_before_the_kill_has_failed(context: Context, steady: dict[str, Behaviour]) -> None:
    """A resume replays it with its consequences."""
    steady["a"] = at_once(found(ok=False))
    one = pattern("one", make_step("a", "a"), answers=[{"when": "failed", "pattern": "two"}])
    killed = walking(context, one, pattern("two", make_step("c", "c")), listed=("one",)).until("c")
    resumed = killed.resumed().to_its_end()
    assert (["one", "two"], ["c 2"]) == (resumed.chain, resumed.done)


def test_a_step_that_stands_on_something_is_repeated(context: Context, steady: dict[str, Behaviour]) -> None:
    """A build, for one: where it finds the same, what followed still stands."""
    steady["a"] = at_once(found(identity="sources 1"))
    resumed = three_steps(context).until("c").resumed().to_its_end()
    assert ["a 2", "c 2"] == resumed.done


def change(steady: dict[str, Behaviour], identity: str) -> None:
    """From now on step a stands on this."""
    steady["a"] = at_once(found(identity=identity))


def test_a_change_discards_what_stood_on_it(context: Context, steady: dict[str, Behaviour]) -> None:
    """Sources that were edited between the walks: everything after the build is done again."""
    change(steady, "sources 1")
    killed = three_steps(context).until("c")
    change(steady, "sources 2")
    assert ["a 2", "b 2", "c 2"] == killed.resumed().to_its_end().done


def test_a_change_is_not_forgotten_by_the_next_resume(context: Context, steady: dict[str, Behaviour]) -> None:
    """Killed again right after the change: the old records stay discarded."""
    change(steady, "sources 1")
    first = three_steps(context).until("c")
    change(steady, "sources 2")
    second = first.resumed().until("b")
    assert ["a 3", "b 3", "c 2"] == second.resumed().to_its_end().done


def test_a_change_seen_by_an_aborted_step_still_counts(context: Context, steady: dict[str, Behaviour]) -> None:
    """The build was interrupted in between: what it stood on before is what the next one is compared with."""
    change(steady, "sources 1")
    first = three_steps(context).until("c")
    second = first.resumed().until("a").resumed()
    fields = {"run": 1, "pattern": "one", "action": "command.run", "status": "aborted"}
    second.walk = replace(second.walk, earlier=[*second.walk.earlier, make_finished("a", **fields)])
    change(steady, "sources 2")
    assert ["a 3", "b 2", "c 2"] == second.to_its_end().done


def test_what_was_done_anew_is_reused(context: Context, steady: dict[str, Behaviour]) -> None:
    """After a change and a second kill, only the open step and the build are done again."""
    change(steady, "sources 1")
    first = three_steps(context).until("c")
    change(steady, "sources 2")
    second = first.resumed().until("c")
    assert ["a 3", "c 3"] == second.resumed().to_its_end().done


def test_a_skipped_step_is_not_asked_again(context: Context, steady: dict[str, Behaviour]) -> None:
    """It was decided once."""
    one = pattern("one", make_step("a", "a"), make_step("b", "b", when="failed"), make_step("c", "c"))
    resumed = walking(context, one).until("c").resumed().to_its_end()
    assert (["a passed", "b skipped", "c passed"], ["c 2"]) == (resumed.steps, resumed.done)


def test_started_tells_what_is_about_to_happen(context: Context) -> None:
    """Title, place and budget, before the step runs."""
    walked = walk(context, pattern("one", make_step("a"), make_step("b", title="The second", budget_s=3.0)))
    started = [event.started for event in walked.events if isinstance(event, StepBegan)][1]
    expected = Started(run=1, pattern="one", step="b", title="The second", index=2, of=2, budget_s=3.0)
    assert expected == started
