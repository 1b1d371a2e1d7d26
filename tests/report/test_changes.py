"""The section on changes: what was tried, what came of it, how to take it over."""

from typing import Any

from loop.model.change import Brief, BriefOutput, DecisionOutput, Trial, Tried, TuneOutput
from loop.model.record import Finished
from loop.report.changes import MOST_TRIALS, changes


def finished(run: int, action: str, output: Any, status: str = "passed") -> Finished:
    """A record of a step."""
    fields = {"run": run, "pattern": "p", "step": action.split(".")[1], "seconds": 1.0, "budget_s": 1.0}
    dumped = output.model_dump(mode="json")
    return Finished(status=status, message="", action=action, output=dumped, **fields)  # type: ignore[arg-type]


def decision(number: int, *, kept: bool, branch: str = "") -> DecisionOutput:
    """A change that was judged."""
    outcome = "kept" if kept else "reverted"
    fields: dict[str, Any] = {"number": number, "variant": "cpu", "outcome": outcome, "reason": "because"}
    tried = Tried(**fields, gain=1.5 if kept else None, files=("a.h",), patch=f"{number}.patch")
    return DecisionOutput(ok=True, message="", kept=kept, tried=tried, branch=branch)


def test_every_change_has_a_row_and_a_patch() -> None:
    """What was not timed has no speed; what was kept can be merged."""
    records = [
        finished(1, "change.decide", decision(1, kept=False)),
        finished(2, "change.decide", decision(2, kept=True, branch="loop/x")),
    ]
    found = changes(records)
    assert found.table is not None
    assert [("1", "reverted", "not timed"), ("2", "kept", "1.50x")] == [
        (row[0], row[3], row[4]) for row in found.table.rows
    ]
    assert "What was kept stands on a branch: `git merge loop/x`" == found.lines[0]
    assert "`git apply 1.patch`" in found.lines[1]


def test_what_is_waited_for_is_said() -> None:
    """The last step is paused."""
    words = dict.fromkeys(("title", "workload", "rule", "resume", "decline"), "x")
    asked = Brief(number=3, variant="cpu", profile=None, folder="/tree", files=(), timed=(), **words)
    output = BriefOutput(ok=True, message="", brief=asked)
    found = changes([finished(1, "change.brief", output, "paused")])
    assert ("Waiting for change 3, to cpu, in `/tree`",) == found.lines


def test_a_search_lists_its_best_points() -> None:
    """Fastest first; the rest is counted."""
    points = [
        Trial(tuning="tile", values={"rows": n}, outcome="timed", ratio=1 + n / 100, worst=1.0) for n in range(20)
    ]
    refused = Trial(tuning="tile", values={"rows": 99}, outcome="refused", reason="too large")
    found = changes([finished(1, "change.tune", TuneOutput(ok=True, message="", trials=(*points, refused)))])
    (search,) = found.trials
    assert search.table is not None
    assert ("rows 19", "1.19x") == (search.table.rows[0][0], search.table.rows[0][2])
    assert MOST_TRIALS == len(search.table.rows)
    assert f"{21 - MOST_TRIALS} more are in the journal" == search.more


def test_a_session_without_changes_has_no_section() -> None:
    """Nothing to show."""
    found = changes([])
    assert (None, (), ()) == (found.table, found.trials, found.lines)
